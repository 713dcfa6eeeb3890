//! CPU kernels, compiled once for each x86-64 level.

use core::fmt;

use godwit_abi::{Descriptor, Outcome};

/// Arguments for processing one packet batch on the CPU (`gw_bin_call` in `dialect/loops_cpu.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BinCall {
    /// Base of the arena, 64-byte aligned.
    pub arena: *mut u8,
    /// Table image of the function, aligned to 64 bytes. The pointer may be null if the function
    /// has no tables.
    pub image: *const u8,
    /// Packet descriptors. The kernel may change their fields `head` and `length`.
    pub descriptors: *mut Descriptor,
    /// Kernel parameters, one per packet. The worker computes them before the kernel runs.
    pub parameters: *const u64,
    /// Outcomes, one per packet. The kernel writes them.
    pub outcomes: *mut Outcome,
    /// Number of packets in the batch.
    pub count: u32,
    /// Kind of processing, which is the same for all packets.
    pub variant: u32,
    /// Number of packets that a kernel of [`GOPT_KERNELS`] interleaves. With 0 or 1, the kernel
    /// processes one packet after another. With 0, it also prefetches frames. Other kernels ignore
    /// this field.
    pub group: u32,
    /// Counters that the kernel increments, one per entry of
    /// `godwit_declare::Contract::kernel_counters`. The pointer may be null if there are none.
    pub counters: *mut u64,
}

/// Cache lines per simulated lookup of [`Level::probe`] (`GW_PROBE_READS` in
/// `dialect/loop_gopt.c`).
pub const PROBE_READS: u32 = 4;

/// Maximum number of packets that a kernel interleaves. Larger numbers are not faster, because a
/// core has fewer line fill buffers for its outstanding cache misses.
pub const GROUP_MAX: u32 = 64;

include!(concat!(env!("OUT_DIR"), "/gopt.rs"));

/// Kernels for one x86-64 level, such as x86-64-v3. Each level is a set of CPU features.
pub struct Level {
    /// Name of the level: `x86-64-v2`, `x86-64-v3`, `x86-64-v4` or `generic`.
    pub name: &'static str,
    /// CPU features that the x86-64 level requires beyond the architecture's baseline.
    pub features: &'static [&'static str],
    /// Flags of the C compiler that enable these features.
    pub flags: &'static [&'static str],
    supported: fn() -> bool,
    run_bin: unsafe extern "C" fn(u32, *const BinCall),
    ipv4_bulk: unsafe extern "C" fn(*const u8, u32, *const u32, *mut u32, u64, u64),
    ipv6_bulk: unsafe extern "C" fn(*const u8, u32, *const [u8; 16], *mut u32, u64),
    probe: unsafe extern "C" fn(*const u8, u64, u64, u32, u32) -> u64,
    l2_bulk: unsafe extern "C" fn(*const u8, *const u64, *mut u32, u64),
}

include!(concat!(env!("OUT_DIR"), "/levels.rs"));

/// Returns the kernels of all x86-64 levels in ascending order. [`Level::supported`] tells whether
/// this CPU supports a level.
pub fn levels() -> &'static [Level] {
    LEVELS
}

impl Level {
    /// Returns a level that runs a user's kernel, compiled for the same CPU features. The kernel
    /// number is ignored.
    ///
    /// # Safety
    ///
    /// `run_bin` was compiled with the flags of this level, stays valid, and fulfils the contract
    /// of [`Level::run_bin`] for every [`BinCall`].
    pub unsafe fn with_kernel(&self, run_bin: unsafe extern "C" fn(u32, *const BinCall)) -> Self {
        Self { run_bin, ..*self }
    }

    /// Returns whether this CPU supports the x86-64 level.
    pub fn supported(&self) -> bool {
        (self.supported)()
    }

