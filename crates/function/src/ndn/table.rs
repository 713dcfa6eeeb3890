//! The table image, which `kernels/ndn/image.h` draws: how names get into it and out of it, while kernels read it.
//!
//! # Why that is sound
//!
//! A kernel gets to a name by one word, which holds the number of its record: the slot of a bucket. That word is written
//! at once ([`Image::store_u64`]), after the record, and the record is never written again but for two words of their own:
//! its next hop, and which numbers of components are below. Neither is ever part of another word. So:
//!
//! * **A name that is added** is not there until its slot is written, and there from then on. Longer ones are found by way
//!   of their guide; a guide that is not there yet, or does not say so yet, hides them: they become visible when the last of
//!   these words is written, and whichever it is, a look-up before it says what it said before. A new bucket of the overflow is filled
//!   before the word that leads to it is written.
//! * **A next hop that changes** is one word.
//! * **A name that is deleted** is not there any more when its slot is cleared. Its record stays as it is until all packets that
//!   were in flight are gone, for one of them may just be looking at it: [`Table::give_back`] comes behind a grace period.
//! * Fingerprint and record of a slot are read as one word, or in any order: a fingerprint that belongs to another record
//!   leads to a name that is not the one looked for, or to none, and the name itself decides.
//! * **Of a request with many names** a look-up that is under way sees each as before or as after it. Every request ends
//!   with a grace period, so no look-up sees two that are under way.
//!
//! Guides stay while a name is below them; that they say too much costs a probe and changes nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use godwit_kernels::image::{
    ALIGNMENT_BYTES, NDN_BLACKHOLE, NDN_CHAIN, NDN_DEPTHS, NDN_ETHERNET, NDN_LOCAL, NDN_MAGIC, NDN_NONE, NDN_SLOTS,
    NDN_UDP4, NDN_UDP6, NDN_UNIT_BYTES, NdnBucket, NdnImage, NdnNextHop, NdnRecord, NdnSlot,
};
use godwit_packet::{Image, ImageRef, Memory};

use super::hash::hash;
use super::shape::{Shape, ends, units};
use super::{Carrier, NextHop};
use crate::Error;

const HEADER_BYTES: usize = size_of::<NdnImage>();
const RECORD_BYTES: usize = size_of::<NdnRecord>();
const NEXT_HOP_BYTES: usize = size_of::<NdnNextHop>();
/// Names that hashes lead to one bucket, on average. Of seven slots, a twentieth of the buckets then go on elsewhere.
const BUCKET_LOAD: usize = 4;

/// Offsets of words in the image.
const DEFAULT_NEXT_HOP: usize = std::mem::offset_of!(NdnImage, default_next_hop);
const DEPTHS: usize = std::mem::offset_of!(NdnImage, depths);
const NEXT: usize = std::mem::offset_of!(NdnBucket, next);

/// A table with its image.
pub(super) struct Table {
    image: Arc<Image>,
    header: NdnImage,
    /// The first unit that was never used, and those that were, by how many lie together.
    fresh: u32,
    free: BTreeMap<u32, Vec<u32>>,
    /// The first bucket of the overflow that was never used.
    fresh_bucket: u32,
    /// Names by their number of components, guides apart.
    depths: [u64; NDN_DEPTHS as usize + 1],
}

/// What was written, for devices with copies of the image: first all contents, then all words that lead to them.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) contents: Vec<Range<usize>>,
    pub(super) words: Vec<Range<usize>>,
}

/// Where a name was found.
#[derive(Clone, Copy)]
struct Found {
    slot: usize,
    unit: u32,
}

/// Units of records that nothing leads to any more.
pub(super) type Freed = Vec<(u32, u32)>;

