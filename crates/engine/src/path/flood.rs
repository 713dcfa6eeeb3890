//! Copies flooded packets, which leave through several ports. The copies are made after the arrival
//! order of the packets is restored.
//!
//! Until then, a flooded packet is one packet with one slot of the order ring and one buffer. The
//! copies take the original's position in the order of each port. A copy counts as created when it
//! is made. If no port is live, a packet waits until there are buffers for its copies, so that a
//! replay loses none. Later a copy counts as sent or dropped by its port. The equation received +
//! created = sent + dropped + merged + in flight therefore holds.

use godwit_io::Departure;
use godwit_packet::{Descriptor, Region};

use crate::observe::counters::{CREATED, Counts, DROPPED, DROPPED_FLOOD, DROPPED_PORT};
use crate::observe::observer::Observer;
use crate::path::order::{Copies, Flood};
use crate::plan::chain_plan::ChainPlan;

/// Parts of a worker that are needed to copy flooded packets.
pub(crate) struct Flooder<'a> {
    pub(crate) plan: &'a ChainPlan,
    pub(crate) region: &'a mut Region,
    /// Whether each port can transmit.
    pub(crate) exits: &'a [bool],
    pub(crate) counts: &'a mut Counts,
    pub(crate) observer: &'a mut Observer,
    /// Whether packets wait for buffers for their copies.
    pub(crate) waits: bool,
}

impl Copies for Flooder<'_> {
    fn has_room(&mut self, packets: usize) -> bool {
        // Each packet needs at most one copy per port.
        !self.waits || packets == 0 || self.region.free_packets() >= packets * self.exits.len()
    }

    /// Appends the packet and its copies to the lists of all ports in its port set, except the
    /// ingress port. Returns the number of appended packets.
    #[cold]
    fn flood(&mut self, flood: Flood, departure: Departure, outs: &mut [Vec<Departure>]) -> u64 {
        let Departure { descriptor: packet, stamp } = departure;
        let part = self.plan.stages[flood.function].function.flood();
        let mut append = |region: &mut Region, mut packet, port: u8| {
            if let Some(part) = part {
                part.prepare_copy(region.buffer_mut(&packet), &mut packet, port, flood.set);
            }
            outs[usize::from(port)].push(Departure { descriptor: packet, stamp });
        };
        let mut copies = 0;
        // The last port gets the original packet, and all other ports get copies.
        let mut last = None;
        let ports = part.map_or(&[][..], |part| part.ports(flood.set));
        for &port in ports.iter().filter(|port| **port != packet.port) {
            if self.exits.get(usize::from(port)) != Some(&true) {
                self.drop_copy(&packet, port, DROPPED_PORT);
                continue;
            }
            let Some(port) = last.replace(port) else { continue };
            match self.region.duplicate(&packet) {
                Some(copy) => {
                    self.counts.add(CREATED, 1);
                    self.observer.copied(&packet, &copy, port);
                    append(self.region, copy, port);
                    copies += 1;
                }
                None => self.drop_copy(&packet, port, DROPPED_FLOOD),
            }
        }
        match last {
            Some(port) => {
                append(self.region, packet, port);
                copies + 1
            }
            None => {
                self.observer.dropped(self.plan, &packet, DROPPED_FLOOD);
                self.region.release(&packet);
                self.counts.add(DROPPED, 1);
                self.counts.add(DROPPED_FLOOD, 1);
                copies
            }
        }
    }
}

impl Flooder<'_> {
    /// Counts a copy that cannot be made as created and dropped.
    fn drop_copy(&mut self, packet: &Descriptor, port: u8, reason: usize) {
        self.observer.copy_dropped(self.plan, packet, port, reason);
        self.counts.add(CREATED, 1);
        self.counts.add(DROPPED, 1);
        self.counts.add(reason, 1);
    }
}
