//! Images of both forms of the `ipv6` table, built in the simplest way, and packets for them.

use godwit_kernels::IPV6;
use godwit_kernels::image::*;
use godwit_test_support::Random;

use super::Case;
use super::batch::Lines;
use super::chunk::Part;

/// Address, length and index of the next hop.
type Route = (u128, u32, u32);

const NET: u128 = 0x2001_0db8 << 96;

/// Returns nested and adjacent prefixes, shorter and longer than /64.
fn routes() -> Vec<Route> {
    let mut routes = vec![
        (NET, 32, 0),
        (NET | 1 << 80, 48, 1),
        (NET | 1 << 80 | 2 << 64, 64, 2),
        (NET | 1 << 80 | 2 << 64 | 1 << 63, 65, 3),
        (NET | 1 << 80 | 2 << 64 | 0xc8, 128, 4),
        (NET | 3 << 80, 47, 5),
        (0xfc << 120, 7, 6),
        (u128::MAX << 12, 116, 7),
    ];
    // More prefixes than a bucket holds.
    routes.extend((0..24).map(|at| (NET | 9 << 80 | u128::from(at) << 76, 52, at % 8)));
    routes.iter().map(|&(prefix, length, next_hop)| (prefix & u128::MAX << (128 - length), length, next_hop)).collect()
}

fn next_hops() -> Vec<Ipv6NextHop> {
    let flags = [0, 0, 0, IPV6_HOP_LOCAL, IPV6_HOP_BLACKHOLE, IPV6_HOP_UNREACHABLE, IPV6_HOP_UNRESOLVED, 0];
    let mtus = [u16::MAX, 80, 1280, u16::MAX, u16::MAX, u16::MAX, 1500, u16::MAX];
    (0..8)
        .map(|at: u8| {
            let index = usize::from(at);
            Ipv6NextHop::new([2, 0, 0, 0, 1, at], [2, 0, 0, 0, 2, at], at * 31, flags[index], mtus[index])
        })
        .collect()
}

const ROOT_BITS: u32 = 16;

/// Returns the next hop of the longest prefix of at most `length_max` bits that covers `address`.
fn longest(routes: &[Route], address: u128, length_max: u32) -> u32 {
    let covers = |route: &&Route| route.1 <= length_max && (route.0 ^ address) & u128::MAX << (128 - route.1) == 0;
    routes.iter().filter(covers).max_by_key(|route| route.1).map_or(IPV6_NONE, |route| route.2)
}

struct Builder<'a> {
    routes: &'a [Route],
    lines: Vec<u8>,
}

