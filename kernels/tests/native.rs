//! The forms for whole bins against the kernel: every suite they cover, bins of any size, SAs of every kind in one bin.

mod common;

use common::batch::{Batch, Lines};
use common::frames::{Random, ones_sum, random_frame};
use common::ipsec::{inverse_keys, write_image};
use common::{DESTINATIONS, PATTERNS};
use godwit_kernels::{BinCall, IPSEC, Level, Native, levels, natives};

const SAS: usize = 24;
const SA_BYTES: usize = 384;
const BATCHES: [usize; 8] = [1, 2, 5, 15, 17, 33, 256, 300];

/// A row of suite.h.
struct Suite {
    number: u8,
    ah: bool,
    cipher: String,
    key_bytes: usize,
    auth: String,
}

fn suites() -> Vec<Suite> {
    let text = include_str!("../ipsec/suite.h");
    let rows = text.lines().filter_map(|line| line.trim().strip_prefix("X(")?.split(')').next());
    let suite = |row: &str| {
        let columns: Vec<&str> = row.split(',').map(str::trim).collect();
        let [number, _, protocol, cipher, key_bytes, auth] = columns[..] else { return None };
        Some(Suite {
            number: number.parse().ok()?,
            ah: protocol.ends_with("_AH"),
            cipher: cipher.rsplit('_').next()?.to_owned(),
            key_bytes: key_bytes.parse().ok()?,
            auth: auth.rsplit('_').next()?.to_owned(),
        })
    };
    rows.filter_map(suite).collect()
}

/// Pairs of SAs, outbound in place i and inbound in place SAS + i. Flags: tunnel or transport, endpoints of IPv4 or IPv6,
/// extended sequence numbers, UDP.
fn image(suite: &Suite, random: &mut Random, plain: bool) -> Lines {
    let mut sas = vec![0; 2 * SAS * SA_BYTES];
    for place in 0..SAS {
        let flags: u32 = if plain { 0 } else { [0, 0x10, 4, 0x14, 8, 0x18, 0x20, 0x30][place % 8] };
        let flags = if suite.ah { flags & !0x20 } else { flags };
        let icv_bytes = match suite.auth.as_str() {
            "NONE" => 0,
            "SHA1" => 12,
            "GHASH" if suite.cipher == "CTR" => random.pick(&[8, 12, 16]),
            _ => 16,
        };
        let mut sa = random.bytes(SA_BYTES);
        sa[4..8].copy_from_slice(&(flags | 1).to_le_bytes());
        sa[12..16].copy_from_slice(&[suite.number, icv_bytes, 64, 0]);
        sa[48..52].copy_from_slice(&[0x94, 0x11, 0x94, 0x11]);
        sa[52..60].copy_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0]);
        if suite.auth == "GHASH" {
            let h = u128::from_le_bytes(sa[64..80].try_into().unwrap());
            let mut power = h;
            // Four, and four more behind the round keys of AES-128.
            let more = if suite.key_bytes == 16 { 304..368 } else { 0..0 };
            for at in (80..128).chain(more).step_by(16) {
                power = polyval(power, h);
                sa[at..at + 16].copy_from_slice(&power.to_le_bytes());
            }
        }
        sas[place * SA_BYTES..][..SA_BYTES].copy_from_slice(&sa);
        sa[4..8].copy_from_slice(&(flags | 3).to_le_bytes());
        if suite.cipher == "CBC" {
            let words = 4 * (suite.key_bytes / 4 + 7);
            let keys: Vec<u32> =
                sa[128..128 + 4 * words].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
            let inverse: Vec<u8> = inverse_keys(&keys).iter().flat_map(|word| word.to_le_bytes()).collect();
            sa[128..128 + 4 * words].copy_from_slice(&inverse);
        }
        sas[(SAS + place) * SA_BYTES..][..SA_BYTES].copy_from_slice(&sa);
    }
    let mut selector = [0; 64];
    selector[36..38].copy_from_slice(&256_u16.to_le_bytes());
    if random.below(3) == 0 {
        // IPv4 whose source begins with a 0.
        (selector[32], selector[34]) = (1, 4);
    }
    write_image(&sas, &selector)
}

