//! Property test of the order ring against a model.

use godwit_io::Departure;
use proptest::prelude::*;

use super::*;

/// Position of a packet in the reference model.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Position {
    /// The packet is in flight and has passed the first `n` gates.
    Before(usize),
    At(usize),
}

proptest! {
    #[test]
    fn gates_restore_the_order(
        gates in 0usize..4,
        steps in prop::collection::vec((0u8..6, any::<prop::sample::Index>(), 0usize..5), 1..2000),
    ) {
        let mut order = Order::new(64, gates);
        let mut live: Vec<(Descriptor, Position)> = Vec::new();
        let mut last_at_gate = vec![None::<u64>; gates];
        let mut last_out = None::<u64>;
        let (mut arrived, mut gone) = (0u64, 0u64);
        // Packets that have left since the last check.
        let (mut outs, mut departed): ([Vec<Departure>; 4], u64) = Default::default();
        for (kind, index, hop) in steps {
            match kind {
                0 | 1 if order.room() > 0 => {
                    let mut descriptor = Descriptor { flow_hash: arrived as u32, ..Descriptor::default() };
                    let stamp = Stamp { sequence: arrived, time_ns: 0 };
                    order.arrive(std::slice::from_mut(&mut descriptor), &[stamp], 0);
                    live.push((descriptor, Position::Before(0)));
                    arrived += 1;
                }
                2 | 3 if !live.is_empty() => {
                    let index = index.index(live.len());
                    if let (descriptor, Position::Before(passed)) = live[index] {
                        let gate = passed + hop;
                        if gate < gates {
                            let entered = kind == 2 && order.enter(gate, &[descriptor]);
                            if entered {
                                let sequence = order.stamp_and_arrival(&descriptor).0.sequence;
                                prop_assert!(last_at_gate[gate].is_none_or(|last| last < sequence));
                                last_at_gate[gate] = Some(sequence);
                            } else {
                                order.wait(&descriptor, gate);
                            }
                            live[index].1 = if entered { Position::Before(gate + 1) } else { Position::At(gate) };
                        } else {
                            let end = live.len().min(index + 1 + 3 * hop);
                            let waiting = live[index..end].iter_mut().filter(|(_, position)| matches!(position, Position::Before(_)));
                            let run: Vec<Descriptor> = waiting
                                .map(|(descriptor, position)| {
                                    *position = Position::At(gates);
                                    *descriptor
                                })
                                .collect();
                            // Packets that are next in arrival order can leave at once.
                            if kind == 3 || !order.pass_exit(&run, &mut outs[3], |_, packets| departed += packets) {
                                order.wait_exit(&run, 3);
                            }
                        }
                    }
                }
                4 if !live.is_empty() => {
                    let index = index.index(live.len());
                    if let (descriptor, Position::Before(_)) = live[index] {
                        order.leave(&descriptor);
                        live.swap_remove(index);
                        gone += 1;
                    }
                }
                _ => {
                    for (gate, last) in last_at_gate.iter_mut().enumerate() {
                        let mut next = Vec::new();
                        order.open(gate, &mut next);
                        for descriptor in next {
                            let sequence = order.stamp_and_arrival(&descriptor).0.sequence;
                            prop_assert_eq!(sequence as u32, descriptor.flow_hash);
                            prop_assert!(last.is_none_or(|last| last < sequence));
                            *last = Some(sequence);
                            let packet = live.iter_mut().find(|(live, _)| live.order == descriptor.order).unwrap();
                            prop_assert_eq!(packet.1, Position::At(gate));
                            packet.1 = Position::Before(gate + 1);
                        }
                    }
                    prop_assert!(!order.open_exit(&mut outs, |_, packets| departed += packets, &mut ()));
                    prop_assert!(outs[..3].iter().all(Vec::is_empty) && outs[3].len() as u64 == departed);
                    departed = 0;
                    for Departure { descriptor, stamp: Stamp { sequence, .. } } in outs[3].drain(..) {
                        prop_assert!(last_out.is_none_or(|last| last < sequence));
                        last_out = Some(sequence);
                        live.retain(|(live, _)| live.order != descriptor.order);
                        gone += 1;
                    }
                }
            }
            prop_assert_eq!(arrived - gone, live.len() as u64);
            prop_assert!(order.in_flight() + departed as usize >= live.len());
        }
    }
}
