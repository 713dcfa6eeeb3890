//! The structs that both languages declare lie in memory the same way.

use std::ffi::{CStr, c_char};
use std::mem::offset_of;

use godwit_abi::{Bin, Descriptor, Mailbox, Outcome};
use godwit_kernels::BinCall;
use godwit_kernels::image::{DpiImage, DpiMatch, EchoImage, Ipv4Image, Ipv4NextHop};

#[repr(C)]
struct LayoutRow {
    name: *const c_char,
    value: u64,
}

unsafe extern "C" {
    fn gw_layout(count: *mut u64) -> *const LayoutRow;
}

/// What the C compiler says, from `layout.c`.
fn c_layout() -> Vec<(String, usize)> {
    let mut count = 0;
    // SAFETY: returns a static array and writes its length.
    let rows = unsafe { std::slice::from_raw_parts(gw_layout(&mut count), count as usize) };
    rows.iter()
        .map(|row| {
            // SAFETY: every name is a string literal of layout.c.
            let name = unsafe { CStr::from_ptr(row.name) };
            (name.to_str().unwrap().to_owned(), row.value as usize)
        })
        .collect()
}

/// The same rows, in the same order, from Rust.
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
    layout!("gw_descriptor", Descriptor, window head length room port order flow_hash);
    layout!("gw_outcome", Outcome, verdict reason port value);
    layout!("gw_bin", Bin, first count kernel variant instance length_bytes length_class);
    layout!("gw_mailbox", Mailbox, stop finished running);
    layout!("gw_bin_call", BinCall,
        arena image descriptors parameters outcomes count variant);
    layout!("gw_echo_image", EchoImage, magic ports);
    layout!("gw_ipv4_image", Ipv4Image,
        magic entry_bytes next_hops groups next_hops_offset tbl24_offset tbl8_offset bytes);
    layout!("gw_ipv4_next_hop", Ipv4NextHop, destination_mac source_mac port flags pad);
    layout!("gw_dpi_image", DpiImage,
        magic states classes match_states start patterns longest_bytes pad
        class_map_offset transitions_offset matches_offset bytes);
    layout!("gw_dpi_match", DpiMatch, pattern count);
    rows
}

#[test]
fn both_languages_lay_out_shared_structs_alike() {
    assert_eq!(c_layout(), rust_layout());
}

/// `emit` writes each field where the kernels read it.
#[test]
fn emitted_bytes_are_the_struct_in_memory() {
    fn memory<T, const N: usize>(value: &T) -> [u8; N] {
        assert_eq!(size_of::<T>(), N);
        // SAFETY: the structs have no padding (`emit` asserts it) and any byte may be read.
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
    let next_hop = Ipv4NextHop {
        destination_mac: [1, 2, 3, 4, 5, 6],
        source_mac: [7, 8, 9, 10, 11, 12],
        port: 0x0e0d,
        flags: 15,
        pad: 16,
    };
    assert_eq!(next_hop.emit(), memory(&next_hop));
    let dpi = DpiImage {
        magic: 1,
        states: 2,
        classes: 3,
        match_states: 4,
        start: 5,
        patterns: 6,
        longest_bytes: 7,
        pad: 8,
        class_map_offset: 9,
        transitions_offset: 10,
        matches_offset: 11,
        bytes: 12,
    };
    assert_eq!(dpi.emit(), memory(&dpi));
    let found = DpiMatch { pattern: 1, count: 2 };
    assert_eq!(found.emit(), memory(&found));
}

#[test]
fn kernels_are_numbered_as_the_constants_say() {
    for (name, number) in [
        ("template", godwit_kernels::TEMPLATE),
        ("echo", godwit_kernels::ECHO),
        ("ipv4", godwit_kernels::IPV4),
        ("ipsec", godwit_kernels::IPSEC),
        ("dpi", godwit_kernels::DPI),
    ] {
        let listed = godwit_kernels::KERNELS.iter().find(|kernel| kernel.name == name);
        assert_eq!(listed.map(|kernel| kernel.number), Some(number), "{name}");
    }
}