/// The product of POLYVAL, bit by bit (RFC 8452, section 3 and appendix A): a b x^-128.
fn polyval(a: u128, b: u128) -> u128 {
    (0..128).fold(0, |sum: u128, bit| {
        let sum = if a >> bit & 1 == 1 { sum ^ b } else { sum };
        // Divided by x, modulo x^128 + x^127 + x^126 + x^121 + 1.
        if sum & 1 == 1 { (sum >> 1) ^ (0xe1 << 120) } else { sum >> 1 }
    })
}

fn sound(random: &mut Random, total_bytes: usize) -> Vec<u8> {
    let mut ip = random.bytes(total_bytes);
    let tos = if random.below(3) == 0 { random.below(256) as u8 } else { 0 };
    ip[..8].copy_from_slice(&[0x45, tos, (total_bytes >> 8) as u8, total_bytes as u8, 0, 0, 0, 0]);
    ip[10..12].fill(0);
    let sum = !ones_sum(&ip[..20]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&random.bytes(12)[..], &[8, 0], &ip].concat()
}

/// What the packets of a bin have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bin {
    /// Most have one length; some are no packets, or have no room, or no SA.
    Mixed,
    /// The same, and their lengths differ as much as they can.
    Spread,
    /// All can be sealed, and have one length.
    Alike,
    /// All can be sealed, and hold equally many blocks of 16 bytes.
    Close,
}

fn plain(random: &mut Random, count: usize, bin: Bin) -> Batch {
    // Now and then more blocks than a byte can count.
    let most = if random.below(6) == 0 { 9000 } else { 20 + random.below(1480) };
    let tidy = matches!(bin, Bin::Alike | Bin::Close);
    let spread = bin == Bin::Spread;
    let frames: Vec<Vec<u8>> = (0..count)
        .map(|_| match random.below(24) {
            _ if bin == Bin::Close => {
                let bytes = (most as usize).next_multiple_of(16) - 1 + random.below(16) as usize;
                sound(random, bytes)
            }
            0 if !tidy => random_frame(random, DESTINATIONS, PATTERNS),
            _ if spread => {
                let bytes = 20 + random.below(most - 10) as usize;
                sound(random, bytes)
            }
            _ => sound(random, most as usize),
        })
        .collect();
    let mut batch =
        Batch { arena: Lines::zeroed(64), descriptors: vec![], parameters: vec![], outcomes: vec![], trails: vec![] };
    for frame in &frames {
        // Now and then there is no room to grow.
        let head = if !tidy && random.below(30) == 0 { 40 } else { 110 + random.below(40) as usize };
        batch.push(frame, head, 64);
    }
    for parameter in &mut batch.parameters {
        // One SA more than there are outbound.
        *parameter = random.below(SAS as u64 + u64::from(!tidy)) << 44 | (random.next() & ((1 << 44) - 1)) | 1;
    }
    batch
}

fn run(batch: &mut Batch, variant: u8, image: &Lines, call: &dyn Fn(&BinCall)) {
    call(&BinCall {
        arena: batch.arena.bytes_mut().as_mut_ptr(),
        image: image.bytes().as_ptr(),
        descriptors: batch.descriptors.as_mut_ptr(),
        parameters: batch.parameters.as_ptr(),
        outcomes: batch.outcomes.as_mut_ptr(),
        count: batch.descriptors.len() as u32,
        variant: u32::from(variant),
        group: 0,
    });
}