impl Table {
    pub(super) fn new(
        shape: Shape,
        key: [u64; 2],
        spare: usize,
        next_hops: usize,
        udp_port: u16,
    ) -> Result<Self, Error> {
        // A name that is added may need a guide, and both two units.
        let entries = shape.entries + 2 * spare;
        let records = 1 + shape.units + 4 * spare;
        let buckets = entries.div_ceil(BUCKET_LOAD).max(1);
        let overflow = buckets / 4 + 64;
        let next_hops_offset = HEADER_BYTES.next_multiple_of(ALIGNMENT_BYTES);
        let buckets_offset = next_hops_offset + 2 * next_hops * NEXT_HOP_BYTES;
        let records_offset = buckets_offset + (buckets + overflow) * size_of::<NdnBucket>();
        let bytes = records_offset + records * NDN_UNIT_BYTES;
        let (Ok(records), Ok(buckets), Ok(overflow), Ok(_)) = (
            u32::try_from(records),
            u32::try_from(buckets),
            u32::try_from(overflow),
            u32::try_from(buckets + overflow),
        ) else {
            let message = format!("a table takes up to 4294967295 records, and these names have {records}");
            return Err(Error::Value { span: None, message });
        };
        let header = NdnImage {
            magic: NDN_MAGIC,
            next_hops: next_hops as u32,
            buckets,
            overflow,
            records,
            default_next_hop: NDN_NONE,
            depths: 0,
            guide: shape.guide,
            udp_port: u32::from(udp_port),
            pad: 0,
            key0: key[0],
            key1: key[1],
            next_hops_offset: next_hops_offset as u64,
            buckets_offset: buckets_offset as u64,
            records_offset: records_offset as u64,
            bytes: bytes as u64,
        };
        let mut memory = Memory::new(bytes, "the names of an ndn function")?;
        memory[..HEADER_BYTES].copy_from_slice(&header.emit());
        let image = Arc::new(Image::new(memory));
        let depths = [0; NDN_DEPTHS as usize + 1];
        Ok(Self { image, header, fresh: 1, free: BTreeMap::new(), fresh_bucket: buckets, depths })
    }

    pub(super) fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// How many names there are.
    pub(super) fn len(&self) -> u64 {
        self.depths.iter().sum()
    }

    pub(super) fn guide(&self) -> u32 {
        self.header.guide
    }

    /// Writes what a next hop means: beside what it means at the moment, and then in its place.
    pub(super) fn set_next_hop(&mut self, index: u32, next_hop: &NextHop, written: &mut Written) {
        let first = self.header.next_hops_offset as usize + 2 * index as usize * NEXT_HOP_BYTES;
        let valid_copy_at = first + std::mem::offset_of!(NdnNextHop, valid_copy);
        let turn = self.u32_at(valid_copy_at) ^ 1;
        let bytes = next_hop_record(next_hop).emit();
        let bytes = &bytes[..std::mem::offset_of!(NdnNextHop, valid_copy)];
        let at = first + turn as usize * NEXT_HOP_BYTES;
        self.image.write(at, bytes);
        written.contents.push(at..at + bytes.len());
        self.publish_u32(valid_copy_at, turn, written);
    }

    /// The next hop of a name; none where it is not in the table.
    pub(super) fn next_hop(&self, name: &[u8]) -> Option<u32> {
        let next_hop = match name.len() {
            0 => self.u32_at(DEFAULT_NEXT_HOP),
            _ => self.record(self.find(name)?.unit).next_hop,
        };
        (next_hop != NDN_NONE).then_some(next_hop)
    }

