//! Interface of all devices. A [`Device`] is a processor that runs packet functions. Each worker
//! uses the device through a separate connection, a [`Lane`].

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

/// Submission that a device did not accept.
#[derive(Debug)]
pub struct Rejected {
    /// The unchanged submission.
    pub chunk: Chunk,
    /// Reason for the refusal.
    pub error: Error,
}

/// Processing time of one batch of packets.
#[derive(Clone, Copy, Debug)]
pub struct BinTime {
    /// Index of the batch in its submission.
    pub bin: u32,
    /// Time on the device, in nanoseconds.
    pub elapsed_ns: u64,
}

/// One worker's connection to a device.
pub trait Lane: Send {
    /// Allocates memory and locks pages for `chunk`, an empty submission that the caller will
    /// submit repeatedly. Without this call, the first `submit` does this work while packets wait.
    ///
    /// # Errors
    /// Fails if the device has too little memory or its driver fails.
    fn reserve(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let _ = chunk;
        Ok(())
    }

    /// Submits the packets in `chunk` to the device. All packets must lie in `region`, the memory
    /// of the worker. The device owns the packets until [`Lane::poll`] returns `chunk`. Until then,
    /// the caller must not access the packet buffers.
    ///
    /// # Errors
    /// Returns [`Rejected`] with the unchanged submission if the device cannot accept it.
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>>;

    /// Returns a submission that the device has finished, with its outcomes and updated
    /// descriptors. Returns `None` if no submission is finished.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] with one submission that the device failed to finish. This
    /// connection to the device stays usable.
    ///
    /// Returns [`Error::Lost`] with all submissions in flight if the device is lost.
    /// [`Lane::in_flight`] is then 0, and [`Lane::submit`] rejects every submission. Each
    /// connection to a lost device reports the loss once, even without submissions in flight.
    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, Error>;

    /// Returns the number of submissions that [`Lane::poll`] has not yet returned.
    fn in_flight(&self) -> usize;

    /// Returns the processing time of each batch in the submission that [`Lane::poll`] returned
    /// last. The result is empty if the device does not measure these times.
    fn bin_times(&self) -> &[BinTime];

    /// Returns how many batches each persistent work-group received for each packet function, as
    /// `[group][program]`. The result is empty without persistent work-groups.
    fn bins_by_group(&self) -> Vec<Vec<u64>> {
        Vec::new()
    }

    /// Returns how many bytes this connection has copied to the device and back since it was
    /// opened. Both numbers include the arrays of submissions. Both numbers are 0 if the device
    /// works in the host's memory.
    fn moved_bytes(&self) -> [u64; 2] {
        [0, 0]
    }
}

/// Processor with loaded packet functions. Each worker opens a separate connection to the device, a
/// [`Lane`].
pub trait Device: Send + Sync {
    /// Returns the properties of the device.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the mode in use.
    fn mode(&self) -> Mode {
        Mode::Launch
    }

    /// Returns why the device uses another mode than requested, as one sentence.
    fn fallback(&self) -> Option<&str> {
        None
    }

    /// Returns whether the device runs [the function chain](crate::DeviceOptions::chain) with which
    /// it was opened. In this case, the device sets [`Chunk::ran_chain`] in submissions that it
    /// returns. Such a submission records the functions that each packet passed, and the outcome of
    /// the last function.
    fn runs_chain(&self) -> bool {
        false
    }

    /// Returns the kernel version that the device has selected for each packet function, for
    /// reports.
    fn choices(&self) -> Vec<Choice>;

    /// Returns this device's counter values for `program` ([`Program::counter_bytes`]). The values
    /// are exact while no submission is in flight. A lost device returns the last known values.
    fn counters(&self, program: usize) -> Vec<u64> {
        let _ = program;
        Vec::new()
    }

    /// Copies the changed bytes `range` of the tables of program `program` ([`Program::image`]) to
    /// the device. Kernels that start after the call see the new bytes. Does nothing if the device
    /// reads the tables in host memory, or if it is lost. Waits for the copy, but neither for
    /// submissions in flight nor for workers.
    ///
    /// Persistent work-groups also see the new bytes in batches that are posted to their mailboxes
    /// after the call. A work-group acquires such a batch, and with it all writes that happened
    /// before. Ordinary loads of the tables are therefore sufficient.
    ///
    /// # Errors
    /// Fails if the copy failed. The device may then have any part of the bytes.
    ///
    /// # Panics
    /// Panics if there is no such program, or if its tables have no such bytes.
    fn update_image(&self, program: usize, range: Range<usize>) -> Result<(), Error> {
        let _ = (program, range);
        Ok(())
    }

    /// Replaces [the function chain](crate::DeviceOptions::chain) on the device, in the chain's
    /// rows of the table ([`DeviceChain::in_table`]). Does nothing unless the device [runs
    /// chains](Device::runs_chain). The new chain applies to batches that are submitted after the
    /// call. No batches with these rows may be in flight. Waits for the copy, but neither for
    /// submissions in flight nor for workers.
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

    /// Opens a connection for one worker.
    ///
    /// # Errors
    /// Returns an error if the device has no room for another connection.
    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, Error>;
}

/// Compiled version of a kernel that a device runs for a packet function, with the measurements
/// that led to its selection.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// Name of the configured function.
    pub function: String,
    /// Name of the compiled version in reports, such as `ref` or `x86-64-v3`. A name such as
    /// `avx512, x86-64-v4` means that the second version processes the packets that the first one
    /// does not support.
    pub form: String,
    /// Each measured version, with its name and its time per packet in nanoseconds.
    pub measured: Vec<(String, f64)>,
    /// Number of packets that the kernel interleaves, and the reason for this number. The value is
    /// `None` if the kernel does not interleave packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<String>,
}

impl Choice {
    /// Describes the only version of a kernel.
    pub(crate) fn only(program: &dyn Program, form: &str) -> Self {
        Self { function: program.name().to_owned(), form: form.to_owned(), measured: Vec::new(), turns: None }
    }
}
