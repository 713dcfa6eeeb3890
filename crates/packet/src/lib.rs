//! Where a packet lives.
//!
//! One [`Memory`] is the arena; [`Arena::split`] cuts it into one [`Region`] per worker, and only that
//! worker allocates, reaches and returns buffers of it. A packet is named by a 16-byte
//! [`Descriptor`]; a [`Batch`] is what a port hands to a worker; [`Steering`] says which worker a packet belongs to.
//! Another thread that sends the packets is lent their buffers ([`Loan`]).
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
pub use flow::SYMMETRIC_KEY;
pub use godwit_abi::{BUFFER_UNIT_BYTES, Descriptor, Outcome};
pub use image::{Image, ImageRef};
pub use loan::{Borrower, Loan, Outgoing};
pub use memory::{Backing, Memory};
pub use region::Region;
pub use scan::{Extents, Scan, are_in_order, extents, scan, scan_all, verdict_of_all};
pub use stack::wipe_stack;
pub use steering::{BUCKETS, SteerKey, Steering};

/// What can go wrong when memory is set up. Nothing here happens on the packet path.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator asked for more than the machine has.
    #[error("cannot allocate {bytes} bytes of memory for {what}: {source}")]
    Memory {
        /// What the memory was for.
        what: &'static str,
        /// How much was asked for.
        bytes: usize,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The operator gave a value that cannot work.
    #[error("arena: {key} = {value}: {reason}")]
    Config {
        /// The key at fault.
        key: &'static str,
        /// Its value.
        value: u64,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
}
