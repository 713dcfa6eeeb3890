//! A CUDA device emulated on the CPU: a driver and a compiler for kernels (`kernels/tests/cuda`), in the place of NVIDIA's.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::ffi::{CStr, c_char};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/tests/cuda");

/// The emulated driver.
pub(crate) struct Emulation {
    driver: Library,
    _compiler: Library,
}

/// Puts the emulation, with so many devices, in the place of NVIDIA's driver, for the rest of this process. `None`, and says so: there
/// is no g++, or this is no x86-64. Every test begins with it, before anything asks for CUDA.
pub(crate) fn emulation(devices: i32) -> Option<&'static Emulation> {
    static EMULATION: OnceLock<Option<Emulation>> = OnceLock::new();
    EMULATION.get_or_init(|| Emulation::load(devices)).as_ref()
}

/// The same with one device where NVIDIA's driver is not here, so that tests of CUDA have one anywhere.
pub(crate) fn unless_there_is_a_driver() {
    // SAFETY: loading NVIDIA's library has no requirements.
    if unsafe { Library::new("libcuda.so.1") }.is_err() {
        emulation(1);
    }
}

impl Emulation {
    fn load(devices: i32) -> Option<Self> {
        let has_compiler = Command::new("g++").arg("--version").output().is_ok_and(|output| output.status.success());
        if !cfg!(target_arch = "x86_64") || !has_compiler {
            // Past the test harness, which shows nothing of a test that passes.
            std::io::stderr().write_all(b"skipped: no g++ here to emulate CUDA with\n").unwrap();
            return None;
        }
        let version = version();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("emulated-{version:x}"));
        std::fs::create_dir_all(&folder).unwrap();
        let emulation = Self {
            driver: library(&folder, "cuda", "driver.cpp", version),
            _compiler: library(&folder, "nvrtc", "compiler.cpp", version),
        };
        emulation.tell(b"emulated_devices", devices);
        Some(emulation)
    }

    /// From its call number `calls_before` on, the driver's function `call` says `result` and does nothing.
    pub(crate) fn break_call(&self, call: &CStr, calls_before: u64, result: i32) {
        // SAFETY: the types are those of the source.
        let run = unsafe { self.driver.get::<unsafe extern "C" fn(*const c_char, u64, i32)>(b"emulated_break") };
        // SAFETY: it reads a text that ends in a zero.
        unsafe { run.unwrap()(call.as_ptr(), calls_before, result) };
    }

    /// All calls work.
    pub(crate) fn mend(&self) {
        self.tell(b"emulated_mend", 0);
    }

    /// Whether kernels wait before they do anything.
    pub(crate) fn hold(&self, held: bool) {
        self.tell(b"emulated_hold", held.into());
    }

    /// As many launches more begin; those behind them wait until [`Emulation::hold`] is told `false`.
    pub(crate) fn hold_after(&self, launches: i32) {
        self.tell(b"emulated_hold_after", launches);
    }

    /// How often the driver's function was called.
    pub(crate) fn calls(&self, call: &CStr) -> u64 {
        // SAFETY: the types are those of the source.
        let run = unsafe { self.driver.get::<unsafe extern "C" fn(*const c_char) -> u64>(b"emulated_calls") };
        // SAFETY: it reads a text that ends in a zero.
        unsafe { run.unwrap()(call.as_ptr()) }
    }

    fn tell(&self, what: &[u8], number: i32) {
        // SAFETY: the types are those of the source.
        unsafe { self.driver.get::<unsafe extern "C" fn(i32)>(what).unwrap()(number) };
    }
}

/// Another one whenever any of the sources changes.
fn version() -> u32 {
    let texts = ["driver.cpp", "world.h", "streams.h", "compiler.cpp", "emulation.h", "sanitizer.h", "entries.h"]
        .map(|name| std::fs::read(Path::new(SOURCES).join(name)).unwrap());
    // FNV-1a; it has to fit into a C int.
    let step = |sum: u32, &byte: &u8| (sum ^ u32::from(byte)).wrapping_mul(0x100_0193);
    texts.iter().flatten().fold(0x811c_9dc5, step) >> 1
}

/// Compiled, unless it was before, and loaded: from then on the loader takes it for the library that has this name.
fn library(folder: &Path, name: &str, source: &str, version: u32) -> Library {
    let path = folder.join(format!("lib{name}.so"));
    if !path.exists() {
        let unfinished = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
        let output = Command::new("g++")
            .args(["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .arg(format!("-Wl,-soname,lib{name}.so"))
            .arg(format!("-DEMULATION_FOLDER=\"{SOURCES}\""))
            .arg(format!("-DEMULATION_VERSION={version}"))
            .arg(Path::new(SOURCES).join(source))
            .arg("-o")
            .arg(&unfinished)
            .output()
            .unwrap();
        assert!(output.status.success(), "g++:\n{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(&unfinished, &path).unwrap();
    }
    // SAFETY: its initialisers have no requirements.
    unsafe { Library::new(&path) }.unwrap()
}
