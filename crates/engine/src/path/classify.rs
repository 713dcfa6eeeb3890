//! Classification: determines the class of arrived packets, which selects their first stage.

use godwit_packet::Descriptor;

use crate::path::core::Core;
use crate::path::partition::{Group, Partition};

/// Classification of arrived packets. It has only scratch memory.
#[derive(Default)]
pub(crate) struct Classify {
    partition: Partition,
}

impl Classify {
    /// Stores the class of packets that arrived together, and passes the packets to `send` in
    /// groups with the same first stage. Without class rules, all packets of a port have the same
    /// first stage.
    pub(crate) fn classify(
        &mut self,
        core: &mut Core,
        packets: &[Descriptor],
        mut send: impl FnMut(&mut Core, Group<'_>),
    ) {
        if core.plan.classifier.is_trivial() {
            for run in packets.chunk_by(|one, next| one.port == next.port) {
                let next = core.plan.decider.entry(run[0].port, 0);
                send(core, Group { next, packets: run, from: None });
            }
            return;
        }
        let keys = packets.iter().map(|packet| u32::from(classify_packet(core, packet)) << 8 | u32::from(packet.port));
        let is_parted = self.partition.begin(keys);
        let mut send_alike = |core: &mut Core, key: u32, packets: &[Descriptor]| {
            let next = core.plan.decider.entry(key as u8, (key >> 8) as u8);
            send(core, Group { next, packets, from: None });
        };
        if is_parted {
            while let Some(key) = self.partition.next(packets, &[]) {
                send_alike(core, key, &self.partition.descriptors);
            }
        } else if let Some(first) = packets.first() {
            let key = u32::from(core.order.class(first)) << 8 | u32::from(first.port);
            send_alike(core, key, packets);
        }
    }
}

/// Stores the class of a packet and returns it.
pub(crate) fn classify_packet(core: &mut Core, packet: &Descriptor) -> u8 {
    let class = core.plan.classifier.classify(&godwit_wire::parse(core.region.frame(packet)));
    core.order.classify(packet, class);
    class
}

#[cfg(test)]
mod tests {
    use godwit_chain::Next;
    use godwit_packet::Descriptor;

    use crate::path::Worker;
    use crate::path::testing::{FIRST, SECOND, TWO_FUNCTIONS, worker};

    /// Classifies packets, and returns the groups.
    fn groups(worker: &mut Worker, packets: &[Descriptor]) -> Vec<(Next, Vec<Descriptor>)> {
        let mut groups = Vec::new();
        worker.classify.classify(&mut worker.core, packets, |_, group| {
            assert!(group.from.is_none());
            groups.push((group.next, group.packets.to_vec()));
        });
        groups
    }

    #[test]
    fn packets_of_a_class_are_in_one_group_in_arrival_order() {
        let mut worker = worker(TWO_FUNCTIONS);
        let packets = worker.receive_burst();
        let groups = groups(&mut worker, &packets);
        let is_low = |packet: &&Descriptor| worker.core.region.frame(packet)[31] < 128;
        for (function, low) in [(FIRST, true), (SECOND, false)] {
            let expected: Vec<Descriptor> = packets.iter().filter(|packet| is_low(packet) == low).copied().collect();
            assert!(!expected.is_empty());
            let class = worker.core.order.class(&expected[0]);
            assert!(expected.iter().all(|packet| worker.core.order.class(packet) == class));
            assert!(groups.contains(&(Next::Function(function as u16), expected)));
        }
        assert_eq!(groups.len(), 2);
    }

    #[test]
    fn packets_of_a_port_are_one_group_without_rules() {
        let without_rules =
            TWO_FUNCTIONS.replace("[[class]]\n    name = \"low\"\n    destination = \"10.0.0.0/9\"", "");
        let mut worker = worker(
            &without_rules.replace("    class = \"low\"\n    to = \"first\"\n    [[chain]]\n    from = \"left\"\n", ""),
        );
        let packets = worker.receive_burst();
        assert_eq!(groups(&mut worker, &packets), [(Next::Function(SECOND as u16), packets)]);
        assert!(groups(&mut worker, &[]).is_empty());
    }
}
