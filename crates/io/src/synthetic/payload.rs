//! Payload of generated packets, and its checksum.
//!
//! Random payload is copied from a fixed pool of random bytes. Two table lookups give the checksum
//! of any part of the pool.
//!
//! Checksums are one's complement sums of 16-bit words in the machine's byte order. The byte order
//! does not affect such a sum (RFC 1071, section 2 B).

use std::path::Path;

use super::config::{Config, PayloadKind};
use super::draw::{below, draw};
use crate::Error;

/// Number of possible start positions of a payload in the pool of random bytes. Positions are
/// multiples of 16 bits.
const STARTS: u32 = 32 << 10;

/// Maximum length of a payload in bytes. A packet buffer cannot hold a longer frame.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// Number of bytes that are copied for any short payload. It is enough for the payload of a 60-byte
/// frame.
pub(super) const STEP_BYTES: usize = 32;

#[derive(Debug)]
pub(super) struct Payload {
    kind: PayloadKind,
    pool: Vec<u8>,
    /// Entry `i` is the sum of the first `i` 16-bit words in `pool`.
    sums: Vec<u32>,
    /// List of patterns, ordered by length.
    patterns: Vec<Vec<u8>>,
    /// A packet contains a pattern if its 32-bit random number is below this limit.
    match_below: u64,
}

impl Payload {
    /// Fills the pool with random bytes. Reads the pattern file, if the configuration names one.
    pub(super) fn new(config: &Config) -> Result<Self, Error> {
        let mut patterns = match &config.patterns {
            Some(path) => read_patterns(path)?,
            None => Vec::new(),
        };
        patterns.sort_by_key(Vec::len);
        // A copy of fixed size may read beyond the last payload, so the pool is longer than needed.
        let pool_bytes = match config.payload {
            PayloadKind::Zero | PayloadKind::Stale => 0,
            _ => 2 * STARTS as usize + PIECE_BYTES_MAX + STEP_BYTES,
        };
        let seed = draw(config.seed, u64::MAX / 2);
        let pool: Vec<u8> = (0..pool_bytes as u64 / 8).flat_map(|at| draw(seed, at).to_le_bytes()).collect();
        let words = pool.chunks_exact(2).map(|word| u32::from(u16::from_le_bytes([word[0], word[1]])));
        // A sum of at most 41 Ki 16-bit words does not overflow.
        let sums = std::iter::once(0).chain(words.scan(0u32, |sum, word| {
            *sum += word;
            Some(*sum)
        }));
        Ok(Self {
            kind: config.payload,
            sums: sums.collect(),
            pool,
            patterns,
            match_below: (config.match_ratio * (1u64 << 32) as f64) as u64,
        })
    }

    /// Returns whether packets have a transport checksum. The port must know the payload to compute
    /// it.
    #[inline(always)]
    pub(super) fn has_checksum(&self) -> bool {
        self.kind != PayloadKind::Stale
    }

    /// Returns whether the payload consists of zeros.
    pub(super) fn is_zero(&self) -> bool {
        self.kind == PayloadKind::Zero
    }

    /// Writes a payload of `bytes` bytes to the beginning of `out`, and returns the sum of its
    /// 16-bit words. `random` is the random number of the packet. May also overwrite the bytes
    /// after the payload.
    #[inline(always)]
    pub(super) fn emit(&self, random: u64, bytes: usize, out: &mut [u8]) -> u64 {
        match self.kind {
            PayloadKind::Zero => {
                zero(out, bytes);
                0
            }
            PayloadKind::Stale => 0,
            PayloadKind::Random => self.emit_random(draw(random, 0), bytes, out),
            PayloadKind::Pattern => self.emit_pattern(draw(random, 0), bytes, out),
        }
    }

    #[inline(always)]
    fn emit_random(&self, random: u64, bytes: usize, out: &mut [u8]) -> u64 {
        let own = (random >> 32) as u32;
        let start = below(random as u32, STARTS) as usize;
        copy(&self.pool[2 * start..], out, bytes);
        let mut sum = u64::from(self.sums[start + bytes / 2] - self.sums[start]);
        if bytes % 2 == 1 {
            sum += u64::from(self.pool[2 * start + bytes - 1]);
        }
        if bytes >= 4 {
            // The first four bytes differ between packets.
            out[..4].copy_from_slice(&own.to_le_bytes());
            sum -= u64::from(self.sums[start + 2] - self.sums[start]);
            sum += u64::from(own & 0xffff) + u64::from(own >> 16);
        }
        sum
    }

