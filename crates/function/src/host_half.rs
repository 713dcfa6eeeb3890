//! Parts of a function that run on the CPU of a worker, before and after the kernel.

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::Region;

use crate::{Arrangement, Work, WorkColumns};

/// Part of a function that runs on the CPU of a worker. The variant tells what the part does before
/// the kernel. Each part may also work after the kernel.
pub enum HostHalf {
    /// The kernel runs on all packets, with [`Properties::variant`](crate::Properties::variant) and
    /// parameter 0.
    Complete(Box<dyn Complete>),
    /// The part selects the work of the kernel for each packet.
    Prepare(Box<dyn Prepare>),
    /// The part also splits, holds, joins or creates packets.
    Arrange(Box<dyn Arrange>),
}

impl HostHalf {
    /// Returns the part that selects the work of the kernel for each packet.
    pub fn preparing(&mut self) -> Option<&mut dyn Prepare> {
        if let Self::Prepare(half) = self { Some(&mut **half) } else { None }
    }

    /// Returns the part that splits, holds, joins or creates packets.
    pub fn arranging(&mut self) -> Option<&mut dyn Arrange> {
        if let Self::Arrange(half) = self { Some(&mut **half) } else { None }
    }

    /// Returns whether the part splits, holds, joins or creates packets.
    pub fn arranges(&self) -> bool {
        matches!(self, Self::Arrange(_))
    }

    /// Returns the part that runs after the kernel.
    pub fn completing(&mut self) -> &mut dyn Complete {
        match self {
            Self::Complete(half) => &mut **half,
            Self::Prepare(half) => &mut **half,
            Self::Arrange(half) => &mut **half,
        }
    }
}

/// Work on packets after the kernel.
pub trait Complete: Send {
    /// Receives the outcomes of the kernel for the packets of one batch. All packets of a batch
    /// need the same kind of processing. The function may change the outcomes, for example to drop
    /// packets. Batches arrive in any order. `descriptors` are in the state in which the kernel
    /// left them. `parameters` are the values of [`Work::Run`].
    ///
    /// Each packet is completed at most once. If a device fails while it processes a packet, the
    /// engine drops and counts the packet, and the function does not get its parameter back. If a
    /// device is lost before it starts a packet, another device processes the packet with the same
    /// kind of processing and the same parameter.
    ///
    /// If the contract sets [`HostUse::continues_on_device`](crate::HostUse::continues_on_device),
    /// a device may already have passed the packets to the next function. `descriptors` are then in
    /// the state in which the last function on the device left them. Only the verdict of each
    /// outcome is valid, and [`Complete::finish`] is not called.
    fn complete(&mut self, variant: u8, descriptors: &[Descriptor], parameters: &[u64], outcomes: &mut [Outcome]) {
        let _ = (variant, descriptors, parameters, outcomes);
    }

    /// Processes the packets after [`Complete::complete`]. The method may read frames, and rewrite
    /// them within their buffers.
    fn finish(&mut self, region: &mut Region, descriptors: &mut [Descriptor], outcomes: &mut [Outcome]) {
        let _ = (region, descriptors, outcomes);
    }
}

/// Selection of the kernel's work for each packet.
pub trait Prepare: Complete {
    /// Decides what the kernel has to do for each packet. Appends one [`Work`] per descriptor, in
    /// the same order.
    fn prepare(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>);

    /// Decides what the kernel has to do for each packet, as [`Prepare::prepare`] does. Stores the
    /// result as one array per field.
    ///
    /// The engine calls this method. A fast function implements it directly.
    fn prepare_columns(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut WorkColumns) {
        work.extend_with_rows(|rows| self.prepare(region, descriptors, rows));
    }

    /// Receives the time of the next packets, in nanoseconds on a clock that never decreases.
    /// `times_ns` has the timestamp of each of these packets in a replay, and is `None` otherwise.
    /// All packets then have the time `now_ns`.
    ///
    /// The engine calls the method before each call of `prepare_columns` if the contract sets
    /// [`HostUse::reads_times`](crate::HostUse::reads_times).
    fn set_time(&mut self, now_ns: u64, times_ns: Option<&[u64]>) {
        let _ = (now_ns, times_ns);
    }

    /// Selects whether lookups of different packets may overlap. The engine calls the method once,
    /// before packets arrive. The results do not depend on it.
    fn set_interleaving(&mut self, interleaves: bool) {
        let _ = interleaves;
    }

    /// Returns how many of the packets, from the first one on, may be prepared now. The engine asks
    /// only in a replay, and passes all waiting packets. The others wait until the kernel has
    /// finished earlier packets of the function.
    ///
    /// A function whose results depend on unfinished packets must return fewer packets than there
    /// are. The output of a replay is then the same with any number of packets in flight.
    fn ready(&mut self, region: &Region, descriptors: &[Descriptor]) -> usize {
        let _ = region;
        descriptors.len()
    }
}

/// Splitting, holding, joining and creation of packets before the kernel.
pub trait Arrange: Complete {
    /// Splits, holds, joins or creates packets. The engine calls the method when packets have
    /// arrived, and at the time that the last call returned. At the end of the run, it calls the
    /// method until no packet is held.
    ///
    /// Returns the time at which the method must be called again even without new packets, on the
    /// clock of [`Arrangement::now_ns`]. Returns `u64::MAX` if the method must be called only for
    /// new packets.
    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64;

    /// Returns how many packets may be arranged now, as [`Prepare::ready`] does.
    fn ready(&mut self, region: &Region, descriptors: &[Descriptor]) -> usize {
        let _ = region;
        descriptors.len()
    }
}
