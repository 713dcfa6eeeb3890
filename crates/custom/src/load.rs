//! Loads compiled libraries. They are never unloaded, because workers keep pointers to their code.

use std::path::Path;

use godwit_kernels::{BinCall, Level};
use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};

use crate::Error;
use crate::compiler::Libraries;
use crate::flows::Entries;

/// C function that runs the kernel on a batch of packets.
type RunBin = unsafe extern "C" fn(u32, *const BinCall);
/// C function that returns 1 if the kernel can interleave packets.
type Interleaves = extern "C" fn() -> u32;

/// The loaded libraries of one function.
pub(crate) struct Functions {
    pub(crate) levels: &'static [Level],
    pub(crate) reference: &'static Level,
    /// Whether the kernel can interleave packets.
    pub(crate) interleaves: bool,
    /// Functions that keep the flow state: first the reference, then one entry per level. The list
    /// is empty without flows.
    pub(crate) flows: Vec<Entries>,
}

/// Loads the libraries of a function. `has_flows` states whether the function keeps flows.
pub(crate) fn load(libraries: &Libraries, has_flows: bool) -> Result<Functions, Error> {
    let mut levels = Vec::new();
    let mut interleaves = false;
    let mut flows = Vec::new();
    for (level, library) in &libraries.levels {
        let loaded = open(library)?;
        // SAFETY: the library was inspected, and defines the symbol as `RunBin` (kernels/custom.c).
        let run_bin: RunBin = unsafe { symbol(&loaded, library, b"gw_custom_run_bin\0")? };
        // SAFETY: the library was compiled with the flags of the level, and is never unloaded.
        levels.push(unsafe { level.with_kernel(run_bin) });
        // SAFETY: as above, for `Interleaves`.
        let symbol: Interleaves = unsafe { symbol(&loaded, library, b"gw_custom_interleaves\0")? };
        interleaves = symbol() != 0;
        if has_flows {
            flows.push(entries(&loaded, library)?);
        }
        std::mem::forget(loaded);
    }
    let loaded = open(&libraries.reference)?;
    // SAFETY: as above.
    let run_bin: RunBin = unsafe { symbol(&loaded, &libraries.reference, b"gw_custom_run_bin\0")? };
    if has_flows {
        flows.insert(0, entries(&loaded, &libraries.reference)?);
    }
    std::mem::forget(loaded);
    let [(base, _), ..] = &libraries.levels[..] else { unreachable!("there is a level") };
    // SAFETY: the reference is compiled for the first level.
    let reference = Box::leak(Box::new(unsafe { base.with_kernel(run_bin) }));
    Ok(Functions { levels: Box::leak(levels.into_boxed_slice()), reference, interleaves, flows })
}

/// Returns a library's functions that keep the flow state.
fn entries(loaded: &Loaded, library: &Path) -> Result<Entries, Error> {
    // SAFETY: the library defines the symbols with these types (kernels/dialect/loop_flows.c).
    unsafe {
        Ok(Entries {
            open: symbol(loaded, library, b"gw_custom_flows_open\0")?,
            prepare: symbol(loaded, library, b"gw_custom_flows_prepare\0")?,
            counts: symbol(loaded, library, b"gw_custom_flows_counts\0")?,
            bucket: symbol(loaded, library, b"gw_custom_flows_bucket\0")?,
        })
    }
}

fn open(library: &Path) -> Result<Loaded, Error> {
    // SAFETY: the inspection has refused libraries that run code when they are loaded.
    let loaded = unsafe { Loaded::open(Some(library), RTLD_NOW | RTLD_LOCAL) };
    loaded.map_err(|error| Error::Refused {
        path: library.to_owned(),
        message: format!("cannot load the library: {error}"),
    })
}

/// # Safety
/// The symbol must have type `T`, a function pointer.
unsafe fn symbol<T: Copy>(loaded: &Loaded, library: &Path, name: &[u8]) -> Result<T, Error> {
    // SAFETY: guaranteed by the caller.
    let found = unsafe { loaded.get::<T>(name) };
    found.map(|symbol| *symbol).map_err(|error| Error::Refused {
        path: library.to_owned(),
        message: format!("the library lacks a function: {error}"),
    })
}
