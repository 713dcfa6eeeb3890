//! Network functions, host half: one folder per function, each with the same files.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | contract, registration, construction |
//! | `config.rs` | what the operator writes |
//! | `tables.rs` | the table image |
//! | `reference.rs` | `ref`: the kernel's work straight from the standard |
//! | `host.rs` | what is decided per packet before the kernel (where there is any) |
//!
//! The kernel half of the function `f` is `kernels/f/`. [`template`] is the one to copy.
#![forbid(unsafe_code)]

mod arrange;
mod columns;
mod config;
mod contract;
pub mod dpi;
pub mod echo;
mod error;
pub mod fragments;
pub mod ipsec;
pub mod ipv4;
pub mod ipv6;
pub mod l2;
pub mod ndn;
pub mod neighbours;
pub mod responder;
pub mod routes;
pub mod routing;
pub mod template;
#[cfg(test)]
mod testing;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{ImageRef, Region, SteerKey};
use toml::Spanned;
use toml::de::DeTable;

pub use arrange::{Arrangement, Said, Step};
pub use columns::WorkColumns;
pub use contract::{Contract, Counter, Drop, Verdict};
pub use error::Error;

/// All functions there are, in the order of `kernels/functions.h`.
pub const KINDS: &[Kind] =
    &[template::KIND, echo::KIND, ipv4::KIND, ipsec::KIND, dpi::KIND, ipv6::KIND, l2::KIND, ndn::KIND, responder::KIND];

/// The registration of a function.
pub struct Kind {
    /// What it says of itself.
    pub contract: &'static Contract,
    /// Makes one from its stanza of the configuration.
    pub build: Build,
}

/// Makes a function from its stanza.
pub type Build = fn(Spanned<DeTable<'_>>, &BuildContext<'_>) -> Result<Arc<dyn Function>, Error>;

/// Where a function is built: what its stanza may refer to.
pub struct BuildContext<'a> {
    /// The configured name of the function.
    pub name: &'a str,
    /// Names of all ports; a port's number is its index.
    pub ports: &'a [String],
    /// Directory that relative file names start from.
    pub directory: &'a Path,
}

/// A configured network function.
///
/// Shared by all workers and read-only: what changes per packet lives in the [`HostHalf`] of each worker.
pub trait Function: Send + Sync {
    /// What it reads, writes, says and drops.
    fn contract(&self) -> &'static Contract;

    /// The table image: offset-based, the same bytes on every device. Empty where the kernel needs none.
    ///
    /// Always the same one. Where parts of it change while packets flow it is a [`godwit_packet::Image`]; what a group of
    /// a device prepares from it beforehand must not be among them.
    fn image(&self) -> ImageRef<'_>;

    /// Most bytes that it prepends to a frame, as it is configured: at most what its contract says.
    fn headroom_bytes(&self) -> u16 {
        self.contract().headroom_bytes
    }

    /// Most bytes that it appends to a frame, as it is configured: at most what its contract says.
    fn tailroom_bytes(&self) -> u16 {
        self.contract().tailroom_bytes
    }

    /// See [`Contract::tailroom_saved`], of [`Function::tailroom_bytes`].
    fn tailroom_saved(&self) -> [u8; 16] {
        self.contract().tailroom_saved
    }

    /// The variant of every packet, where there is no host half.
    fn variant(&self) -> u8 {
        0
    }

    /// The host half for worker `worker` of `workers`; `None` where every packet goes to the kernel
    /// as [`Function::variant`] with parameter 0.
    fn host_half(&self, worker: usize, workers: usize) -> Option<Box<dyn HostHalf>> {
        let _ = (worker, workers);
        None
    }

    /// The key of the state that this function keeps for more than one flow, where it does.
    fn steer_key(&self) -> Option<Arc<dyn SteerKey>> {
        None
    }

