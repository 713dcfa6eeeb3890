//! A worker's region as the mempool of its queues.
//!
//! ```text
//! Region --post--> ready --driver: receive ring--> frame arrived --> Region::arrived --> worker
//!   ^                ^                                                                      |
//!   '---reclaim------'<----------driver: sent----------- transmit ring <-- hand_over <------'
//! ```
//! A buffer that was sent may be received into without passing by the region. What is ready is kept between [`FEW`] and [`MANY`].

use std::ffi::{CString, c_int, c_void};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use godwit_packet::{ArenaHandle, Outgoing, Region};

use super::ffi::{self, RawPool};
use crate::Error;
use crate::live::LiveContext;

/// Fewer buffers than this that are ready are filled up to [`ENOUGH`].
const FEW: u32 = 256;
const ENOUGH: u32 = 512;
/// More than this go back to the region, down to [`ENOUGH`].
const MANY: u32 = 1024;

/// The arena, known to DPDK.
struct Registered {
    arena: ArenaHandle,
    bytes: usize,
}

impl Registered {
    fn new(arena: &ArenaHandle) -> Result<Self, Error> {
        let page_bytes = page_bytes(arena);
        let bytes = arena.bytes() - arena.bytes() % page_bytes;
        // SAFETY: the arena's pages, kept mapped by the handle until they are unregistered.
        let result = unsafe { ffi::gw_dpdk_register_memory(arena.base().as_ptr().cast(), bytes, page_bytes) };
        match result {
            0 => Ok(Self { arena: arena.clone(), bytes }),
            error => Err(Error::Environment { reason: format!("registering the arena: {}", ffi::reason(error)) }),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered by `new`; all pools over it are gone.
        unsafe { ffi::gw_dpdk_unregister_memory(self.arena.base().as_ptr().cast(), self.bytes) };
    }
}

/// DPDK looks at ordinary pages only.
fn page_bytes(_arena: &ArenaHandle) -> usize {
    4096
}

/// See the module. All ports of a worker share it.
pub(super) struct Pool {
    raw: NonNull<RawPool>,
    registered: Arc<Registered>,
    start: usize,
    /// Whether a receive queue looks after what is ready.
    pub(super) received_into: AtomicBool,
}

// SAFETY: which thread may call what is said at each function of shim.h; those that need the owner take `&mut Region` of the pool's
// region or the queue that belongs to it, which one thread has at a time.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// Pools of all regions of the process, for as long as a port uses them.
static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());

impl Pool {
    /// The pools of all workers.
    pub(super) fn of_all(context: &LiveContext<'_>, socket: c_int) -> Result<Vec<Arc<Self>>, Error> {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        let known: Vec<Arc<Self>> = pools.iter().filter_map(Weak::upgrade).collect();
        let of_arena = known.iter().find(|pool| pool.registered.arena.base() == context.arena.base());
        let registered = match of_arena {
            Some(pool) => Arc::clone(&pool.registered),
            None => Arc::new(Registered::new(context.arena)?),
        };
        let of_region = |region: &Range<usize>| {
            let same = |pool: &&Arc<Self>| Arc::ptr_eq(&pool.registered, &registered) && pool.start == region.start;
            if let Some(pool) = known.iter().find(same) {
                return Ok(Arc::clone(pool));
            }
            let pool = Arc::new(Self::new(context, region, &registered, socket)?);
            pools.push(Arc::downgrade(&pool));
            Ok(pool)
        };
        context.regions.iter().map(of_region).collect()
    }

