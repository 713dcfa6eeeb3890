//! Packets that came together and go different ways, parted: those that go alike are sent on together.
//!
//! Which way each packet goes cannot be predicted, so nothing here branches on it: a mispredicted branch takes as long as all the
//! rest that is done for a packet. (Order is restored at gates and at the exit, so parting changes none.)

use godwit_abi::Outcome;
use godwit_packet::Descriptor;

/// What it takes to part packets; kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Parting {
    /// Of each packet; those with equal keys go alike.
    keys: Vec<u32>,
    /// Packets that nothing has been done with, in order.
    left: Vec<u32>,
    /// Packets with the key at hand, in order.
    taken: Vec<u32>,
    pub(crate) descriptors: Vec<Descriptor>,
    pub(crate) outcomes: Vec<Outcome>,
}

impl Parting {
    /// Begins with packets that have these keys. Returns false where all are alike, and there is nothing to be parted.
    #[inline]
    pub(crate) fn begin(&mut self, keys: impl Iterator<Item = u32>) -> bool {
        self.keys.clear();
        self.keys.extend(keys);
        let Some(&first) = self.keys.first() else { return false };
        if self.keys.iter().fold(0, |differs, key| differs | (key ^ first)) == 0 {
            return false;
        }
        self.left.clear();
        self.left.extend(0..self.keys.len() as u32);
        self.taken.resize(self.taken.len().max(self.keys.len()), 0);
        true
    }

    /// Takes the packets that go as the first of those left does; `descriptors` and `outcomes` (of each packet, or none) are theirs
    /// then. Returns their key; `None`: no packet is left.
    #[inline]
    pub(crate) fn next(&mut self, descriptors: &[Descriptor], outcomes: &[Outcome]) -> Option<u32> {
        let key = self.keys[*self.left.first()? as usize];
        let (mut taken, mut left) = (0, 0);
        for place in 0..self.left.len() {
            let packet = self.left[place];
            let is_taken = self.keys[packet as usize] == key;
            self.taken[taken] = packet;
            taken += usize::from(is_taken);
            self.left[left] = packet;
            left += usize::from(!is_taken);
        }
        self.left.truncate(left);
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
        /// Every packet is taken once, with those of its key, in order of arrival.
        #[test]
        fn each_packet_goes_once_and_in_order(rounds in prop::collection::vec(prop::collection::vec(0u32..4, 0..70), 1..4)) {
            let mut parting = Parting::default();
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
                    prop_assert!(seen.insert(key), "a key comes once");
                }
                prop_assert!(keys.iter().all(|key| seen.contains(key)));
            }
        }
    }
}
