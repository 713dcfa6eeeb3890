//! Table of `ndn`, whose layout `kernels/ndn/find.h` shows. Names are added and removed while
//! kernels read the table.
//!
//! # Why concurrent changes are safe
//!
//! A kernel reaches the record of a name through one word: the slot of a bucket, which contains the
//! number of the record. The slot is written atomically ([`Image::store_u64`]) after its record.
//! Afterwards, only two words of the record change: the next hop of the name, and the lengths of
//! the longer names that begin with it.
//!
//! - **Added name.** The name is invisible until its slot is written. A long name is found through
//!   its guide, and is invisible until the guide lists its length. The name becomes visible with
//!   the last of these writes, so every lookup sees the table either before or after the change. A
//!   new overflow bucket is filled before the word that refers to it is written.
//! - **Changed next hop.** The change is a write of one word.
//! - **Removed name.** The name is invisible after its slot is cleared. Packets in flight may still
//!   read its record. The record is therefore unchanged until [`Table::free_records`], which is
//!   called after a grace period.
//! - **Slot.** A lookup may read the fingerprint and the record of a slot in any order. They may
//!   then belong to different names. The lookup therefore compares the whole name.
//! - **Request with several names.** A concurrent lookup sees each name either before or after its
//!   change. Every request ends with a grace period, so no lookup sees parts of two requests.
//!
//! A guide stays while a name begins with it. If it lists too many lengths, a lookup reads more
//! buckets but has the same result.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use godwit_kernels::image::{
    ALIGNMENT_BYTES, NDN_CHAIN, NDN_DEPTHS, NDN_ETHERNET, NDN_HOP_BLACKHOLE, NDN_HOP_LOCAL, NDN_MAGIC, NDN_NONE,
    NDN_SLOTS, NDN_UDP4, NDN_UDP6, NDN_UNIT_BYTES, NdnBucket, NdnImage, NdnNextHop, NdnRecord, NdnSlot,
};
use godwit_packet::{Image, ImageRef, Memory};

use super::hash::hash;
use super::shape::{Shape, ends, units};
use super::{Carrier, NextHop};
use crate::Error;

const HEADER_BYTES: usize = size_of::<NdnImage>();
const RECORD_BYTES: usize = size_of::<NdnRecord>();
const NEXT_HOP_BYTES: usize = size_of::<NdnNextHop>();
/// Average number of names per bucket. A bucket has seven slots, so about 5 % of the buckets
/// overflow into an additional bucket.
const BUCKET_LOAD: usize = 4;

const DEFAULT_NEXT_HOP: usize = std::mem::offset_of!(NdnImage, default_next_hop);
const DEPTHS: usize = std::mem::offset_of!(NdnImage, depths);
const NEXT: usize = std::mem::offset_of!(NdnBucket, next);

/// Table of names, and the memory that kernels read.
pub(super) struct Table {
    image: Arc<Image>,
    header: NdnImage,
    /// First 64-byte record unit that was never used.
    fresh: u32,
    free: BTreeMap<u32, Vec<u32>>,
    /// First overflow bucket that was never used.
    fresh_bucket: u32,
    /// Number of names for each number of components.
    depths: [u64; NDN_DEPTHS as usize + 1],
}

/// Changed ranges of the table, which must be copied to devices. New contents are copied before the
/// references to them.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) contents: Vec<Range<usize>>,
    pub(super) words: Vec<Range<usize>>,
}

/// Location of a name in the table.
#[derive(Clone, Copy)]
struct Location {
    slot: usize,
    unit: u32,
}

/// Unused ranges of record memory, each with its first 64-byte unit and its number of units.
pub(super) type Freed = Vec<(u32, u32)>;