    /// Adds a name, or gives it another next hop.
    ///
    /// # Errors
    /// There is no room; nothing was changed.
    pub(super) fn insert(&mut self, name: &[u8], next_hop: u32, written: &mut Written) -> Result<(), String> {
        let (depth, guide_end) = self.depth(name);
        if depth == 0 {
            self.depths[0] = 1;
            self.publish_u32(DEFAULT_NEXT_HOP, next_hop, written);
            return Ok(());
        }
        match self.find(name) {
            Some(found) => {
                let is_new = self.record(found.unit).next_hop == NDN_NONE;
                self.publish_u32(self.record_offset(found.unit), next_hop, written);
                if !is_new {
                    return Ok(());
                }
            }
            None => {
                let guide_units = guide_end.map_or(0, units);
                if !self.has_room(units(name.len()), guide_units) {
                    return Err("there is no room for one more name (capacity)".to_owned());
                }
                self.enter(name, NdnRecord { next_hop, deeper: 0, below: 0, name_bytes: 0 }, written)?;
                if let Some(end) = guide_end
                    && let Err(message) = self.guide_to(&name[..end], depth, written)
                {
                    // No guide leads to it, so nobody has seen it.
                    if let Some(found) = self.find(name) {
                        self.leave(found, name.len(), &mut Freed::new(), written);
                    }
                    return Err(message);
                }
            }
        }
        self.depths[depth as usize] += 1;
        self.publish_depths(written);
        Ok(())
    }

    /// Takes a name out; what is returned may be given back when no packet refers to it any more.
    pub(super) fn remove(&mut self, name: &[u8], written: &mut Written) -> Option<Freed> {
        let (depth, guide_end) = self.depth(name);
        if depth == 0 {
            self.next_hop(name)?;
            self.depths[0] = 0;
            self.publish_u32(DEFAULT_NEXT_HOP, NDN_NONE, written);
            return Some(Freed::new());
        }
        let found = self.find(name)?;
        let record = self.record(found.unit);
        if record.next_hop == NDN_NONE {
            return None;
        }
        let mut freed = Freed::new();
        if record.below > 0 {
            self.publish_u32(self.record_offset(found.unit), NDN_NONE, written);
        } else {
            self.leave(found, name.len(), &mut freed, written);
        }
        if let Some(end) = guide_end
            && let Some(guide) = self.find(&name[..end])
        {
            let record = self.record(guide.unit);
            let at = self.record_offset(guide.unit) + std::mem::offset_of!(NdnRecord, below);
            self.image.fill_u32(at, 1, record.below.saturating_sub(1));
            if record.below == 1 && record.next_hop == NDN_NONE {
                self.leave(guide, end, &mut freed, written);
            } else if record.below == 1 {
                self.publish_u32(self.record_offset(guide.unit) + std::mem::offset_of!(NdnRecord, deeper), 0, written);
            }
        }
        self.depths[depth as usize] -= 1;
        Some(freed)
    }

    /// Units that no packet refers to any more can be used again.
    pub(super) fn give_back(&mut self, freed: Freed) {
        for (unit, units) in freed {
            self.free.entry(units).or_default().push(unit);
        }
    }

    /// How many components a name has, and where its guide ends if it is longer.
    fn depth(&self, name: &[u8]) -> (u32, Option<usize>) {
        let (mut depth, mut guide_end) = (0, None);
        for end in ends(name) {
            depth += 1;
            if depth == self.header.guide {
                guide_end = Some(end).filter(|&end| end < name.len());
            }
        }
        (depth, guide_end)
    }

    /// Numbers of components with something to find: those below the guides', and the guides' if anything has as many.
    fn publish_depths(&mut self, written: &mut Written) {
        let guide = self.header.guide as usize;
        let mut bits = 0;
        for (depth, _) in self.depths.iter().enumerate().skip(1).filter(|(_, count)| **count > 0) {
            bits |= 1u32 << (depth.min(guide) - 1);
        }
        if bits != self.u32_at(DEPTHS) {
            self.publish_u32(DEPTHS, bits, written);
        }
    }

    /// Says in a guide that there is a name below, and makes the guide where there is none.
    fn guide_to(&mut self, guide: &[u8], depth: u32, written: &mut Written) -> Result<(), String> {
        let bit = 1 << (depth - self.header.guide - 1);
        let Some(found) = self.find(guide) else {
            let record = NdnRecord { next_hop: NDN_NONE, deeper: bit, below: 1, name_bytes: 0 };
            return self.enter(guide, record, written);
        };
        let (at, record) = (self.record_offset(found.unit), self.record(found.unit));
        self.image.fill_u32(at + std::mem::offset_of!(NdnRecord, below), 1, record.below + 1);
        if record.deeper & bit == 0 {
            self.publish_u32(at + std::mem::offset_of!(NdnRecord, deeper), record.deeper | bit, written);
        }
        Ok(())
    }