    /// Does what an operator asks of a running function, on the control thread, one command at a time. `request` is the
    /// JSON object of the request, with `command` and whatever this command takes; what comes back is shown to the
    /// operator. What `request` holds is wiped after the call: keep no copy of a key, and quote none.
    ///
    /// # Errors
    /// One sentence for the operator; nothing was changed then.
    fn command(&self, request: &serde_json::Value, running: &dyn Running) -> Result<serde_json::Value, Error> {
        let _ = (request, running);
        Err(Error::Command { message: "this function takes no commands".to_owned() })
    }

    /// The routes that it forwards by, where others may change them.
    fn routing(&self) -> Option<&dyn routing::Routing> {
        None
    }

    /// Learns which functions there are, once all of a configuration are built and before anything runs, to work together with some of
    /// them. `functions[own]` is itself.
    ///
    /// # Errors
    /// [`Error::Value`]: one that it needs is not among them.
    fn meet(&self, functions: &[Arc<dyn Function>], own: usize) -> Result<(), Error> {
        let _ = (functions, own);
        Ok(())
    }

    /// What it finds out of the stations around this machine, where it asks for them.
    fn neighbours(&self) -> Option<&Arc<neighbours::Neighbours>> {
        None
    }

    /// What has happened since the last call that the operator is to hear of, in sentences. Asked by the control thread
    /// all the time: cheap where nothing has.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// The ports of a set that packets are flooded to (see [`PORT_FLOOD`](godwit_abi::PORT_FLOOD)).
    fn flood_ports(&self, set: u32) -> &[u8] {
        let _ = set;
        &[]
    }

    /// Makes a packet that is flooded, or the copy of it that leaves by `port`, what it is to be there; called on the worker for
    /// each, with the frame as the kernel left it. `buffer` is the whole buffer; `descriptor.head` and `length` may change within
    /// it, as far as [`Function::headroom_bytes`] and [`Function::tailroom_bytes`] go.
    fn dress(&self, buffer: &mut [u8], descriptor: &mut Descriptor, port: u8, set: u32) {
        let _ = (buffer, descriptor, port, set);
    }

    /// How often [`Function::housekeeping`] is called; `None`: never. Asked once.
    fn housekeeping_interval(&self) -> Option<Duration> {
        None
    }

    /// Does what is to be done from time to time while packets flow: entries that age, what workers have noticed, what
    /// others on this machine have changed. First called before packets are waited for, then this long after the last call
    /// returned; never at the same time as a command, nor as the housekeeping of another function; may wait. Never called in a
    /// replay, whose outcome no clock decides.
    ///
    /// # Errors
    /// One sentence for the operator, which is told when it is another one than that of the last call. Housekeeping goes on.
    fn housekeeping(&self, running: &dyn Running) -> Result<(), Error> {
        let _ = running;
        Ok(())
    }

    /// The values of [`Contract::counters`], in that order. Asked by the control thread.
    fn counts(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Does to one packet what the kernel does, straight from the standard. Slow on purpose.
    ///
    /// `buffer` is the packet's whole buffer; `descriptor.head` and `length` may change within it.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome;
}

/// The engine, as a function's commands and housekeeping see it: how a function whose packets are in flight changes its tables.
///
/// What is added: written to places of the image that nothing refers to, [`Running::image_changed`], and then made
/// findable for host halves. What is removed: made unfindable, [`Running::quiesce`], and then wiped and free again.
pub trait Running {
    /// Brings these bytes of the function's image to devices that have a copy of it, and waits until they have them.
    ///
    /// # Errors
    /// [`Error::Command`]: a device that is in use did not take them, and nothing may refer to them.
    fn image_changed(&self, range: Range<usize>) -> Result<(), Error>;

    /// Waits until every packet that a host half prepared before the call is completed or gone.
    ///
    /// # Errors
    /// [`Error::Command`]: that took too long. What such packets refer to must stay as it is.
    fn quiesce(&self) -> Result<(), Error>;

