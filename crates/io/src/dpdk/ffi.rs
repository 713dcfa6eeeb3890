//! Rust declarations of the C functions in `shim.h`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::Error;

/// Number of bytes before each packet buffer. These bytes hold the mempool header, the mbuf, and
/// the private area of the mbuf.
pub(super) const PREFIX_BYTES: usize = 256;
/// Headroom that drivers leave in front of a frame, in bytes.
pub(super) const HEADROOM_BYTES: usize = 128;
/// Maximum number of packets that one call receives or sends.
pub(super) const BURST_MAX: usize = 256;

pub(super) const HASHED: u32 = 1;
pub(super) const BAD_CHECKSUM: u32 = 2;
pub(super) const TOO_LONG: u32 = 4;

/// Opaque type of a mempool, which holds the packet buffers of one worker.
#[repr(C)]
pub(super) struct RawPool {
    _opaque: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Packet {
    pub(super) buffer: u32,
    pub(super) head: u16,
    pub(super) length: u16,
    pub(super) flow_hash: u32,
    pub(super) flags: u32,
}

#[repr(C)]
pub(super) struct PoolConfig {
    pub(super) arena: *mut u8,
    pub(super) first: u64,
    pub(super) slots: u32,
    pub(super) stride_bytes: u32,
    pub(super) buffer_bytes: u32,
    pub(super) headroom_bytes: u32,
    pub(super) socket: c_int,
}

#[repr(C)]
pub(super) struct PortConfig {
    pub(super) queues: u16,
    pub(super) receive_ring: u16,
    pub(super) transmit_ring: u16,
    pub(super) mtu: u16,
    pub(super) promiscuous: bool,
    pub(super) checksum: bool,
    pub(super) key: *const u8,
    pub(super) key_bytes: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PortState {
    pub(super) driver: [c_char; 64],
    pub(super) name: [c_char; 64],
    pub(super) mac: [u8; 6],
    pub(super) mtu: u16,
    pub(super) queues_max: u16,
    pub(super) receive_ring: u16,
    pub(super) transmit_ring: u16,
    pub(super) socket: c_int,
    pub(super) hashes: bool,
    pub(super) checksum: bool,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) received_packets: u64,
    pub(super) received_bytes: u64,
    pub(super) sent_packets: u64,
    pub(super) sent_bytes: u64,
    pub(super) missed: u64,
    pub(super) receive_errors: u64,
    pub(super) transmit_errors: u64,
    pub(super) no_buffer: u64,
}

/// The C file `shim.h` asserts the same sizes.
const _: () = {
    assert!(size_of::<Packet>() == 16);
    assert!(size_of::<PoolConfig>() == 40);
    assert!(size_of::<PortConfig>() == 32);
    assert!(size_of::<PortState>() == 152);
    assert!(size_of::<Stats>() == 64);
};

unsafe extern "C" {
    pub(super) fn gw_dpdk_init(count: c_int, arguments: *mut *mut c_char) -> c_int;
    pub(super) fn gw_dpdk_iova_is_va() -> bool;
    fn gw_dpdk_error(number: c_int) -> *const c_char;
    pub(super) fn gw_dpdk_register_memory(address: *mut c_void, bytes: usize, page_bytes: usize) -> c_int;
    pub(super) fn gw_dpdk_unregister_memory(address: *mut c_void, bytes: usize) -> c_int;
    pub(super) fn gw_dpdk_probe(arguments: *const c_char, ports: *mut u16, ports_max: c_int) -> c_int;
    pub(super) fn gw_dpdk_dma_map(port: u16, address: *mut c_void, bytes: usize) -> c_int;
    pub(super) fn gw_dpdk_dma_unmap(port: u16, address: *mut c_void, bytes: usize);
    pub(super) fn gw_dpdk_state(port: u16, state: *mut PortState) -> c_int;
    pub(super) fn gw_dpdk_configure(
        port: u16,
        config: *const PortConfig,
        pools: *const *mut RawPool,
        state: *mut PortState,
        step: *mut *const c_char,
    ) -> c_int;
    pub(super) fn gw_dpdk_start(
        port: u16,
        config: *const PortConfig,
        state: *mut PortState,
        step: *mut *const c_char,
    ) -> c_int;
    pub(super) fn gw_dpdk_close(port: u16);
    pub(super) fn gw_dpdk_stats(port: u16, stats: *mut Stats) -> c_int;
    pub(super) fn gw_dpdk_stats_of(name: *const c_char, stats: *mut Stats) -> c_int;
    pub(super) fn gw_dpdk_link(port: u16, speed: *mut u32) -> c_int;
    pub(super) fn gw_dpdk_pool_create(
        name: *const c_char,
        config: *const PoolConfig,
        error: *mut c_int,
    ) -> *mut RawPool;
    pub(super) fn gw_dpdk_pool_free(pool: *mut RawPool);
    pub(super) fn gw_dpdk_pool_own(pool: *mut RawPool);
    pub(super) fn gw_dpdk_pool_ready(pool: *mut RawPool) -> u32;
    pub(super) fn gw_dpdk_pool_give(pool: *mut RawPool, buffers: *const u32, count: u32);
    pub(super) fn gw_dpdk_pool_take(pool: *mut RawPool, buffers: *mut u32, count: u32) -> u32;
    pub(super) fn gw_dpdk_pool_take_foreign(pool: *mut RawPool, buffers: *mut u32, count: u32) -> u32;
    pub(super) fn gw_dpdk_receive(pool: *mut RawPool, port: u16, queue: u16, packets: *mut Packet, count: u16) -> u32;
    pub(super) fn gw_dpdk_transmit(
        pool: *mut RawPool,
        port: u16,
        queue: u16,
        packets: *const Packet,
        count: u32,
    ) -> u32;
    pub(super) fn gw_dpdk_clean(port: u16, queue: u16);
    pub(super) fn gw_dpdk_xdp_link(interface: c_uint) -> c_int;
    pub(super) fn gw_dpdk_thread_register() -> c_int;
    pub(super) fn gw_dpdk_thread_unregister();
}

/// Returns the message of DPDK for an error number.
pub(super) fn reason(number: c_int) -> String {
    // SAFETY: the string belongs to DPDK. It is constant or valid until this thread's next call,
    // and is copied immediately.
    unsafe { text(gw_dpdk_error(number)) }
}

/// Copies a C string. A null pointer is an empty string.
///
/// # Safety
/// `address` is null or points to a zero-terminated string.
pub(super) unsafe fn text(address: *const c_char) -> String {
    if address.is_null() {
        return String::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned()
}

/// Returns the text in a field of fixed size.
pub(super) fn field(characters: &[c_char]) -> String {
    characters.iter().take_while(|&&character| character != 0).map(|&character| character as u8 as char).collect()
}

/// Returns an error with the device, the failed operation and the text of DPDK's error number.
pub(super) fn failed(device: &str, what: &str, number: c_int) -> Error {
    Error::Device { device: device.to_owned(), what: what.to_owned(), reason: reason(number) }
}
