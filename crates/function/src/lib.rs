//! Network functions, such as IPsec, routing and pattern search. This crate contains the parts of
//! the functions that run on the CPU before and after the kernels. Each function has a folder with
//! these files:
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | contract, registration, construction |
//! | `config.rs` | configuration |
//! | `tables.rs` | table image |
//! | `reference.rs` | `ref`, the work of the kernel, written directly from the standard |
//! | `host.rs` | work per packet before and after the kernel, if there is any |
//!
//! The kernel of a function is in the folder of the same name in `kernels/`. A built-in function
//! without a folder in this crate consists of a declaration and a kernel, as a function of a user
//! does.
#![forbid(unsafe_code)]

pub mod aes;
mod aes_key;
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
#[doc(hidden)]
pub mod fuzz;
pub mod hash;
mod host_half;
pub mod ipsec;
pub mod ipv4;
pub mod ipv6;
mod key;
pub mod l2;
pub mod ndn;
pub mod neighbours;
pub mod nids;
pub mod request;
pub mod responder;
pub mod routes;
pub mod routing;
mod sizes;
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
use godwit_packet::{ImageRef, SteerKey};
use godwit_state::{KeyName, State};
use toml::Spanned;
use toml::de::DeTable;

pub use arrange::{Arrangement, PreviousOutcome, Step};
pub use builtin::all as built_in_without_host_half;
pub use columns::WorkColumns;
pub use error::Error;
pub use godwit_declare::{Contract, Counter, Drop, HostUse, Verdict};
pub use host_half::{Arrange, Complete, HostHalf, Prepare};

/// Function kinds with Rust code, in the order of their kernel numbers.
pub const KINDS: &[Kind] = &[
    template::KIND,
    echo::KIND,
    ipv4::KIND,
    ipsec::KIND,
    dpi::KIND,
    ipv6::KIND,
    l2::KIND,
    ndn::KIND,
    hash::KIND,
    aes::KIND,
    responder::KIND,
    nids::KIND,
];

/// Kind of function, from which configured functions are created.
pub struct Kind {
    /// Contract of the function, which states what it reads and writes.
    pub contract: &'static Contract,
    /// Constructor that creates a configured function.
    pub build: Build,
}

/// Constructor of a function from its configuration stanza.
pub type Build = fn(Spanned<DeTable<'_>>, &BuildContext<'_>) -> Result<Arc<dyn Function>, Error>;

/// Names and paths that a configuration stanza may refer to.
pub struct BuildContext<'a> {
    /// Name of the function in the configuration.
    pub name: &'a str,
    /// Names of all ports. The index of a port is its number.
    pub ports: &'a [String],
    /// Directory from which relative file names are resolved.
    pub directory: &'a Path,
}

