//! Host halves of the network functions. Each function has a folder with these files:
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | contract, registration, construction |
//! | `config.rs` | configuration |
//! | `tables.rs` | table image |
//! | `reference.rs` | `ref`, the work of the kernel, written directly from the standard |
//! | `host.rs` | decisions per packet before the kernel, if there are any |
//!
//! The kernel of a function is in the folder of the same name in `kernels/`. A function without a
//! folder here has tables and parameters of its declaration only, as a function of a user has.
#![forbid(unsafe_code)]

mod arrange;
mod builtin;
mod columns;
mod config;
pub mod custom;
mod declared;
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
pub mod nids;
pub mod responder;
pub mod routes;
pub mod routing;
mod tables;
pub mod template;
#[cfg(test)]
mod testing;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome};
use godwit_kernels::custom::CustomKernel;
use godwit_packet::{ImageRef, Region, SteerKey};
use godwit_state::{KeyName, State};
use toml::Spanned;
use toml::de::DeTable;

pub use arrange::{Arrangement, PreviousOutcome, Step};
pub use builtin::all as built_in_without_host_half;
pub use columns::WorkColumns;
pub use error::Error;
pub use godwit_declare::{Contract, Counter, Drop, Verdict};

/// All kinds of functions with a host half in Rust, in the order of their kernel numbers.
pub const KINDS: &[Kind] = &[
    template::KIND,
    echo::KIND,
    ipv4::KIND,
    ipsec::KIND,
    dpi::KIND,
    ipv6::KIND,
    l2::KIND,
    ndn::KIND,
    responder::KIND,
    nids::KIND,
];

/// Registration of a kind of function.
pub struct Kind {
    /// Contract of the function.
    pub contract: &'static Contract,
    /// Constructor of a configured function.
    pub build: Build,
}

/// Constructor that creates a function from its stanza in the configuration.
pub type Build = fn(Spanned<DeTable<'_>>, &BuildContext<'_>) -> Result<Arc<dyn Function>, Error>;

/// Context of a stanza: names and paths that it may refer to.
pub struct BuildContext<'a> {
    /// Name of the function in the configuration.
    pub name: &'a str,
    /// Names of all ports. The index of a port is its number.
    pub ports: &'a [String],
    /// Directory for relative file names.
    pub directory: &'a Path,
}

/// A configured network function.
///
/// All workers share it, and it is read-only. State that changes with packets is in the
/// [`HostHalf`] of each worker.
pub trait Function: Send + Sync {
    /// Returns the contract: what the function reads and writes, its verdicts and its drop reasons.
    fn contract(&self) -> &'static Contract;

    /// Returns the table image: offset-based, with the same bytes on every device. It is empty if
    /// the kernel needs none.
    ///
    /// The function always returns the same image. If parts of it change while packets flow, it is
    /// a [`godwit_packet::Image`]. A group of a device may prepare data from the image in advance,
    /// but only from parts that do not change.
    fn image(&self) -> ImageRef<'_>;

    /// Returns the maximum number of bytes that the configured function prepends to a frame. It is
    /// at most the value in the contract.
    fn headroom_bytes(&self) -> u16 {
        self.contract().headroom_bytes
    }

    /// Returns the maximum number of bytes that the configured function appends to a frame. It is
    /// at most the value in the contract.
    fn tailroom_bytes(&self) -> u16 {
        self.contract().tailroom_bytes
    }

    /// Returns the tailroom that the function does not need, by frame length. Index: the length of
    /// the frame modulo 16, for every L2 header. A function that pads to blocks needs its full
    /// tailroom only for some lengths.
    fn tailroom_saved(&self) -> [u8; 16] {
        [0; 16]
    }

    /// Returns the variant of every packet, for a function without a host half.
    fn variant(&self) -> u8 {
        0
    }

    /// Creates the host half of worker `worker` of `workers`. Returns `None` if the kernel runs on
    /// every packet with [`Function::variant`] and parameter 0.
    fn host_half(&self, worker: usize, workers: usize) -> Option<Box<dyn HostHalf>> {
        let _ = (worker, workers);
        None
    }

