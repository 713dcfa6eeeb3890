//! Mailboxes, through which the host gives batches of packets to persistent work-groups. A mailbox
//! needs no driver calls.
//!
//! The README in this folder explains the algorithm and its memory order. `memory.rs` accesses the
//! mailboxes, and `split.rs` divides the work-groups between functions. `lane.rs` contains the
//! [`Lane`] (one worker's connection) of every device with persistent work-groups. The folder of
//! each device kind starts and stops the work-groups.
//!
//! [`Lane`]: crate::Lane

mod lane;
mod memory;
mod pool;
mod split;

pub(crate) use lane::{GroupsDevice, PersistentLane};
pub(crate) use memory::{HostWords, Mailboxes};
pub(crate) use pool::LanePool;
pub(crate) use split::groups_min;
