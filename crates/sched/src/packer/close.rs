//! The filling chunk is closed and the next one opened, and closed ones come back.

use std::mem;

use godwit_abi::{Bin, PART_MORE};

use super::Packer;
use crate::chunk::Chunk;
use crate::cost::CostModel;

impl Packer {
    /// Closes the filling chunk, bins longest first where so configured, and opens the next one with as
    /// many leftovers as fit. None where no packet waits or every other set of bins is out.
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

    /// Takes a set of bins back, once its packets are done with.
    ///
    /// # Panics
    /// Where the chunk is not of this packer.
    #[inline(never)]
    pub fn give_back(&mut self, chunk: Chunk) {
        assert!(
            self.free.len() + 1 < self.chunks && chunk.descriptors.len() == self.filling.descriptors.len(),
            "a chunk goes back to the packer that it came from, once"
        );
        self.free.push(chunk);
    }

    /// Writes down the bins of the filling chunk and takes their labels off.
    fn close(&mut self, now_ns: u64) {
        let chunk = &mut self.filling;
        chunk.packets = self.budget - self.room;
        chunk.closed_ns = now_ns;
        chunk.bins.clear();
        let open = self.open as usize;
        for (number, (label, cursor)) in self.labels[..open].iter().zip(&self.cursors[1..]).enumerate() {
            // All fit: `validate` bounds bins times bin_packets by 2^24 and bin_packets by 2^16; lengths have 16 bits.
            let first = number as u32 * self.config.bin_packets;
            let stream = self.streams[usize::from(label.instance)];
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
            self.table[self.places.of_class(label.instance, label.variant, label.length_class)] = 0;
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

    /// Leftovers come before new packets (PIPSEA, figure 6, step 1). Those that find no bin keep their order.
    fn bin_leftovers(&mut self) {
        let mut unseen = self.leftovers.len();
        while unseen > 0 && self.room > 0 {
            let Some(packet) = self.leftovers.pop_front() else { break };
            unseen -= 1;
            if !self.bin(&packet) {
                self.leftovers.push_back(packet);
            }
        }
        // Those seen in vain now stand behind those not seen.
        self.leftovers.rotate_left(unseen);
    }
}

/// Longest processing time first keeps the last bin to end from ending late (PIPSEA, section 3.4; Graham,
/// SIAM Journal on Applied Mathematics 1969). Bins that are estimated alike stay in the order they were opened. Parts of a bin
/// stay together: it takes as long as all of them.
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
