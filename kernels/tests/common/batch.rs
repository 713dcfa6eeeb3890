//! Packets in an arena, and a bin of them run on the CPU.

use std::ops::Range;

use godwit_abi::{BUFFER_UNIT_BYTES, Descriptor, Outcome};
use godwit_kernels::{BinCall, GOPT_KERNELS, GROUP_MAX, Level};

/// Bytes at a 64-byte boundary.
#[derive(Clone, Debug)]
pub(crate) struct Lines(Vec<Line>);

#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([u8; 64]);

impl Lines {
    pub(crate) fn zeroed(bytes: usize) -> Self {
        Self(vec![Line([0; 64]); bytes.div_ceil(64)])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: Line is 64 plain bytes without padding.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 64) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: Line is 64 plain bytes without padding.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 64) }
    }

    /// Appends at the next boundary and says where.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> usize {
        let offset = self.0.len() * 64;
        self.0.resize(self.0.len() + bytes.len().div_ceil(64), Line([0; 64]));
        self.bytes_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
        offset
    }
}

/// Packets of one bin.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) arena: Lines,
    pub(crate) descriptors: Vec<Descriptor>,
    pub(crate) parameters: Vec<u64>,
    pub(crate) outcomes: Vec<Outcome>,
    /// Of a device that follows a chain.
    pub(crate) trails: Vec<u32>,
}

impl Batch {
    /// Each frame in a buffer of its own, with headroom that varies, and so its alignment, and 64 bytes of tailroom.
    pub(crate) fn of(frames: &[Vec<u8>]) -> Self {
        let mut batch = Self {
            arena: Lines::zeroed(64),
            descriptors: vec![],
            parameters: vec![],
            outcomes: vec![],
            trails: vec![],
        };
        for (index, frame) in frames.iter().enumerate() {
            batch.push(frame, 64 + index % 17, 64);
        }
        batch
    }

    /// One more frame, `head` bytes behind its buffer's start and with `tail` bytes or a few more behind it.
    pub(crate) fn push(&mut self, frame: &[u8], head: usize, tail: usize) {
        let room_bytes = (head + frame.len()).next_multiple_of(64) + tail;
        let mut buffer = vec![0xa5; room_bytes.max(64)];
        buffer[head..head + frame.len()].copy_from_slice(frame);
        let offset = self.arena.append(&buffer);
        self.descriptors.push(Descriptor {
            buffer: (offset / BUFFER_UNIT_BYTES) as u32,
            head: head as u16,
            length: frame.len() as u16,
            room: (buffer.len() / BUFFER_UNIT_BYTES) as u8,
            port: 3,
            order: self.descriptors.len() as u16,
            flow_hash: 0x1234_5678,
        });
        self.parameters.push(0);
        self.outcomes.push(Outcome { verdict: 77, reason: 77, port: 77, value: 77 });
        self.trails.push(77);
    }

    pub(crate) fn frame(&self, index: usize) -> &[u8] {
        let descriptor = &self.descriptors[index];
        let start = descriptor.frame_offset();
        &self.arena.bytes()[start..start + usize::from(descriptor.length)]
    }

    /// Everything in the packet's buffer.
    pub(crate) fn buffer(&self, index: usize) -> &[u8] {
        let descriptor = &self.descriptors[index];
        &self.arena.bytes()[descriptor.buffer_offset()..][..descriptor.room_bytes()]
    }

    /// All packets as one bin.
    pub(crate) fn run(&mut self, level: &Level, kernel: u8, variant: u32, image: &Lines) {
        self.run_range(level, kernel, variant, image, 0..self.descriptors.len());
    }

    /// Some of the packets as one bin; where packets may take turns, any number of them must come to the same.
    pub(crate) fn run_range(&mut self, level: &Level, kernel: u8, variant: u32, image: &Lines, range: Range<usize>) {
        let before = self.clone();
        self.run_turns(level, kernel, variant, image, range.clone(), 0);
        let groups: &[u32] = if GOPT_KERNELS.contains(&kernel) { &[1, 2, 7, GROUP_MAX] } else { &[] };
        for &group in groups {
            let mut other = before.clone();
            other.run_turns(level, kernel, variant, image, range.clone(), group);
            let who = format!("kernel {kernel}, {}, {group} packets in turns", level.name);
            assert_eq!(other.outcomes, self.outcomes, "{who}");
            assert_eq!(other.descriptors, self.descriptors, "{who}");
            assert!(other.arena.bytes() == self.arena.bytes(), "{who}: the frames differ");
        }
    }

    fn run_turns(&mut self, level: &Level, kernel: u8, variant: u32, image: &Lines, range: Range<usize>, group: u32) {
        let call = BinCall {
            arena: self.arena.bytes_mut().as_mut_ptr(),
            image: image.bytes().as_ptr(),
            descriptors: self.descriptors[range.clone()].as_mut_ptr(),
            parameters: self.parameters[range.clone()].as_ptr(),
            outcomes: self.outcomes[range.clone()].as_mut_ptr(),
            count: range.len() as u32,
            variant,
            group,
        };
        // SAFETY: the arrays are as long as `count` says, and `of` made the descriptors consistent.
        unsafe { level.run_bin(kernel, &call) }
    }
}