    fn new(
        context: &LiveContext<'_>,
        region: &Range<usize>,
        registered: &Arc<Registered>,
        socket: c_int,
    ) -> Result<Self, Error> {
        let slot_bytes = context.slot_bytes.unwrap_or(0);
        let slots = region.len().checked_div(slot_bytes).unwrap_or(0);
        let plan = ffi::PoolPlan {
            arena: registered.arena.base().as_ptr(),
            first: region.start as u64,
            slots: slots as u32,
            stride_bytes: slot_bytes as u32,
            buffer_bytes: context.buffer_bytes as u32,
            headroom_bytes: context.headroom_bytes as u32,
            socket,
        };
        // Mempools have names of at most 25 characters, unique in the process.
        let name = CString::new(format!("gw{:x}", registered.arena.base().as_ptr() as usize + region.start));
        let name = name.unwrap_or_default();
        let mut error = 0;
        // SAFETY: the slots of a region, each with PREFIX_BYTES in front of its buffer that nobody else touches; the arena is kept
        // mapped by `registered`.
        let raw = unsafe { ffi::gw_dpdk_pool_create(name.as_ptr(), &plan, &mut error) };
        let Some(raw) = NonNull::new(raw) else {
            return Err(Error::Environment { reason: format!("making a mempool: {}", ffi::reason(error)) });
        };
        Ok(Self { raw, registered: Arc::clone(registered), start: region.start, received_into: AtomicBool::new(false) })
    }

    pub(super) fn raw(&self) -> *mut RawPool {
        self.raw.as_ptr()
    }

    /// The memory that devices have to reach.
    pub(super) fn memory(&self) -> (*mut c_void, usize) {
        (self.registered.arena.base().as_ptr().cast(), self.registered.bytes)
    }

    /// The calling thread is the worker.
    pub(super) fn own(&self) {
        // SAFETY: only the worker's queues call it, at their first use.
        unsafe { ffi::gw_dpdk_pool_own(self.raw()) };
    }

    /// Buffers that are ready for drivers.
    fn ready(&self) -> u32 {
        // SAFETY: the caller is the owner.
        unsafe { ffi::gw_dpdk_pool_ready(self.raw()) }
    }

    /// Gives drivers up to `count` buffers of the region; returns how many it had.
    pub(super) fn post(&self, region: &mut Region, count: u32) -> u32 {
        let mut given = 0;
        let mut buffers = [0; 64];
        while given < count {
            let mut posted = 0;
            while posted < buffers.len().min((count - given) as usize) {
                let Some(buffer) = region.post() else { break };
                buffers[posted] = buffer;
                posted += 1;
            }
            if posted == 0 {
                break;
            }
            // SAFETY: buffers of this region that the region has given out of hand; the caller is the owner.
            unsafe { ffi::gw_dpdk_pool_give(self.raw(), buffers.as_ptr(), posted as u32) };
            given += posted as u32;
        }
        given
    }

    /// Keeps what is ready between few and many.
    #[inline]
    pub(super) fn balance(&self, region: &mut Region) {
        let ready = self.ready();
        if ready < FEW {
            self.post(region, ENOUGH - ready);
        } else if ready > MANY {
            self.reduce(&mut Outgoing::Own(region), ready);
        }
    }

    /// What a transmit queue does about buffers that drivers are done with.
    #[inline]
    pub(super) fn collect(&self, buffers: &mut Outgoing<'_>) {
        if let Outgoing::Own(_) = buffers {
            let ready = self.ready();
            if ready > MANY {
                self.reduce(buffers, ready);
            }
        } else if !self.received_into.load(Ordering::Relaxed) {
            self.give_back(buffers, |raw, taken, count| {
                // SAFETY: any thread may; room for `count` buffers.
                unsafe { ffi::gw_dpdk_pool_take_away(raw, taken, count) }
            });
        }
    }

    #[cold]
    fn reduce(&self, buffers: &mut Outgoing<'_>, ready: u32) {
        let mut left = ready - ENOUGH;
        self.give_back(buffers, |raw, taken, count| {
            let count = count.min(left);
            left -= count;
            // SAFETY: the caller is the owner; room for `count` buffers.
            unsafe { ffi::gw_dpdk_pool_take(raw, taken, count) }
        });
    }

    fn give_back(&self, buffers: &mut Outgoing<'_>, mut take: impl FnMut(*mut RawPool, *mut u32, u32) -> u32) {
        let mut taken = [0; 64];
        loop {
            let count = take(self.raw(), taken.as_mut_ptr(), taken.len() as u32) as usize;
            taken[..count].iter().for_each(|&buffer| buffers.reclaim(buffer));
            if count < taken.len() {
                return;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: no port uses it any more: each has a clone of the Arc until its device is closed.
        unsafe { ffi::gw_dpdk_pool_free(self.raw()) };
    }
}
