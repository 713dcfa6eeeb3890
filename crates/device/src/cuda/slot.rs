//! Resources of one submission in flight: page-locked arrays on the host, a copy of the arrays on
//! the device, and a stream.

use std::ffi::c_void;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use godwit_abi::{Bin, CHAIN_SCRATCH_PACKET_BYTES, Descriptor, MAILBOX_SLOT_PACKETS, Outcome};
use godwit_sched::Chunk;

use super::driver::{Context, Copies, DeviceMemory, DevicePointer, Event, Function, PinnedMemory, Repeated, Stream};
use super::program::GROUP_LANES;
use super::tables::DeviceArguments;
use crate::bytes::put;
use crate::check::{packets_of, used_entries};
use crate::error::Error;

/// Alignment of the arrays, in bytes.
const ALIGN_BYTES: usize = 64;

/// The arrays of one submission, with the same layout on host and device. The counters and the
/// scratch memory exist only on the device. The word `done` and the cycle counts exist only on the
/// host, and the device writes them over the bus. Scratch memory and the records of each packet's
/// path are used only if the device runs a chain of functions.
///
/// ```text
/// 0                                              |---------- to the host --------|
/// | counters or done | cycles | bins | parameters | descriptors | outcomes | trails | scratch
///                             |----------- to the device -------|
/// ```
///
/// The arrays of a small submission are packed: the packets of its batches follow each other
/// without gaps. The arrays of a large submission keep their layout and are copied directly. The
/// work-groups then read the list of batches over the bus, which saves a driver call. With
/// zero-copy, the work-groups access all arrays over the bus. Nothing is copied, and the last
/// work-group signals completion.
pub(super) struct Slot {
    /// Stream of the kernel.
    pub(super) stream: Stream,
    /// Event after the copies to the device.
    pub(super) copied_in: Event,
    /// Event after the kernel.
    pub(super) kernel_done: Event,
    /// Event after the copies to the host.
    pub(super) copied_out: Event,
    /// Launch of zero-copy submissions.
    pub(super) launches: Repeated,
    pub(super) host: PinnedMemory,
    pub(super) device: DeviceMemory,
    bins_max: usize,
    packets_max: usize,
    /// Whether the device runs a chain of functions.
    pub(super) runs_chain: bool,
    /// Offset of the scratch memory in bytes, and its capacity in packets.
    pub(super) scratch: (usize, usize),
    pub(super) offsets: ArrayOffsets,
    /// Array parts that are copied to the device, and those that are copied back.
    pub(super) copied: [Parts; 2],
    /// List of copies, kept between calls to reuse its memory.
    pub(super) copies: Copies,
    /// Device address of the submission's arrays, if the device accesses them directly.
    pub(super) direct: Option<DevicePointer>,
    /// Whether the work-groups themselves signal that the submission is complete.
    pub(super) signals_done: bool,
}

/// Number of parameters of the kernel `gw_chunk`.
pub(super) const ARGUMENTS: usize = 13;

/// Size of the C struct `gw_counters` (kernels/dialect/loops_cuda.h), in bytes.
const COUNTERS_BYTES: usize = 2 * size_of::<u32>();

impl Slot {
    /// Creates the resources for submissions of up to `bins_max` batches and `packets_max` packets,
    /// which the kernel `kernel` processes.
    pub(super) fn new(
        context: &Arc<Context>,
        kernel: &Function,
        runs_chain: bool,
        bins_max: usize,
        packets_max: usize,
    ) -> Result<Self, Error> {
        let bytes = ArrayOffsets::new(bins_max, packets_max, runs_chain).end;
        let scratch_packets = if runs_chain { packets_max.next_multiple_of(MAILBOX_SLOT_PACKETS) } else { 0 };
        let device_bytes = bytes + scratch_packets * CHAIN_SCRATCH_PACKET_BYTES;
        let device = DeviceMemory::new(context, device_bytes, "a chunk")?;
        // The counters and the scratch memory are cleared once, because every launch leaves the
        // counters at 0.
        device.fill(&vec![0; if runs_chain { device_bytes } else { COUNTERS_BYTES }])?;
        let mut nothing = [0_u64; size_of::<DeviceArguments>() / size_of::<u64>()];
        let mut arguments: [*mut c_void; ARGUMENTS] = [(&raw mut nothing).cast(); ARGUMENTS];
        Ok(Self {
            stream: Stream::new(context)?,
            copied_in: Event::new(context)?,
            kernel_done: Event::new(context)?,
            copied_out: Event::new(context)?,
            launches: Repeated::new(context, kernel, GROUP_LANES, &mut arguments)?,
            host: PinnedMemory::new(context, bytes)?,
            device,
            bins_max,
            packets_max,
            runs_chain,
            scratch: (bytes, scratch_packets),
            offsets: ArrayOffsets::default(),
            copied: Default::default(),
            copies: Copies::default(),
            direct: None,
            signals_done: false,
        })
    }

    /// Returns whether these resources have room for the submission.
    pub(super) fn holds(&self, chunk: &Chunk) -> bool {
        chunk.bins.len() <= self.bins_max && chunk.descriptors.len() <= self.packets_max
    }

