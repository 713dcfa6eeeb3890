//! Copies the results of finished packets into the submission, from the memory that the device
//! accesses.

use godwit_abi::Bin;
use godwit_packet::Region;
use godwit_sched::Chunk;

use super::launch::Events;
use super::slot::{DESCRIPTORS, OUTCOMES, Slot, TRAILS};
use crate::bytes::get;
use crate::check::packets_of;
use crate::device::BinTime;
use crate::program::AccessNeeds;
use crate::transfer::unpack;

/// Copies the results of a finished launch into the submission.
pub(super) fn read(slot: &Slot, needs: &[AccessNeeds], region: &mut Region, chunk: &mut Chunk) {
    let [descriptors, outcomes, trails] = [DESCRIPTORS, OUTCOMES, TRAILS].map(|array| slot.ranges[array].start);
    for bin in &chunk.bins {
        let packets = packets_of(bin);
        let first = packets.start;
        get(&slot.memory, descriptors, first, &mut chunk.descriptors[packets.clone()]);
        get(&slot.memory, outcomes, first, &mut chunk.outcomes[packets.clone()]);
        if chunk.ran_chain {
            get(&slot.memory, trails, first, &mut chunk.trails[packets]);
        }
    }
    let own = slot.own.as_ref().filter(|own| !own.packed.is_empty());
    if let Some((own, staging)) = own.and_then(|own| Some((own, own.staging.as_ref()?))) {
        unpack(chunk, region, needs, &staging.host, &own.packed);
    }
}

/// Divides the time of a launch between its batches of packets. Leaves `times` empty if the driver
/// did not measure the time.
pub(super) fn bin_times(events: Option<&Events>, bins: &[Bin], times: &mut Vec<BinTime>) {
    times.clear();
    let Some(Events { launched, .. }) = events else { return };
    if let (Ok(started), Ok(finished)) = (launched.profiling_command_start(), launched.profiling_command_end()) {
        divide_time(bins, finished.saturating_sub(started), times);
    }
}

/// Divides the time of a launch between its batches. The time of a batch is proportional to its
/// number of packets times its longest frame.
///
/// Batches that ran in parallel count as if they ran one after the other on a faster device.
fn divide_time(bins: &[Bin], elapsed_ns: u64, times: &mut Vec<BinTime>) {
    let weight = |bin: &Bin| u128::from(bin.count) * u128::from(bin.length_bytes.max(1));
    let total = bins.iter().map(weight).sum::<u128>().max(1);
    times.extend((0..).zip(bins).map(|(index, bin)| {
        // The result fits into 64 bits, because the time of a batch does not exceed the time of the
        // launch.
        BinTime { bin: index, elapsed_ns: (u128::from(elapsed_ns) * weight(bin) / total) as u64 }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_time_by_packets_and_bytes() {
        let bin = |count, length_bytes| Bin { count, length_bytes, ..Bin::default() };
        let mut times = Vec::new();
        divide_time(&[bin(10, 64), bin(5, 1280), bin(0, 64)], 704, &mut times);
        assert_eq!(
            times.iter().map(|time| (time.bin, time.elapsed_ns)).collect::<Vec<_>>(),
            [(0, 64), (1, 640), (2, 0)]
        );
        times.clear();
        divide_time(&[bin(u16::MAX, u16::MAX); 3], u64::MAX, &mut times);
        assert!(times.iter().all(|time| time.elapsed_ns == u64::MAX / 3));
        times.clear();
        divide_time(&[bin(0, 0)], 100, &mut times);
        assert_eq!(times[0].elapsed_ns, 0);
    }
}
