//! Native forms of IPsec, compared with the kernel at a CPU level: every suite that they cover,
//! bins of any size, SAs of every kind in one bin.

use godwit_kernels::{BinCall, IPSEC, Level, Native, levels, natives};
use godwit_test_support::frame::set_ipv4_checksum;
use godwit_test_support::{Random, skip};

use crate::common::batch::{Batch, Lines};
use crate::common::frames::random_frame;
use crate::common::ipsec::{inverse_keys, write_image};
use crate::common::{DESTINATIONS, PATTERNS};

const SAS: usize = 24;
const SA_BYTES: usize = 576;
const BATCHES: [usize; 8] = [1, 2, 5, 15, 17, 33, 256, 300];

/// Row of `kernels/ipsec/suite.h`.
struct Suite {
    number: u8,
    ah: bool,
    cipher: String,
    key_bytes: usize,
    auth: String,
}

fn suites() -> Vec<Suite> {
    let text = include_str!("../../ipsec/suite.h");
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

/// Returns an image with pairs of SAs: outbound at index `i`, inbound at index `SAS + i`. Unless
/// `plain`, they combine tunnel and transport mode, IPv4 and IPv6 endpoints, extended sequence
/// numbers, and UDP encapsulation.
fn image(suite: &Suite, random: &mut Random, plain: bool) -> Lines {
    let mut sas = vec![0; 2 * SAS * SA_BYTES];
    for index in 0..SAS {
        let flags: u32 = if plain { 0 } else { [0, 0x10, 4, 0x14, 8, 0x18, 0x20, 0x30][index % 8] };
        let flags = if suite.ah { flags & !0x20 } else { flags };
        let icv_bytes = match suite.auth.as_str() {
            "NONE" => 0,
            "SHA1" | "XCBC" | "CMAC" => 12,
            "SHA384" => 24,
            "SHA512" => 32,
            "GHASH" | "CCM" if suite.cipher == "CTR" => random.pick(&[8, 12, 16]),
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
            // Powers 2 to 4. With AES-128, powers 5 to 8 follow the round keys.
            let more = if suite.key_bytes == 16 { 304..368 } else { 0..0 };
            for at in (80..128).chain(more).step_by(16) {
                power = polyval(power, h);
                sa[at..at + 16].copy_from_slice(&power.to_le_bytes());
            }
        }
        sas[index * SA_BYTES..][..SA_BYTES].copy_from_slice(&sa);
        sa[4..8].copy_from_slice(&(flags | 3).to_le_bytes());
        if suite.cipher == "CBC" {
            let words = 4 * (suite.key_bytes / 4 + 7);
            let keys: Vec<u32> =
                sa[128..128 + 4 * words].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
            let inverse: Vec<u8> = inverse_keys(&keys).iter().flat_map(|word| word.to_le_bytes()).collect();
            sa[128..128 + 4 * words].copy_from_slice(&inverse);
        }
        sas[(SAS + index) * SA_BYTES..][..SA_BYTES].copy_from_slice(&sa);
    }
    let mut selector = [0; 64];
    selector[36..38].copy_from_slice(&256_u16.to_le_bytes());
    if random.below(3) == 0 {
        // Selects IPv4 packets whose source address starts with a 0 bit.
        (selector[32], selector[34]) = (1, 4);
    }
    write_image(&sas, &selector)
}

/// Returns the product of POLYVAL, `a b x^-128`, computed bit by bit (RFC 8452, section 3 and
/// appendix A).
fn polyval(a: u128, b: u128) -> u128 {
    (0..128).fold(0, |sum: u128, bit| {
        let sum = if a >> bit & 1 == 1 { sum ^ b } else { sum };
        // Division by x, modulo x^128 + x^127 + x^126 + x^121 + 1.
        if sum & 1 == 1 { (sum >> 1) ^ (0xe1 << 120) } else { sum >> 1 }
    })
}

/// Returns a frame with a valid IPv4 packet of `total_bytes` random bytes.
fn valid_frame(random: &mut Random, total_bytes: usize) -> Vec<u8> {
    let mut ip = random.bytes(total_bytes);
    let tos = if random.below(3) == 0 { random.next_u8() } else { 0 };
    ip[..8].copy_from_slice(&[0x45, tos, (total_bytes >> 8) as u8, total_bytes as u8, 0, 0, 0, 0]);
    set_ipv4_checksum(&mut ip);
    [&random.bytes(12)[..], &[8, 0], &ip].concat()
}

/// Kind of a bin: the property that its packets have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bin {
    /// Most packets have the same length. Some are malformed, or lack room or an SA.
    Mixed,
    /// Like `Mixed`, with lengths from the minimum to the maximum.
    Spread,
    /// All packets can be encapsulated and have the same length.
    Alike,
    /// All packets can be encapsulated and have the same number of 16-byte blocks.
    Close,
}