impl Builder<'_> {
    fn append(&mut self, bytes: &[u8]) -> u32 {
        let line = self.lines.len() / IPV6_LINE_BYTES;
        self.lines.extend(bytes);
        self.lines.resize(self.lines.len().next_multiple_of(IPV6_LINE_BYTES), 0);
        line as u32
    }

    /// Returns the addresses at which the result of a lookup changes, within the `2^bits` addresses
    /// that start at `from`. The lowest `step` bits of the borders are cleared.
    fn borders(&self, from: u128, bits: u32, step: u32) -> Vec<u128> {
        let last = from + ((1 << bits) - 1);
        let ends = self.routes.iter().flat_map(|&(prefix, length, _)| {
            [Some(prefix), prefix.checked_add(1 << (128 - length))].into_iter().flatten()
        });
        let mut borders: Vec<u128> =
            ends.filter(|&border| border > from && border <= last).map(|border| border >> step << step).collect();
        borders.sort_unstable();
        borders.dedup();
        borders
    }

    /// Appends a trie for the addresses that start at `from`, and returns its entry. `bits` bits of
    /// the address remain, of which the lowest `step` belong to the lower half.
    fn trie(&mut self, from: u128, bits: u32, step: u32) -> u32 {
        let borders = self.borders(from, bits, 0);
        if borders.is_empty() {
            return longest(self.routes, from, 128);
        }
        if bits == step {
            // The next hop depends on the lower half of the address.
            let entry = self.trie(from, 64, 0);
            return IPV6_LOW | self.append(&entry.to_le_bytes());
        }
        if borders.len() <= IPV6_KEYS && borders.iter().all(|border| border.trailing_zeros() >= step) {
            let value = |at: &u128| longest(self.routes, *at, 128);
            let last = value(&borders[borders.len() - 1]);
            let mut bucket = Ipv6Bucket { keys: [u64::MAX; IPV6_KEYS], values: [last; IPV6_KEYS + 1] };
            bucket.values[0] = value(&from);
            for (at, border) in borders.iter().enumerate() {
                bucket.keys[at] = (border >> step) as u64;
                bucket.values[at + 1] = value(border);
            }
            return IPV6_TABLE | self.append(&bucket.emit());
        }
        // Nodes of 64 to 4096 entries. At least one more stride of 6 bits must remain, or none.
        let remaining = bits - step;
        let stride = match remaining {
            0..=12 => remaining,
            13..=16 => 8,
            _ => [6, 8, 10, 12][(remaining / 2 % 4) as usize],
        };
        let shift = remaining - stride;
        let below: Vec<u32> =
            (0..1u128 << stride).map(|part| self.trie(from + (part << (shift + step)), shift + step, step)).collect();
        let line = self.append(below.iter().flat_map(|entry| entry.to_le_bytes()).collect::<Vec<_>>().as_slice());
        IPV6_NODE | (shift / 2) << 25 | (stride / 2 - 3) << 23 | line
    }

    /// Appends a hash table of the routes that are longer than `outer` and equal `from` in the
    /// first `outer` bits. Returns its entry. A lookup tries each prefix length, the longest first.
    fn hash(&mut self, from: u128, outer: u32) -> u32 {
        let outside = longest(self.routes, from, outer);
        let inside = |length: u32| move |route: &&Route| (route.0 ^ from) >> (128 - outer) == 0 && route.1 > length;
        let step = if outer == 64 { 0 } else { 64 };
        let mut keys: Vec<(u64, u8, u32)> = Vec::new();
        for &(prefix, length, next_hop) in self.routes.iter().filter(inside(outer)) {
            if step == 0 {
                keys.push((prefix as u64, (length - 64) as u8, next_hop));
            } else if length <= 64 {
                keys.push(((prefix >> 64) as u64, length as u8, next_hop));
            }
        }
        if step == 64 {
            let mut highs: Vec<u128> = self.routes.iter().filter(inside(64)).map(|r| r.0 >> 64 << 64).collect();
            highs.dedup();
            for high in highs {
                let entry = self.hash(high, 64);
                let line = self.append(&entry.to_le_bytes());
                keys.retain(|key| (key.0, key.1) != ((high >> 64) as u64, 64));
                keys.push(((high >> 64) as u64, 64, IPV6_LOW | line));
            }
        }
        if keys.is_empty() {
            return outside;
        }
        let mut lengths: Vec<u8> = keys.iter().map(|key| key.1).collect();
        lengths.sort_unstable();
        lengths.dedup();
        assert!(lengths.len() <= 8, "a rope holds 8 lengths");
        let rope = lengths.iter().fold(0, |rope, length| rope << 8 | u64::from(*length));
        // Few lines, so that some keys overflow to the next line.
        let count = (keys.len() / 2).next_power_of_two().max(2);
        let hash = Ipv6Hash { rope, seed: 7, value: outside, shift: 64 - count.trailing_zeros(), pad: [0; 10] };
        let mut lines = vec![Ipv6HashLine::default(); count];
        for (prefix, length, value) in keys {
            let mut at = (hash.hash(prefix, length) >> hash.shift) as usize;
            while lines[at].lengths[IPV6_WAYS - 1] != 0 {
                lines[at].more = 1;
                at = (at + 1) % count;
            }
            let way = lines[at].lengths.iter().position(|length| *length == 0).unwrap();
            (lines[at].keys[way], lines[at].values[way], lines[at].lengths[way]) = (prefix, value, length);
        }
        let mut bytes = hash.emit().to_vec();
        lines.iter().for_each(|line| bytes.extend(line.emit()));
        IPV6_TABLE | self.append(&bytes)
    }
}

