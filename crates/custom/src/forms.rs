//! Runs all compiled forms of a function on frames between guard pages.

use std::ptr::NonNull;
use std::sync::Arc;

use godwit_abi::{BUFFER_UNIT_BYTES, Descriptor, Outcome};
use godwit_kernels::{BinCall, Level};
use godwit_packet::{Image, ImageRef, Memory};

use crate::Compiled;
use crate::checked::{Answer, FRAME_NS};
use crate::flows::{FlowFrame, FlowTime, FlowWork, Flows};

/// Number of packets of a bin.
pub const BIN_PACKETS: usize = 256;
/// Size of a packet buffer in bytes, a multiple of the page size.
const SLOT_BYTES: usize = 12_288;
/// Size of the inaccessible memory between two buffers, in bytes.
const GUARD_BYTES: usize = 4096;
/// Numbers of interleaved packets, as in [`BinCall::group`].
const GROUPS: [u32; 4] = [0, 1, 7, 64];

/// A compiled version of a kernel for the CPU, with its flows.
#[derive(Debug)]
pub struct Form {
    level: &'static Level,
    /// Number of interleaved packets.
    group: u32,
    is_reference: bool,
    /// Flow state of this form, if the function has flows.
    flows: Option<Flows>,
    /// Number of frames that the form has processed.
    frames: u64,
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.is_reference, self.group) {
            (true, _) => f.write_str("ref"),
            (_, 0) => write!(f, "{}", self.level.name),
            (_, group) => write!(f, "{} in groups of {group}", self.level.name),
        }
    }
}

/// Returns all forms of a function that this machine can run. `image` is the table image.
///
/// # Errors
/// Returns an error if there is too little memory for the flows.
pub fn forms(compiled: &Compiled, image: ImageRef<'_>) -> Result<Vec<Form>, godwit_packet::Error> {
    let groups = if compiled.kernel.interleaves { &GROUPS[..] } else { &GROUPS[..1] };
    let copy = Arc::new(Image::without_secrets(Memory::new(image.len(), "the tables of a function")?));
    copy.write(0, &image.to_vec());
    let flows = |index: usize| {
        let entries = compiled.flows.get(index);
        entries.map(|entries| Flows::new(*entries, Arc::clone(&copy), compiled.test_flows())).transpose()
    };
    let reference =
        Form { level: compiled.kernel.reference, group: 0, is_reference: true, flows: flows(0)?, frames: 0 };
    let mut forms = vec![reference];
    for (index, level) in compiled.kernel.levels.iter().enumerate() {
        for &group in groups {
            forms.push(Form { level, group, is_reference: false, flows: flows(index + 1)?, frames: 0 });
        }
    }
    Ok(forms)
}