    /// Returns the steering key, if the function keeps state for several flows.
    fn steer_key(&self) -> Option<Arc<dyn SteerKey>> {
        None
    }

    /// Runs a command of the operator on the running function. The control thread runs one command
    /// at a time.
    ///
    /// `request` is the JSON object of the request. It contains `command` and the arguments of the
    /// command. The operator sees the returned value. The caller wipes `request` after the call, so
    /// the function must not copy or quote a key from it.
    ///
    /// # Errors
    /// Returns one sentence for the operator. The function is then unchanged.
    fn command(&self, request: &serde_json::Value, running: &dyn Running) -> Result<serde_json::Value, Error> {
        let _ = (request, running);
        Err(Error::Command { message: "this function takes no commands".to_owned() })
    }

    /// Returns the kernel, if it is not one of Godwit's.
    fn custom_kernel(&self) -> Option<&'static CustomKernel> {
        None
    }

    /// Returns the routes of the function, if others may change them.
    fn routing(&self) -> Option<&dyn routing::Routing> {
        None
    }

    /// Connects the function to other functions that it works with. It is called once, after all
    /// functions are built and before the run starts. `functions[own]` is this function.
    ///
    /// # Errors
    /// Returns [`Error::Value`] if a required function is missing.
    fn connect(&self, functions: &[Arc<dyn Function>], own: usize) -> Result<(), Error> {
        let _ = (functions, own);
        Ok(())
    }

    /// Returns the neighbour table, if the function resolves neighbours.
    fn neighbours(&self) -> Option<&Arc<neighbours::Neighbours>> {
        None
    }

    /// Opens the outputs of the function. It is called once, before the first packet moves, and not
    /// by `godwit check`. `live` is false in a replay, which waits for outputs and loses nothing.
    ///
    /// # Errors
    /// Returns one sentence if an output cannot be opened. The run does not start.
    fn start(&self, live: bool) -> Result<(), Error> {
        let _ = live;
        Ok(())
    }

    /// Opens the outputs of the function again under their names, after the operator has renamed
    /// them. SIGHUP has this effect.
    ///
    /// # Errors
    /// Returns one sentence if an output cannot be opened. The old one stays open.
    fn reopen(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Writes remaining output. It is called once, after all workers have ended and before the
    /// counters are read for the last time.
    fn finish(&self) {}

    /// Returns messages for the operator about events since the last call. The control thread calls
    /// it often, so it is cheap without events.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the ports of a port set for flooded packets (see
    /// [`PORT_FLOOD`](godwit_abi::PORT_FLOOD)).
    fn flood_ports(&self, set: u32) -> &[u8] {
        let _ = set;
        &[]
    }

    /// Adapts a copy of a flooded packet to its egress port `port`. The worker calls it for each
    /// copy, with the frame as the kernel left it.
    ///
    /// `buffer` is the whole buffer. The function may change `descriptor.head` and
    /// `descriptor.length` within it, up to [`Function::headroom_bytes`] and
    /// [`Function::tailroom_bytes`].
    fn prepare_copy(&self, buffer: &mut [u8], descriptor: &mut Descriptor, port: u8, set: u32) {
        let _ = (buffer, descriptor, port, set);
    }

    /// Returns the interval of [`Function::housekeeping`], or `None` if it is never called. The
    /// engine reads it once.
    fn housekeeping_interval(&self) -> Option<Duration> {
        None
    }

    /// Performs periodic work while packets flow: ages entries, processes messages of the workers,
    /// and reads changes of the machine.
    ///
    /// The first call is made before packets arrive. Each later call is made one interval after the
    /// last call returned. No command and no housekeeping of another function runs at the same
    /// time. The call may block. It is not made in a replay, because the result of a replay must
    /// not depend on a clock.
    ///
    /// # Errors
    /// Returns one sentence, which the operator sees if it differs from that of the last call.
    /// Housekeeping continues after an error.
    fn housekeeping(&self, running: &dyn Running) -> Result<(), Error> {
        let _ = running;
        Ok(())
    }

    /// Returns the values of [`Contract::counters`], in that order. The control thread calls it.
    fn counts(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the part of the function that must not repeat sequence numbers after a restart.
    fn durable(&self) -> Option<&dyn Durable> {
        None
    }

    /// Processes one packet in the same way as the kernel, written directly from the standard. The
    /// implementation favors clarity over speed.
    ///
    /// `buffer` is the whole buffer of the packet. The function may change `descriptor.head` and
    /// `descriptor.length` within it.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome;
}

/// Part of a function whose sequence numbers must not repeat under one key.
pub trait Durable {
    /// Returns the keys with which the function sends.
    fn keys(&self) -> Vec<SendingKey>;

    /// Claims the keys, and continues after the numbers that an earlier process may have used.
    /// Called once, before packets arrive. `name` is the configured name of the function. It is not
    /// called in a replay, whose output must not depend on earlier ones.
    ///
    /// # Errors
    /// If another process uses a key, or the state folder cannot be written.
    fn start(&self, name: &str, state: &Arc<State>) -> Result<(), Error>;
}

/// Key with which a function sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendingKey {
    /// Digest of the key and of the constant part of its nonces.
    pub name: KeyName,
    /// Part of the function that uses the key, such as `SA "x"`.
    pub owner: String,
    /// Whether a repeated number would reveal plaintext, and the key may have been used before.
    pub needs_folder: bool,
}

