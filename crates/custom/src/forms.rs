//! Runs all compiled forms of a function on frames between guard pages.

use std::ptr::NonNull;

use godwit_abi::{BUFFER_UNIT_BYTES, Descriptor, Outcome};
use godwit_kernels::{BinCall, Level};
use godwit_packet::ImageRef;

use crate::Compiled;
use crate::checked::Answer;

/// Number of packets of a bin.
pub const BIN_PACKETS: usize = 256;
/// Size of a packet's buffer in bytes, a multiple of the page size.
const SLOT_BYTES: usize = 12_288;
/// Size in bytes of the inaccessible memory between two buffers.
const GUARD_BYTES: usize = 4096;
/// Numbers of interleaved packets, as in [`BinCall::group`].
const GROUPS: [u32; 4] = [0, 1, 7, 64];

/// A compiled version of a kernel for the CPU.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    level: &'static Level,
    /// Number of interleaved packets.
    group: u32,
    is_reference: bool,
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

/// Returns all forms of a function that this machine can run.
pub fn forms(compiled: &Compiled) -> Vec<Form> {
    let groups = if compiled.kernel.interleaves { &GROUPS[..] } else { &GROUPS[..1] };
    let of_level = |level: &'static Level| groups.iter().map(move |&group| Form { level, group, is_reference: false });
    let mut forms = vec![Form { level: compiled.kernel.reference, group: 0, is_reference: true }];
    forms.extend(compiled.kernel.levels.iter().flat_map(of_level));
    forms
}

/// Buffers with an inaccessible page before and after each of them. An access outside a buffer ends
/// the process.
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

    /// Runs a form of the kernel on a bin of frames. Every second frame begins at the front of its
    /// buffer, after the headroom that the function declares. The others end at its end. Returns
    /// the results and the values of the counters.
    ///
    /// # Panics
    /// Panics if there are more frames than [`BIN_PACKETS`], if a frame is too long, or if the
    /// number of parameters differs.
    pub fn run(
        &mut self,
        form: &Form,
        compiled: &Compiled,
        image: ImageRef<'_>,
        frames: &[Vec<u8>],
        parameters: &[u64],
    ) -> (Vec<Answer>, Vec<u64>) {
        assert!(frames.len() <= BIN_PACKETS && frames.len() == parameters.len());
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
        let before = descriptors.clone();
        let mut outcomes = vec![Outcome::default(); frames.len()];
        let mut counters = vec![0; compiled.contract.kernel_counters.count];
        let call = BinCall {
            arena: self.base.as_ptr(),
            image: image.as_ptr(),
            descriptors: descriptors.as_mut_ptr(),
            parameters: parameters.as_ptr(),
            outcomes: outcomes.as_mut_ptr(),
            count: frames.len() as u32,
            variant: 0,
            group: form.group,
            counters: counters.as_mut_ptr(),
        };
        // SAFETY: `forms` returns only levels that the machine supports. Every descriptor names its
        // own slot of the mapping, which is borrowed exclusively, and its frame lies within it. The
        // arrays have `count` elements. The image belongs to the function.
        unsafe { form.level.run_bin(compiled.kernel.text.number, &call) };
        let answers = descriptors.iter().zip(&before).zip(outcomes).enumerate();
        let answers = answers.map(|(index, ((after, before), outcome))| {
            let start = usize::from(after.head);
            let slot = self.slot_mut(index);
            let end = (start + usize::from(after.length)).min(slot.len());
            Answer {
                outcome,
                moved: i32::from(after.head) - i32::from(before.head),
                frame: slot[start.min(end)..end].to_vec(),
                is_new: false,
            }
        });
        (answers.collect(), counters)
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
