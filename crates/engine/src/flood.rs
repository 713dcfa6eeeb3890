//! Packets that leave by several ports: copies are made at the exit, when it is their turn.
//!
//! Until then a flooded packet is one packet, with one place and one buffer, and keeps its order as all others do. The copies
//! have the original's place in the order of every port. Each counts as created when it is made, and as sent or dropped by
//! its port, so that received + created = sent + dropped + merged + in flight as ever.

use godwit_io::Departure;
use godwit_packet::{Descriptor, Region};

use crate::counters::{CREATED, Counts, DROPPED, DROPPED_FLOOD, DROPPED_PORT};
use crate::plan::Plan;
use crate::trace::Tracer;

/// Where a packet goes that leaves by several ports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flood {
    /// The function that says so.
    pub(crate) function: usize,
    /// The number of its set of ports.
    pub(crate) set: u32,
}

/// What of a worker is needed to copy packets.
pub(crate) struct Flooder<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) region: &'a mut Region,
    /// Whether packets can leave by each port.
    pub(crate) exits: &'a [bool],
    pub(crate) counts: &'a mut Counts,
    pub(crate) tracer: &'a mut Tracer,
}

impl Flooder<'_> {
    /// Appends the packet to the departures of every port of the set but the one that it came by; returns how many there
    /// are of it now.
    #[cold]
    pub(crate) fn flood(&mut self, flood: Flood, departure: Departure, outs: &mut [Vec<Departure>]) -> u64 {
        let Departure { descriptor: packet, stamp } = departure;
        let function = &*self.plan.stages[flood.function].function;
        let mut leaves = |region: &mut Region, mut packet, port: u8| {
            function.dress(region.buffer_mut(&packet), &mut packet, port, flood.set);
            outs[usize::from(port)].push(Departure { descriptor: packet, stamp });
        };
        let mut left = 0;
        // The original leaves by the last one.
        let mut last = None;
        for &port in function.flood_ports(flood.set).iter().filter(|port| **port != packet.port) {
            if self.exits.get(usize::from(port)) != Some(&true) {
                self.lose_copy(&packet, port, DROPPED_PORT);
                continue;
            }
            let Some(port) = last.replace(port) else { continue };
            match self.region.duplicate(&packet) {
                Some(copy) => {
                    self.counts.add(CREATED, 1);
                    if self.tracer.follows() {
                        self.tracer.copied(&packet, &copy, port);
                    }
                    leaves(self.region, copy, port);
                    left += 1;
                }
                None => self.lose_copy(&packet, port, DROPPED_FLOOD),
            }
        }
        match last {
            Some(port) => {
                leaves(self.region, packet, port);
                left + 1
            }
            None => {
                if self.tracer.follows() {
                    self.tracer.dropped(self.plan, &packet, DROPPED_FLOOD);
                }
                self.region.release(&packet);
                self.counts.add(DROPPED, 1);
                self.counts.add(DROPPED_FLOOD, 1);
                left
            }
        }
    }

    /// A copy that cannot be made counts as created and dropped.
    fn lose_copy(&mut self, packet: &Descriptor, port: u8, reason: usize) {
        if self.tracer.follows() {
            self.tracer.copy_dropped(self.plan, packet, port, reason);
        }
        self.counts.add(CREATED, 1);
        self.counts.add(DROPPED, 1);
        self.counts.add(reason, 1);
    }
}