    /// Writes a record and lets look-ups find it.
    fn enter(&mut self, name: &[u8], record: NdnRecord, written: &mut Written) -> Result<(), String> {
        let hash = hash([self.header.key0, self.header.key1], name);
        let needed = units(name.len()) as u32;
        let Some(unit) = self.take(needed) else {
            return Err("there is no room for one more name (capacity)".to_owned());
        };
        let at = self.record_offset(unit);
        self.image.write(at, &NdnRecord { name_bytes: name.len() as u32, ..record }.emit());
        self.image.write(at + RECORD_BYTES, name);
        written.contents.push(at..at + needed as usize * NDN_UNIT_BYTES);
        let slot = NdnSlot { fingerprint: (hash >> 32) as u32, record: unit };
        let mut bucket = self.first_bucket(hash);
        for _ in 0..NDN_CHAIN {
            let offset = self.bucket_offset(bucket);
            let bytes = self.bytes_at::<{ size_of::<NdnBucket>() }>(offset);
            if let Some(free) = (0..NDN_SLOTS).find(|&slot| word(&bytes, 8 * slot + 4) == 0) {
                self.publish_slot(offset + 8 * free, slot, written);
                return Ok(());
            }
            match word(&bytes, NEXT) {
                0 => return self.chain(offset, slot, written).inspect_err(|_| self.give_back(vec![(unit, needed)])),
                next => bucket = next,
            }
        }
        self.give_back(vec![(unit, needed)]);
        Err(CROWDED.to_owned())
    }

    /// Lets a full bucket go on in a fresh one with this slot.
    fn chain(&mut self, full: usize, slot: NdnSlot, written: &mut Written) -> Result<(), String> {
        if self.fresh_bucket >= self.header.buckets + self.header.overflow {
            return Err(CROWDED.to_owned());
        }
        let fresh = self.bucket_offset(self.fresh_bucket);
        self.image.store_u64(fresh, slot_word(slot));
        written.contents.push(fresh..fresh + size_of::<NdnBucket>());
        self.publish_u32(full + NEXT, self.fresh_bucket, written);
        self.fresh_bucket += 1;
        Ok(())
    }

    /// No look-up finds the name from now on.
    fn leave(&mut self, found: Found, name_bytes: usize, freed: &mut Freed, written: &mut Written) {
        self.publish_slot(found.slot, NdnSlot::default(), written);
        freed.push((found.unit, units(name_bytes) as u32));
    }

    fn find(&self, name: &[u8]) -> Option<Found> {
        let hash = hash([self.header.key0, self.header.key1], name);
        let mut bucket = self.first_bucket(hash);
        for _ in 0..NDN_CHAIN {
            let offset = self.bucket_offset(bucket);
            let bytes = self.bytes_at::<{ size_of::<NdnBucket>() }>(offset);
            for slot in 0..NDN_SLOTS {
                let unit = word(&bytes, 8 * slot + 4);
                if unit != 0 && word(&bytes, 8 * slot) == (hash >> 32) as u32 && self.is_of(unit, name) {
                    return Some(Found { slot: offset + 8 * slot, unit });
                }
            }
            bucket = word(&bytes, NEXT);
            if bucket == 0 {
                break;
            }
        }
        None
    }

    fn is_of(&self, unit: u32, name: &[u8]) -> bool {
        let mut bytes = [0; 64];
        let mut at = self.record_offset(unit) + RECORD_BYTES;
        self.record(unit).name_bytes as usize == name.len()
            && name.chunks(bytes.len()).all(|chunk| {
                let bytes = &mut bytes[..chunk.len()];
                ImageRef::from(&*self.image).copy_to(at, bytes);
                at += chunk.len();
                bytes == chunk
            })
    }