    /// Asks what [`Running::quiesce`] waits for, without waiting; returns what to call [`Running::is_quiet`] with.
    fn ask_for_quiet(&self) -> u64 {
        0
    }

    /// Whether every packet that a host half prepared before the call of [`Running::ask_for_quiet`] is completed or gone. One that
    /// cannot tell waits for it.
    fn is_quiet(&self, asked: u64) -> bool {
        let _ = asked;
        self.quiesce().is_ok()
    }
}

/// The part of a function that runs on the worker, per batch, before the kernel.
pub trait HostHalf: Send {
    /// Appends one [`Work`] per descriptor, in the same order.
    fn prepare(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>);

    /// The same in columns, which is how the engine asks. A host half that is to be fast writes them itself.
    fn prepare_columns(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut WorkColumns) {
        work.extend_with_rows(|rows| self.prepare(region, descriptors, rows));
    }

    /// Whether it wants to see packets before the kernel does; if not, all go there as [`Function::variant`] with parameter 0, and
    /// `prepare` is never called. Always the same.
    fn prepares(&self) -> bool {
        true
    }

    /// Whether packets come by [`HostHalf::arrange`] and not by [`HostHalf::prepare`]. Always the same.
    fn arranges(&self) -> bool {
        false
    }

    /// Whether it is told what the function before said of each packet ([`Arrangement::said`]); only where it arranges them, and
    /// not for a function whose packets come in order. Always the same.
    fn hears(&self) -> bool {
        false
    }

    /// In the place of `prepare`, where packets are taken apart, held, joined or made. Called for packets that have
    /// arrived, when it is time, and at the end until nothing is held. Returns when it is to be called again at the
    /// latest, on the clock of [`Arrangement::now_ns`]; `u64::MAX`: when packets arrive.
    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        let mut work = Vec::with_capacity(packets.arrived.len());
        self.prepare(packets.region, packets.arrived, &mut work);
        let pairs = packets.arrived.iter().zip(work);
        packets.steps.extend(pairs.map(|(&packet, work)| Step::Keep { packet, work }));
        u64::MAX
    }

    /// Learns what the kernel said of packets of one bin, and may change it: drop some, for one.
    /// Bins come in any order. `descriptors` are as the kernel left them; `parameters` are those of [`Work::Run`].
    ///
    /// A packet is completed once, or never: one that a device fails to finish is dropped by the engine, which counts it,
    /// and its parameter does not come back. One that a device did not begin with before it was lost runs elsewhere, with
    /// the same variant and parameter, and is completed then.
    fn complete(&mut self, variant: u8, descriptors: &[Descriptor], parameters: &[u64], outcomes: &mut [Outcome]) {
        let _ = (variant, descriptors, parameters, outcomes);
    }

    /// Whether a device may lead packets on to other functions before they are completed: `complete` then sees
    /// descriptors as the last function left them, of outcomes the verdict alone, and `finish` is not called. Always the same.
    fn may_continue_on_device(&self) -> bool {
        false
    }

    /// Behind [`HostHalf::complete`], with the packets themselves: frames may be read, and rewritten within their buffers.
    fn finish(&mut self, region: &mut Region, descriptors: &mut [Descriptor], outcomes: &mut [Outcome]) {
        let _ = (region, descriptors, outcomes);
    }
}

/// What is to be done with one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Run the kernel.
    Run {
        /// Which variant.
        variant: u8,
        /// What the kernel gets to know of this packet.
        parameter: u64,
    },
    /// Nothing more: the host half settled it.
    Done(Outcome),
}

/// The registration of the function called `kind`, if there is one.
pub fn kind(kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|candidate| candidate.contract.kind == kind)
}

/// The frame of a packet in its buffer.
fn frame_mut<'a>(buffer: &'a mut [u8], descriptor: &Descriptor) -> &'a mut [u8] {
    let head = usize::from(descriptor.head);
    &mut buffer[head..head + usize::from(descriptor.length)]
}
