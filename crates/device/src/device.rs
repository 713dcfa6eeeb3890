//! The interface of all devices: [`Device`] and [`Lane`].

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

/// A chunk that a lane refused.
#[derive(Debug)]
pub struct Rejected {
    /// The unchanged chunk.
    pub chunk: Chunk,
    /// Reason for the refusal.
    pub error: Error,
}

/// Processing time of one bin.
#[derive(Clone, Copy, Debug)]
pub struct BinTime {
    /// Index of the bin in its chunk.
    pub bin: u32,
    /// Time on the device, in nanoseconds.
    pub elapsed_ns: u64,
}

/// One worker's connection to a device.
pub trait Lane: Send {
    /// Allocates memory and locks pages for `chunk`, which is empty now and will be submitted
    /// repeatedly. Without this call, the first `submit` does the same work while packets wait.
    ///
    /// # Errors
    /// Fails if the device has too little memory or its driver fails.
    fn reserve(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let _ = chunk;
        Ok(())
    }

    /// Submits a chunk. All of its packets must lie in `region`. The device owns them until
    /// [`Lane::poll`] returns the chunk; until then, the caller must not access their buffers
    /// through copies of the descriptors.
    ///
    /// # Errors
    /// Returns [`Rejected`] with the unchanged chunk if the device cannot accept it.
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>>;

    /// Returns a finished chunk with its outcomes and updated descriptors, or `None` if no chunk is
    /// finished.
    ///
    /// # Errors
    /// [`Error::Failed`] returns one chunk; the lane stays usable. [`Error::Lost`] returns all
    /// chunks in flight: [`Lane::in_flight`] is then 0 and [`Lane::submit`] rejects every chunk.
    /// Each lane of a lost device reports the loss once, even if it had no chunks in flight.
    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, Error>;

    /// Returns the number of chunks that were submitted and not yet returned.
    fn in_flight(&self) -> usize;

    /// Returns the processing times of the bins of the last returned chunk, if the device measures
    /// them.
    fn bin_times(&self) -> &[BinTime];

    /// Returns the number of bins that each group of this lane received, as `[group][program]`.
    /// Empty if the lane has no persistent groups.
    fn bins_by_group(&self) -> Vec<Vec<u64>> {
        Vec::new()
    }

    /// Returns the bytes that this lane copied to the device and back since it was opened, chunk
    /// arrays included. `[0, 0]` means that the device works on the host's memory.
    fn moved_bytes(&self) -> [u64; 2] {
        [0, 0]
    }
}

/// A processor with loaded programs, from which each worker opens a lane.
pub trait Device: Send + Sync {
    /// Returns the properties of the device.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the mode in use.
    fn mode(&self) -> Mode {
        Mode::Launch
    }

    /// Returns the reason, in one sentence, if the device does not use the requested mode.
    fn fallback(&self) -> Option<&str> {
        None
    }

    /// Returns whether the device runs [the chain](crate::DeviceOptions::chain) that it was opened
    /// with. In chunks that it returns with [`Chunk::ran_chain`], `trails` records the path of each
    /// packet, and outcomes are those of the last function.
    fn runs_chain(&self) -> bool {
        false
    }

    /// Returns the selected form of each program, for reports.
    fn choices(&self) -> Vec<Choice>;

    /// Copies the changed bytes `range` of the image of program `program` ([`Program::image`]) to
    /// the device. Kernels that start after the call see them. Does nothing if the device reads the
    /// image in place, or is lost. Waits for the copy, but neither for lanes nor for workers.
    ///
    /// Persistent groups also see the new bytes. A group acquires a mailbox slot that was posted
    /// after the call, and with it everything that happened before. Images are read by ordinary
    /// loads.
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

    /// Replaces [the chain](crate::DeviceOptions::chain) in its rows of the table
    /// ([`DeviceChain::in_table`]), if the device [runs chains](Device::runs_chain). The new chain
    /// applies to bins submitted after the call; no bins with these rows may be in flight. Waits
    /// for the copy, but neither for lanes nor for workers.
    ///
    /// Returns the part of the chain that the device runs. If packets need more bytes copied than
    /// the first chain needed, they return to the host between two functions.
    ///
    /// # Errors
    /// Returns [`Error::NotCopiedBack`] if packets that the chain needs would stay on the device.
    /// Also fails if the copy failed; the device may then have any part of the chain.
    fn update_chain(&self, chain: DeviceChain) -> Result<DeviceChain, Error> {
        Ok(chain)
    }

    /// Opens a lane for one worker.
    ///
    /// # Errors
    /// Fails if the device has no room for another lane.
    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error>;
}

/// The form of a program that a device runs, and the reason for the choice.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// Name of the configured function.
    pub function: String,
    /// The form: `ref`, a level such as `x86-64-v3`, or a native form with the level for the
    /// remaining variants, such as `avx512, x86-64-v4`.
    pub form: String,
    /// Name and nanoseconds per packet of each measured form.
    pub measured: Vec<(String, f64)>,
    /// Number of interleaved packets and the reason for it; `None` if the form does not interleave
    /// packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<String>,
}

impl Choice {
    /// Returns the only form that a device has.
    pub(crate) fn only(program: &dyn Program, form: &str) -> Self {
        Self { function: program.name().to_owned(), form: form.to_owned(), measured: Vec::new(), turns: None }
    }
}
