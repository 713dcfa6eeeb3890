//! Page locks of chunk arrays, which let the device use the arrays of a chunk without a copy by the
//! host.

use std::collections::HashMap;
use std::sync::Arc;

use godwit_sched::Chunk;

use super::driver::{Context, DevicePointer, PageLock};

/// Maximum number of chunks whose arrays a lane page-locks. With the smallest direct chunks, this
/// is half a million packets.
const LOCKED_CHUNKS_MAX: usize = 256;

/// Page locks of a lane.
pub(super) struct PageLocks {
    context: Arc<Context>,
    /// Locks by address. `None` means that the arrays cannot be page-locked.
    locked: HashMap<usize, Option<PageLock>>,
}

impl PageLocks {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), locked: HashMap::new() }
    }

    /// Page-locks the arrays of the chunk, unless they are locked, and returns the device address
    /// of their pages. Returns `None` if the pages cannot be locked; the arrays must then be
    /// copied.
    pub(super) fn lock(&mut self, chunk: &Chunk) -> Option<DevicePointer> {
        let pages = chunk.descriptors.pages();
        let address = pages.base().as_ptr().addr();
        if let Some(lock) = self.locked.get(&address) {
            return lock.as_ref().map(PageLock::pointer);
        }
        // A packer reuses the same few chunks. The arrays of additional chunks are copied.
        if self.locked.len() >= LOCKED_CHUNKS_MAX {
            return None;
        }
        let lock = PageLock::new(&self.context, pages).ok();
        let pointer = lock.as_ref().map(PageLock::pointer);
        self.locked.insert(address, lock);
        pointer
    }
}
