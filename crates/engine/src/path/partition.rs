//! Groups the packets of a batch by their next step, so that packets with the same next step are
//! sent on together.
//!
//! The next step of a packet is unpredictable, so the code does not branch on it. A mispredicted
//! branch costs as much as all other work on a packet. Groups may leave the arrival order, because
//! gates and the exit restore it.

use godwit_abi::Outcome;
use godwit_chain::Next;
use godwit_packet::Descriptor;

/// Maximum number of packets that are grouped together. The columns have this fixed length, so that
/// the loop over a block has no bounds checks. Must be a power of two.
const BLOCK_PACKETS: usize = 256;

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

/// Keys, packets and outcomes of a block, one of each per packet. Only the first `count` are in
/// use. Without outcomes, that column is not written.
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
    /// Calls `send` for each group of packets with equal keys, with its packets and their outcomes
    /// in arrival order. `keys` has one entry per packet, and `outcomes` has one or is empty. If
    /// keys differ, a group has packets of one block of [`BLOCK_PACKETS`] only. The groups of a
    /// block start with that of its first packet.
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

/// Copies the packets of a block with `key` to `group`, and all others to `rest`, in order. Each
/// packet is written to both, and only one of them keeps it.
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
        /// Every packet is in one group, with the packets of its key, in arrival order.
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
