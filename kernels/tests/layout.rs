//! Memory layout of the structs that Rust and C share.

use std::ffi::{CStr, c_char};
use std::mem::offset_of;

use godwit_abi::{Bin, Chain, ChainStage, Descriptor, Mailbox, Outcome};
use godwit_kernels::BinCall;
use godwit_kernels::image::{Ipv4NextHop, Ipv6HashLine, NdnBucket, NdnSlot};

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
        arena image descriptors parameters outcomes count variant counters);
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
        // SAFETY: a declaration refuses structs with padding, so every byte is initialised.
        unsafe { std::ptr::from_ref(value).cast::<[u8; N]>().read() }
    }
    let next_hop = Ipv4NextHop::new([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12], 13, 14, 0x100f);
    assert_eq!((next_hop.to, next_hop.from), (0x0102_0304_0506_0d0e, 0x0708_090a_0b0c_100f));
    assert_eq!(next_hop.emit(), memory(&next_hop));
    let line = Ipv6HashLine { keys: [1, 2, 3], ropes: [4, 5, 6], values: [7, 8, 9], lengths: [10, 11, 12], more: 13 };
    assert_eq!(line.emit(), memory(&line));
    let slots = std::array::from_fn(|at| NdnSlot { fingerprint: at as u32, record: 100 + at as u32 });
    let bucket = NdnBucket { slots, next: 7, pad: 8 };
    assert_eq!(bucket.emit(), memory(&bucket));
}

/// A new folder is a new function only after the build script has run.
#[test]
fn every_folder_with_a_declaration_is_a_function() {
    let kernels = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<String> = std::fs::read_dir(kernels)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| {
            let text = std::fs::read_to_string(kernels.join(name).join(format!("{name}.h"))).unwrap_or_default();
            text.starts_with("/* godwit function ")
        })
        .collect();
    folders.sort();
    let mut declared: Vec<&str> =
        godwit_kernels::declared::DECLARED.iter().map(|(contract, _)| contract.kind).collect();
    declared.sort();
    assert_eq!(declared, folders, "run `touch kernels/build/main.rs`");
}