    /// Prepares the arrays of a submission for the device. Returns how many bytes of the arrays are
    /// transferred to the device and back.
    ///
    /// The caller has checked that the submission is valid and not too large. `direct` is the
    /// device address of the submission's own arrays, if the device accesses them directly. Two
    /// arrays are copied together if the gap between them has at most `gap_bytes_max` bytes.
    pub(super) fn write(&mut self, chunk: &Chunk, direct: Option<DevicePointer>, gap_bytes_max: usize) -> [usize; 2] {
        self.direct = direct.map(|pages| pages + chunk.parameters.offset() as u64);
        let is_direct = direct.is_some();
        let (entries, packets) = match is_direct {
            true => (chunk.descriptors.len(), used_entries(chunk)),
            false => (chunk.packets as usize, chunk.packets as usize),
        };
        let offsets = ArrayOffsets::new(chunk.bins.len(), entries, self.runs_chain);
        self.offsets = offsets;
        self.copied = offsets.copied(is_direct, packets, gap_bytes_max);
        let bytes = self.host.bytes_mut();
        match is_direct {
            true => put(bytes, offsets.bins, 0, &chunk.bins),
            false => {
                let mut first = 0;
                for (index, bin) in chunk.bins.iter().enumerate() {
                    let packets = packets_of(bin);
                    put(bytes, offsets.bins, index, &[Bin { first: first as u32, ..*bin }]);
                    put(bytes, offsets.parameters, first, &chunk.parameters[packets.clone()]);
                    put(bytes, offsets.descriptors, first, &chunk.descriptors[packets]);
                    first += usize::from(bin.count);
                }
            }
        }
        // If the list of batches is not copied, work-groups read it over the bus. Its bytes are
        // therefore counted too.
        let bins = if is_direct { offsets.parameters - offsets.bins } else { 0 };
        let [to_device, to_host] = self.copied.map(|parts| parts.iter().map(|part| part.1).sum::<usize>());
        [bins + to_device, to_host]
    }

    /// Returns the memory word that the last work-group sets when the submission is complete.
    pub(super) fn done(&self) -> &AtomicU32 {
        // SAFETY: this is the first word of the host memory, which lives as long as `self`. The
        // word has no other use.
        unsafe { AtomicU32::from_ptr(self.host.base().as_ptr().cast()) }
    }
}

/// Offsets of the arrays of the current submission, in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct ArrayOffsets {
    pub(super) bins: usize,
    pub(super) cycles: usize,
    pub(super) parameters: usize,
    pub(super) descriptors: usize,
    pub(super) outcomes: usize,
    /// Offset of the packet path records, or `end` if there are none.
    pub(super) trails: usize,
    pub(super) end: usize,
}

/// Offset and length of parts of the arrays.
pub(super) type Parts = [(usize, usize); 3];

impl ArrayOffsets {
    /// Computes the layout of arrays for `entries` packets.
    fn new(bins: usize, entries: usize, runs_chain: bool) -> Self {
        let mut end = ALIGN_BYTES;
        let mut append = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(ALIGN_BYTES);
            start
        };
        let cycles = append(bins * size_of::<u32>());
        let bins_at = append(bins * size_of::<Bin>());
        let parameters = append(entries * size_of::<u64>());
        let descriptors = append(entries * size_of::<Descriptor>());
        let outcomes = append(entries * size_of::<Outcome>());
        let trails = append(if runs_chain { entries * size_of::<u32>() } else { 0 });
        Self { bins: bins_at, cycles, parameters, descriptors, outcomes, trails, end }
    }

    /// Returns the array parts to copy to the device, and those to copy back. The arrays contain
    /// `packets` packets.
    fn copied(&self, is_direct: bool, packets: usize, gap_bytes_max: usize) -> [Parts; 2] {
        let to_device = [
            (self.bins, if is_direct { 0 } else { self.parameters - self.bins }),
            (self.parameters, packets * size_of::<u64>()),
            (self.descriptors, packets * size_of::<Descriptor>()),
        ];
        let trails = if self.trails < self.end { packets * size_of::<u32>() } else { 0 };
        let to_host = [
            (self.descriptors, packets * size_of::<Descriptor>()),
            (self.outcomes, packets * size_of::<Outcome>()),
            (self.trails, trails),
        ];
        [to_device, to_host].map(|parts| joined(parts, gap_bytes_max))
    }
}

/// Joins array parts that are separated by small gaps. Each part consists of an offset and a
/// length, and the offsets are ascending. A part that was joined with its successor becomes empty.
fn joined(mut parts: Parts, gap_bytes_max: usize) -> Parts {
    for index in 1..parts.len() {
        let (previous, (offset, bytes)) = (parts[index - 1], parts[index]);
        if previous.1 > 0 && bytes > 0 && offset - (previous.0 + previous.1) <= gap_bytes_max {
            parts[index] = (previous.0, offset + bytes - previous.0);
            parts[index - 1].1 = 0;
        }
    }
    parts
}
