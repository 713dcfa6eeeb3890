//! Passes packets that a function has completed to their next function or port. The target depends
//! on the function, its verdict, and the packet's class.

use godwit_abi::{Outcome, VERDICT_DROP};
use godwit_packet::{Descriptor, verdict_of_all};

use crate::path::core::Core;
use crate::path::partition::{Group, Partition};

/// Selects the next function or port of completed packets. Its fields are reusable buffers.
#[derive(Default)]
pub(crate) struct Route {
    /// Grouping key of each packet. The lower byte is the verdict of the function. The upper byte
    /// is the packet's class, or 0 if the class is irrelevant.
    keys: Vec<u16>,
    partition: Partition,
}

impl Route {
    /// Counts the outcomes of `function`, and drops the packets whose outcome is a drop. Each call
    /// to `send` gets packets with the same next function or port.
    pub(crate) fn decide(
        &mut self,
        core: &mut Core,
        function: usize,
        packets: &[Descriptor],
        outcomes: &[Outcome],
        mut send: impl FnMut(&mut Core, Group<'_>),
    ) {
        let Core { plan, order, observer, .. } = core;
        observer.verdicts(plan, |packet| order.class(packet), function, packets, outcomes);
        let by_class = plan.stages[function].is_routed_by_class;
        if !by_class && let Some(verdict) = verdict_of_all(outcomes) {
            decide_alike(core, function, verdict.into(), packets, outcomes, &mut send);
            return;
        }
        let Self { keys, partition } = self;
        keys.clear();
        keys.extend(outcomes.iter().map(|outcome| u16::from(outcome.verdict)));
        if by_class {
            let classes = packets.iter().map(|packet| order.class(packet));
            keys.iter_mut().zip(classes).for_each(|(key, class)| *key |= u16::from(class) << 8);
        }
        partition.for_each_group(keys, packets, outcomes, |key, packets, outcomes| {
            decide_alike(core, function, key, packets, outcomes, &mut send);
        });
    }
}

/// Counts the outcomes of packets with the same class and verdict, and passes the packets on.
fn decide_alike(
    core: &mut Core,
    function: usize,
    key: u16,
    packets: &[Descriptor],
    outcomes: &[Outcome],
    send: &mut impl FnMut(&mut Core, Group<'_>),
) {
    let counters = core.plan.stages[function].counters;
    let (class, verdict) = ((key >> 8) as u8, key as u8);
    if verdict == VERDICT_DROP {
        for (packet, outcome) in packets.iter().zip(outcomes) {
            core.drop_packet(packet, counters.drop(outcome.reason));
        }
        return;
    }
    core.counts.add(counters.verdict(verdict), outcomes.len() as u64);
    let next = core.plan.decider.next(function as u16, class, verdict);
    send(core, Group { next, packets, from: Some((function, outcomes)) });
}

#[cfg(test)]
mod tests {
    use godwit_chain::Next;

    use super::*;
    use crate::observe::counters::DROPPED;
    use crate::path::testing::{FIRST, Surroundings, TWO_FUNCTIONS};

    /// Returns a configuration whose first function has drop reasons and two verdicts. Each verdict
    /// leads to a different target.
    fn configuration() -> String {
        let ipv4 = "kind = \"ipv4\"\n[[function.next_hop]]\nname = \"hop\"\nport = \"right\"\ndestination_mac = \"02:00:00:00:00:01\"\nsource_mac = \"02:00:00:00:00:02\"\n\
                    [[function.route]]\nprefix = \"10.0.0.0/8\"\nnext_hop = \"hop\"\n";
        let text = TWO_FUNCTIONS.replacen("kind = \"echo\"\n    impl = \"scalar\"", ipv4, 1);
        text.replace("from = \"first\"\n    to = \"left\"", "from = \"first\"\n    verdict = \"forward\"\n    to = \"second\"\n    [[chain]]\n    from = \"first\"\n    to = \"drop\"")
    }

    #[test]
    fn packets_are_grouped_by_next_stage_and_counted_by_verdict() {
        let mut surroundings = Surroundings::new(&configuration());
        let packets = surroundings.arrive();
        let core = &mut surroundings.core;
        let mut outcomes: Vec<Outcome> = (0..64).map(|packet| Outcome::verdict((packet % 3 == 0).into())).collect();
        outcomes[5] = Outcome::drop(1);
        let mut groups = Vec::new();
        Route::default().decide(core, FIRST, &packets, &outcomes, |_, group| {
            let (function, outcomes) = group.from.expect("the packets come from a function");
            assert_eq!((function, outcomes.len()), (FIRST, group.packets.len()));
            groups.push((group.next, group.packets.to_vec()));
        });
        let with = |verdict: u8| {
            let pairs = packets.iter().zip(&outcomes).filter(|(_, outcome)| outcome.verdict == verdict);
            pairs.map(|(packet, _)| *packet).collect::<Vec<_>>()
        };
        let next = |verdict| core.plan.decider.next(FIRST as u16, core.order.class(&packets[0]), verdict);
        assert_eq!((next(0), next(1)), (Next::Function(1), Next::Drop));
        for verdict in [0, 1] {
            let sent: Vec<Descriptor> = groups
                .iter()
                .filter(|(stage, _)| *stage == next(verdict))
                .flat_map(|(_, sent)| sent)
                .copied()
                .collect();
            assert_eq!(sorted(sent), sorted(with(verdict)));
            let counter = core.plan.stages[FIRST].counters.verdict(verdict);
            assert_eq!(core.counts.value(counter), with(verdict).len() as u64);
        }
        assert_eq!((core.counts.value(DROPPED), core.order.in_flight()), (1, 64));
    }

    fn sorted(mut packets: Vec<Descriptor>) -> Vec<Descriptor> {
        packets.sort_by_key(|packet| packet.order);
        packets
    }
}
