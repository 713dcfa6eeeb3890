//! Packs scattered packet buffers into a staging buffer, which is then copied to the device as one
//! block:
//!
//! ```text
//! arena     | buffer 7 |  other  | buffer 3 |  other  | buffer 9 |
//!                 \              /              ______/
//! staging   | buffer 7 | buffer 3 | buffer 9 |              in the order of the chunk's bins
//! ```
//!
//! The kernel accesses the copy of the staging buffer on the device.

use godwit_abi::{BUFFER_UNIT_BYTES, Descriptor, Outcome, VERDICT_DROP};
use godwit_packet::Region;
use godwit_sched::Chunk;

use crate::check::packets_of;
use crate::program::AccessNeeds;

/// Returns the total size of a submission's packed buffers.
pub(crate) fn packed_bytes(chunk: &Chunk) -> usize {
    chunk.bins.iter().flat_map(packets_of).map(|index| chunk.descriptors[index].room_bytes()).sum()
}

/// Copies the packet bytes that kernels read to `staging`. `descriptors` contains the device's
/// descriptors as bytes, which then refer to the packed buffers.
pub(crate) fn pack(chunk: &Chunk, region: &Region, needs: &[AccessNeeds], staging: &mut [u8], descriptors: &mut [u8]) {
    let mut next = 0_u32;
    for bin in &chunk.bins {
        let reads = usize::from(needs[usize::from(bin.instance)].reads_bytes);
        for index in packets_of(bin) {
            let descriptor = &chunk.descriptors[index];
            let frame = region.frame(descriptor);
            let read = &frame[..frame.len().min(reads)];
            let target = next as usize * BUFFER_UNIT_BYTES + usize::from(descriptor.head);
            staging[target..target + read.len()].copy_from_slice(read);
            let buffer = index * size_of::<Descriptor>();
            descriptors[buffer..buffer + size_of::<u32>()].copy_from_slice(&next.to_le_bytes());
            next += u32::from(descriptor.room);
        }
    }
}

/// Copies packet data from the staging buffer back to the original packet buffers. Copies only
/// bytes that kernels may have written.
///
/// `buffers` contains the original buffers in the order of the batches. Afterwards, the descriptors
/// refer to these buffers again.
pub(crate) fn unpack(chunk: &mut Chunk, region: &mut Region, needs: &[AccessNeeds], staging: &[u8], buffers: &[u32]) {
    let mut buffers = buffers.iter();
    for bin in &chunk.bins {
        let writes = needs[usize::from(bin.instance)].writes_bytes;
        for index in packets_of(bin) {
            let descriptor = &mut chunk.descriptors[index];
            let offset = descriptor.buffer_offset();
            let Some(&buffer) = buffers.next() else { unreachable!("there is one buffer per packet") };
            descriptor.buffer = buffer;
            let (head, length) = (usize::from(descriptor.head), usize::from(descriptor.length));
            let Outcome { verdict, .. } = chunk.outcomes[index];
            // Dropped packets need not be copied back.
            if writes != 0 && verdict != VERDICT_DROP {
                let written = head..head + length.min(usize::from(writes));
                region.buffer_mut(descriptor)[written.clone()]
                    .copy_from_slice(&staging[offset + written.start..offset + written.end]);
            }
        }
    }
}
