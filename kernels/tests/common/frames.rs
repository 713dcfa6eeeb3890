//! Random frames: sound ones, broken ones, and noise.

/// xorshift64* (Vigna, An Experimental Exploration of Marsaglia's xorshift Generators, 2016).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// 0..limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// The ones' complement sum of big-endian words; an odd byte is followed by zero (RFC 1071).
pub(crate) fn ones_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A frame of any kind: most are whole IPv4, to `destinations` or anywhere, with a payload in
/// which `words` may lie; some are IPv6, noise, cut short or have a byte changed.
pub(crate) fn random_frame(random: &mut Random, destinations: &[u32], words: &[&[u8]]) -> Vec<u8> {
    let mut frame = random.bytes(12);
    if random.below(4) == 0 {
        frame.extend([0x81, 0x00]);
        frame.extend(random.bytes(2));
    }
    match random.below(8) {
        0 => {
            let count = random.below(80) as usize;
            frame.extend(random.bytes(count));
        }
        1 => append_ipv6(random, words, &mut frame),
        _ => append_ipv4(random, destinations, words, &mut frame),
    }
    match random.below(8) {
        0 => frame.truncate(random.below(frame.len() as u64 + 1) as usize),
        1 => {
            let at = random.below(frame.len().min(60) as u64) as usize;
            frame[at] ^= 1 << random.below(8);
        }
        2 => frame.resize(frame.len() + random.below(20) as usize, 0),
        _ => {}
    }
    frame
}

fn append_ipv4(random: &mut Random, destinations: &[u32], words: &[&[u8]], frame: &mut Vec<u8>) {
    let protocol = random.pick(&[6, 17, 17, 17, 1]);
    let l4 = l4(random, protocol, words);
    let header_words = random.pick(&[5, 5, 5, 6, 15]);
    let mut ip = vec![0x40 | header_words as u8, 0];
    ip.extend(((header_words * 4 + l4.len()) as u16).to_be_bytes());
    ip.extend(random.bytes(2));
    ip.extend(random.pick(&[0_u16, 0, 0, 0x4000, 0x2000, 0x00b9]).to_be_bytes());
    ip.extend([random.pick(&[64, 64, 255, 2, 1, 0]), protocol, 0, 0]);
    ip.extend(random.pick(&[[10, 1, 2, 3], [192, 0, 2, 9], [198, 51, 100, 77], [127, 0, 0, 1], [224, 0, 0, 5]]));
    let anywhere = random.next() as u32;
    let destination = random.pick(destinations);
    ip.extend(random.pick(&[destination, destination, destination, anywhere]).to_be_bytes());
    ip.extend(random.bytes(header_words * 4 - 20));
    let sum = !ones_sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend([0x08, 0x00]);
    frame.extend(ip);
    frame.extend(l4);
}

fn append_ipv6(random: &mut Random, words: &[&[u8]], frame: &mut Vec<u8>) {
    let protocol = random.pick(&[6, 17, 58, 0, 44]);
    let l4 = l4(random, protocol, words);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((l4.len() as u16).to_be_bytes());
    frame.extend([protocol, 64]);
    frame.extend(random.bytes(32));
    frame.extend(l4);
}

fn l4(random: &mut Random, protocol: u8, words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = random.bytes(8);
    if protocol == 6 {
        let data_offset = random.pick(&[5_u8, 5, 8, 4, 15]);
        bytes = random.bytes(usize::from(data_offset) * 4);
        if let Some(byte) = bytes.get_mut(12) {
            *byte = data_offset << 4;
        }
    }
    for _ in 0..random.below(6) {
        let count = random.below(30) as usize;
        bytes.extend(random.bytes(count));
        let word = random.pick(words);
        bytes.extend(word);
    }
    bytes
}
