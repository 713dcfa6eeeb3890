//! The kernels compiled for this machine's CPU, at every level the C compiler knows.

use core::fmt;

use godwit_abi::{Descriptor, Outcome};

/// One bin for the CPU (`gw_bin_call` in `dialect/loops_cpu.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BinCall {
    /// Base of the arena, 64-byte aligned.
    pub arena: *mut u8,
    /// The function's table image, 64-byte aligned; may be null where the function has no tables.
    pub image: *const u8,
    /// Of the bin's packets, one after another; `head` and `length` may be changed.
    pub descriptors: *mut Descriptor,
    /// From the function's host half, one per packet.
    pub parameters: *const u64,
    /// One per packet, written.
    pub outcomes: *mut Outcome,
    /// Packets in the bin.
    pub count: u32,
    /// The function's variant, the same for all of them.
    pub variant: u32,
    /// For a kernel of [`GOPT_KERNELS`]: packets that take turns while memory answers, 1: the plain loop, 0: the plain
    /// loop with frames fetched ahead. Other kernels have one form.
    pub group: u32,
}

/// `GW_PROBE_READS` in `dialect/loop_gopt.c`.
pub const PROBE_READS: u32 = 4;

/// Most packets that take turns: more than a core has line fill buffers for gains nothing.
pub const GROUP_MAX: u32 = 64;

include!(concat!(env!("OUT_DIR"), "/gopt.rs"));

/// The kernels as compiled for one set of CPU features.
pub struct Level {
    /// `x86-64-v2`, `x86-64-v3`, `x86-64-v4` or `generic`.
    pub name: &'static str,
    /// CPU features beyond the base of the architecture that it may use.
    pub features: &'static [&'static str],
    supported: fn() -> bool,
    run_bin: unsafe extern "C" fn(u32, *const BinCall),
    ipv4_bulk: unsafe extern "C" fn(*const u8, u32, *const u32, *mut u32, u64, u64),
    ipv6_bulk: unsafe extern "C" fn(*const u8, u32, *const [u8; 16], *mut u32, u64),
    probe: unsafe extern "C" fn(*const u8, u64, u64, u32, u32) -> u64,
    l2_bulk: unsafe extern "C" fn(*const u8, *const u64, *mut u32, u64),
}

include!(concat!(env!("OUT_DIR"), "/levels.rs"));

/// Every level compiled in, the plainest first; see [`Level::supported`].
pub fn levels() -> &'static [Level] {
    LEVELS
}

impl Level {
    /// Whether this CPU has every feature that the level was compiled with.
    pub fn supported(&self) -> bool {
        (self.supported)()
    }

    /// Runs kernel `kernel` over one bin. A kernel that `functions.h` does not list changes nothing.
    ///
    /// # Safety
    ///
    /// - [`Level::supported`] is true.
    /// - The pointers of `call` are valid for `count` elements, and nothing else reads or writes
    ///   the descriptors, the outcomes and the packets' buffers during the call.
    /// - Every descriptor is consistent: its buffer lies in the arena, `head + length` in its buffer.
    /// - `image` is an image of that function, built as its `image.h` says, or the function has none.
    pub unsafe fn run_bin(&self, kernel: u8, call: &BinCall) {
        debug_assert!(self.supported(), "{} is not supported by this CPU", self.name);
        debug_assert!(call.arena.addr().is_multiple_of(64) && call.image.addr().is_multiple_of(64));
        // SAFETY: the caller keeps this function's contract, which is that of the C function.
        unsafe { (self.run_bin)(u32::from(kernel), call) }
    }

    /// Reads `rounds` times [`PROBE_READS`] cache lines of a table at random places, as look-ups that take turns do
    /// (`group`, as in [`BinCall`]); 0: each read waits for the one before. For measuring how long a table's memory takes.
    ///
    /// # Safety
    ///
    /// [`Level::supported`] is true, and `image` can be read for `lines` times 64 bytes, which must not be written meanwhile
    /// but by atomic operations of single bytes or more.
    pub unsafe fn probe(&self, image: *const u8, lines: u64, seed: u64, rounds: u32, group: u32) -> u64 {
        // SAFETY: the caller keeps this function's contract, which is that of the C function.
        unsafe { (self.probe)(image, lines, seed, rounds, group) }
    }

    /// The bare lookup of `ipv4`, without packets: for each address (host order) the next hop's
    /// index, or [`image::IPV4_NO_ROUTE`](crate::image::IPV4_NO_ROUTE). For measuring the table alone.
    ///
    /// Entries are fetched `ahead` addresses before they are read; 0: they are not. Which is fastest differs between processors.
    ///
    /// # Panics
    ///
    /// If `next_hops` is shorter than `addresses`.
    ///
    /// # Safety
    ///
    /// [`Level::supported`] is true, and `image` is a whole `ipv4` image for `variant` (0: 2-byte
    /// entries, 1: 4-byte entries), 64-byte aligned.
    pub unsafe fn ipv4_lookup_bulk(
        &self,
        image: *const u8,
        variant: u32,
        addresses: &[u32],
        next_hops: &mut [u32],
        ahead: usize,
    ) {
        assert!(next_hops.len() >= addresses.len());
        debug_assert!(image.addr().is_multiple_of(64));
        // SAFETY: the slices are long enough, as asserted; the caller vouches for the rest.
        unsafe {
            let (addresses, count) = (addresses.as_ptr(), addresses.len() as u64);
            (self.ipv4_bulk)(image, variant, addresses, next_hops.as_mut_ptr(), count, ahead as u64);
        }
    }

    /// The bare look-up of `ipv6`, without packets: for each address (as on the wire) the next hop's
    /// index, or [`image::IPV6_NO_ROUTE`](crate::image::IPV6_NO_ROUTE). For measuring the table alone.
    ///
    /// # Panics
    ///
    /// If `next_hops` is shorter than `addresses`.
    ///
    /// # Safety
    ///
    /// [`Level::supported`] is true, and `image` is a whole `ipv6` image for `variant` (0: trie, 1: hash), 64-byte aligned.
    pub unsafe fn ipv6_lookup_bulk(
        &self,
        image: *const u8,
        variant: u32,
        addresses: &[[u8; 16]],
        next_hops: &mut [u32],
    ) {
        assert!(next_hops.len() >= addresses.len());
        debug_assert!(image.addr().is_multiple_of(64));
        // SAFETY: the slices are long enough, as asserted; the caller vouches for the rest.
        unsafe {
            (self.ipv6_bulk)(image, variant, addresses.as_ptr(), next_hops.as_mut_ptr(), addresses.len() as u64);
        }
    }
}

impl Level {
    /// The bare look-up of `l2`, without packets: for each key (VID << 48 | MAC) the port, or `u32::MAX` where it is not in the
    /// table. For measuring the table alone.
    ///
    /// # Panics
    ///
    /// If `ports` is shorter than `keys`.
    ///
    /// # Safety
    ///
    /// [`Level::supported`] is true, and `image` is a whole `l2` image, 64-byte aligned.
    pub unsafe fn l2_lookup_bulk(&self, image: *const u8, keys: &[u64], ports: &mut [u32]) {
        assert!(ports.len() >= keys.len());
        debug_assert!(image.addr().is_multiple_of(64));
        // SAFETY: the slices are long enough, as asserted; the caller vouches for the rest.
        unsafe { (self.l2_bulk)(image, keys.as_ptr(), ports.as_mut_ptr(), keys.len() as u64) }
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Level")
            .field("name", &self.name)
            .field("supported", &self.supported())
            .finish_non_exhaustive()
    }
}
