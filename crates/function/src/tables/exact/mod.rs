//! Exact-match tables with cuckoo hashing, in which each entry changes with a single store.

mod cuckoo;
mod hash;
mod waves;

pub(crate) use cuckoo::{BUCKET_SLOTS, Cuckoo, Geometry, capacity_of};
pub(crate) use hash::{LongHash, Permutation, TAG_BITS, random};
pub(crate) use waves::Waves;
