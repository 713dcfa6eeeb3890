//! Applies a placement in one worker: the share of each device, and the reflex of an overloaded
//! worker.
//!
//! The placement gives each function a share on each device. The worker keeps a credit of packets
//! for each of them. Every submission pays from the credit of its device, and raises the credits of
//! all devices of the function by their shares. The next submission goes to the device with the
//! largest credit.
//!
//! A worker is overloaded if half of its order ring is full, or if it receives full bursts only. It
//! then also uses the overflow devices of the placement, and takes the device with the shortest
//! expected wait (`balance.rs`).

use std::sync::Arc;

use godwit_sched::Chunk;
use godwit_sched::place::{PlaceSet, Placement};

use crate::place::cell::Reader;
use crate::place::meter::Meter;

/// Number of consecutive loop iterations with a full burst after which a worker is overloaded.
const FULL_TURNS: u32 = 32;
/// Largest credit of a device in packets, which is the largest number of packets in flight.
const CREDIT_MAX: f64 = 65_536.0;

/// Shares of one function.
#[derive(Clone, Debug)]
struct Shares {
    shares: Box<[f32]>,
    /// Packets that each device should have received by now, minus the packets that it received.
    credits: Box<[f64]>,
    used: PlaceSet,
    overflow: PlaceSet,
}

/// State of one loop iteration that determines whether a worker is overloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) now_ns: u64,
    /// Number of packets that the iteration received.
    pub(crate) received: usize,
    pub(crate) in_flight: usize,
    /// Maximum number of packets in flight.
    pub(crate) capacity: usize,
}

/// The placement in one worker.
#[derive(Debug)]
pub(crate) struct Follower {
    reader: Reader,
    functions: Vec<Shares>,
    pub(crate) meter: Meter,
    burst_packets: usize,
    /// Number of consecutive loop iterations that received a full burst.
    full_turns: u32,
    is_overloaded: bool,
}

impl Follower {
    /// Creates the placement of a worker. `devices` is the number of devices, and `allowed`
    /// contains the devices of each function. Before the first placement, each function uses its
    /// first device.
    pub(crate) fn new(
        reader: Reader,
        meter: Meter,
        allowed: &[Box<[usize]>],
        devices: usize,
        burst_packets: usize,
    ) -> Self {
        let shares = |allowed: &[usize]| {
            let share = |device: usize| f32::from(u8::from(device == allowed[0]));
            Shares {
                shares: (0..devices).map(share).collect(),
                credits: vec![0.0; devices].into(),
                used: PlaceSet::of([allowed[0]]),
                overflow: PlaceSet::default(),
            }
        };
        let functions = allowed.iter().map(|allowed| shares(allowed)).collect();
        Self { reader, functions, meter, burst_packets, full_turns: 0, is_overloaded: false }
    }

    /// Counts a loop iteration. Returns the new placement if there is one. The caller then applies
    /// the limits of its devices.
    #[inline]
    pub(crate) fn turn(&mut self, turn: Turn) -> Option<Arc<Placement>> {
        let is_full = turn.received >= self.burst_packets;
        self.full_turns = if is_full { self.full_turns.saturating_add(1) } else { 0 };
        self.is_overloaded = 2 * turn.in_flight >= turn.capacity || self.full_turns >= FULL_TURNS;
        self.meter.turn(turn.now_ns, is_full, turn.in_flight, turn.capacity);
        let placement = self.reader.changed()?;
        self.take(&placement);
        Some(placement)
    }

    fn take(&mut self, placement: &Placement) {
        for (function, route) in self.functions.iter_mut().zip(&placement.routes) {
            function.shares = route.shares.clone().into();
            function.credits.fill(0.0);
            function.used = PlaceSet::of((0..route.shares.len()).filter(|&device| route.shares[device] > 0.0));
            function.overflow = route.overflow;
        }
    }

    /// Returns whether no function uses a device any longer. Its waiting packets are then submitted
    /// at once, because no others follow.
    pub(crate) fn is_unused(&self, device: usize) -> bool {
        !self.functions.iter().any(|function| function.used.contains(device))
    }

    /// Returns whether the worker is overloaded.
    #[inline]
    pub(crate) fn is_overloaded(&self) -> bool {
        self.is_overloaded
    }

    /// Returns the devices that may take the next submission of `function`.
    #[inline]
    pub(crate) fn usable(&self, function: usize) -> PlaceSet {
        let Shares { used, overflow, .. } = &self.functions[function];
        if self.is_overloaded { used.with(*overflow) } else { *used }
    }

    /// Returns the device with the largest credit among those of `function` that satisfy
    /// `is_alive`.
    pub(crate) fn next(&self, function: usize, is_alive: impl Fn(usize) -> bool) -> Option<usize> {
        let Shares { credits, used, .. } = &self.functions[function];
        used.iter().filter(|&device| is_alive(device)).max_by(|&one, &two| credits[one].total_cmp(&credits[two]))
    }

