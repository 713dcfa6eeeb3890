//! Memory layout of the structs that Rust and C share.

use std::ffi::{CStr, c_char};
use std::mem::offset_of;

use godwit_abi::{Bin, Chain, ChainStage, Descriptor, Mailbox, Outcome};
use godwit_kernels::BinCall;
use godwit_kernels::image::{
    DpiImage, DpiMatch, EchoImage, Ipv4Image, Ipv4NextHop, Ipv6Bucket, Ipv6Hash, Ipv6HashLine, Ipv6Image, Ipv6NextHop,
    L2Image, L2Port, L2Vlan, NdnBucket, NdnImage, NdnNextHop, NdnRecord, NdnSlot,
};

#[repr(C)]
struct LayoutRow {
    name: *const c_char,
    value: u64,
}

unsafe extern "C" {
    fn gw_layout(count: *mut u64) -> *const LayoutRow;
}

/// Returns the layout of the C compiler, from `layout.c`.
fn c_layout() -> Vec<(String, usize)> {
    let mut count = 0;
    // SAFETY: the function returns a static array and writes its length.
    let rows = unsafe { std::slice::from_raw_parts(gw_layout(&mut count), count as usize) };
    rows.iter()
        .map(|row| {
            // SAFETY: every name is a string literal in layout.c.
            let name = unsafe { CStr::from_ptr(row.name) };
            (name.to_str().unwrap().to_owned(), row.value as usize)
        })
        .collect()
}

/// Returns the layout of the Rust compiler: the same rows in the same order.
fn rust_layout() -> Vec<(String, usize)> {
    let mut rows = Vec::new();
    macro_rules! layout {
        ($c:literal, $rust:ty, $($field:ident)*) => {
            rows.push((concat!("sizeof ", $c).to_owned(), size_of::<$rust>()));
            $(rows.push((
                concat!($c, ".", stringify!($field)).to_owned(),
                offset_of!($rust, $field),
            ));)*
        };
    }
    layout!("gw_descriptor", Descriptor, buffer head length room port order flow_hash);
    layout!("gw_outcome", Outcome, verdict reason port value);
    layout!("gw_bin", Bin, first count kernel variant instance length_bytes length_class row part);
    layout!("gw_chain", Chain, rows verdicts instances);
    layout!("gw_chain_stage", ChainStage, kernel variant);
    layout!("gw_mailbox", Mailbox, stop extent finished running);
    layout!("gw_bin_call", BinCall,
        arena image descriptors parameters outcomes count variant);
    layout!("gw_echo_image", EchoImage, magic ports);
    layout!("gw_ipv4_image", Ipv4Image,
        magic entry_bytes next_hops groups next_hops_offset tbl24_offset tbl8_offset bytes);
    layout!("gw_ipv4_next_hop", Ipv4NextHop, to from);
    layout!("gw_dpi_image", DpiImage,
        magic states classes match_states start patterns longest_bytes match_limit matches_offset bytes);
    layout!("gw_dpi_match", DpiMatch, pattern count);
    layout!("gw_ipv6_image", Ipv6Image,
        magic form next_hops root_shift next_hops_offset root_offset lines_offset bytes);
    layout!("gw_ipv6_next_hop", Ipv6NextHop, to from);
    layout!("gw_ipv6_bucket", Ipv6Bucket, keys values);
    layout!("gw_ipv6_hash", Ipv6Hash, rope seed value shift pad);
    layout!("gw_ipv6_hash_line", Ipv6HashLine, keys ropes values lengths more);
    layout!("gw_l2_image", L2Image,
        magic bucket_bits multipliers addends second ports_offset vlans_offset buckets_offset bytes);
    layout!("gw_l2_port", L2Port, vid flags pad);
    layout!("gw_l2_vlan", L2Vlan, members tagged);
    layout!("gw_ndn_image", NdnImage,
        magic next_hops buckets overflow records default_next_hop depths guide udp_port pad key0 key1
        next_hops_offset buckets_offset records_offset bytes);
    layout!("gw_ndn_slot", NdnSlot, fingerprint record);
    layout!("gw_ndn_bucket", NdnBucket, slots next pad);
    layout!("gw_ndn_record", NdnRecord, next_hop deeper below name_bytes);
    layout!("gw_ndn_next_hop", NdnNextHop,
        destination_mac source_mac port flags carrier source_address destination_address source_port destination_port valid_copy pad);
    rows
}

#[test]
fn shared_structs_have_the_same_layout_in_c_and_rust() {
    assert_eq!(c_layout(), rust_layout());
}