    #[inline(never)]
    fn emit_pattern(&self, random: u64, bytes: usize, out: &mut [u8]) -> u64 {
        let sum = self.emit_random(random, bytes, out);
        let (chance, position) = (draw(random, 0), draw(random, 1));
        let fitting = self.patterns.partition_point(|pattern| pattern.len() <= bytes);
        if fitting == 0 || u64::from(chance as u32) >= self.match_below {
            return sum;
        }
        let pattern = &self.patterns[below((chance >> 32) as u32, fitting as u32) as usize];
        let at = below(position as u32, (bytes - pattern.len()) as u32 + 1) as usize;
        out[at..at + pattern.len()].copy_from_slice(pattern);
        u64::from((!godwit_wire::checksum::checksum(&out[..bytes])).swap_bytes())
    }
}

/// Copies `bytes` bytes. If `out` has room, copies a fixed number of bytes, which avoids a function
/// call.
#[inline(always)]
fn copy(from: &[u8], out: &mut [u8], bytes: usize) {
    if bytes <= STEP_BYTES
        && let (Some(to), Some(from)) = (out.first_chunk_mut::<STEP_BYTES>(), from.first_chunk::<STEP_BYTES>())
    {
        *to = *from;
        return;
    }
    out[..bytes].copy_from_slice(&from[..bytes]);
}

/// Writes `bytes` zeros. If `out` has room, writes a fixed number of zeros, which avoids a function
/// call.
#[inline(always)]
fn zero(out: &mut [u8], bytes: usize) {
    if bytes <= STEP_BYTES
        && let Some(to) = out.first_chunk_mut::<STEP_BYTES>()
    {
        *to = [0; STEP_BYTES];
        return;
    }
    out[..bytes].fill(0);
}

/// Reads the patterns from a file. The pattern file of the function `dpi` has the same syntax.
fn read_patterns(path: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let text = std::fs::read(path).map_err(|source| Error::read(path, source))?;
    let mut patterns = Vec::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let error = |reason| Error::config("patterns", format!("{}:{}", path.display(), index + 1), reason);
        patterns.push(parse_pattern(line).map_err(error)?);
    }
    if patterns.is_empty() {
        return Err(Error::config("patterns", path.display(), "the file contains no pattern"));
    }
    Ok(patterns)
}

/// Parses a pattern. Bytes between two `|` are hexadecimal, as in `|0d 0a|`. A `\` before one of
/// the characters `| \ # " : ;` makes this character literal. All other bytes are literal.
fn parse_pattern(line: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut pattern = Vec::new();
    let mut rest = line;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'\\' => match rest.split_first() {
                Some((&escaped @ (b'|' | b'\\' | b'#' | b'"' | b':' | b';'), tail)) => {
                    pattern.push(escaped);
                    rest = tail;
                }
                _ => return Err("a \\ must be followed by one of | \\ # \" : ;"),
            },
            b'|' => {
                let end = rest.iter().position(|&byte| byte == b'|').ok_or("a | is not closed")?;
                let digits =
                    rest[..end].iter().filter(|&&byte| byte != b' ').map(|&byte| char::from(byte).to_digit(16));
                let digits = digits.collect::<Option<Vec<u32>>>().filter(|digits| digits.len().is_multiple_of(2));
                let digits = digits.ok_or("expected pairs of hexadecimal digits between two |, such as |0d 0a|")?;
                pattern.extend(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8));
                rest = &rest[end + 1..];
            }
            byte => pattern.push(byte),
        }
    }
    if pattern.is_empty() { Err("the pattern is empty") } else { Ok(pattern) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_syntax() {
        for (line, expected) in
            [(&b"GET /"[..], &b"GET /"[..]), (b" a ", b" a "), (b"|41 42|c|4344|", b"ABcCD"), (b"\\#\\|\\\\", b"#|\\")]
        {
            assert_eq!(parse_pattern(line).as_deref(), Ok(expected));
        }
        for line in [&b"|41"[..], b"|4|", b"|4x|", b"a\\n", b"||", b"a|", b"|"] {
            assert!(parse_pattern(line).is_err(), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn sums_match_the_bytes() {
        for payload in [PayloadKind::Random, PayloadKind::Zero] {
            let payload = Payload::new(&Config { payload, ..Config::default() }).unwrap();
            for bytes in (0..300).chain([1451, 1452, 9000, 16057]) {
                let mut out = vec![0xee; bytes + bytes % 64];
                let sum = payload.emit(draw(7, bytes as u64), bytes, &mut out);
                let expected = u64::from((!godwit_wire::checksum::checksum(&out[..bytes])).swap_bytes());
                assert_eq!(sum % 0xffff, expected % 0xffff, "{bytes} bytes");
            }
        }
    }
}
