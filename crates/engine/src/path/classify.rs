//! Classifies arrived packets. The class of a packet determines its first function.

use godwit_chain::Classifier;
use godwit_packet::simd::{self, Isa, Vectorized};
use godwit_packet::{Descriptor, Region};

use crate::path::core::Core;
use crate::path::partition::{Group, Partition};

/// Classifier of arrived packets. Its fields are reusable buffers.
#[derive(Default)]
pub(crate) struct Classify {
    classes: Vec<u8>,
    /// First function or port of each packet, as a number.
    keys: Vec<u16>,
    partition: Partition,
}

impl Classify {
    /// Stores the classes of packets that arrived together. Each call to `send` gets packets with
    /// the same first function or port.
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
        let Self { classes, keys, partition } = self;
        let Core { plan, region, order, .. } = core;
        classes.resize(packets.len(), 0);
        simd::run(ClassifyAll { classifier: &plan.classifier, region, packets, classes });
        order.classify_all(packets, classes);
        keys.clear();
        let mut of_run = &classes[..];
        for run in packets.chunk_by(|one, next| one.port == next.port) {
            let numbers = plan.entries.of_port(run[0].port);
            let (classes, others) = of_run.split_at(run.len());
            keys.extend(classes.iter().map(|&class| u16::from(numbers[usize::from(class)])));
            of_run = others;
        }
        partition.for_each_group(keys, packets, &[], |key, packets, _| {
            let next = core.plan.entries.stage(key as u8);
            send(core, Group { next, packets, from: None });
        });
    }
}

struct ClassifyAll<'a> {
    classifier: &'a Classifier,
    region: &'a Region,
    packets: &'a [Descriptor],
    classes: &'a mut [u8],
}

impl Vectorized for ClassifyAll<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, _isa: impl Isa) {
        self.classifier.classify_all(self.region.frames(self.packets), self.classes);
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

    use super::*;
    use crate::path::testing::{FIRST, SECOND, Surroundings, TWO_FUNCTIONS};

    /// Classifies packets, and returns the groups.
    fn groups(core: &mut Core, packets: &[Descriptor]) -> Vec<(Next, Vec<Descriptor>)> {
        let mut groups = Vec::new();
        Classify::default().classify(core, packets, |_, group| {
            assert!(group.from.is_none());
            groups.push((group.next, group.packets.to_vec()));
        });
        groups
    }

    #[test]
    fn packets_of_a_class_are_in_one_group_in_arrival_order() {
        let mut surroundings = Surroundings::new(TWO_FUNCTIONS);
        let packets = surroundings.arrive();
        let core = &mut surroundings.core;
        let groups = groups(core, &packets);
        let is_low = |packet: &&Descriptor| core.region.frame(packet)[31] < 128;
        for (function, low) in [(FIRST, true), (SECOND, false)] {
            let expected: Vec<Descriptor> = packets.iter().filter(|packet| is_low(packet) == low).copied().collect();
            assert!(!expected.is_empty());
            let class = core.order.class(&expected[0]);
            assert!(expected.iter().all(|packet| core.order.class(packet) == class));
            assert!(groups.contains(&(Next::Function(function as u16), expected)));
        }
        assert_eq!(groups.len(), 2);
    }

    #[test]
    fn packets_of_a_port_are_one_group_without_rules() {
        let without_rules =
            TWO_FUNCTIONS.replace("[[class]]\n    name = \"low\"\n    destination = \"10.0.0.0/9\"", "");
        let mut surroundings = Surroundings::new(
            &without_rules.replace("    class = \"low\"\n    to = \"first\"\n    [[chain]]\n    from = \"left\"\n", ""),
        );
        let packets = surroundings.arrive();
        let core = &mut surroundings.core;
        assert_eq!(groups(core, &packets), [(Next::Function(SECOND as u16), packets)]);
        assert!(groups(core, &[]).is_empty());
    }
}
