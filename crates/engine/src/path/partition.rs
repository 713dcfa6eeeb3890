//! Groups the packets of a batch by their next function or port. The next function of a packet is
//! unpredictable, so the code does not branch on it. A mispredicted branch costs as much as all
//! other work on a packet. The groups need not keep the arrival order, because it is restored
//! before functions and ports that require it.

use godwit_abi::Outcome;
use godwit_chain::Next;
use godwit_packet::Descriptor;

/// Maximum number of packets that are grouped together. The arrays have this fixed length, so that
/// the loop over a block of packets needs no bounds checks. The value must be a power of two.
const BLOCK_PACKETS: usize = 256;

/// Packets with the same next function or port.
#[derive(Clone, Copy)]
pub(crate) struct Group<'a> {
    pub(crate) next: Next,
    pub(crate) packets: &'a [Descriptor],
    /// Number of the function that has processed the packets, with its outcome for each packet. It
    /// is `None` if the packets come from a port.
    pub(crate) from: Option<(usize, &'a [Outcome])>,
}

/// Divides batches into groups of packets with equal keys. Its buffers are reused, so that no
/// memory is allocated for a batch.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    /// Packets of the group that is being formed.
    group: Rows,
    /// Packets that belong to no group yet.
    rest: Rows,
    /// Packets that still belong to no group after the current group is formed.
    next_rest: Rows,
}

/// Table of packets with a key and an outcome each. The first `count` entries are in use. The
/// outcomes are valid only if the packets come from a function.
#[derive(Debug)]
struct Rows {
    count: usize,
    keys: Box<[u16; BLOCK_PACKETS]>,
    packets: Box<[Descriptor; BLOCK_PACKETS]>,
    outcomes: Box<[Outcome; BLOCK_PACKETS]>,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            count: 0,
            keys: Box::new([0; BLOCK_PACKETS]),
            packets: Box::new([Descriptor::default(); BLOCK_PACKETS]),
            outcomes: Box::new([Outcome::default(); BLOCK_PACKETS]),
        }
    }
}

impl Partition {
    /// Calls `send` for each group of packets with equal keys. The call gets the packets and their
    /// outcomes in arrival order.
    ///
    /// `keys` has one entry per packet. `outcomes` has one entry per packet or is empty. If keys
    /// differ, a group has at most [`BLOCK_PACKETS`] packets. Groups are formed in the order of
    /// their first packets.
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
        for start in (0..keys.len()).step_by(BLOCK_PACKETS) {
            let block = start..keys.len().min(start + BLOCK_PACKETS);
            let outcomes = outcomes.get(block.clone()).unwrap_or_default();
            self.for_each_group_of_block(&keys[block.clone()], &packets[block], outcomes, &mut send);
        }
    }

    fn for_each_group_of_block(
        &mut self,
        keys: &[u16],
        packets: &[Descriptor],
        outcomes: &[Outcome],
        send: &mut impl FnMut(u16, &[Descriptor], &[Outcome]),
    ) {
        let Self { group, rest, next_rest } = self;
        split(keys[0], (keys, packets, outcomes), group, rest);
        send(keys[0], &group.packets[..group.count], &group.outcomes[..group.count.min(outcomes.len())]);
        while rest.count > 0 {
            let count = rest.count;
            let (keys, packets) = (&rest.keys[..count], &rest.packets[..count]);
            let outcomes = &rest.outcomes[..count.min(outcomes.len())];
            if are_equal(keys, keys[0]) {
                send(keys[0], packets, outcomes);
                return;
            }
            split(keys[0], (keys, packets, outcomes), group, next_rest);
            send(keys[0], &group.packets[..group.count], &group.outcomes[..group.count.min(outcomes.len())]);
            std::mem::swap(rest, next_rest);
        }
    }
}

#[inline]
fn are_equal(keys: &[u16], key: u16) -> bool {
    keys.iter().fold(0, |differs, other| differs | (other ^ key)) == 0
}

/// Copies the packets whose key is `key` to `group`, and all others to `rest`. Both keep their
/// order. To avoid a branch, each packet is written to both tables, and then only one table is
/// extended.
fn split(key: u16, (keys, packets, outcomes): (&[u16], &[Descriptor], &[Outcome]), group: &mut Rows, rest: &mut Rows) {
    const MASK: usize = BLOCK_PACKETS - 1;
    debug_assert!(keys.len() <= BLOCK_PACKETS && keys.len() == packets.len());
    let (mut in_group, mut in_rest) = (0, 0);
    for (&other, &packet) in keys.iter().zip(packets) {
        group.packets[in_group & MASK] = packet;
        rest.packets[in_rest & MASK] = packet;
        rest.keys[in_rest & MASK] = other;
        let is_in_group = usize::from(other == key);
        in_group += is_in_group;
        in_rest += 1 - is_in_group;
    }
    (group.count, rest.count) = (in_group, in_rest);
    let (mut in_group, mut in_rest) = (0, 0);
    for (&other, &outcome) in keys.iter().zip(outcomes) {
        group.outcomes[in_group & MASK] = outcome;
        rest.outcomes[in_rest & MASK] = outcome;
        let is_in_group = usize::from(other == key);
        in_group += is_in_group;
        in_rest += 1 - is_in_group;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each packet is in exactly one group, together with the packets of the same key. Groups
        /// are in arrival order.
        #[test]
        fn each_packet_is_in_one_group_and_in_order(
            rounds in prop::collection::vec((prop::collection::vec(0u16..4, 0..600), any::<bool>()), 1..4),
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
                let differ = keys.iter().any(|key| *key != keys[0]);
                let mut expected: Vec<(u16, Vec<u32>)> = Vec::new();
                let block_packets = if differ { BLOCK_PACKETS } else { keys.len().max(1) };
                for (block, keys) in keys.chunks(block_packets).enumerate() {
                    let groups_before = expected.len();
                    for (buffer, key) in ((block * block_packets) as u32..).zip(keys) {
                        match expected[groups_before..].iter_mut().find(|(known, _)| known == key) {
                            Some((_, buffers)) => buffers.push(buffer),
                            None => expected.push((*key, vec![buffer])),
                        }
                    }
                }
                prop_assert_eq!(groups, expected);
            }
        }
    }
}
