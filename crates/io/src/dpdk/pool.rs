//! A DPDK mempool that manages the packet buffers of one worker:
//!
//! ```text
//! Region --post--> ready --driver: receive ring--> frame received --> Region::arrived --> worker
//!   ^                ^                                                                      |
//!   '---reclaim------'<----------driver: sent----------- transmit ring <-- hand_over <------'
//! ```
//!
//! The pool contains buffers that are ready for received frames. A driver can receive a frame into
//! the buffer of a sent packet, without returning the buffer to the worker's memory. The number of
//! ready buffers stays between [`READY_MIN`] and [`READY_MAX`].

use std::ffi::{CString, c_int, c_void};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use godwit_packet::{ArenaHandle, Outgoing, Region};

use super::ffi::{self, RawPool};
use crate::Error;
use crate::live::LiveContext;

/// Minimum number of free buffers in the pool. With fewer buffers, the pool takes buffers from the
/// worker's memory until [`READY_TARGET`] are free.
const READY_MIN: u32 = 256;
const READY_TARGET: u32 = 512;
/// Maximum number of free buffers in the pool. With more buffers, the pool returns buffers to the
/// worker's memory until [`READY_TARGET`] are free.
const READY_MAX: u32 = 1024;

/// Packet memory that is registered with DPDK as external memory.
struct RegisteredArena {
    arena: ArenaHandle,
    bytes: usize,
}

impl RegisteredArena {
    fn new(arena: &ArenaHandle) -> Result<Self, Error> {
        let page_bytes = page_bytes(arena);
        let bytes = arena.bytes() - arena.bytes() % page_bytes;
        // SAFETY: the memory consists of the pages of the arena, which the handle keeps mapped
        // until they are unregistered.
        let result = unsafe { ffi::gw_dpdk_register_memory(arena.base().as_ptr().cast(), bytes, page_bytes) };
        match result {
            0 => Ok(Self { arena: arena.clone(), bytes }),
            error => Err(Error::Environment { reason: format!("cannot register the arena: {}", ffi::reason(error)) }),
        }
    }
}

impl Drop for RegisteredArena {
    fn drop(&mut self) {
        // SAFETY: `new` has registered the memory, and no pool over it exists any more.
        unsafe { ffi::gw_dpdk_unregister_memory(self.arena.base().as_ptr().cast(), self.bytes) };
    }
}

/// Returns the page size for registering the packet memory with DPDK. It is the ordinary page size,
/// because DPDK checks no other size.
fn page_bytes(_arena: &ArenaHandle) -> usize {
    4096
}

/// Pool of packet buffers (DPDK mempool) of one worker, shared by all ports.
pub(super) struct Pool {
    raw: NonNull<RawPool>,
    registered: Arc<RegisteredArena>,
    start: usize,
    /// Whether a receive queue keeps the free buffer count within its limits.
    pub(super) received_into: AtomicBool,
}

// SAFETY: shim.h states for each function which thread may call it. Functions for the owner take
// `&mut Region` of the region, or belong to its queue. Only one thread at a time has these.
unsafe impl Send for Pool {}
// SAFETY: as for Send.
unsafe impl Sync for Pool {}

/// All buffer pools in the process. A pool lives while a port uses it.
static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());

impl Pool {
    /// Returns the buffer pools of all workers. Reuses pools that another port has created.
    pub(super) fn for_workers(context: &LiveContext<'_>, socket: c_int) -> Result<Vec<Arc<Self>>, Error> {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        let known: Vec<Arc<Self>> = pools.iter().filter_map(Weak::upgrade).collect();
        let same_arena = known.iter().find(|pool| pool.registered.arena.base() == context.arena.base());
        let registered = match same_arena {
            Some(pool) => Arc::clone(&pool.registered),
            None => Arc::new(RegisteredArena::new(context.arena)?),
        };
        let region_pool = |region: &Range<usize>| {
            let same = |pool: &&Arc<Self>| Arc::ptr_eq(&pool.registered, &registered) && pool.start == region.start;
            if let Some(pool) = known.iter().find(same) {
                return Ok(Arc::clone(pool));
            }
            let pool = Arc::new(Self::new(context, region, &registered, socket)?);
            pools.push(Arc::downgrade(&pool));
            Ok(pool)
        };
        context.regions.iter().map(region_pool).collect()
    }