    fn record(&self, unit: u32) -> NdnRecord {
        let bytes = self.bytes_at::<RECORD_BYTES>(self.record_offset(unit));
        let [next_hop, deeper, below, name_bytes] = [0, 4, 8, 12].map(|at| word(&bytes, at));
        NdnRecord { next_hop, deeper, below, name_bytes }
    }

    /// Whether there are units for two records more.
    fn has_room(&self, first: usize, second: usize) -> bool {
        let fresh = (self.header.records - self.fresh) as usize;
        let has = |units: usize| units == 0 || self.free.get(&(units as u32)).is_some_and(|free| !free.is_empty());
        match (has(first), has(second)) {
            (true, true) => true,
            (true, false) => second <= fresh,
            (false, true) => first <= fresh,
            (false, false) => first + second <= fresh,
        }
    }

    fn take(&mut self, units: u32) -> Option<u32> {
        if let Some(unit) = self.free.get_mut(&units).and_then(Vec::pop) {
            return Some(unit);
        }
        let unit = self.fresh;
        self.fresh = unit.checked_add(units).filter(|&end| end <= self.header.records)?;
        Some(unit)
    }

    fn first_bucket(&self, hash: u64) -> u32 {
        (((hash & 0xffff_ffff) * u64::from(self.header.buckets)) >> 32) as u32
    }

    fn bucket_offset(&self, bucket: u32) -> usize {
        self.header.buckets_offset as usize + bucket as usize * size_of::<NdnBucket>()
    }

    fn record_offset(&self, unit: u32) -> usize {
        self.header.records_offset as usize + unit as usize * NDN_UNIT_BYTES
    }

    fn bytes_at<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        ImageRef::from(&*self.image).copy_to(at, &mut bytes);
        bytes
    }

    fn u32_at(&self, at: usize) -> u32 {
        self.image.load_u32(at)
    }

    fn publish_u32(&self, at: usize, value: u32, written: &mut Written) {
        self.image.fill_u32(at, 1, value);
        written.words.push(at..at + 4);
    }

    fn publish_slot(&self, at: usize, slot: NdnSlot, written: &mut Written) {
        self.image.store_u64(at, slot_word(slot));
        written.words.push(at..at + 8);
    }
}

const CROWDED: &str = "the buckets have no room for one more name (capacity)";

fn slot_word(slot: NdnSlot) -> u64 {
    u64::from(slot.record) << 32 | u64::from(slot.fingerprint)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn next_hop_record(next_hop: &NextHop) -> NdnNextHop {
    let (port, destination, source, carrier) = match *next_hop {
        NextHop::Local => return NdnNextHop { flags: NDN_LOCAL, ..NdnNextHop::default() },
        NextHop::Blackhole => return NdnNextHop { flags: NDN_BLACKHOLE, ..NdnNextHop::default() },
        NextHop::Forward { port, destination, source, carrier } => (port, destination, source, carrier),
    };
    let plain = NdnNextHop {
        destination_mac: destination.0,
        source_mac: source.0,
        port,
        carrier: NDN_ETHERNET,
        ..NdnNextHop::default()
    };
    let wide = |address: [u8; 4]| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&address);
        bytes
    };
    match carrier {
        Carrier::Ethernet => plain,
        Carrier::Udp4 { source, destination } => NdnNextHop {
            carrier: NDN_UDP4,
            source_address: wide(source.0.octets()),
            destination_address: wide(destination.0.octets()),
            source_port: source.1,
            destination_port: destination.1,
            ..plain
        },
        Carrier::Udp6 { source, destination } => NdnNextHop {
            carrier: NDN_UDP6,
            source_address: source.0.octets(),
            destination_address: destination.0.octets(),
            source_port: source.1,
            destination_port: destination.1,
            ..plain
        },
    }
}
