//! The interface of all devices. A [`Device`] is a processor that runs packet functions, and a
//! [`Lane`] is one worker's connection to it.

use std::ops::Range;
use std::sync::Arc;

use godwit_packet::Region;
use godwit_sched::Chunk;
use serde::Serialize;

use crate::chain::DeviceChain;
use crate::error::Error;
use crate::found::Capabilities;
use crate::options::Mode;
use crate::program::Program;

/// A chunk (the bins of one launch) that a device did not accept.
#[derive(Debug)]
pub struct Rejected {
    /// The unchanged chunk.
    pub chunk: Chunk,
    /// Reason for the refusal.
    pub error: Error,
}

/// Processing time of one bin (a batch of packets for one function).
#[derive(Clone, Copy, Debug)]
pub struct BinTime {
    /// Index of the bin in its chunk.
    pub bin: u32,
    /// Time on the device, in nanoseconds.
    pub elapsed_ns: u64,
}

/// One worker's connection to a device.
pub trait Lane: Send {
    /// Allocates memory and locks pages for `chunk`. The chunk is empty now, and the caller will
    /// submit it repeatedly. Without this call, the first `submit` does the same work while packets
    /// wait.
    ///
    /// # Errors
    /// Fails if the device has too little memory or its driver fails.
    fn reserve(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let _ = chunk;
        Ok(())
    }

    /// Submits a chunk (the bins of one launch) to the device. All of its packets must lie in
    /// `region`, the worker's own memory. The device owns the packets until [`Lane::poll`] returns
    /// the chunk. Until then, the caller must not access their buffers through copies of the
    /// descriptors.
    ///
    /// # Errors
    /// Returns [`Rejected`] with the unchanged chunk if the device cannot accept it.
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>>;

    /// Returns a chunk that the device has finished, with its outcomes and updated descriptors.
    /// Returns `None` if no chunk is finished.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] with one chunk that the device failed to finish. The lane (this
    /// connection to the device) stays usable.
    ///
    /// Returns [`Error::Lost`] with all chunks in flight if the device is lost. [`Lane::in_flight`]
    /// is then 0, and [`Lane::submit`] rejects every chunk. Each lane of a lost device reports the
    /// loss once, even if it had no chunks in flight.
    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, Error>;

    /// Returns the number of chunks that were submitted through this lane and that [`Lane::poll`]
    /// has not yet returned.
    fn in_flight(&self) -> usize;

    /// Returns the processing time of each bin in the chunk that [`Lane::poll`] returned last. The
    /// result is empty if the device does not measure these times.
    fn bin_times(&self) -> &[BinTime];

    /// Returns how many bins (batches of packets) each persistent work-group received for each
    /// packet function, as `[group][program]`. The result is empty if this lane has no persistent
    /// work-groups.
    fn bins_by_group(&self) -> Vec<Vec<u64>> {
        Vec::new()
    }

    /// Returns how many bytes this lane has copied to the device and back since it was opened. Both
    /// numbers include the arrays of chunks. They are 0 if the device works on the host's memory.
    fn moved_bytes(&self) -> [u64; 2] {
        [0, 0]
    }
}

/// A processor with loaded packet functions. Each worker opens a lane, which is its connection to
/// the device.
pub trait Device: Send + Sync {
    /// Returns the properties of the device.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the mode in use.
    fn mode(&self) -> Mode {
        Mode::Launch
    }

    /// Returns the reason, in one sentence, if the device does not support the requested mode and
    /// uses another one.
    fn fallback(&self) -> Option<&str> {
        None
    }

    /// Returns whether the device runs [the device chain](crate::DeviceOptions::chain) with which
    /// it was opened. If it does, it returns chunks with [`Chunk::ran_chain`] set. In such a chunk,
    /// `trails` records the path of each packet, and the outcome of a packet is that of its last
    /// function.
    fn runs_chain(&self) -> bool {
        false
    }

    /// Returns the form (compiled version of the kernel) that the device has selected for each
    /// packet function, for reports.
    fn choices(&self) -> Vec<Choice>;

    /// Copies the changed bytes `range` of the image of program `program` ([`Program::image`]) to
    /// the device. Kernels that start after the call see the new bytes. Does nothing if the device
    /// reads the image in place, or is lost. Waits for the copy, but neither for chunks in flight
    /// nor for workers.
    ///
    /// Persistent work-groups also see the new bytes in bins that are posted to their mailboxes
    /// after the call. A work-group acquires such a bin, and with it all writes that happened
    /// before. Ordinary loads of the image are therefore sufficient.
    ///
    /// # Errors
    /// Fails if the copy failed. The device may then have any part of the bytes.
    ///
    /// # Panics
    /// Panics if there is no such program, or if its image has no such bytes.
    fn update_image(&self, program: usize, range: Range<usize>) -> Result<(), Error> {
        let _ = (program, range);
        Ok(())
    }

    /// Replaces [the device chain](crate::DeviceOptions::chain) in its rows of the table on the
    /// device ([`DeviceChain::in_table`]). Does nothing unless the device [runs
    /// chains](Device::runs_chain). The new chain applies to bins that are submitted after the
    /// call. No bins with these rows may be in flight. Waits for the copy, but neither for chunks
    /// in flight nor for workers.
    ///
    /// Returns the part of the chain that the device runs. Packets that need more bytes copied than
    /// the first chain needed return to the host between two functions.
    ///
    /// # Errors
    /// Returns [`Error::NotCopiedBack`] if packets that the chain needs would stay on the device.
    /// Also fails if the copy failed; the device may then have any part of the chain.
    fn update_chain(&self, chain: DeviceChain) -> Result<DeviceChain, Error> {
        Ok(chain)
    }

    /// Opens a lane, which is one worker's connection to the device.
    ///
    /// # Errors
    /// Returns an error if the device has no room for another lane.
    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error>;
}

/// The form (compiled version of the kernel) that a device runs for a packet function, and the
/// measurements behind this choice.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// Name of the configured function.
    pub function: String,
    /// Name of the form in reports: `ref`, or a level such as `x86-64-v3`. In a name such as
    /// `avx512, x86-64-v4`, the second part is the level that runs all other variants.
    pub form: String,
    /// Each form that was measured, with its name and its time per packet in nanoseconds.
    pub measured: Vec<(String, f64)>,
    /// Number of packets that the form interleaves (processes in alternation), and the reason for
    /// this number. It is `None` if the form does not interleave packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<String>,
}

impl Choice {
    /// Returns the choice for a device that has only one form of each kernel.
    pub(crate) fn only(program: &dyn Program, form: &str) -> Self {
        Self { function: program.name().to_owned(), form: form.to_owned(), measured: Vec::new(), turns: None }
    }
}