impl Form {
    /// Returns the work that the flow functions choose for each frame. Without flows, the kernel
    /// runs with `parameters`.
    fn work(&mut self, frames: &[FlowFrame<'_>], parameters: &[u64]) -> Vec<FlowWork> {
        let first = self.frames;
        self.frames += frames.len() as u64;
        let Some(flows) = &mut self.flows else {
            return parameters.iter().map(|parameter| FlowWork::Kernel(*parameter)).collect();
        };
        let times_ns: Vec<u64> = (first + 1..=self.frames).map(|frame| frame * FRAME_NS).collect();
        let mut work = Vec::with_capacity(frames.len());
        flows.prepare(frames, FlowTime::Each(&times_ns), !self.is_reference, |each| work.push(each));
        work
    }
}

/// Buffers between inaccessible pages. An access outside a buffer ends the process.
#[derive(Debug)]
pub struct Guarded {
    base: NonNull<u8>,
    bytes: usize,
}

impl Guarded {
    /// Allocates the buffers of a batch.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn new() -> std::io::Result<Self> {
        let bytes = GUARD_BYTES + BIN_PACKETS * (SLOT_BYTES + GUARD_BYTES);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address that the system chooses affects no other memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Err(std::io::Error::last_os_error()) };
        let guarded = Self { base, bytes };
        for index in 0..BIN_PACKETS {
            // SAFETY: the slot lies within the new mapping.
            let slot = unsafe { base.as_ptr().add(slot(index)) };
            // SAFETY: as above. No reference to this memory exists.
            if unsafe { libc::mprotect(slot.cast(), SLOT_BYTES, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(guarded)
    }

    /// Runs a form of the kernel on a bin of frames, and returns the results and the counter
    /// values. Half of the frames begin right after the headroom of their buffer. The others end
    /// right before its tailroom.
    ///
    /// # Panics
    /// Panics if there are more frames than [`BIN_PACKETS`], if a frame is too long, or if the
    /// number of parameters differs.
    pub fn run(
        &mut self,
        form: &mut Form,
        compiled: &Compiled,
        image: ImageRef<'_>,
        frames: &[Vec<u8>],
        parameters: &[u64],
    ) -> (Vec<Answer>, Vec<u64>) {
        assert!(frames.len() <= BIN_PACKETS && frames.len() == parameters.len());
        let before = self.fill(compiled, frames);
        let flow_frames: Vec<_> = before.iter().enumerate().map(|(index, packet)| self.frame(index, packet)).collect();
        let work = form.work(&flow_frames, parameters);
        let runs = || {
            work.iter().enumerate().filter_map(|(index, work)| match work {
                FlowWork::Kernel(parameter) => Some((index, *parameter)),
                FlowWork::Settled(_) => None,
            })
        };
        let parameters: Vec<u64> = runs().map(|(_, parameter)| parameter).collect();
        let mut descriptors: Vec<Descriptor> = runs().map(|(index, _)| before[index]).collect();
        let mut outcomes = vec![Outcome::default(); descriptors.len()];
        let mut counters = vec![0; compiled.contract.kernel_counters.count];
        let call = BinCall {
            arena: self.base.as_ptr(),
            image: image.as_ptr(),
            descriptors: descriptors.as_mut_ptr(),
            parameters: parameters.as_ptr(),
            outcomes: outcomes.as_mut_ptr(),
            count: descriptors.len() as u32,
            variant: 0,
            group: form.group,
            counters: counters.as_mut_ptr(),
        };
        // SAFETY: `forms` returns only levels that the machine supports. Every descriptor names its
        // own slot of the mapping, which is borrowed exclusively, and its frame lies within it. The
        // arrays have `count` elements. The image belongs to the function.
        unsafe { form.level.run_bin(compiled.kernel.text.number, &call) };
        let mut ran = descriptors.into_iter().zip(outcomes);
        let mut answers = Vec::with_capacity(frames.len());
        for (index, (before, work)) in before.iter().zip(&work).enumerate() {
            let (after, outcome, parameter) = match work {
                FlowWork::Settled(outcome) => (*before, *outcome, None),
                FlowWork::Kernel(parameter) => {
                    let Some((after, outcome)) = ran.next() else { unreachable!("the kernel ran on this frame") };
                    (after, outcome, Some(*parameter))
                }
            };
            let start = usize::from(after.head);
            let slot = self.slot_mut(index);
            let end = (start + usize::from(after.length)).min(slot.len());
            answers.push(Answer {
                outcome,
                moved: i32::from(after.head) - i32::from(before.head),
                frame: slot[start.min(end)..end].to_vec(),
                parameter,
                is_new: false,
            });
        }
        (answers, counters)
    }

    /// Writes frames to the buffers. Returns their descriptors.
    fn fill(&mut self, compiled: &Compiled, frames: &[Vec<u8>]) -> Vec<Descriptor> {
        let (headroom, tailroom) =
            (usize::from(compiled.contract.headroom_bytes), usize::from(compiled.contract.tailroom_bytes));
        let mut descriptors = Vec::with_capacity(frames.len());
        for (index, frame) in frames.iter().enumerate() {
            assert!(headroom + frame.len() + tailroom <= SLOT_BYTES);
            let head = if index % 2 == 0 { headroom } else { SLOT_BYTES - tailroom - frame.len() };
            self.slot_mut(index)[head..head + frame.len()].copy_from_slice(frame);
            descriptors.push(Descriptor {
                buffer: (slot(index) / BUFFER_UNIT_BYTES) as u32,
                head: head as u16,
                length: frame.len() as u16,
                room: (SLOT_BYTES / BUFFER_UNIT_BYTES) as u8,
                ..Descriptor::default()
            });
        }
        descriptors
    }

    /// Returns the frame in the buffer with number `index`.
    fn frame(&self, index: usize, packet: &Descriptor) -> FlowFrame<'_> {
        assert!(index < BIN_PACKETS);
        let (start, length) = (usize::from(packet.head), usize::from(packet.length));
        // SAFETY: the slot lies within the mapping, which is readable there, and which is borrowed
        // for reading.
        let slot = unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(slot(index)), SLOT_BYTES) };
        FlowFrame::new(&slot[start..start + length])
    }

    fn slot_mut(&mut self, index: usize) -> &mut [u8] {
        assert!(index < BIN_PACKETS);
        // SAFETY: the slot lies within the mapping, which is readable and writable there, and which
        // is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(slot(index)), SLOT_BYTES) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and no reference to it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Returns the offset of a buffer in the mapping.
fn slot(index: usize) -> usize {
    GUARD_BYTES + index * (SLOT_BYTES + GUARD_BYTES)
}
