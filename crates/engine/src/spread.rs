//! A function on several devices: which of them gets the next chunk.
//!
//! Each worker decides for itself, by what it has given each device and how fast it came back: the device that would be done
//! first. The CPU is not asked as long as another device takes more: it is the worker's own core, which fills the
//! chunks of the others, and does a chunk itself when they all have as many as they take.

use crate::failover::LAST_RESORT;
use crate::plan::Plan;
use crate::worker::Worker;

/// Of an average that is made of the last so many chunks, about.
const KEEP: f64 = 7.0 / 8.0;

/// What a worker has given a device, and how fast it came back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Packets in chunks that are not back.
    packets: u64,
    /// What one of them takes, chunks overlapping as they do; 0: not known yet.
    packet_ns: f64,
    /// When a chunk came back last, or was given to an idle device.
    since_ns: u64,
}

impl Load {
    /// The device took a chunk.
    pub(crate) fn gave(&mut self, packets: u32, now_ns: u64) {
        if self.packets == 0 {
            self.since_ns = now_ns;
        }
        self.packets += u64::from(packets);
    }

    /// A chunk is back, done or not.
    pub(crate) fn back(&mut self, packets: u32, now_ns: u64) {
        let each_ns = now_ns.saturating_sub(self.since_ns) as f64 / f64::from(packets.max(1));
        let known = self.packet_ns > 0.0;
        self.packet_ns = if known { each_ns + (self.packet_ns - each_ns) * KEEP } else { each_ns };
        self.packets = self.packets.saturating_sub(packets.into());
        self.since_ns = now_ns;
    }

    /// How long a packet would wait there.
    fn wait_ns(&self) -> f64 {
        (self.packets + 1) as f64 * self.packet_ns
    }
}

impl Worker {
    /// Places a function that several devices run on that which would be done first; false: on the same as before.
    pub(crate) fn spread(&mut self, plan: &Plan, function: usize) -> bool {
        let places = &plan.stages[function].places;
        if places.len() < 2 {
            return false;
        }
        let alive = |place: &&usize| !self.lost.iter().any(|lost| lost.place == **place);
        // Its filling chunk is not full, or there is another set of bins behind it.
        let takes_more = |place: &&usize| {
            let packer = &self.places[**place].packer;
            packer.has_free_set() || !packer.is_full()
        };
        let beside = places.iter().filter(|&&place| place != LAST_RESORT).filter(alive).filter(takes_more);
        let wait = |place: &usize| self.places[*place].load.wait_ns();
        let first = beside.min_by(|one, other| wait(one).total_cmp(&wait(other)));
        let Some(&place) = first.or_else(|| places.iter().find(|&&place| place == LAST_RESORT)) else { return false };
        std::mem::replace(&mut self.placement[function], place) != place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_faster_or_has_less_is_waited_for_less() {
        let (mut fast, mut slow) = (Load::default(), Load::default());
        for chunk in 0..4 {
            fast.gave(100, chunk * 1000);
            slow.gave(100, chunk * 1000);
            fast.back(100, chunk * 1000 + 100);
            slow.back(100, chunk * 1000 + 300);
        }
        assert!(fast.wait_ns() < slow.wait_ns());
        // Twice as many packets at a third of the time are still sooner done; six times as many are not.
        fast.gave(200, 5000);
        slow.gave(100, 5000);
        assert!(fast.wait_ns() < slow.wait_ns());
        fast.gave(400, 5000);
        assert!(fast.wait_ns() > slow.wait_ns());
    }
}
