//! Chooses the device for the next submission of a function that runs on several devices.
//!
//! Each worker chooses on its own, from the submissions that it submitted and their completion
//! times. It takes the device with the shortest expected wait. The CPU is the worker's own core,
//! which also fills the submissions of all other devices. It therefore processes a submission
//! itself only if no other device takes one.
//!
//! Packets leave in arrival order, and the number of packets in flight is limited. If a slow device
//! held all of these packets, the core would have to wait for it. If a function also runs on the
//! CPU, any other device therefore holds at most a share of the packets in flight. The share equals
//! the device's part of the combined packet rate of device and CPU.

use crate::place::LAST_RESORT;

/// Weight of the old value in the moving average of the time per packet.
const OLD_WEIGHT: f64 = 7.0 / 8.0;
/// Factor that reduces the measured time per packet of an unused device. The factor is applied
/// whenever the CPU takes a submission instead. The device is therefore tried again later. The
/// factor is close to 1, so a slow device is tried rarely.
const IDLE_DECAY: f64 = 511.0 / 512.0;

/// State of a device from the view of one worker: the worker's packets on the device, and the
/// measured time per packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Number of packets on the device.
    packets: u64,
    /// Average time per packet, in nanoseconds. The value 0 means that no time is measured yet.
    packet_ns: f64,
    since_ns: u64,
}

impl Load {
    /// Records that packets were submitted to the device.
    pub(crate) fn submitted(&mut self, packets: u32, now_ns: u64) {
        if self.packets == 0 {
            self.since_ns = now_ns;
        }
        self.packets += u64::from(packets);
    }

    /// Records that the device returned a submission, whether or not it succeeded.
    pub(crate) fn returned(&mut self, packets: u32, now_ns: u64) {
        let each_ns = now_ns.saturating_sub(self.since_ns) as f64 / f64::from(packets.max(1));
        let known = self.packet_ns > 0.0;
        self.packet_ns = if known { each_ns + (self.packet_ns - each_ns) * OLD_WEIGHT } else { each_ns };
        self.packets = self.packets.saturating_sub(packets.into());
        self.since_ns = now_ns;
    }

    /// Returns whether no packets are on the device.
    pub(crate) fn is_idle(&self) -> bool {
        self.packets == 0
    }

    /// Returns whether the device may take a further submission of `chunk` packets, for a function
    /// that also runs on the CPU. `capacity` is the maximum number of packets in flight.
    /// `cpu_packet_ns` is the time per packet on the CPU.
    ///
    /// The device may hold only a fraction of `capacity`. The fraction equals the device's part of
    /// the combined packet rate of device and CPU. It is one half until the times of both are
    /// measured. The first submission is always allowed.
    fn may_submit(&self, chunk: u32, capacity: usize, cpu_packet_ns: f64) -> bool {
        let known = self.packet_ns > 0.0 && cpu_packet_ns > 0.0;
        let share = if known { cpu_packet_ns / (cpu_packet_ns + self.packet_ns) } else { 0.5 };
        let is_first = self.packet_ns == 0.0 && self.packets == 0;
        is_first || (self.packets + u64::from(chunk)) as f64 <= capacity as f64 * share
    }

    /// Records that the CPU took a submission instead of the device.
    pub(crate) fn skipped(&mut self) {
        if self.packets == 0 {
            self.packet_ns *= IDLE_DECAY;
        }
    }

    fn wait_ns(&self) -> f64 {
        (self.packets + 1) as f64 * self.packet_ns
    }
}

/// A device that may get the next submission of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Index of the device.
    pub(crate) device: usize,
    pub(crate) load: Load,
    /// Maximum number of packets in a submission.
    pub(crate) chunk_packets: u32,
    /// Whether the batches for the device have room for a packet.
    pub(crate) has_room: bool,
}

/// Returns the device with the shortest expected wait for the next submission of a function. The
/// CPU is chosen only if no other device takes the submission. `capacity` is the worker's maximum
/// number of packets in flight. Returns `None` if no device takes the submission.
pub(crate) fn choose(offers: impl Iterator<Item = Offer> + Clone, capacity: usize) -> Option<usize> {
    let cpu = offers.clone().find(|offer| offer.device == LAST_RESORT);
    let may_submit =
        |offer: &Offer| cpu.is_none_or(|cpu| offer.load.may_submit(offer.chunk_packets, capacity, cpu.load.packet_ns));
    let others = offers.filter(|offer| offer.device != LAST_RESORT && offer.has_room).filter(may_submit);
    let first = others.min_by(|one, other| one.load.wait_ns().total_cmp(&other.load.wait_ns()));
    first.or(cpu).map(|offer| offer.device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_depends_on_speed_and_queue() {
        let (mut fast, mut slow) = (Load::default(), Load::default());
        for chunk in 0..4 {
            fast.submitted(100, chunk * 1000);
            slow.submitted(100, chunk * 1000);
            fast.returned(100, chunk * 1000 + 100);
            slow.returned(100, chunk * 1000 + 300);
        }
        assert!(fast.wait_ns() < slow.wait_ns());
        // The fast device needs a third of the slow device's time per packet. It is therefore
        // faster even with twice as many packets, but slower with six times as many.
        fast.submitted(200, 5000);
        slow.submitted(100, 5000);
        assert!(fast.wait_ns() < slow.wait_ns());
        fast.submitted(400, 5000);
        assert!(fast.wait_ns() > slow.wait_ns());
    }

    #[test]
    fn cpu_gets_a_chunk_only_if_no_other_device_takes_one() {
        let offer = |device, packet_ns, has_room| {
            let load = Load { packet_ns, ..Load::default() };
            Offer { device, load, chunk_packets: 64, has_room }
        };
        let chosen = |offers: &[Offer]| choose(offers.iter().copied(), 1000);
        let (cpu, slow, fast) = (offer(LAST_RESORT, 1.0, true), offer(1, 30.0, true), offer(2, 10.0, true));
        assert_eq!(chosen(&[cpu, slow, fast]), Some(2));
        assert_eq!(chosen(&[slow, Offer { has_room: false, ..fast }]), Some(1));
        let busy = |offer: Offer| Offer { load: Load { packets: 100, ..offer.load }, ..offer };
        assert_eq!(chosen(&[cpu, busy(slow), busy(fast)]), Some(LAST_RESORT));
        assert_eq!(chosen(&[Offer { has_room: false, ..slow }]), None);
    }

    #[test]
    fn device_next_to_the_cpu_is_limited_to_its_share() {
        let mut slow = Load::default();
        assert!(slow.may_submit(600, 1000, 50.0));
        slow.submitted(100, 0);
        assert!(slow.may_submit(400, 1000, 50.0) && !slow.may_submit(401, 1000, 50.0));
        slow.returned(100, 15_000);
        assert!(slow.may_submit(500, 1000, 0.0) && !slow.may_submit(501, 1000, 0.0));
        // A device with a third of the CPU's speed may hold one quarter of all packets.
        assert!(slow.may_submit(250, 1000, 50.0) && !slow.may_submit(251, 1000, 50.0));
        (0..2000).for_each(|_| slow.skipped());
        assert!(slow.may_submit(900, 1000, 50.0));
    }
}
