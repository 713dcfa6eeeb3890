//! Closes a submission before it goes to a device, and takes completed submissions back.

use std::mem;

use godwit_abi::{Bin, PART_MORE};

use super::Packer;
use crate::chunk::Chunk;
use crate::cost::CostModel;

impl Packer {
    /// Closes and returns the current submission, and opens the next one. The new submission first
    /// takes packets from the leftover queue.
    ///
    /// Returns `None` if no packet waits or no empty submission is left.
    #[inline(never)]
    pub fn take(&mut self, now_ns: u64) -> Option<Chunk> {
        if self.packets() == 0 {
            return None;
        }
        let next = self.free.pop()?;
        self.close(now_ns);
        let closed = mem::replace(&mut self.filling, next);
        self.reopen();
        self.bin_leftovers();
        Some(closed)
    }

    /// Gives an emptied submission back to the packer, which can then fill it again.
    ///
    /// # Panics
    /// Panics if the submission does not come from this packer.
    #[inline(never)]
    pub fn give_back(&mut self, chunk: Chunk) {
        assert!(
            self.free.len() + 1 < self.chunks && chunk.descriptors.len() == self.filling.descriptors.len(),
            "a chunk must return once, to the packer that it came from"
        );
        self.free.push(chunk);
    }

    /// Completes the current submission with an entry for each of its batches.
    fn close(&mut self, now_ns: u64) {
        let chunk = &mut self.filling;
        chunk.packets = self.budget - self.room;
        chunk.closed_ns = now_ns;
        chunk.bins.clear();
        let open = self.open as usize;
        for (number, (label, cursor)) in self.labels[..open].iter().zip(&self.cursors[1..]).enumerate() {
            let first = number as u32 * self.config.bin_packets;
            let stream = self.streams[usize::from(label.stream)];
            let bin = Bin {
                first,
                count: (cursor.next - first) as u16,
                kernel: stream.kernel,
                variant: label.variant,
                instance: stream.instance,
                length_bytes: cursor.longest as u16,
                length_class: label.length_class,
                row: stream.row,
                part: 0,
            };
            self.parts.push(number, bin, chunk);
            self.table[self.label_index.of_class(label.stream, label.variant, label.length_class)] = 0;
        }
        if self.config.sort && open > 1 {
            sort_longest_first(&mut chunk.bins, &mut self.estimates, &self.costs);
        }
        let (bins, descriptors) = (&chunk.bins, &chunk.descriptors);
        let bytes = |bin: &Bin| {
            let first = bin.first as usize;
            descriptors[first..first + usize::from(bin.count)]
                .iter()
                .map(|packet| u64::from(packet.length))
                .sum::<u64>()
        };
        chunk.bin_bytes.clear();
        chunk.bin_bytes.extend(bins.iter().map(bytes));
    }

    /// Puts packets from the leftover queue into batches, before any new packet (PIPSEA, figure 6,
    /// step 1). Packets that find no batch stay in the queue, in the same order.
    fn bin_leftovers(&mut self) {
        let mut unseen = self.leftovers.len();
        while unseen > 0 && self.room > 0 {
            let Some(packet) = self.leftovers.pop_front() else { break };
            unseen -= 1;
            if !self.bin(&packet) {
                self.leftovers.push_back(packet);
            }
        }
        // Packets that found no batch are now behind those that were not tried. The rotation
        // restores the arrival order.
        self.leftovers.rotate_left(unseen);
    }
}

/// Sorts batches by estimated processing time, longest first. A device then finishes the last batch
/// earlier (PIPSEA, section 3.4; Graham, SIAM Journal on Applied Mathematics, 1969).
///
/// Batches with equal estimates keep the order in which they were opened. The parts of a split
/// batch stay together.
fn sort_longest_first(bins: &mut [Bin], estimates: &mut Vec<(f64, Bin)>, costs: &CostModel) {
    estimates.clear();
    estimates.extend(bins.iter().map(|bin| (costs.estimate_ns(bin), *bin)));
    for parts in estimates.chunk_by_mut(|(_, bin), _| bin.part & PART_MORE != 0).filter(|parts| parts.len() > 1) {
        let whole_ns = parts.iter().map(|(part_ns, _)| part_ns).sum();
        parts.iter_mut().for_each(|(part_ns, _)| *part_ns = whole_ns);
    }
    estimates.sort_unstable_by(|(a_ns, a), (b_ns, b)| b_ns.total_cmp(a_ns).then(a.first.cmp(&b.first)));
    for (bin, (_, sorted)) in bins.iter_mut().zip(estimates) {
        *bin = *sorted;
    }
}