fn plain(random: &mut Random, count: usize, bin: Bin) -> Batch {
    // Sometimes more blocks than 8 bits can count.
    let bytes_max: usize = if random.below(6) == 0 { 9000 } else { 20 + random.below(1480) };
    let tidy = matches!(bin, Bin::Alike | Bin::Close);
    let spread = bin == Bin::Spread;
    let frames: Vec<Vec<u8>> = (0..count)
        .map(|_| match random.below(24) {
            _ if bin == Bin::Close => {
                let bytes = bytes_max.next_multiple_of(16) - 1 + random.below(16);
                valid_frame(random, bytes)
            }
            0 if !tidy => random_frame(random, DESTINATIONS, PATTERNS),
            _ if spread => {
                let bytes = 20 + random.below(bytes_max - 10);
                valid_frame(random, bytes)
            }
            _ => valid_frame(random, bytes_max),
        })
        .collect();
    let mut batch =
        Batch { arena: Lines::zeroed(64), descriptors: vec![], parameters: vec![], outcomes: vec![], trails: vec![] };
    for frame in &frames {
        // Sometimes the headroom is too small for an ESP packet.
        let head = if !tidy && random.below(30) == 0 { 40 } else { 110 + random.below(40) };
        batch.push(frame, head, 64);
    }
    for parameter in &mut batch.parameters {
        // Unless tidy, one SA index is out of range.
        let sa = random.below(SAS as u64 + u64::from(!tidy));
        *parameter = sa << 44 | (random.next_u64() & ((1 << 44) - 1)) | 1;
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
        counters: std::ptr::null_mut(),
    });
}

/// Runs both forms and asserts that the results are equal. Returns the packets, and the number of
/// packets that were not dropped.
fn compare(native: &Native, level: &Level, batch: &Batch, variant: u8, image: &Lines) -> (Batch, usize) {
    let (mut ours, mut expected) = (batch.clone(), batch.clone());
    // SAFETY: the caller checked that the CPU supports the form. `run` passes whole batches, and
    // the image belongs to `ipsec`.
    run(&mut ours, variant, image, &|call| unsafe { native.run_bin(IPSEC, call) });
    // SAFETY: as above.
    run(&mut expected, variant, image, &|call| unsafe { level.run_bin(IPSEC, call) });
    let context = format!("{} variant {variant}, {} packets", native.name, batch.descriptors.len());
    for index in 0..batch.descriptors.len() {
        assert_eq!(ours.outcomes[index], expected.outcomes[index], "{context}: outcome of {index}");
        assert_eq!(ours.descriptors[index], expected.descriptors[index], "{context}: descriptor of {index}");
        assert!(ours.frame(index) == expected.frame(index), "{context}: frame {index}");
    }
    assert!(ours.arena.bytes() == expected.arena.bytes(), "{context}: bytes around frames");
    let through = ours.outcomes.iter().filter(|outcome| outcome.verdict < 2).count();
    (ours, through)
}

/// Sometimes sets the ECN bits of the outer header, as a router on the path does (RFC 3168), and
/// sometimes appends padding, as a link does.
fn mark(sealed: &mut Batch, index: usize, random: &mut Random) {
    let descriptor = sealed.descriptors[index];
    if descriptor.length >= 34 && sealed.frame(index)[12..15] == [8, 0, 0x45] && random.below(4) == 0 {
        let start = descriptor.frame_offset() + 14;
        let ip = &mut sealed.arena.bytes_mut()[start..start + 20];
        ip[1] = ip[1] & 0xfc | random.below(4);
        set_ipv4_checksum(ip);
    }
    if random.below(8) == 0 {
        sealed.descriptors[index].length += random.below(9);
    }
}

#[test]
fn a_native_form_gives_the_results_of_the_kernel() {
    let level = levels().iter().rfind(|level| level.supported()).expect("no level runs on this CPU");
    let suites = suites();
    assert_eq!(suites.len(), 62);
    for native in natives().iter().filter(|native| native.covers(IPSEC, 2)) {
        if !native.supported() {
            skip(format_args!("the CPU lacks some of {:?} for native {}", native.features, native.name));
            continue;
        }
        let mut random = Random::new(4242);
        let mut covered = 0;
        for suite in suites.iter().filter(|suite| native.covers(IPSEC, 2 * suite.number)) {
            covered += 1;
            assert!(native.covers(IPSEC, 2 * suite.number + 1));
            let (mut through, mut all) = ([0; 2], 0);
            for round in 0..4 * BATCHES.len() {
                let count = BATCHES[round % BATCHES.len()];
                let phase = round / BATCHES.len();
                let image = image(suite, &mut random, matches!(phase, 0 | 2));
                let bin = match phase {
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
                    // In a bin of equal packets, at most one is damaged.
                    let damaged = if bin == Bin::Alike { index == count / 2 } else { random.below(10) == 0 };
                    if descriptor.length != 0 && damaged {
                        let at = descriptor.frame_offset() + usize::from(random.below(descriptor.length));
                        sealed.arena.bytes_mut()[at] ^= 1 << random.below(8);
                    }
                }
                let (_, back) = compare(native, level, &sealed, 2 * suite.number + 1, &image);
                (through[0], through[1], all) = (through[0] + out, through[1] + back, all + count);
            }
            assert!(2 * through[0] > all, "suite {}: {} of {all} encapsulated", suite.number, through[0]);
            assert!(3 * through[1] > all, "suite {}: {} of {all} decapsulated", suite.number, through[1]);
        }
        assert!(covered > 0);
    }
}