/// Operations of the engine for commands and housekeeping. A function uses them to change its
/// tables while packets are in flight.
///
/// To add an entry, write it to parts of the image that nothing refers to and call
/// [`Running::image_changed`]. Then make the entry visible to host halves. To remove an entry, hide
/// it from host halves and call [`Running::quiesce`]. Then wipe and free it.
pub trait Running {
    /// Copies these bytes of the function's image to all devices with a copy of the image, and
    /// waits for completion.
    ///
    /// # Errors
    /// Returns [`Error::Command`] if a device in use did not receive the bytes. Nothing may then
    /// refer to them.
    fn image_changed(&self, range: Range<usize>) -> Result<(), Error>;

    /// Waits until every packet that a host half prepared before the call is completed or dropped.
    ///
    /// # Errors
    /// Returns [`Error::Command`] on a timeout. Entries that such packets refer to must then stay
    /// unchanged.
    fn quiesce(&self) -> Result<(), Error>;

    /// Starts a grace period without waiting. Returns a ticket for [`Running::is_quiesced`].
    fn request_quiesce(&self) -> u64 {
        0
    }

    /// Returns whether every packet that a host half prepared before [`Running::request_quiesce`]
    /// is completed or dropped. The default implementation waits for it.
    fn is_quiesced(&self, ticket: u64) -> bool {
        let _ = ticket;
        self.quiesce().is_ok()
    }
}

/// Part of a function that runs on the worker, per batch, before and after the kernel.
pub trait HostHalf: Send {
    /// Appends one [`Work`] per descriptor, in the same order.
    fn prepare(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>);

    /// Appends the work in columns. The engine calls this method. A fast host half implements it
    /// directly.
    fn prepare_columns(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut WorkColumns) {
        work.extend_with_rows(|rows| self.prepare(region, descriptors, rows));
    }

    /// Returns whether the host half prepares packets before the kernel. If not, the kernel runs on
    /// all packets with [`Function::variant`] and parameter 0, and `prepare` is never called. The
    /// result never changes.
    fn prepares(&self) -> bool {
        true
    }

    /// Returns whether the engine calls [`HostHalf::arrange`] instead of [`HostHalf::prepare`]. The
    /// result never changes.
    fn arranges(&self) -> bool {
        false
    }

    /// Returns whether the host half reads [`Arrangement::previous`]. This requires
    /// [`HostHalf::arranges`] and a function without arrival order. The result never changes.
    fn reads_previous(&self) -> bool {
        false
    }

