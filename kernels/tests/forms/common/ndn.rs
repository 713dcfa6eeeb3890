//! Image of a small table of NDN names, built in the simplest way, and packets for it.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher as _;

use godwit_kernels::NDN;
use godwit_kernels::image::*;
use godwit_test_support::Random;
use godwit_test_support::frame::set_ipv4_checksum;

use super::Case;
use super::batch::Lines;
use super::chunk::Part;
use super::frames::{ones_sum, random_frame};
use super::{DESTINATIONS, PATTERNS};

const GUIDE: usize = 2;
const BUCKETS: usize = 3;

/// Names and their next hops: 0 is Ethernet, 1 and 2 are UDP, 3 is local, 4 is a blackhole.
const NAMES: &[(&[&str], u32)] = &[
    (&["a"], 0),
    (&["a", "b"], 1),
    (&["a", "b", "c", "d"], 2),
    (&["a", "b", "c", "d", "a longer component than most others are"], 3),
    (&["b", "a", "a"], 4),
    (&["b", "c"], 0),
    (&["c", "a"], 1),
    (&["c", "b", "a", "a", "a", "b"], 2),
    (&["d"], 0),
];
const WORDS: &[&str] = &["a", "b", "c", "d", "a longer component than most others are", ""];

fn element(kind: u64, value: &[u8]) -> Vec<u8> {
    let number = |value: u64| match value {
        0..=252 => vec![value as u8],
        _ => [&[253][..], &(value as u16).to_be_bytes()].concat(),
    };
    [number(kind), number(value.len() as u64), value.to_vec()].concat()
}

fn name(components: &[&str]) -> Vec<u8> {
    components.iter().flat_map(|text| element(8, text.as_bytes())).collect()
}

/// Returns SipHash-1-3 with key 0, which is the default hasher of the standard library.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

pub(crate) fn ndn_image() -> Lines {
    let mut records: BTreeMap<Vec<u8>, NdnRecord> = BTreeMap::new();
    let record = |next_hop, name: &[u8]| NdnRecord { next_hop, deeper: 0, below: 0, name_bytes: name.len() as u32 };
    let mut depths = 0;
    for (components, next_hop) in NAMES {
        let full = name(components);
        records.entry(full.clone()).or_insert_with(|| record(NDN_NONE, &full)).next_hop = *next_hop;
        depths |= 1 << (components.len().min(GUIDE) - 1);
        if components.len() > GUIDE {
            let guide = name(&components[..GUIDE]);
            let entry = records.entry(guide.clone()).or_insert_with(|| record(NDN_NONE, &guide));
            entry.deeper |= 1 << (components.len() - GUIDE - 1);
            entry.below += 1;
        }
    }
    let mut image = Lines::zeroed(size_of::<NdnImage>());
    let next_hops_offset = image.append(&next_hops()) as u64;
    let (mut bytes, mut slots) = (vec![0; 64], vec![Vec::new(); BUCKETS]);
    for (name, record) in &records {
        let hash = hash(name);
        let slot = NdnSlot { fingerprint: (hash >> 32) as u32, record: (bytes.len() / 64) as u32 };
        slots[(((hash & 0xffff_ffff) * BUCKETS as u64) >> 32) as usize].push(slot);
        bytes.extend([&record.emit()[..], name].concat());
        bytes.resize(bytes.len().next_multiple_of(64), 0);
    }
    // Each bucket uses one slot, so that most names are in overflow buckets.
    let mut buckets = vec![Vec::new(); BUCKETS];
    for (index, slots) in slots.into_iter().enumerate() {
        let mut at = index;
        for slot in slots {
            if !buckets[at].is_empty() {
                let next = buckets.len();
                buckets[at][56..60].copy_from_slice(&(next as u32).to_le_bytes());
                at = next;
                buckets.push(Vec::new());
            }
            let mut bucket = vec![0; 64];
            bucket[16..24].copy_from_slice(&[slot.fingerprint.to_le_bytes(), slot.record.to_le_bytes()].concat());
            buckets[at] = bucket;
        }
        buckets[at].resize(64, 0);
    }
    let overflow = (buckets.len() - BUCKETS) as u32;
    let buckets_offset = image.append(&buckets.concat()) as u64;
    let records_offset = image.append(&bytes) as u64;
    let header = NdnImage {
        magic: NDN_MAGIC,
        next_hops: 5,
        buckets: BUCKETS as u32,
        overflow,
        records: (bytes.len() / 64) as u32,
        default_next_hop: NDN_NONE,
        depths,
        guide: GUIDE as u32,
        udp_port: 6363,
        pad: 0,
        key0: 0,
        key1: 0,
        next_hops_offset,
        buckets_offset,
        records_offset,
        bytes: image.bytes().len() as u64,
    };
    image.bytes_mut()[..size_of::<NdnImage>()].copy_from_slice(&header.emit());
    image
}