/// Event of a function: its name in `docs/monitoring.md`, and a message for the operator.
pub type Notice = (&'static str, String);

/// A configured network function.
///
/// All workers share the function, and it is read-only. State that changes with each packet is in
/// the [`HostHalf`] of each worker. The optional parts are separate traits, and a function returns
/// the ones that it implements.
pub trait Function: Send + Sync {
    /// Returns the contract of the function. The contract states what the function reads and
    /// writes, its verdicts and its drop reasons.
    fn contract(&self) -> &'static Contract;

    /// Returns the table image, a block of bytes that contains the tables of the function. It uses
    /// offsets instead of pointers, and its bytes are thus the same on every device. It is empty if
    /// the kernel needs no tables.
    ///
    /// The function always returns the same image. If parts of the image change while packets flow,
    /// it is a [`godwit_packet::Image`]. A device may prepare data from the image in advance, but
    /// only from parts that do not change.
    fn image(&self) -> ImageRef<'_>;

    /// Processes one packet in the same way as the kernel. This reference implementation is written
    /// directly from the standard, and favors clarity over speed.
    ///
    /// `buffer` is the whole buffer of the packet. The function may change `descriptor.head` and
    /// `descriptor.length` within the buffer.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome;

    /// Returns the properties that depend on the configuration of the function. They never change.
    fn properties(&self) -> Properties {
        Properties::of(self.contract())
    }

    /// Creates the CPU part of the function for one worker. `worker` is the number of this worker,
    /// and `workers` is the number of all workers. Returns `None` if the function has no CPU part.
    /// The kernel then runs on every packet with [`Properties::variant`] and parameter 0.
    fn host_half(&self, worker: usize, workers: usize) -> Option<HostHalf> {
        let _ = (worker, workers);
        None
    }

    /// Returns the steering key, which selects the worker for a packet. Only functions that keep
    /// state for several flows have one.
    fn steer_key(&self) -> Option<Arc<dyn SteerKey>> {
        None
    }

    /// Returns the commands and reports of the function for the operator, if it has any.
    fn operate(&self) -> Option<&dyn Operate> {
        None
    }

    /// Returns the work of the function at the start and at the end of a run, if it has any.
    fn lifecycle(&self) -> Option<&dyn Lifecycle> {
        None
    }

    /// Returns the periodic work of the function, if it has any.
    fn housekeeping(&self) -> Option<&dyn Housekeeping> {
        None
    }

    /// Returns the part that copies packets to several ports, if the function floods packets.
    fn flood(&self) -> Option<&dyn Flood> {
        None
    }

    /// Returns the part that knows routes, addresses or neighbours, if the function has one.
    fn station(&self) -> Option<&dyn Station> {
        None
    }

    /// Returns the part of the function that must not repeat sequence numbers after a restart, if
    /// there is one.
    fn durable(&self) -> Option<&dyn Durable> {
        None
    }
}

/// Properties of a function that depend on its configuration. Properties of all functions of a kind
/// are in the [`Contract`].
#[derive(Clone, Copy)]
pub struct Properties {
    /// Kind of processing for every packet that is not prepared on the CPU.
    pub variant: u8,
    /// Maximum number of bytes that the function prepends to a frame. It is at most
    /// [`Contract::headroom_bytes`].
    pub headroom_bytes: u16,
    /// Maximum number of bytes that the function appends to a frame. It is at most
    /// [`Contract::tailroom_bytes`].
    pub tailroom_bytes: u16,
    /// Number of tailroom bytes that a frame does not need. The array index is the frame length
    /// modulo 16. A function that pads frames to blocks needs its full tailroom only for some
    /// lengths. The values do not depend on the layer-2 header.
    pub tailroom_saved: [u8; 16],
    /// Kernel of a function that a user wrote, or `None` if the kernel is part of Godwit.
    pub custom_kernel: Option<&'static CustomKernel>,
}

impl Properties {
    /// Returns the properties of a function that does not depend on its configuration.
    pub fn of(contract: &Contract) -> Self {
        Self {
            variant: 0,
            headroom_bytes: contract.headroom_bytes,
            tailroom_bytes: contract.tailroom_bytes,
            tailroom_saved: [0; 16],
            custom_kernel: None,
        }
    }
}

/// Commands and reports of a function for the operator. The control thread calls the methods.
pub trait Operate {
    /// Runs a command of the operator on the running function. The control thread runs one command
    /// at a time.
    ///
    /// `request` is the JSON object of the request, which contains `command` and its arguments. The
    /// operator sees the returned value. The caller overwrites `request` after the call, because it
    /// may contain a secret key. The function must not copy or quote such a key.
    ///
    /// # Errors
    /// Returns one sentence for the operator. The function is then unchanged.
    fn command(&self, request: &serde_json::Value, running: &dyn Running) -> Result<serde_json::Value, Error> {
        let _ = (request, running);
        Err(Error::no_commands())
    }

    /// Returns the names of the function's tables and the numbers of their entries, such as routes
    /// and SAs. The control thread calls the method about once a second, so it must not wait while
    /// another thread changes a table.
    fn tables(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Returns the values of the counters in [`Contract::counters`], in the same order.
    fn counts(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Returns warnings about the configuration, one sentence each.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the events since the last call. The control thread calls the method often, so it
    /// must be cheap if there are no events.
    fn notices(&self) -> Vec<Notice> {
        Vec::new()
    }
}

/// Work of a function at the start and at the end of a run.
pub trait Lifecycle {
    /// Opens the outputs of the function, such as log files. The engine calls the method once,
    /// before the first packet moves. The command `godwit check` does not call it. `live` is false
    /// in a replay. A replay waits for slow outputs and loses no data.
    ///
    /// # Errors
    /// Returns one sentence if an output cannot be opened. The run does not start.
    fn start(&self, live: bool) -> Result<(), Error>;

    /// Opens the outputs of the function again under their names, after the operator has renamed
    /// the files. The signal SIGHUP causes this call.
    ///
    /// # Errors
    /// Returns one sentence if an output cannot be opened. The old output stays open.
    fn reopen(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Writes the remaining output of the function. The engine calls the method once. At that time,
    /// all workers have ended, and the counters are not yet read for the last time.
    fn finish(&self) {}
}

/// Periodic work of a function while packets flow. It removes old entries, processes messages of
/// the workers, and reads changes of the machine.
pub trait Housekeeping {
    /// Returns the interval between calls of [`Housekeeping::run`]. The engine reads it once.
    fn interval(&self) -> Duration;

    /// Performs the periodic work.
    ///
    /// The first call is made before packets arrive. Each later call is made one interval after the
    /// last call returned. No command and no housekeeping of another function runs at the same
    /// time. The call may block. It is not made in a replay, because the result of a replay must
    /// not depend on a clock.
    ///
    /// # Errors
    /// Returns one sentence. The operator sees it if it differs from the sentence of the last call.
    /// Housekeeping continues after an error.
    fn run(&self, running: &dyn Running) -> Result<(), Error>;
}

/// Part of a function whose packets may leave by several ports.
pub trait Flood {
    /// Returns the ports in the port set with number `set`. A flooded packet leaves by all ports of
    /// such a set (see [`PORT_FLOOD`](godwit_abi::PORT_FLOOD)).
    fn ports(&self, set: u32) -> &[u8];

    /// Adapts one copy of a flooded packet to the egress port `port`. The worker calls the method
    /// for each copy. The frame is in the state in which the kernel left it.
    ///
    /// `buffer` is the whole buffer of the copy. The function may change `descriptor.head` and
    /// `descriptor.length` within the buffer, by at most [`Properties::headroom_bytes`] and
    /// [`Properties::tailroom_bytes`].
    fn prepare_copy(&self, buffer: &mut [u8], descriptor: &mut Descriptor, port: u8, set: u32);
}

/// Part of a function that knows routes, the addresses of the router, or its neighbours.
pub trait Station {
    /// Returns the interface to the routes of the function, if the operator or other programs may
    /// change them.
    fn routing(&self) -> Option<&dyn routing::Routing> {
        None
    }

    /// Returns the addresses of the router itself.
    fn own_addresses(&self) -> &Arc<routing::OwnAddresses>;

    /// Returns the neighbour table, if the function resolves the Ethernet addresses of neighbours.
    fn neighbours(&self) -> Option<&Arc<neighbours::Neighbours>> {
        None
    }

    /// Connects the function to other functions that it works with. The engine calls the method
    /// once, after it has built all functions and before the run starts. `functions[own]` is this
    /// function.
    ///
    /// # Errors
    /// Returns [`Error::Value`] if a required function is missing.
    fn connect(&self, functions: &[Arc<dyn Function>], own: usize) -> Result<(), Error> {
        let _ = (functions, own);
        Ok(())
    }
}

/// Part of a function that must never use a sequence number twice with the same key.
pub trait Durable {
    /// Returns the keys with which the function sends packets.
    fn keys(&self) -> Vec<SendingKey>;

    /// Claims the cryptographic keys for this process, and continues after the sequence numbers
    /// that an earlier process may have used. `name` is the configured name of the function.
    ///
    /// The engine calls the method once, before packets arrive. It is not called in a replay, whose
    /// output must not depend on earlier runs.
    ///
    /// # Errors
    /// Returns an error if another process uses a key, or if the state folder cannot be written.
    fn start(&self, name: &str, state: &Arc<State>) -> Result<(), Error>;
}

/// Key with which a function sends packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendingKey {
    /// Digest of the key and of the constant part of its nonces.
    pub name: KeyName,
    /// Part of the function that uses the key, such as `SA "x"`.
    pub owner: String,
    /// Whether the key requires a state folder. It does if the key may have been used before and a
    /// repeated sequence number would reveal plaintext.
    pub needs_folder: bool,
}

/// Operations of the engine for commands and housekeeping. With them, a function can change its
/// tables while packets are in flight.
///
/// To add an entry, a function writes it to parts of the table image that nothing refers to, and
/// calls [`Running::image_changed`]. Then it makes the entry visible to its parts on the workers.
/// To remove an entry, it hides the entry from these parts and calls [`Running::quiesce`]. Then it
/// overwrites and frees the entry.
pub trait Running {
    /// Copies `range` of the function's table image to all devices that have a copy of the image.
    /// Returns after all copies are complete.
    ///
    /// # Errors
    /// Returns [`Error::Command`] if a device in use did not receive the bytes. The function must
    /// then not refer to these bytes.
    fn image_changed(&self, range: Range<usize>) -> Result<(), Error>;

    /// Waits until all packets that were prepared before the call are completed or dropped. This
    /// time is called a grace period.
    ///
    /// # Errors
    /// Returns [`Error::Command`] on a timeout. Table entries that such packets refer to must then
    /// stay unchanged.
    fn quiesce(&self) -> Result<(), Error>;

    /// Starts a grace period, but does not wait for its end. Returns a ticket, with which
    /// [`Running::is_quiesced`] can check for the end.
    fn request_quiesce(&self) -> u64 {
        0
    }

    /// Returns whether a grace period has ended. `ticket` comes from [`Running::request_quiesce`].
    /// The period ends when all packets that were prepared before that call are completed or
    /// dropped.
    ///
    /// The default implementation waits for the end.
    fn is_quiesced(&self, ticket: u64) -> bool {
        let _ = ticket;
        self.quiesce().is_ok()
    }
}

/// Work that the kernel has to do for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The kernel must process the packet.
    Run {
        /// Kind of processing that the packet needs.
        variant: u8,
        /// Parameter of the kernel for this packet.
        parameter: u64,
    },
    /// The packet has this outcome and skips the kernel.
    Done(Outcome),
}

/// Creates a function from its stanza in the configuration. `kind_name` is the value of the key
/// `kind`, which must be one of [`kind_names`].
///
/// # Errors
/// Returns an error if the kind is unknown. Otherwise, returns the first problem in the stanza or
/// in a file that it names.
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

/// Returns all valid values of the key `kind` of a function.
pub fn kind_names() -> Vec<&'static str> {
    let in_rust = KINDS.iter().map(|kind| kind.contract.kind);
    in_rust.chain(builtin::all().map(|(contract, _)| contract.kind)).chain([custom::KIND_NAME]).collect()
}

/// Returns the function kind with this name. Returns `None` if it does not exist or has no Rust
/// code.
pub fn kind(kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|candidate| candidate.contract.kind == kind)
}

/// Returns the frame of a packet in its buffer.
fn frame_mut<'a>(buffer: &'a mut [u8], descriptor: &Descriptor) -> &'a mut [u8] {
    let head = usize::from(descriptor.head);
    &mut buffer[head..head + usize::from(descriptor.length)]
}
