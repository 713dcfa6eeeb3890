//! Groups the packets of a batch by their next step, so that packets with the same next step are
//! sent on together.
//!
//! The next step of a packet is unpredictable, so the code does not branch on it. A mispredicted
//! branch costs as much as all other work on a packet. Groups may leave the arrival order, because
//! gates and the exit restore it.

use godwit_abi::Outcome;
use godwit_chain::Next;
use godwit_packet::Descriptor;

/// Packets with the same next stage.
#[derive(Clone, Copy)]
pub(crate) struct Group<'a> {
    pub(crate) next: Next,
    pub(crate) packets: &'a [Descriptor],
    /// Function that the packets leave, and its outcome for each packet. `None`: the packets come
    /// from a port.
    pub(crate) from: Option<(usize, &'a [Outcome])>,
}

/// Partition of a batch into groups with equal keys. Workers reuse it, so that it allocates
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    /// Packets of the current group.
    group: Rows,
    /// Packets that are in no group yet.
    rest: Rows,
    /// Packets that are in no group after the current one.
    next_rest: Rows,
}

/// Keys, packets and outcomes, one of each per packet. Without outcomes, that column is empty.
#[derive(Debug, Default)]
struct Rows {
    keys: Vec<u16>,
    packets: Vec<Descriptor>,
    outcomes: Vec<Outcome>,
}

impl Partition {
    /// Calls `send` for each group of packets with equal keys, with its packets and their outcomes
    /// in arrival order. `keys` has one entry per packet, and `outcomes` has one or is empty. The
    /// first group is that of the first packet.
    #[inline]
    pub(crate) fn for_each_group(
        &mut self,
        keys: &[u16],
        packets: &[Descriptor],
        outcomes: &[Outcome],
        mut send: impl FnMut(u16, &[Descriptor], &[Outcome]),
    ) {
        let Some(&first) = keys.first() else { return };
        if are_equal(keys, first) {
            send(first, packets, outcomes);
            return;
        }
        let Self { group, rest, next_rest } = self;
        split_rows(first, (keys, packets, outcomes), group, rest);
        send(first, &group.packets, &group.outcomes);
        while let Some(&key) = rest.keys.first() {
            if are_equal(&rest.keys, key) {
                send(key, &rest.packets, &rest.outcomes);
                return;
            }
            split_rows(key, (&rest.keys, &rest.packets, &rest.outcomes), group, next_rest);
            send(key, &group.packets, &group.outcomes);
            std::mem::swap(rest, next_rest);
        }
    }
}

#[inline]
fn are_equal(keys: &[u16], key: u16) -> bool {
    keys.iter().fold(0, |differs, other| differs | (other ^ key)) == 0
}

/// Copies the packets with `key` to `group`, and all others to `rest`.
fn split_rows(
    key: u16,
    (keys, packets, outcomes): (&[u16], &[Descriptor], &[Outcome]),
    group: &mut Rows,
    rest: &mut Rows,
) {
    split(keys, key, packets, &mut group.packets, &mut rest.packets);
    split(&keys[..outcomes.len()], key, outcomes, &mut group.outcomes, &mut rest.outcomes);
    split(keys, key, keys, &mut group.keys, &mut rest.keys);
}

/// Copies the values with `key` to `group`, and all others to `rest`, in order.
fn split<T: Copy + Default>(keys: &[u16], key: u16, values: &[T], group: &mut Vec<T>, rest: &mut Vec<T>) {
    // Every value is written to both, so both have room for all values.
    for values_of in [&mut *group, &mut *rest] {
        values_of.clear();
        values_of.resize(values.len(), T::default());
    }
    let (mut in_group, mut in_rest) = (0, 0);
    for (other, value) in keys.iter().zip(values) {
        group[in_group] = *value;
        rest[in_rest] = *value;
        let is_in_group = usize::from(*other == key);
        in_group += is_in_group;
        in_rest += 1 - is_in_group;
    }
    group.truncate(in_group);
    rest.truncate(in_rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every packet is in one group, with the packets of its key, in arrival order.
        #[test]
        fn each_packet_is_in_one_group_and_in_order(
            rounds in prop::collection::vec((prop::collection::vec(0u16..4, 0..70), any::<bool>()), 1..4),
        ) {
            let mut partition = Partition::default();
            for (keys, has_outcomes) in rounds {
                let packets: Vec<Descriptor> =
                    (0..keys.len() as u32).map(|buffer| Descriptor { buffer, ..Descriptor::default() }).collect();
                let outcomes: Vec<Outcome> =
                    (0..keys.len() as u32).map(|value| Outcome { value, ..Outcome::default() }).collect();
                let outcomes = if has_outcomes { &outcomes[..] } else { &[] };
                let mut groups = Vec::new();
                partition.for_each_group(&keys, &packets, outcomes, |key, packets, outcomes| {
                    let buffers: Vec<u32> = packets.iter().map(|packet| packet.buffer).collect();
                    let values: Vec<u32> = outcomes.iter().map(|outcome| outcome.value).collect();
                    assert_eq!(values, if has_outcomes { buffers.clone() } else { Vec::new() });
                    groups.push((key, buffers));
                });
                prop_assert_eq!(groups.first().map(|(key, _)| *key), keys.first().copied());
                let mut expected: Vec<(u16, Vec<u32>)> = Vec::new();
                for (buffer, key) in (0..).zip(&keys) {
                    match expected.iter_mut().find(|(known, _)| known == key) {
                        Some((_, buffers)) => buffers.push(buffer),
                        None => expected.push((*key, vec![buffer])),
                    }
                }
                prop_assert_eq!(groups, expected);
            }
        }
    }
}
