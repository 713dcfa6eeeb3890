//! Helpers for tests of lost devices.

use std::time::Duration;

use godwit_abi::Bin;
use godwit_device::{Error, Lane};
use godwit_packet::Region;
use godwit_sched::Chunk;

/// Part of the reason that is given for a device that does not respond in time.
pub(crate) const SILENT: &str = "no finished chunk";
/// Returns a submission with one packet for the function `template`.
pub(crate) fn chunk(region: &mut Region, variant: u8) -> Chunk {
    chunk_of(region, variant, 1)
}

/// Returns a submission with one batch of `packets` packets for the function `template`.
pub(crate) fn chunk_of(region: &mut Region, variant: u8, packets: u16) -> Chunk {
    let mut chunk = Chunk::new(1, packets.into());
    chunk.bins.push(Bin { count: packets, kernel: godwit_kernels::TEMPLATE, variant, ..Bin::default() });
    chunk.descriptors.fill_with(|| region.allocate(64).unwrap());
    chunk.packets = packets.into();
    chunk
}

/// Polls the device until it reports that it is lost. The reason must contain `why`. Returns the
/// number of submissions that finished before, and the submissions that were still in flight.
pub(crate) fn until_lost(lane: &mut dyn Lane, region: &mut Region, why: &str) -> (usize, Vec<Chunk>) {
    let mut back = 0;
    loop {
        match lane.poll(region) {
            Ok(Some(_)) => back += 1,
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(Error::Lost { id, reason, chunks }) => {
                assert!(reason.contains(why), "{id}: {reason}");
                return (back, chunks);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Checks the state of a connection to the device after it has reported that the device is lost.
pub(crate) fn assert_lost(lane: &mut dyn Lane, region: &mut Region) {
    assert_eq!(lane.in_flight(), 0);
    assert!(lane.poll(region).unwrap().is_none(), "a lost device is reported once");
    let late = chunk(region, 0);
    let buffer = late.descriptors[0];
    let rejected = lane.submit(region, late).unwrap_err();
    assert!(matches!(rejected.error, Error::Unusable { .. }), "{}", rejected.error);
    assert_eq!(rejected.chunk.descriptors[0], buffer);
}
