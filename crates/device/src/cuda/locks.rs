//! Page-locks the arrays of submissions. The device can then access them directly.

use std::collections::HashMap;
use std::sync::Arc;

use godwit_sched::Chunk;

use super::driver::{Context, DevicePointer, PageLock};

/// Maximum number of submissions whose arrays one worker page-locks. With 2048 packets per
/// submission, the arrays hold half a million packets.
const LOCKED_CHUNKS_MAX: usize = 256;

/// Page locks of one worker's submission arrays.
pub(super) struct PageLocks {
    context: Arc<Context>,
    /// Page locks of arrays, indexed by the address of the arrays. `None` means that the driver
    /// cannot lock the arrays.
    locked: HashMap<usize, Option<PageLock>>,
}

impl PageLocks {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), locked: HashMap::new() }
    }

    /// Page-locks the arrays of the submission if they are not locked yet. Returns the device
    /// address of the arrays. Returns `None` if the arrays cannot be locked and must be copied.
    pub(super) fn lock(&mut self, chunk: &Chunk) -> Option<DevicePointer> {
        let pages = chunk.descriptors.pages();
        let address = pages.base().as_ptr().addr();
        if let Some(lock) = self.locked.get(&address) {
            return lock.as_ref().map(PageLock::pointer);
        }
        // A worker reuses the memory of a few submissions, so it rarely reaches
        // `LOCKED_CHUNKS_MAX`. Beyond this limit, arrays are copied.
        if self.locked.len() >= LOCKED_CHUNKS_MAX {
            return None;
        }
        let lock = PageLock::new(&self.context, pages).ok();
        let pointer = lock.as_ref().map(PageLock::pointer);
        self.locked.insert(address, lock);
        pointer
    }
}