/// Returns two slots per next hop. The second slot is active for every other next hop.
fn next_hops() -> Vec<u8> {
    let hop = |index: u8| NdnNextHop {
        destination_mac: [2, 0, 0, 0, 1, index],
        source_mac: [2, 0, 0, 0, 2, index],
        port: u16::from(index) * 257,
        flags: [0, 0, 0, NDN_HOP_LOCAL, NDN_HOP_BLACKHOLE][usize::from(index)],
        carrier: index % 3,
        source_address: [0x20 + index; 16],
        destination_address: [0x40 + index; 16],
        source_port: 6363,
        destination_port: 7000,
        ..NdnNextHop::default()
    };
    let pair = |index: u8| match index % 2 {
        0 => [hop(index), NdnNextHop::default()],
        _ => [NdnNextHop { valid_copy: 1, ..NdnNextHop::default() }, hop(index)],
    };
    (0..5).flat_map(pair).flat_map(|hop| hop.emit()).collect()
}

/// Returns Interests, similar packets, and other frames.
pub(crate) fn ndn_part(count: usize, seed: u64) -> Part {
    let mut random = Random::new(seed);
    let frames = (0..count).map(|_| frame(&mut random)).collect();
    Part::new(Case { name: "ndn", kernel: NDN, variant: 0, image: ndn_image() }, frames)
}

fn frame(random: &mut Random) -> Vec<u8> {
    if random.below(8) == 0 {
        return random_frame(random, DESTINATIONS, PATTERNS);
    }
    let mut components: Vec<&str> = Vec::new();
    if random.below(2) == 0 {
        components.extend(random.pick(NAMES).0);
    }
    for _ in 0..random.below(5) {
        components.push(random.pick(WORDS));
    }
    let mut inside = element(7, &name(&components));
    let hops = random.pick(&[0, 1, 2, 64, 255]);
    for (kind, value, one_in) in [
        (33, &[][..], 2),
        (30, &[7, 3, 8, 1, b'h'], 4),
        (10, &[1, 2, 3, 4], 1),
        (12, &[0x10, 0], 2),
        (34, &[hops], 2),
        (random.pick(&[36, 240, 241, 2000, 70]), &[0; 5], 4),
    ] {
        if random.below(one_in) == 0 && random.below(30) != 0 {
            inside.extend(element(kind, value));
        }
    }
    let mut packet = element(random.pick(&[5, 5, 5, 5, 5, 6, 9]), &inside);
    if random.below(4) == 0 {
        let field = [element(98, &[9; 4]), element(832, &[1]), element(800, &[]), Vec::new()];
        let field = &field[random.below(4)];
        packet = element(100, &[&field[..], &element(80, &packet)].concat());
    }
    let mut frame = random.bytes(12);
    if random.below(4) == 0 {
        frame.extend([0x81, 0, 0, 7]);
    }
    let ports = [40_000_u16.to_be_bytes(), 6363_u16.to_be_bytes()].concat();
    let datagram = [&ports[..], &(8 + packet.len() as u16).to_be_bytes(), &[0, 0], &packet].concat();
    match random.below(3) {
        0 => frame.extend([&[0x86, 0x24][..], &packet].concat()),
        1 => {
            let mut ip =
                [&[0x45, 0][..], &(20 + datagram.len() as u16).to_be_bytes(), &[0, 0, 0, 0, 9, 17, 0, 0]].concat();
            ip.extend([192, 0, 2, 1, 198, 51, 100, 1]);
            set_ipv4_checksum(&mut ip);
            frame.extend([&[8, 0][..], &ip, &datagram].concat());
        }
        _ => {
            let bytes = (datagram.len() as u16).to_be_bytes();
            let addresses = [[0x20; 16], [0x30; 16]].concat();
            let mut datagram = datagram;
            let pseudo = [&addresses[..], &[0, 17], &bytes, &datagram].concat();
            let sum = match !ones_sum(&pseudo) {
                0 => 0xffff,
                sum => sum,
            };
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
            frame.extend([&[0x86, 0xdd, 0x60, 0, 0, 0][..], &bytes, &[17, 9], &addresses, &datagram].concat());
        }
    }
    match random.below(10) {
        0 => frame.truncate(random.below(frame.len() + 1)),
        1 => {
            let at = random.below(frame.len());
            frame[at] ^= 1 << random.below(8);
        }
        2 => frame.resize(frame.len() + random.below(20), 0),
        _ => {}
    }
    frame
}