    /// Returns whether the host half reads [`Arrangement::stamps`]. This requires
    /// [`HostHalf::arranges`]. The result never changes.
    fn reads_stamps(&self) -> bool {
        false
    }

    /// Arranges packets instead of `prepare`: splits, holds, joins or creates packets. It is called
    /// when packets have arrived, at the requested time, and at the end until no packet is held.
    ///
    /// Returns the latest time of the next call on the clock of [`Arrangement::now_ns`], or
    /// `u64::MAX` to be called only for new packets.
    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        let mut work = Vec::with_capacity(packets.arrived.len());
        self.prepare(packets.region, packets.arrived, &mut work);
        let pairs = packets.arrived.iter().zip(work);
        packets.steps.extend(pairs.map(|(&packet, work)| Step::Keep { packet, work }));
        u64::MAX
    }

    /// Receives the outcomes of the kernel for packets of one bin, and may change them, for example
    /// to drop packets. Bins arrive in any order. `descriptors` are in the state in which the
    /// kernel left them. `parameters` are those of [`Work::Run`].
    ///
    /// Each packet is completed at most once. If a device fails while it processes a packet, the
    /// engine drops and counts the packet, and its parameter does not come back. A packet that a
    /// lost device has not started runs on another device, with the same variant and parameter, and
    /// is completed then.
    fn complete(&mut self, variant: u8, descriptors: &[Descriptor], parameters: &[u64], outcomes: &mut [Outcome]) {
        let _ = (variant, descriptors, parameters, outcomes);
    }

    /// Returns whether a device may continue with the next function before the packets are
    /// completed. The result never changes.
    ///
    /// In this case `complete` receives the descriptors as the last function left them, and only
    /// the verdict of each outcome is valid. `finish` is not called.
    fn may_continue_on_device(&self) -> bool {
        false
    }

    /// Processes the packets after [`HostHalf::complete`]. It may read frames, and rewrite them
    /// within their buffers.
    fn finish(&mut self, region: &mut Region, descriptors: &mut [Descriptor], outcomes: &mut [Outcome]) {
        let _ = (region, descriptors, outcomes);
    }
}

/// Work for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The kernel processes the packet.
    Run {
        /// Variant of the packet.
        variant: u8,
        /// Parameter of the kernel for this packet.
        parameter: u64,
    },
    /// The host half has finished the packet with this outcome.
    Done(Outcome),
}

/// Creates a function from its stanza in the configuration. `kind_name` is the value of `kind`, one
/// of [`kind_names`].
///
/// # Errors
/// Returns the first problem of the stanza, of a file that it names, or an unknown kind.
pub fn build(
    kind_name: &str,
    stanza: Spanned<DeTable<'_>>,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Function>, Error> {
    if let Some(kind) = kind(kind_name) {
        return (kind.build)(stanza, context);
    }
    if kind_name == custom::KIND_NAME {
        return custom::build(stanza, context);
    }
    match builtin::all().find(|(contract, _)| contract.kind == kind_name) {
        Some(declared) => builtin::build(declared, stanza, context),
        None => Err(Error::Value { span: None, message: format!("unknown kind of function `{kind_name}`") }),
    }
}

/// Returns all values of `kind` in a configuration.
pub fn kind_names() -> Vec<&'static str> {
    let in_rust = KINDS.iter().map(|kind| kind.contract.kind);
    in_rust.chain(builtin::all().map(|(contract, _)| contract.kind)).chain([custom::KIND_NAME]).collect()
}

/// Returns the registration of a kind of function, if it exists.
pub fn kind(kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|candidate| candidate.contract.kind == kind)
}

/// Returns the frame of a packet in its buffer.
fn frame_mut<'a>(buffer: &'a mut [u8], descriptor: &Descriptor) -> &'a mut [u8] {
    let head = usize::from(descriptor.head);
    &mut buffer[head..head + usize::from(descriptor.length)]
}
