//! Groups the packets of a batch by their next function or port. The next function of a packet is
//! unpredictable, so the code does not branch on it. A mispredicted branch costs as much as all
//! other work on a packet. Groups need not be in arrival order, because it is restored later where
//! it is required.

use godwit_abi::Outcome;
use godwit_chain::Next;
use godwit_packet::{Descriptor, select};

/// Maximum number of packets that are grouped together. It must be a power of two. The fixed array
/// length makes bounds checks unnecessary.
const BLOCK_PACKETS: usize = 256;

/// Packets with the same next function or port.
#[derive(Clone, Copy)]
pub(crate) struct Group<'a> {
    pub(crate) next: Next,
    pub(crate) packets: &'a [Descriptor],
    /// Function that has processed the packets, with the outcome of each packet. It is `None` if
    /// the packets come from a port.
    pub(crate) from: Option<(usize, &'a [Outcome])>,
}

/// Divides batches into groups of packets with equal keys. Its arrays hold the current group and
/// are reused, so that no memory is allocated per batch.
#[derive(Debug)]
pub(crate) struct Partition {
    packets: Box<[Descriptor; BLOCK_PACKETS]>,
    /// Outcomes of the packets. They are valid only if the packets come from a function.
    outcomes: Box<[Outcome; BLOCK_PACKETS]>,
    /// Keys of the groups that are already formed from a block.
    sent: Vec<u16>,
}

impl Default for Partition {
    fn default() -> Self {
        Self {
            packets: Box::new([Descriptor::default(); BLOCK_PACKETS]),
            outcomes: Box::new([Outcome::default(); BLOCK_PACKETS]),
            sent: Vec::new(),
        }
    }
}

impl Partition {
    /// Calls `send` for each group of packets with equal keys. The packets of a group are in
    /// arrival order.
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
        self.sent.clear();
        let (mut first, mut rest) = (0, keys.len());
        while rest > 0 {
            let is_new = |key: &u16| !self.sent.contains(key);
            first += keys[first..].iter().position(is_new).unwrap_or_else(|| unreachable!("{rest} packets remain"));
            let key = keys[first];
            let count = select(keys, key, packets, &mut self.packets[..]);
            select_outcomes(keys, key, outcomes, &mut self.outcomes);
            send(key, &self.packets[..count], &self.outcomes[..count.min(outcomes.len())]);
            self.sent.push(key);
            rest -= count;
        }
    }
}

#[inline]
fn are_equal(keys: &[u16], key: u16) -> bool {
    keys.iter().fold(0, |differs, other| differs | (other ^ key)) == 0
}

/// Copies the outcomes of the packets whose key is `key` to the start of `group`, in order. To
/// avoid a branch, it writes every outcome, but extends the group only if the key matches.
fn select_outcomes(keys: &[u16], key: u16, outcomes: &[Outcome], group: &mut [Outcome; BLOCK_PACKETS]) {
    let mut count = 0;
    for (&other, &outcome) in keys.iter().zip(outcomes) {
        group[count % BLOCK_PACKETS] = outcome;
        count += usize::from(other == key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
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