    /// Counts the packets of a submission.
    pub(crate) fn submitted(&mut self, device: usize, chunk: &Chunk, now_ns: u64) {
        for bin in &chunk.bins {
            let Shares { shares, credits, .. } = &mut self.functions[usize::from(bin.instance)];
            let packets = f64::from(bin.count);
            for (credit, share) in credits.iter_mut().zip(shares) {
                *credit += packets * f64::from(*share);
            }
            credits[device] -= packets;
            credits.iter_mut().for_each(|credit| *credit = credit.clamp(-CREDIT_MAX, CREDIT_MAX));
        }
        self.meter.submitted(device, chunk, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use godwit_sched::place::{Role, Route};
    use godwit_sched::{Descriptor, Packer, PackerConfig};

    use super::*;
    use crate::place::cell::Cell;
    use crate::place::meter::MeterLayout;

    const IDLE: Turn = Turn { now_ns: 0, received: 0, in_flight: 0, capacity: 1024 };

    fn follower(cell: &Arc<Cell>) -> Follower {
        let meter = Meter::new(MeterLayout { functions: 1, devices: 3 });
        Follower::new(cell.reader(), meter, &[[1, 0, 2].into()], 3, 64)
    }

    fn publish(cell: &Cell, number: u64, shares: [f32; 3], overflow: PlaceSet) {
        let routes = vec![Route { shares: shares.to_vec(), overflow }];
        cell.publish(Placement { number, routes, places: Vec::new(), roles: vec![Role::Any], workers_max: 1 });
    }

    /// Submits packets to the devices that the follower chooses. Returns how many each received.
    fn submit(follower: &mut Follower, chunks: usize, chunk_packets: [u32; 3]) -> [u32; 3] {
        let mut received = [0; 3];
        let config = PackerConfig { chunk_packets: 16_384, bins: 64, ..PackerConfig::default() };
        let mut packer = Packer::new(config, &[0], 2).expect("valid");
        for _ in 0..chunks {
            let device = follower.next(0, |_| true).expect("a device is used");
            let packets = chunk_packets[device];
            (0..packets)
                .for_each(|_| _ = packer.insert(0, 0, 0, Descriptor { length: 60, ..Descriptor::default() }, 0));
            let chunk = packer.take(0).expect("packets wait");
            follower.submitted(device, &chunk, 0);
            packer.give_back(chunk);
            received[device] += packets;
        }
        received
    }

    #[test]
    fn packets_are_divided_by_shares_whatever_the_size_of_submissions() {
        let cell = Arc::new(Cell::default());
        let mut follower = follower(&cell);
        assert_eq!(submit(&mut follower, 10, [256, 1024, 256]), [0, 10_240, 0]);
        publish(&cell, 1, [0.2, 0.7, 0.1], PlaceSet::default());
        assert!(follower.turn(IDLE).is_some() && follower.turn(IDLE).is_none());
        let received = submit(&mut follower, 4000, [256, 4096, 512]);
        let total: u32 = received.iter().sum();
        for (received, share) in received.iter().zip([0.2, 0.7, 0.1]) {
            assert!((f64::from(*received) / f64::from(total) - share).abs() < 0.01, "{received} of {total}");
        }
        assert!(!follower.is_unused(2));
        publish(&cell, 2, [0.0, 1.0, 0.0], PlaceSet::default());
        assert!(follower.turn(IDLE).is_some() && follower.is_unused(0) && follower.is_unused(2));
        assert_eq!(submit(&mut follower, 3, [256; 3]), [0, 768, 0]);
    }

    #[test]
    fn only_an_overloaded_worker_uses_the_overflow_devices() {
        let cell = Arc::new(Cell::default());
        let mut follower = follower(&cell);
        publish(&cell, 1, [1.0, 0.0, 0.0], PlaceSet::of([2]));
        assert!(follower.turn(IDLE).is_some());
        assert_eq!((follower.is_overloaded(), follower.usable(0)), (false, PlaceSet::of([0])));
        follower.turn(Turn { in_flight: 512, ..IDLE });
        assert_eq!((follower.is_overloaded(), follower.usable(0)), (true, PlaceSet::of([0, 2])));
        // Full bursts in a row mean that more packets wait at the port.
        (0..FULL_TURNS - 1).for_each(|_| _ = follower.turn(Turn { received: 64, ..IDLE }));
        assert!(!follower.is_overloaded());
        follower.turn(Turn { received: 64, ..IDLE });
        assert!(follower.is_overloaded());
        follower.turn(IDLE);
        assert!(!follower.is_overloaded());
    }

    #[test]
    fn lost_devices_receive_nothing() {
        let cell = Arc::new(Cell::default());
        let mut follower = follower(&cell);
        publish(&cell, 1, [0.5, 0.5, 0.0], PlaceSet::default());
        follower.turn(IDLE);
        assert_eq!(follower.next(0, |device| device != 0), Some(1));
        assert_eq!(follower.next(0, |device| device == 2), None);
    }
}
