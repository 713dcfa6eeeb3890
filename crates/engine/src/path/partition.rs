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
    /// Key of each packet. Packets with equal keys have the same next step.
    keys: Vec<u32>,
    /// Indices of packets that are in no group yet, in arrival order.
    remaining: Vec<u32>,
    /// Indices of the packets in the current group, in arrival order.
    taken: Vec<u32>,
    pub(crate) descriptors: Vec<Descriptor>,
    pub(crate) outcomes: Vec<Outcome>,
}

impl Partition {
    /// Starts the partition of packets with these keys. Returns false if all keys are equal.
    #[inline]
    pub(crate) fn begin(&mut self, keys: impl Iterator<Item = u32>) -> bool {
        self.keys.clear();
        self.keys.extend(keys);
        let Some(&first) = self.keys.first() else { return false };
        if self.keys.iter().fold(0, |differs, key| differs | (key ^ first)) == 0 {
            return false;
        }
        self.remaining.clear();
        self.remaining.extend(0..self.keys.len() as u32);
        self.taken.resize(self.taken.len().max(self.keys.len()), 0);
        true
    }

    /// Moves the first remaining packet and all packets with its key into `self.descriptors` and
    /// `self.outcomes`. `outcomes` has one entry per packet or is empty. Returns the key, or `None`
    /// if no packet remains.
    #[inline]
    pub(crate) fn next(&mut self, descriptors: &[Descriptor], outcomes: &[Outcome]) -> Option<u32> {
        let key = self.keys[*self.remaining.first()? as usize];
        let (mut taken, mut remaining) = (0, 0);
        for position in 0..self.remaining.len() {
            let packet = self.remaining[position];
            let is_taken = self.keys[packet as usize] == key;
            self.taken[taken] = packet;
            taken += usize::from(is_taken);
            self.remaining[remaining] = packet;
            remaining += usize::from(!is_taken);
        }
        self.remaining.truncate(remaining);
        let taken = &self.taken[..taken];
        self.descriptors.clear();
        self.descriptors.extend(taken.iter().map(|&packet| descriptors[packet as usize]));
        self.outcomes.clear();
        if !outcomes.is_empty() {
            self.outcomes.extend(taken.iter().map(|&packet| outcomes[packet as usize]));
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every packet is in one group, with the packets of its key, in arrival order.
        #[test]
        fn each_packet_is_in_one_group_and_in_order(rounds in prop::collection::vec(prop::collection::vec(0u32..4, 0..70), 1..4)) {
            let mut parting = Partition::default();
            for keys in rounds {
                let descriptors: Vec<Descriptor> =
                    (0..keys.len() as u32).map(|buffer| Descriptor { buffer, ..Descriptor::default() }).collect();
                let outcomes: Vec<Outcome> =
                    (0..keys.len() as u32).map(|value| Outcome { value, ..Outcome::default() }).collect();
                let differ = keys.iter().any(|key| *key != keys[0]);
                prop_assert_eq!(parting.begin(keys.iter().copied()), differ);
                if !differ {
                    continue;
                }
                let mut seen = std::collections::BTreeSet::new();
                while let Some(key) = parting.next(&descriptors, &outcomes) {
                    let buffers: Vec<u32> = parting.descriptors.iter().map(|descriptor| descriptor.buffer).collect();
                    let expected: Vec<u32> =
                        (0..keys.len() as u32).filter(|packet| keys[*packet as usize] == key).collect();
                    prop_assert_eq!(&buffers, &expected);
                    prop_assert!(parting.outcomes.iter().map(|outcome| outcome.value).eq(buffers));
                    prop_assert!(seen.insert(key), "a key has one group");
                }
                prop_assert!(keys.iter().all(|key| seen.contains(key)));
            }
        }
    }
}
