//! Packet memory.
//!
//! The arena is one contiguous [`Memory`] that holds all packets of the process. [`Arena::split`]
//! divides it into one [`Region`] per worker. Only this worker allocates, accesses and frees
//! buffers of its region.
//!
//! A 16-byte [`Descriptor`] names a packet. A [`Batch`] passes packets from a port to a worker.
//! [`Steering`] selects the worker of a packet. A [`Loan`] passes buffers to another thread that
//! sends the packets. An [`exchange()`] ring passes packets to another worker.
//!
//! ```text
//! arena    | region of worker 0        | region of worker 1        | ...
//! slots    | w | w | w | w | w | w | w |   fixed buffers, a stack or a queue of free ones
//! dense    | w |w| w  |w|w|  free  | w |   buffers of the needed size, a ring
//! buffer   |<- headroom ->|<- frame ->|<- tailroom ->|
//! ```

mod arena;
mod array;
mod batch;
mod exchange;
pub mod flow;
mod image;
mod loan;
mod memory;
mod region;
mod scan;
pub mod simd;
mod stack;
mod steering;

pub use arena::{Arena, ArenaConfig, ArenaHandle, Layout, Reuse};
pub use array::{Array, Pages, Plain, arrays};
pub use batch::{Batch, Stamp};
pub use exchange::{ExchangeReceiver, ExchangeSender, exchange};
pub use flow::SYMMETRIC_KEY;
pub use godwit_abi::{BUFFER_UNIT_BYTES, Descriptor, Outcome};
pub use image::{Image, ImageRef};
pub use loan::{Borrower, Loan, Outgoing};
pub use memory::{Backing, Memory};
pub use region::Region;
pub use scan::{Extents, Scan, are_in_order, extents, scan, scan_all, select, verdict_of_all};
pub use stack::wipe_stack;
pub use steering::{ANY_WORKER, BUCKETS, SteerKey, Steering};

/// Error during the setup of packet memory. Functions that process packets never return it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine does not have enough memory.
    #[error("cannot allocate {bytes} bytes of memory for {what}: {source}")]
    Memory {
        /// Purpose of the memory.
        what: &'static str,
        /// Requested size, in bytes.
        bytes: usize,
        /// Error from the operating system.
        source: std::io::Error,
    },
    /// A configured value is not usable.
    #[error("arena: {key} = {value}: {reason}")]
    Config {
        /// Name of the configuration key.
        key: &'static str,
        /// Value of the configuration key.
        value: u64,
        /// Reason for the refusal, with the valid range.
        reason: String,
    },
}
