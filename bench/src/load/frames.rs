//! Random numbers, and UDP frames over IPv4.

use godwit_abi::Descriptor;
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_wire::checksum;

use crate::error::Error;
use crate::load::size::Size;

/// A function that makes a frame of a size.
pub(crate) type Make<'a> = dyn Fn(Size, &mut Random) -> Vec<u8> + Sync + 'a;

/// Seeded generator of random numbers (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    /// Starts a sequence.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub(crate) fn next_u32(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(end)) >> 32) as u32
    }
}

/// Returns a uniformly random unicast address that routers forward.
pub(crate) fn address(random: &mut Random) -> u32 {
    loop {
        let address = random.next_u32();
        if (1..224).contains(&(address >> 24)) && address >> 24 != 127 {
            return address;
        }
    }
}

/// Bytes of the Ethernet, IPv4 and UDP headers.
pub(crate) const HEADER_BYTES: usize = 42;

/// Returns the length of the next frame of this size.
pub(crate) fn length(size: Size, random: &mut Random) -> usize {
    match size {
        Size::Bytes(bytes) => usize::from(bytes),
        Size::Random => 60 + random.below(1455) as usize,
        Size::Uniform { min, max } => usize::from(min) + random.below(u32::from(max - min) + 1) as usize,
        // Sizes with FCS: 61.22 % have 60 bytes, 23.47 % 536 bytes, and 15.31 % 1360 bytes.
        Size::ImixPipsea => match random.below(98) {
            0..60 => 56,
            60..83 => 532,
            _ => 1356,
        },
        // 7:4:1 of 64, 570 and 1518 bytes with FCS.
        Size::Imix => [60, 60, 60, 60, 60, 60, 60, 566, 566, 566, 566, 1514][random.below(12) as usize],
    }
}

/// Fills a payload with random bytes.
pub(crate) fn noise(random: &mut Random, payload: &mut [u8]) {
    payload.fill_with(|| random.next_u32() as u8);
}

/// Returns a function that makes frames. `payload` fills the payload of each frame.
pub(crate) fn filled(payload: impl Fn(&mut Random, &mut [u8]) + Sync) -> impl Fn(Size, &mut Random) -> Vec<u8> + Sync {
    move |size, random| frame(size, random, &payload)
}

/// Makes a frame and lets `payload` fill its payload.
pub(crate) fn frame(size: Size, random: &mut Random, payload: &dyn Fn(&mut Random, &mut [u8])) -> Vec<u8> {
    let mut frame = vec![0; length(size, random)];
    payload(random, &mut frame[HEADER_BYTES..]);
    headers(&mut frame, random);
    frame
}

/// Packets in a separate region, with copies of their frames to restore them.
pub(crate) struct Packets {
    pub(crate) region: Region,
    pub(crate) descriptors: Vec<Descriptor>,
    frames: Vec<Vec<u8>>,
    /// Number of times that the frames have changed, as part of the seed.
    generations: u32,
}

impl Packets {
    /// Makes `count` packets.
    pub(crate) fn new(count: usize, size: Size, make: &Make<'_>) -> Result<Self, Error> {
        let mut random = Random::new(7);
        Self::within(size.frame_bytes_max().max(60), (0..count).map(|_| make(size, &mut random)).collect())
    }

    /// Puts these frames into a region.
    pub(crate) fn of(frames: Vec<Vec<u8>>) -> Result<Self, Error> {
        Self::within(frames.iter().map(Vec::len).max().unwrap_or(60), frames)
    }

    fn within(frame_bytes_max: usize, frames: Vec<Vec<u8>>) -> Result<Self, Error> {
        let count = frames.len();
        let config = ArenaConfig { packets: count, frame_bytes_max, ..ArenaConfig::default() };
        let mut region = Arena::new(config, 1).map_err(Error::setup)?.split().remove(0);
        let mut descriptors = Vec::with_capacity(count);
        for frame in &frames {
            let descriptor =
                region.allocate(frame.len()).ok_or_else(|| Error::Setup("the region is full".to_owned()))?;
            descriptors.push(descriptor);
        }
        let mut packets = Self { region, descriptors, frames, generations: 0 };
        packets.refresh(0..count);
        Ok(packets)
    }

    /// Restores the frames of these packets.
    pub(crate) fn refresh(&mut self, range: std::ops::Range<usize>) {
        for index in range {
            self.region.frame_mut(&self.descriptors[index]).copy_from_slice(&self.frames[index]);
        }
    }

    /// Swaps the frames with others of the same lengths. The next refresh copies them to the
    /// packets.
    pub(crate) fn exchange(&mut self, frames: &mut Vec<Vec<u8>>) {
        std::mem::swap(&mut self.frames, frames);
    }

    /// Returns the sum of all frame lengths.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.iter().map(Vec::len).sum()
    }

    /// Gives every frame a new random destination, which the next refresh copies to the packets.
    pub(crate) fn redirect(&mut self) {
        self.generations += 1;
        let mut random = Random::new(1000 + u64::from(self.generations));
        for frame in &mut self.frames {
            let destination = address(&mut random).to_be_bytes();
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            let sum = checksum::update_bytes(sum, &frame[30..34], &destination);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame[30..34].copy_from_slice(&destination);
        }
    }

    /// Makes new frames of the same lengths, which the next refresh copies to the packets.
    pub(crate) fn make_again(&mut self, make: &Make<'_>) {
        self.generations += 1;
        let mut random = Random::new(1000 + u64::from(self.generations));
        for frame in &mut self.frames {
            *frame = make(Size::Bytes(frame.len() as u16), &mut random);
        }
    }

    /// Returns the frames as they were made.
    pub(crate) fn frames(&self) -> &[Vec<u8>] {
        &self.frames
    }
}

fn headers(frame: &mut [u8], random: &mut Random) {
    let length = frame.len();
    let (source, destination) = (address(random), address(random));
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    frame[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    frame[26..30].copy_from_slice(&source.to_be_bytes());
    frame[30..34].copy_from_slice(&destination.to_be_bytes());
    let sum = checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[34..36].copy_from_slice(&(1024 + random.below(60_000) as u16).to_be_bytes());
    frame[36..38].copy_from_slice(&53u16.to_be_bytes());
    frame[38..40].copy_from_slice(&((length - 34) as u16).to_be_bytes());
    frame[40..42].copy_from_slice(&[0, 0]);
}