fn image(form: u32) -> Lines {
    let routes = routes();
    let mut builder = Builder { routes: &routes, lines: Vec::new() };
    let mut root: Vec<u32> = (0..1u128 << ROOT_BITS).map(|at| longest(&routes, at << (128 - ROOT_BITS), 16)).collect();
    for from in [NET, u128::MAX << 112] {
        let from = from >> (128 - ROOT_BITS) << (128 - ROOT_BITS);
        root[(from >> (128 - ROOT_BITS)) as usize] = match form {
            IPV6_TRIE => builder.trie(from, 128 - ROOT_BITS, 64),
            _ => builder.hash(from, ROOT_BITS),
        };
    }
    let hops: Vec<u8> = next_hops().iter().flat_map(Ipv6NextHop::emit).collect();
    let root: Vec<u8> = root.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    let mut image = Lines::zeroed(size_of::<Ipv6Image>());
    let next_hops_offset = image.append(&hops) as u64;
    let root_offset = image.append(&root) as u64;
    let lines_offset = image.append(&builder.lines) as u64;
    let header = Ipv6Image {
        magic: IPV6_MAGIC,
        form,
        next_hops: 8,
        root_shift: 64 - ROOT_BITS,
        next_hops_offset,
        root_offset,
        lines_offset,
        bytes: image.bytes().len() as u64,
    };
    image.bytes_mut()[..size_of::<Ipv6Image>()].copy_from_slice(&header.emit());
    image
}

/// Returns a case for each form of the table.
pub(crate) fn ipv6_cases() -> Vec<Case> {
    let case = |name, form| Case { name, kernel: IPV6, variant: form, image: image(form) };
    vec![case("ipv6, trie", IPV6_TRIE), case("ipv6, hash", IPV6_HASH)]
}

/// Returns both forms with `packets` random frames each.
pub(crate) fn ipv6_parts(packets: usize, seed: u64) -> Vec<Part> {
    let frames = |seed| {
        let mut random = Random::new(seed);
        (0..packets).map(|_| frame(&mut random)).collect()
    };
    ipv6_cases().into_iter().zip(seed..).map(|(case, seed)| Part::new(case, frames(seed))).collect()
}

/// Returns the addresses at the borders of the routes, and the expected result of their lookups.
pub(crate) fn edges() -> Vec<([u8; 16], u32)> {
    let routes = routes();
    let edges = routes.iter().flat_map(|&(prefix, length, _)| {
        let last = prefix | !(u128::MAX << (128 - length));
        [prefix, last, prefix.wrapping_sub(1), last.wrapping_add(1)]
    });
    edges.map(|address| (address.to_be_bytes(), longest(&routes, address, 128))).collect()
}

/// Returns a random frame. Most are valid packets between addresses of all scopes, some with
/// hop-by-hop options or a VLAN tag. Some are damaged.
fn frame(random: &mut Random) -> Vec<u8> {
    let edges = edges();
    let mut frame = random.bytes(12);
    if random.below(4) == 0 {
        frame.extend([0x81, 0x00]);
        frame.extend(random.bytes(2));
    }
    let units = random.pick(&[0_u8, 0, 1, 8]);
    let mut payload = vec![17, units];
    let data = random.below(5);
    payload.extend([random.pick(&[1, 5, 0x1e, 0x1e, 0x5e, 0x9e]), data]);
    payload.extend(random.bytes(usize::from(data)));
    payload.resize(8 * (usize::from(units) + 1), 0);
    let rest = random.below(60);
    payload.extend(random.bytes(rest));
    frame.extend(random.pick(&[[0x86, 0xdd], [0x86, 0xdd], [0x86, 0xdd], [0x86, 0xdd], [0x08, 0x00]]));
    frame.extend([random.pick(&[0x60, 0x60, 0x60, 0x60, 0x60, 0x60, 0x40]), 0, 0, 0]);
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([random.pick(&[0, 17, 17, 43]), random.pick(&[0, 1, 2, 64, 64, 255])]);
    let good = NET | 0xf << 80;
    let special_addresses = [0, 1, 0xfe80 << 112 | 1, 0xff02 << 112 | 1, 0xff05 << 112 | 1, 0xfc << 120 | 1];
    let source = [good, good, good, good, random.pick(&special_addresses)];
    frame.extend(random.pick(&source).to_be_bytes());
    let (edge, special) = (random.pick(&edges).0, random.pick(&special_addresses).to_be_bytes());
    frame.extend(random.pick(&[edge, edge, edge, edge, edge, special]));
    frame.extend(payload);
    match random.below(12) {
        0 => frame.truncate(random.below(frame.len() + 1)),
        1 => frame.extend([0; 9]),
        2 => frame[random.below(60)] ^= 1 << random.below(8),
        _ => {}
    }
    frame
}
