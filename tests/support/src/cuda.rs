//! CUDA device emulated on the CPU: a driver and a kernel compiler (`kernels/emulation`) replace
//! the libraries of NVIDIA.

use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;

use crate::skip;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/emulation");

/// Emulated driver.
pub struct Emulation {
    driver: Library,
    _compiler: Library,
}

/// Loads the emulated driver with `devices` devices, for the rest of this process. Returns `None`
/// and reports a skipped test without g++ or on other machines than x86-64. Every test must call
/// this before it uses CUDA. `folder` holds the compiled libraries: the caller's
/// `CARGO_TARGET_TMPDIR`.
pub fn emulation(folder: &str, devices: i32) -> Option<&'static Emulation> {
    static EMULATION: OnceLock<Option<Emulation>> = OnceLock::new();
    EMULATION.get_or_init(|| Emulation::load(Path::new(folder), devices)).as_ref()
}

/// Loads the emulated driver with one device, unless NVIDIA's driver is installed. Tests then
/// always have a CUDA device.
pub fn emulation_without_driver(folder: &str) {
    // SAFETY: loading NVIDIA's library has no preconditions.
    if unsafe { Library::new("libcuda.so.1") }.is_err() {
        emulation(folder, 1);
    }
}

impl Emulation {
    fn load(folder: &Path, devices: i32) -> Option<Self> {
        let has_compiler = Command::new("g++").arg("--version").output().is_ok_and(|output| output.status.success());
        if !cfg!(target_arch = "x86_64") || !has_compiler {
            skip("CUDA emulation needs g++ and x86-64");
            return None;
        }
        let version = version();
        let folder = folder.join(format!("emulated-{version:x}"));
        std::fs::create_dir_all(&folder).unwrap();
        let emulation = Self {
            driver: library(&folder, "cuda", &["driver.cpp", "memory.cpp"], version),
            _compiler: library(&folder, "nvrtc", &["compiler.cpp"], version),
        };
        emulation.set(b"emulated_devices", devices);
        Some(emulation)
    }

    /// Makes the driver function `call` return `result` without any effect, after `calls_before`
    /// more calls.
    pub fn break_call(&self, call: &CStr, calls_before: u64, result: i32) {
        // SAFETY: the types match the source.
        let run = unsafe { self.driver.get::<unsafe extern "C" fn(*const c_char, u64, i32)>(b"emulated_break") };
        // SAFETY: the argument is a zero-terminated string.
        unsafe { run.unwrap()(call.as_ptr(), calls_before, result) };
    }

    /// Makes all driver functions work again.
    pub fn repair(&self) {
        self.set(b"emulated_restore", 0);
    }

    /// Sets whether kernels wait before they start.
    pub fn hold(&self, held: bool) {
        self.set(b"emulated_hold", held.into());
    }

    /// Lets `launches` more launches start. Later launches wait until [`Emulation::hold`] is called
    /// with `false`.
    pub fn hold_after(&self, launches: i32) {
        self.set(b"emulated_hold_after", launches);
    }

    /// Returns the number of calls of a driver function.
    pub fn calls(&self, call: &CStr) -> u64 {
        // SAFETY: the types match the source.
        let run = unsafe { self.driver.get::<unsafe extern "C" fn(*const c_char) -> u64>(b"emulated_calls") };
        // SAFETY: the argument is a zero-terminated string.
        unsafe { run.unwrap()(call.as_ptr()) }
    }

    fn set(&self, function: &[u8], value: i32) {
        // SAFETY: the types match the source.
        unsafe { self.driver.get::<unsafe extern "C" fn(i32)>(function).unwrap()(value) };
    }
}

/// Returns a digest of all sources.
fn version() -> u32 {
    let texts =
        ["driver.cpp", "memory.cpp", "world.h", "streams.h", "compiler.cpp", "emulation.h", "sanitizer.h", "entries.h"]
            .map(|name| std::fs::read(Path::new(SOURCES).join(name)).unwrap());
    // FNV-1a. The result must fit into a C int.
    let step = |sum: u32, &byte: &u8| (sum ^ u32::from(byte)).wrapping_mul(0x100_0193);
    texts.iter().flatten().fold(0x811c_9dc5, step) >> 1
}

/// Compiles a library unless it exists, and loads it. From then on, the loader uses it for this
/// library name.
fn library(folder: &Path, name: &str, sources: &[&str], version: u32) -> Library {
    let path = folder.join(format!("lib{name}.so"));
    if !path.exists() {
        let unfinished = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
        let output = Command::new("g++")
            .args(["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .arg(format!("-Wl,-soname,lib{name}.so"))
            .arg(format!("-DEMULATION_FOLDER=\"{SOURCES}\""))
            .arg(format!("-DEMULATION_VERSION={version}"))
            .args(sources.iter().map(|source| Path::new(SOURCES).join(source)))
            .arg("-o")
            .arg(&unfinished)
            .output()
            .unwrap();
        assert!(output.status.success(), "g++:\n{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(&unfinished, &path).unwrap();
    }
    // SAFETY: the initializers of the library have no preconditions.
    unsafe { Library::new(&path) }.unwrap()
}
