//! Copies the results of finished packets into the submission, from the memory that the device
//! accesses.

use godwit_sched::Chunk;

use super::slot::Slot;
use crate::bytes::get;
use crate::check::packets_of;
use crate::device::BinTime;

/// Copies the results of the packets into the submission. Writes the processing time of each batch
/// into `times`.
pub(super) fn read(slot: &mut Slot, chunk: &mut Chunk, cycles_per_us: f64, times: &mut Vec<BinTime>) {
    let (offsets, is_direct, runs_chain) = (slot.offsets, slot.direct.is_some(), slot.runs_chain);
    let bytes = &*slot.host.bytes_mut();
    let mut first = 0;
    times.clear();
    for (index, bin) in chunk.bins.iter().enumerate() {
        if !is_direct {
            let packets = packets_of(bin);
            get(bytes, offsets.descriptors, first, &mut chunk.descriptors[packets.clone()]);
            get(bytes, offsets.outcomes, first, &mut chunk.outcomes[packets.clone()]);
            if runs_chain {
                get(bytes, offsets.trails, first, &mut chunk.trails[packets]);
            }
            first += usize::from(bin.count);
        }
        let mut cycles = [0_u32];
        get(bytes, offsets.cycles, index, &mut cycles);
        let elapsed_ns = (f64::from(cycles[0]) * 1000.0 / cycles_per_us) as u64;
        times.push(BinTime { bin: index as u32, elapsed_ns });
    }
}