/// `emit` writes each field at the offset where the kernels read it.
#[test]
fn emitted_bytes_equal_the_struct_in_memory() {
    fn memory<T, const N: usize>(value: &T) -> [u8; N] {
        assert_eq!(size_of::<T>(), N);
        // SAFETY: the structs have no padding (`emit` asserts this), so every byte is initialised.
        unsafe { std::ptr::from_ref(value).cast::<[u8; N]>().read() }
    }
    let echo = EchoImage { magic: 1, ports: 2 };
    assert_eq!(echo.emit(), memory(&echo));
    let ipv4 = Ipv4Image {
        magic: 1,
        entry_bytes: 2,
        next_hops: 3,
        groups: 4,
        next_hops_offset: 5,
        tbl24_offset: 6,
        tbl8_offset: 7,
        bytes: 8,
    };
    assert_eq!(ipv4.emit(), memory(&ipv4));
    let next_hop = Ipv4NextHop::new([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12], 13, 14, 0x100f);
    assert_eq!((next_hop.to, next_hop.from), (0x0102_0304_0506_0d0e, 0x0708_090a_0b0c_100f));
    assert_eq!(next_hop.emit(), memory(&next_hop));
    let dpi = DpiImage {
        magic: 1,
        states: 2,
        classes: 3,
        match_states: 4,
        start: 5,
        patterns: 6,
        longest_bytes: 7,
        match_limit: 8,
        matches_offset: 9,
        bytes: 10,
    };
    assert_eq!(dpi.emit(), memory(&dpi));
    let ipv6 = Ipv6Image {
        magic: 1,
        form: 2,
        next_hops: 3,
        root_shift: 4,
        next_hops_offset: 5,
        root_offset: 6,
        lines_offset: 7,
        bytes: 8,
    };
    assert_eq!(ipv6.emit(), memory(&ipv6));
    let next_hop = Ipv6NextHop::new([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12], 13, 14, 0x0f10);
    assert_eq!(next_hop, Ipv6NextHop { to: 0x0102_0304_0506_0d0e, from: 0x0708_090a_0b0c_0f10 });
    assert_eq!(next_hop.emit(), memory(&next_hop));
    let bucket = Ipv6Bucket { keys: [1, 2, 3, 4, 5], values: [6, 7, 8, 9, 10, 11] };
    assert_eq!(bucket.emit(), memory(&bucket));
    let hash = Ipv6Hash { rope: 1, seed: 2, value: 3, shift: 4, pad: [5; 10] };
    assert_eq!(hash.emit(), memory(&hash));
    let line = Ipv6HashLine { keys: [1, 2, 3], ropes: [4, 5, 6], values: [7, 8, 9], lengths: [10, 11, 12], more: 13 };
    assert_eq!(line.emit(), memory(&line));
    let found = DpiMatch { pattern: 1, count: 2 };
    assert_eq!(found.emit(), memory(&found));
    let ndn = NdnImage {
        magic: 1,
        next_hops: 2,
        buckets: 3,
        overflow: 4,
        records: 5,
        default_next_hop: 6,
        depths: 7,
        guide: 8,
        udp_port: 9,
        pad: 10,
        key0: 11,
        key1: 12,
        next_hops_offset: 13,
        buckets_offset: 14,
        records_offset: 15,
        bytes: 16,
    };
    assert_eq!(ndn.emit(), memory(&ndn));
    let record = NdnRecord { next_hop: 1, deeper: 2, below: 3, name_bytes: 4 };
    assert_eq!(record.emit(), memory(&record));
    let next_hop = NdnNextHop {
        destination_mac: [1, 2, 3, 4, 5, 6],
        source_mac: [7, 8, 9, 10, 11, 12],
        port: 0x0e0d,
        flags: 15,
        carrier: 16,
        source_address: std::array::from_fn(|at| 17 + at as u8),
        destination_address: std::array::from_fn(|at| 33 + at as u8),
        source_port: 0x3231,
        destination_port: 0x3433,
        valid_copy: 53,
        pad: [54, 55],
    };
    assert_eq!(next_hop.emit(), memory(&next_hop));
}

#[test]
fn the_constants_are_the_numbers_of_the_kernels() {
    for (name, number) in [
        ("template", godwit_kernels::TEMPLATE),
        ("echo", godwit_kernels::ECHO),
        ("ipv4", godwit_kernels::IPV4),
        ("ipsec", godwit_kernels::IPSEC),
        ("dpi", godwit_kernels::DPI),
        ("ipv6", godwit_kernels::IPV6),
        ("ndn", godwit_kernels::NDN),
    ] {
        let listed = godwit_kernels::KERNELS.iter().find(|kernel| kernel.name == name);
        assert_eq!(listed.map(|kernel| kernel.number), Some(number), "{name}");
    }
}
