//! Packets in an arena, and the run of a bin on the CPU.

use std::ops::Range;

use godwit_abi::{BUFFER_UNIT_BYTES, Descriptor, Outcome};
use godwit_kernels::{BinCall, GOPT_KERNELS, GROUP_MAX, Level};

/// Bytes that start at a 64-byte boundary.
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

    /// Appends bytes at the next 64-byte boundary and returns their offset.
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
    /// Verdicts that caused the hops of each packet on the device, 8 bits each.
    pub(crate) trails: Vec<u32>,
}

impl Batch {
    /// Puts each frame into its own buffer. The headroom varies, and with it the alignment. The
    /// tailroom has at least 64 bytes.
    pub(crate) fn new(frames: &[Vec<u8>]) -> Self {
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

    /// Appends a frame with `head` bytes of headroom and at least `tail` bytes of tailroom.
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

    /// Returns the whole buffer of a packet.
    pub(crate) fn buffer(&self, index: usize) -> &[u8] {
        let descriptor = &self.descriptors[index];
        &self.arena.bytes()[descriptor.buffer_offset()..][..descriptor.room_bytes()]
    }

    /// Runs all packets as one bin.
    pub(crate) fn run(&mut self, level: &Level, kernel: u8, variant: u32, image: &Lines) {
        self.run_range(level, kernel, variant, image, 0..self.descriptors.len());
    }

    /// Runs some of the packets as one bin. If the kernel has a gopt form, asserts that every gopt
    /// group size gives the same result.
    pub(crate) fn run_range(&mut self, level: &Level, kernel: u8, variant: u32, image: &Lines, range: Range<usize>) {
        let before = self.clone();
        self.run_group(level, kernel, variant, image, range.clone(), 0);
        let groups: &[u32] = if GOPT_KERNELS.contains(&kernel) { &[1, 2, 7, GROUP_MAX] } else { &[] };
        for &group in groups {
            let mut other = before.clone();
            other.run_group(level, kernel, variant, image, range.clone(), group);
            let context = format!("kernel {kernel}, {}, gopt group of {group} packets", level.name);
            assert_eq!(other.outcomes, self.outcomes, "{context}");
            assert_eq!(other.descriptors, self.descriptors, "{context}");
            assert!(other.arena.bytes() == self.arena.bytes(), "{context}: the frames differ");
        }
    }

    fn run_group(&mut self, level: &Level, kernel: u8, variant: u32, image: &Lines, range: Range<usize>, group: u32) {
        let call = BinCall {
            arena: self.arena.bytes_mut().as_mut_ptr(),
            image: image.bytes().as_ptr(),
            descriptors: self.descriptors[range.clone()].as_mut_ptr(),
            parameters: self.parameters[range.clone()].as_ptr(),
            outcomes: self.outcomes[range.clone()].as_mut_ptr(),
            count: range.len() as u32,
            variant,
            group,
            counters: std::ptr::null_mut(),
        };
        // SAFETY: the arrays have `count` elements, and `push` created consistent descriptors.
        unsafe { level.run_bin(kernel, &call) }
    }
}
