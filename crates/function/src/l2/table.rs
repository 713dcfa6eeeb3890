//! Address table on the host, which uses [`crate::tables::exact`]. `kernels/l2/l2.h` shows the
//! layout of an entry.

use godwit_kernels::image::L2Image;

use crate::Error;
use crate::tables::exact::{Cuckoo, Geometry, Permutation, Waves, random};

/// Length of each half of a key, in bits.
const HALF_BITS: u32 = 30;

const FRESH: u64 = 4;
const STATIC: u64 = 8;
const PORT_SHIFT: u32 = 4;
const REST_SHIFT: u32 = 12;

/// Part of a table entry that may change while the entry is in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) port: u8,
    pub(super) is_static: bool,
    /// Whether a frame from the address arrived recently.
    pub(super) is_fresh: bool,
}

impl Value {
    fn bits(self) -> u64 {
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        u64::from(self.port) << PORT_SHIFT | flag(self.is_static, STATIC) | flag(self.is_fresh, FRESH)
    }
}

/// Secret parameters of the hash, and the size of the table.
#[derive(Clone, Copy)]
pub(super) struct Hash {
    pub(super) permutation: Permutation,
    pub(super) geometry: Geometry,
}

impl Hash {
    /// Creates a hash function with secret random parameters from the operating system.
    pub(super) fn random(bucket_bits: u32) -> Result<Self, Error> {
        Ok(Self::of(random()?, bucket_bits))
    }

    pub(super) fn of(words: [u64; 9], bucket_bits: u32) -> Self {
        let [a, b, c, d, e, f, g, h, second] = words;
        Self {
            permutation: Permutation::of([a, b, c, d, e, f, g, h], HALF_BITS),
            geometry: Geometry { bucket_bits, second: second | 1, rest_shift: REST_SHIFT },
        }
    }

    /// Stores the parameters in the header of the kernel's table.
    pub(super) fn write(&self, header: &mut L2Image) {
        (header.bucket_bits, header.second) = (self.geometry.bucket_bits, self.geometry.second);
        (header.multipliers, header.addends) = (self.permutation.multipliers, self.permutation.addends);
    }
}

/// Address table of the host.
pub(super) struct Table {
    hash: Hash,
    cuckoo: Cuckoo,
}

impl Table {
    /// Creates an empty table.
    pub(super) fn new(hash: Hash) -> Self {
        Self { hash, cuckoo: Cuckoo::new(hash.geometry) }
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> u32 {
        self.cuckoo.slots()
    }

    /// Returns the slot of a key.
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.cuckoo.find(self.hash.permutation.mix(key), |_| true)
    }

    /// Returns the key in a slot.
    pub(super) fn key(&self, slot: u32) -> Option<u64> {
        Some(self.hash.permutation.unmix(self.cuckoo.mixed(slot)?))
    }

    /// Inserts a lookup key that is not in the table. Returns the number of entries that were moved
    /// to make room. Returns `None` and leaves the table unchanged if there is no room.
    pub(super) fn insert(&mut self, key: u64, value: Value, waves: &mut Waves) -> Option<usize> {
        debug_assert!(self.find(key).is_none());
        self.cuckoo.insert(self.hash.permutation.mix(key), value.bits(), waves)
    }

    /// Changes the contents of an entry.
    pub(super) fn set(&mut self, slot: u32, value: Value, waves: &mut Waves) {
        self.cuckoo.set(slot, value.bits(), waves);
    }

    /// Frees a slot.
    pub(super) fn remove(&mut self, slot: u32, waves: &mut Waves) {
        self.cuckoo.remove(slot, waves);
    }
}

#[cfg(test)]
impl Table {
    pub(super) fn of_words(hash: Hash, words: Vec<u64>) -> Self {
        Self { hash, cuckoo: Cuckoo::of_words(hash.geometry, words) }
    }

    /// Returns the contents of the entry in a slot.
    pub(super) fn value(&self, slot: u32) -> Option<Value> {
        let bits = self.cuckoo.value(slot)?;
        let (is_static, is_fresh) = (bits & STATIC != 0, bits & FRESH != 0);
        Some(Value { port: (bits >> PORT_SHIFT) as u8, is_static, is_fresh })
    }
}