/// Runs both forms, demands that they agree, and says how many packets went through.
fn compare(native: &Native, level: &Level, batch: &Batch, variant: u8, image: &Lines) -> (Batch, usize) {
    let (mut ours, mut expected) = (batch.clone(), batch.clone());
    // SAFETY: supported, as the caller has seen; `run` gives whole batches, and the image is one of ipsec.
    run(&mut ours, variant, image, &|call| unsafe { native.run_bin(IPSEC, call) });
    // SAFETY: the same.
    run(&mut expected, variant, image, &|call| unsafe { level.run_bin(IPSEC, call) });
    let what = format!("{} variant {variant}, {} packets", native.name, batch.descriptors.len());
    for index in 0..batch.descriptors.len() {
        assert_eq!(ours.outcomes[index], expected.outcomes[index], "{what}: outcome of {index}");
        assert_eq!(ours.descriptors[index], expected.descriptors[index], "{what}: descriptor of {index}");
        assert!(ours.frame(index) == expected.frame(index), "{what}: frame {index}");
    }
    assert!(ours.arena.bytes() == expected.arena.bytes(), "{what}: bytes around frames");
    let through = ours.outcomes.iter().filter(|outcome| outcome.verdict < 2).count();
    (ours, through)
}

/// Now and then a router on the way has marked what is outside (RFC 3168), or a link has padded the frame.
fn mark(sealed: &mut Batch, index: usize, random: &mut Random) {
    let descriptor = sealed.descriptors[index];
    if descriptor.length >= 34 && sealed.frame(index)[12..15] == [8, 0, 0x45] && random.below(4) == 0 {
        let start = descriptor.frame_offset() + 14;
        let ip = &mut sealed.arena.bytes_mut()[start..start + 20];
        ip[1] = ip[1] & 0xfc | random.below(4) as u8;
        ip[10..12].fill(0);
        let sum = !ones_sum(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    if random.below(8) == 0 {
        sealed.descriptors[index].length += random.below(9) as u16;
    }
}

#[test]
fn whole_bins_are_as_the_kernel_has_them() {
    let level = levels().iter().rfind(|level| level.supported()).expect("no level runs on this CPU");
    let suites = suites();
    assert_eq!(suites.len(), 27);
    for native in natives() {
        if !native.supported() {
            println!("{}: skipped: this CPU lacks some of {:?}", native.name, native.features);
            continue;
        }
        let mut random = Random(4242);
        let mut covered = 0;
        for suite in suites.iter().filter(|suite| native.covers(IPSEC, 2 * suite.number)) {
            covered += 1;
            assert!(native.covers(IPSEC, 2 * suite.number + 1));
            let (mut through, mut all) = ([0; 2], 0);
            for round in 0..4 * BATCHES.len() {
                let count = BATCHES[round % BATCHES.len()];
                let turn = round / BATCHES.len();
                let image = image(suite, &mut random, matches!(turn, 0 | 2));
                let bin = match turn {
                    2 | 3 => [Bin::Alike, Bin::Close][round % 2],
                    _ => [Bin::Mixed, Bin::Spread, Bin::Spread][round % 3],
                };
                let batch = plain(&mut random, count, bin);
                let (mut sealed, out) = compare(native, level, &batch, 2 * suite.number, &image);
                for index in 0..count {
                    sealed.parameters[index] += (SAS as u64) << 44;
                    if bin != Bin::Alike {
                        mark(&mut sealed, index, &mut random);
                    }
                    let descriptor = sealed.descriptors[index];
                    // Of bins whose packets are all alike, one packet at most.
                    let odds = if bin == Bin::Alike { index == count / 2 } else { random.below(10) == 0 };
                    if descriptor.length != 0 && odds {
                        let at = descriptor.frame_offset() + random.below(u64::from(descriptor.length)) as usize;
                        sealed.arena.bytes_mut()[at] ^= 1 << random.below(8);
                    }
                }
                let (_, back) = compare(native, level, &sealed, 2 * suite.number + 1, &image);
                (through[0], through[1], all) = (through[0] + out, through[1] + back, all + count);
            }
            assert!(2 * through[0] > all, "suite {}: {} of {all} sealed", suite.number, through[0]);
            assert!(3 * through[1] > all, "suite {}: {} of {all} opened", suite.number, through[1]);
        }
        assert!(covered > 0);
    }
}
