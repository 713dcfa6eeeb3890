//! A function on several devices: which of them gets the next chunk.
//!
//! Each worker decides for itself, by what it has given each device and how fast it came back: the device that would be done
//! first. The CPU is not asked as long as another device takes more: it is the worker's own core, which fills the
//! chunks of the others, and does a chunk itself when they all have as many as they take.
//!
//! Packets leave in order, and only so many of a worker are in flight. A device that is slower than the core must not have
//! them all, or the core waits for it with the rest: beside the CPU it has no more of them than its share of both rates.

use crate::failover::{LAST_RESORT, Place};
use crate::plan::Plan;
use crate::worker::Worker;

/// Of an average that is made of the last so many chunks, about.
const KEEP: f64 = 7.0 / 8.0;
/// What is left of the time that a packet took on an idle device, each time the CPU gets a chunk in its place: what is not measured any
/// more may have changed, so the device is asked again some day, after so many chunks that the answer may be slow.
const FORGET: f64 = 511.0 / 512.0;

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

    /// Whether a chunk of so many packets may come too, of `capacity` packets that can be in flight, where those on the CPU take
    /// `beside_ns` each: in the time that all that are here take, the CPU does the others, and would do no more than these. While one
    /// of the times is not known (0), they count as equal, but somebody has to be the first.
    fn may_have(&self, chunk: u32, capacity: usize, beside_ns: f64) -> bool {
        let known = self.packet_ns > 0.0 && beside_ns > 0.0;
        let share = if known { beside_ns / (beside_ns + self.packet_ns) } else { 0.5 };
        let is_first = self.packet_ns == 0.0 && self.packets == 0;
        is_first || (self.packets + u64::from(chunk)) as f64 <= capacity as f64 * share
    }

    /// The CPU gets a chunk in its place.
    fn passed_over(&mut self) {
        if self.packets == 0 {
            self.packet_ns *= FORGET;
        }
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
        let beside_ns = places.contains(&LAST_RESORT).then(|| self.places[LAST_RESORT].load.packet_ns);
        let may_have = |place: &&usize| {
            let Place { packer, load, .. } = &self.places[**place];
            let chunk = packer.config().chunk_packets;
            beside_ns.is_none_or(|beside_ns| load.may_have(chunk, self.order.capacity(), beside_ns))
        };
        let beside = places.iter().filter(|&&place| place != LAST_RESORT).filter(alive).filter(takes_more);
        let wait = |place: &usize| self.places[*place].load.wait_ns();
        let first = beside.filter(may_have).min_by(|one, other| wait(one).total_cmp(&wait(other)));
        let Some(&place) = first.or_else(|| places.iter().find(|&&place| place == LAST_RESORT)) else { return false };
        if place == LAST_RESORT {
            let others = places.iter().filter(|&&place| place != LAST_RESORT);
            others.for_each(|&place| self.places[place].load.passed_over());
        }
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

    #[test]
    fn beside_the_cpu_a_device_has_its_share_of_what_is_in_flight() {
        let mut slow = Load::default();
        assert!(slow.may_have(600, 1000, 50.0));
        slow.gave(100, 0);
        assert!(slow.may_have(400, 1000, 50.0) && !slow.may_have(401, 1000, 50.0));
        slow.back(100, 15_000);
        assert!(slow.may_have(500, 1000, 0.0) && !slow.may_have(501, 1000, 0.0));
        // Three times as slow as the CPU: a fourth.
        assert!(slow.may_have(250, 1000, 50.0) && !slow.may_have(251, 1000, 50.0));
        // Unasked for long enough it is tried again.
        (0..2000).for_each(|_| slow.passed_over());
        assert!(slow.may_have(900, 1000, 50.0));
    }
}
