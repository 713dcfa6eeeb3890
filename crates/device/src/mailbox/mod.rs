//! Mailboxes, through which the host gives bins to persistent groups without driver calls.
//!
//! The README in this folder explains the algorithm and its memory order. `memory.rs` accesses the
//! mailboxes, `split.rs` divides the groups between functions, and `lane.rs` is the [`Lane`] of
//! every device with persistent groups. The folders of the kinds start and stop the groups.
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