    fn new(
        context: &LiveContext<'_>,
        region: &Range<usize>,
        registered: &Arc<RegisteredArena>,
        socket: c_int,
    ) -> Result<Self, Error> {
        let slot_bytes = context.slot_bytes.unwrap_or(0);
        let slots = region.len().checked_div(slot_bytes).unwrap_or(0);
        let config = ffi::PoolConfig {
            arena: registered.arena.base().as_ptr(),
            first: region.start as u64,
            slots: slots as u32,
            stride_bytes: slot_bytes as u32,
            buffer_bytes: context.buffer_bytes as u32,
            headroom_bytes: context.headroom_bytes as u32,
            socket,
        };
        // The name of a mempool has at most 25 characters and is unique in the process.
        let name = CString::new(format!("gw{:x}", registered.arena.base().as_ptr() as usize + region.start));
        let name = name.unwrap_or_default();
        let mut error = 0;
        // SAFETY: the memory consists of the slots of a region, which `registered` keeps mapped.
        // Each slot has PREFIX_BYTES in front of its buffer for the exclusive use of the mempool.
        let raw = unsafe { ffi::gw_dpdk_pool_create(name.as_ptr(), &config, &mut error) };
        let Some(raw) = NonNull::new(raw) else {
            return Err(Error::Environment { reason: format!("cannot create a mempool: {}", ffi::reason(error)) });
        };
        Ok(Self { raw, registered: Arc::clone(registered), start: region.start, received_into: AtomicBool::new(false) })
    }

    pub(super) fn raw(&self) -> *mut RawPool {
        self.raw.as_ptr()
    }

    /// Returns the address and the length in bytes of the memory that devices must access.
    pub(super) fn memory(&self) -> (*mut c_void, usize) {
        (self.registered.arena.base().as_ptr().cast(), self.registered.bytes)
    }

    /// Makes the calling thread the owner of the pool.
    pub(super) fn own(&self) {
        // SAFETY: only the worker's queues call this function, at their first use.
        unsafe { ffi::gw_dpdk_pool_own(self.raw()) };
    }

    /// Returns the number of free buffers that drivers can take from the pool.
    fn ready(&self) -> u32 {
        // SAFETY: the caller is the owner of the pool.
        unsafe { ffi::gw_dpdk_pool_ready(self.raw()) }
    }

    /// Moves up to `count` free buffers from the worker's memory to the pool. Returns the number of
    /// moved buffers.
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
            // SAFETY: the buffers belong to this region, which has posted them. The caller is the
            // owner of the pool.
            unsafe { ffi::gw_dpdk_pool_give(self.raw(), buffers.as_ptr(), posted as u32) };
            given += posted as u32;
        }
        given
    }

    /// Keeps the number of free buffers in the pool between [`READY_MIN`] and [`READY_MAX`].
    #[inline]
    pub(super) fn balance(&self, region: &mut Region) {
        let ready = self.ready();
        if ready < READY_MIN {
            self.post(region, READY_TARGET - ready);
        } else if ready > READY_MAX {
            self.reduce(&mut Outgoing::Own(region), ready);
        }
    }

    /// Returns the buffers of sent packets from the pool to the worker's memory.
    #[inline]
    pub(super) fn collect(&self, buffers: &mut Outgoing<'_>) {
        if let Outgoing::Own(_) = buffers {
            let ready = self.ready();
            if ready > READY_MAX {
                self.reduce(buffers, ready);
            }
        } else if !self.received_into.load(Ordering::Relaxed) {
            self.give_back(buffers, |raw, taken, count| {
                // SAFETY: any thread may call it, and `taken` has room for `count` buffers.
                unsafe { ffi::gw_dpdk_pool_take_foreign(raw, taken, count) }
            });
        }
    }

    #[cold]
    fn reduce(&self, buffers: &mut Outgoing<'_>, ready: u32) {
        let mut left = ready - READY_TARGET;
        self.give_back(buffers, |raw, taken, count| {
            let count = count.min(left);
            left -= count;
            // SAFETY: the caller is the owner of the pool, and `taken` has room for `count`
            // buffers.
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
        // SAFETY: no port uses the pool any more. Each port has a clone of the Arc until its device
        // is closed.
        unsafe { ffi::gw_dpdk_pool_free(self.raw()) };
    }
}