impl Table {
    pub(super) fn new(
        shape: Shape,
        key: [u64; 2],
        spare: usize,
        next_hops: usize,
        udp_port: u16,
    ) -> Result<Self, Error> {
        // Each added name may need two records: one for the name, and one for a prefix of the name.
        // Each record takes about two units of 64 bytes.
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
            let message = format!("these names need {records} record units, but a table has at most 4294967295");
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

    /// Returns the number of names.
    pub(super) fn len(&self) -> u64 {
        self.depths.iter().sum()
    }

    pub(super) fn guide(&self) -> u32 {
        self.header.guide
    }

    /// Changes a next hop. Writes the unused one of its two copies, and then selects that copy.
    pub(super) fn set_next_hop(&mut self, index: u32, next_hop: &NextHop, written: &mut Written) {
        let first = self.header.next_hops_offset as usize + 2 * index as usize * NEXT_HOP_BYTES;
        let valid_copy_at = first + std::mem::offset_of!(NdnNextHop, valid_copy);
        let copy = self.u32_at(valid_copy_at) ^ 1;
        let bytes = next_hop_record(next_hop).emit();
        let bytes = &bytes[..std::mem::offset_of!(NdnNextHop, valid_copy)];
        let at = first + copy as usize * NEXT_HOP_BYTES;
        self.image.write(at, bytes);
        written.contents.push(at..at + bytes.len());
        self.publish_u32(valid_copy_at, copy, written);
    }

    /// Returns the next hop index of exactly this name.
    pub(super) fn next_hop(&self, name: &[u8]) -> Option<u32> {
        let next_hop = match name.len() {
            0 => self.u32_at(DEFAULT_NEXT_HOP),
            _ => self.record(self.find(name)?.unit).next_hop,
        };
        (next_hop != NDN_NONE).then_some(next_hop)
    }

    /// Adds a name, or changes its next hop if the table already contains it.
    ///
    /// # Errors
    /// Returns an error if the table is full. The table is then unchanged.
    pub(super) fn insert(&mut self, name: &[u8], next_hop: u32, written: &mut Written) -> Result<(), Error> {
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
                    return Err(Error::value("the table is full: increase spare_names"));
                }
                self.insert_record(name, NdnRecord { next_hop, deeper: 0, below: 0, name_bytes: 0 }, written)?;
                if let Some(end) = guide_end
                    && let Err(error) = self.add_to_guide(&name[..end], depth, written)
                {
                    // No record refers to the name yet, so no lookup has seen it.
                    if let Some(found) = self.find(name) {
                        self.clear_slot(found, name.len(), &mut Freed::new(), written);
                    }
                    return Err(error);
                }
            }
        }
        self.depths[depth as usize] += 1;
        self.publish_depths(written);
        Ok(())
    }

    /// Removes a name and returns its records. The caller frees these records when no packet in
    /// flight refers to them any more. Returns `None` if the name is not in the table.
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
            self.clear_slot(found, name.len(), &mut freed, written);
        }
        if let Some(end) = guide_end
            && let Some(guide) = self.find(&name[..end])
        {
            let record = self.record(guide.unit);
            let at = self.record_offset(guide.unit) + std::mem::offset_of!(NdnRecord, below);
            self.image.fill_u32(at, 1, record.below.saturating_sub(1));
            if record.below == 1 && record.next_hop == NDN_NONE {
                self.clear_slot(guide, end, &mut freed, written);
            } else if record.below == 1 {
                self.publish_u32(self.record_offset(guide.unit) + std::mem::offset_of!(NdnRecord, deeper), 0, written);
            }
        }
        self.depths[depth as usize] -= 1;
        Some(freed)
    }

    /// Frees record memory. No packet in flight may still refer to these records.
    pub(super) fn free_records(&mut self, freed: Freed) {
        for (unit, units) in freed {
            self.free.entry(units).or_default().push(unit);
        }
    }

    /// Returns the number of components in a name. If the name is longer than `header.guide`
    /// components, also returns the size of these components in bytes.
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

    /// Updates the prefix lengths that a lookup tries first. They are at most `header.guide`,
    /// because guide records list the longer lengths.
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

    /// Adds the length of a name to the record of its prefix `guide`. Creates the record if it does
    /// not exist.
    fn add_to_guide(&mut self, guide: &[u8], depth: u32, written: &mut Written) -> Result<(), Error> {
        let bit = 1 << (depth - self.header.guide - 1);
        let Some(found) = self.find(guide) else {
            let record = NdnRecord { next_hop: NDN_NONE, deeper: bit, below: 1, name_bytes: 0 };
            return self.insert_record(guide, record, written);
        };
        let (at, record) = (self.record_offset(found.unit), self.record(found.unit));
        self.image.fill_u32(at + std::mem::offset_of!(NdnRecord, below), 1, record.below + 1);
        if record.deeper & bit == 0 {
            self.publish_u32(at + std::mem::offset_of!(NdnRecord, deeper), record.deeper | bit, written);
        }
        Ok(())
    }

    /// Writes a record, and then the bucket slot that refers to it.
    fn insert_record(&mut self, name: &[u8], record: NdnRecord, written: &mut Written) -> Result<(), Error> {
        let hash = hash([self.header.key0, self.header.key1], name);
        let needed = units(name.len()) as u32;
        let Some(unit) = self.take(needed) else {
            return Err(Error::value("the table is full: increase spare_names"));
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
                0 => {
                    return self
                        .add_bucket(offset, slot, written)
                        .inspect_err(|_| self.free_records(vec![(unit, needed)]));
                }
                next => bucket = next,
            }
        }
        self.free_records(vec![(unit, needed)]);
        Err(Error::value(BUCKETS_FULL))
    }

    /// Links an overflow bucket that contains `slot` to a full bucket.
    fn add_bucket(&mut self, full: usize, slot: NdnSlot, written: &mut Written) -> Result<(), Error> {
        if self.fresh_bucket >= self.header.buckets + self.header.overflow {
            return Err(Error::value(BUCKETS_FULL));
        }
        let fresh = self.bucket_offset(self.fresh_bucket);
        self.image.store_u64(fresh, slot_word(slot));
        written.contents.push(fresh..fresh + size_of::<NdnBucket>());
        self.publish_u32(full + NEXT, self.fresh_bucket, written);
        self.fresh_bucket += 1;
        Ok(())
    }

    /// Makes a name invisible to lookups.
    fn clear_slot(&mut self, found: Location, name_bytes: usize, freed: &mut Freed, written: &mut Written) {
        self.publish_slot(found.slot, NdnSlot::default(), written);
        freed.push((found.unit, units(name_bytes) as u32));
    }

    fn find(&self, name: &[u8]) -> Option<Location> {
        let hash = hash([self.header.key0, self.header.key1], name);
        let mut bucket = self.first_bucket(hash);
        for _ in 0..NDN_CHAIN {
            let offset = self.bucket_offset(bucket);
            let bytes = self.bytes_at::<{ size_of::<NdnBucket>() }>(offset);
            for slot in 0..NDN_SLOTS {
                let unit = word(&bytes, 8 * slot + 4);
                if unit != 0 && word(&bytes, 8 * slot) == (hash >> 32) as u32 && self.is_record_of(unit, name) {
                    return Some(Location { slot: offset + 8 * slot, unit });
                }
            }
            bucket = word(&bytes, NEXT);
            if bucket == 0 {
                break;
            }
        }
        None
    }

    fn is_record_of(&self, unit: u32, name: &[u8]) -> bool {
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

const BUCKETS_FULL: &str = "the buckets for this name are full: increase spare_names";

fn slot_word(slot: NdnSlot) -> u64 {
    u64::from(slot.record) << 32 | u64::from(slot.fingerprint)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn next_hop_record(next_hop: &NextHop) -> NdnNextHop {
    let (port, destination, source, carrier) = match *next_hop {
        NextHop::Local => return NdnNextHop { flags: NDN_HOP_LOCAL, ..NdnNextHop::default() },
        NextHop::Blackhole => return NdnNextHop { flags: NDN_HOP_BLACKHOLE, ..NdnNextHop::default() },
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
