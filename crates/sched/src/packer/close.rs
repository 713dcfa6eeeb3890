//! Closes the filling chunk, and takes completed chunks back.

use std::mem;

use godwit_abi::{Bin, PART_MORE};

use super::Packer;
use crate::chunk::Chunk;
use crate::cost::CostModel;

impl Packer {
    /// Closes the filling chunk and opens the next one. The next chunk first takes all leftovers
    /// that fit. If configured, the bins of the closed chunk are sorted, longest first.
    ///
    /// Returns `None` if no packet waits or no set of bins is free.
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

    /// Returns a chunk to the packer, after its packets are processed.
    ///
    /// # Panics
    /// If the chunk does not come from this packer.
    #[inline(never)]
    pub fn give_back(&mut self, chunk: Chunk) {
        assert!(
            self.free.len() + 1 < self.chunks && chunk.descriptors.len() == self.filling.descriptors.len(),
            "a chunk must return once, to the packer that it came from"
        );
        self.free.push(chunk);
    }

    /// Writes the bin entries of the filling chunk and clears their labels.
    fn close(&mut self, now_ns: u64) {
        let chunk = &mut self.filling;
        chunk.packets = self.budget - self.room;
        chunk.closed_ns = now_ns;
        chunk.bins.clear();
        let open = self.open as usize;
        for (number, (label, cursor)) in self.labels[..open].iter().zip(&self.cursors[1..]).enumerate() {
            // No cast truncates: `validate` limits bins times bin_packets to 2^24 and bin_packets
            // to 2^16, and lengths have 16 bits.
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

    /// Puts leftovers into bins, before any new packet (PIPSEA, figure 6, step 1). Leftovers that
    /// find no bin keep their order.
    fn bin_leftovers(&mut self) {
        let mut unseen = self.leftovers.len();
        while unseen > 0 && self.room > 0 {
            let Some(packet) = self.leftovers.pop_front() else { break };
            unseen -= 1;
            if !self.bin(&packet) {
                self.leftovers.push_back(packet);
            }
        }
        // Packets that found no bin are now after the unseen packets. Restore the order.
        self.leftovers.rotate_left(unseen);
    }
}

/// Sorts bins by estimated time, longest first, so that the last bin ends early (PIPSEA, section
/// 3.4; Graham, SIAM Journal on Applied Mathematics 1969).
///
/// Bins with equal estimates keep the order in which they were opened. The parts of a bin stay
/// together: the estimate of the bin is the sum of theirs.
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