    /// Processes one batch of packets with a kernel. Does nothing if no kernel has this number.
    ///
    /// # Safety
    ///
    /// - [`Level::supported`] is true.
    /// - The pointers of `call` are valid for `count` elements, and nothing else reads or writes
    ///   the descriptors, the outcomes and the packets' buffers during the call.
    /// - Every descriptor is consistent: its buffer is in the arena, and `head + length` is in its
    ///   buffer.
    /// - `image` is a table image of this function as its kernel describes, or the function
    ///   has no tables.
    pub unsafe fn run_bin(&self, kernel: u8, call: &BinCall) {
        debug_assert!(self.supported(), "{} is not supported by this CPU", self.name);
        debug_assert!(call.arena.addr().is_multiple_of(64) && call.image.addr().is_multiple_of(64));
        // SAFETY: the caller fulfils the contract of this function, which is also that of the C
        // function.
        unsafe { (self.run_bin)(u32::from(kernel), call) }
    }

    /// Measures the latency of a table's memory. Reads `rounds` times [`PROBE_READS`] random cache
    /// lines of the table. `group` lookups are interleaved, as in [`BinCall`]. If `group` is 0,
    /// each read waits for the previous read.
    ///
    /// # Safety
    ///
    /// - [`Level::supported`] is true.
    /// - `image` is readable for `lines` times 64 bytes. During the call, only atomic operations
    ///   may write it.
    pub unsafe fn probe(&self, image: *const u8, lines: u64, seed: u64, rounds: u32, group: u32) -> u64 {
        // SAFETY: the caller fulfils the contract of this function, which is also that of the C
        // function.
        unsafe { (self.probe)(image, lines, seed, rounds, group) }
    }

    /// Looks up IPv4 addresses in host byte order without packets, to measure the table alone.
    /// `next_hops` receives the index of a next hop for each address, or
    /// [`image::IPV4_NONE`](crate::image::IPV4_NONE).
    ///
    /// `ahead` is the prefetch distance in addresses; 0 disables prefetching. The fastest distance
    /// depends on the processor.
    ///
    /// # Panics
    ///
    /// Panics if `next_hops` is shorter than `addresses`.
    ///
    /// # Safety
    ///
    /// [`Level::supported`] is true. `image` is a complete `ipv4` image for `variant` (0: 2-byte
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
        // SAFETY: the assertion checks the lengths of the slices. The caller guarantees the rest.
        unsafe {
            let (addresses, count) = (addresses.as_ptr(), addresses.len() as u64);
            (self.ipv4_bulk)(image, variant, addresses, next_hops.as_mut_ptr(), count, ahead as u64);
        }
    }

    /// Looks up IPv6 addresses in wire order without packets, to measure the table alone.
    /// `next_hops` receives the index of a next hop for each address, or
    /// [`image::IPV6_NONE`](crate::image::IPV6_NONE).
    ///
    /// # Panics
    ///
    /// Panics if `next_hops` is shorter than `addresses`.
    ///
    /// # Safety
    ///
    /// [`Level::supported`] is true. `image` is a complete `ipv6` image for `variant` (0: trie, 1:
    /// hash), 64-byte aligned.
    pub unsafe fn ipv6_lookup_bulk(
        &self,
        image: *const u8,
        variant: u32,
        addresses: &[[u8; 16]],
        next_hops: &mut [u32],
    ) {
        assert!(next_hops.len() >= addresses.len());
        debug_assert!(image.addr().is_multiple_of(64));
        // SAFETY: the assertion checks the lengths of the slices. The caller guarantees the rest.
        unsafe {
            (self.ipv6_bulk)(image, variant, addresses.as_ptr(), next_hops.as_mut_ptr(), addresses.len() as u64);
        }
    }
}

impl Level {
    /// Looks up keys (VID << 48 | MAC) in an `l2` table without packets, to measure the table
    /// alone. `ports` receives the port of each key, or `u32::MAX` if the table does not contain
    /// the key.
    ///
    /// # Panics
    ///
    /// Panics if `ports` is shorter than `keys`.
    ///
    /// # Safety
    ///
    /// [`Level::supported`] is true. `image` is a complete `l2` image, 64-byte aligned.
    pub unsafe fn l2_lookup_bulk(&self, image: *const u8, keys: &[u64], ports: &mut [u32]) {
        assert!(ports.len() >= keys.len());
        debug_assert!(image.addr().is_multiple_of(64));
        // SAFETY: the assertion checks the lengths of the slices. The caller guarantees the rest.
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
