//! Compiles kernels with NVRTC, the run-time compiler of CUDA, to a binary (cubin) for one
//! architecture. Caches the binary on disk.
//!
//! The name of a cache file is a digest of everything that the cubin depends on: source,
//! architecture, options and compiler version. Cache files never become stale, and may be deleted
//! at any time.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use cudarc::nvrtc::{result, sys};

use crate::error::{Error, Unavailable};

const OPTIONS: [&str; 2] = ["--std=c++17", "--extra-device-vectorization"];

/// Binaries that this process has compiled, by the names of their cache files. The cache on disk
/// may be missing or not writable.
static COMPILED: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// Checks that the kernels for an architecture are in the cache or can be compiled. Otherwise,
/// returns the reason in one sentence.
pub(crate) fn available(architecture: &str) -> Result<(), Unavailable> {
    // SAFETY: loading NVRTC has no preconditions.
    if unsafe { sys::is_culib_present() } || cached_by_any(godwit_kernels::cuda_source(), architecture).is_some() {
        return Ok(());
    }
    Err(not_found())
}

fn not_found() -> Unavailable {
    Unavailable::Setup("NVIDIA's run-time compiler NVRTC (libnvrtc.so from the CUDA toolkit) was not found".to_owned())
}

/// Returns the binary (cubin) of a source text for an architecture such as `sm_90`. The binary is
/// read from the cache, or compiled if the cache does not contain it.
///
/// # Errors
/// Returns [`Error::Build`] with the compiler's log if the compilation fails. Returns
/// [`Error::Unusable`] if the compiler is not installed and the cache has no binary.
pub fn cubin(id: &str, source: &str, architecture: &str) -> Result<Vec<u8>, Error> {
    // SAFETY: loading NVRTC has no preconditions.
    if !unsafe { sys::is_culib_present() } {
        let cached = cached_by_any(source, architecture).and_then(|path| fs::read(path).ok());
        return cached.ok_or_else(|| Error::Unusable { id: id.to_owned(), reason: not_found() });
    }
    let version = version();
    let name = format!("{}-{version}.cubin", stem(source, architecture));
    // A second thread with the same text waits for the first one, instead of compiling it again.
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cubin) = compiled.get(&name) {
        return Ok(cubin.clone());
    }
    let path = folder().map(|folder| folder.join(&name));
    if let Some(cached) = path.as_ref().and_then(|path| fs::read(path).ok()) {
        return Ok(cached);
    }
    let cubin = compile(source, architecture).map_err(|Log(log)| Error::Build {
        id: id.to_owned(),
        driver: format!("NVRTC {version}"),
        log,
    })?;
    if let Some(path) = path {
        store(&path, &cubin);
    }
    compiled.insert(name, cubin.clone());
    Ok(cubin)
}

/// Returns the name of the cache file without the compiler version.
fn stem(source: &str, architecture: &str) -> String {
    // The digest is an FNV-1a hash. It distinguishes versions of the source, but does not protect
    // against attacks.
    let options = OPTIONS.iter().flat_map(|option| option.bytes());
    let digest = source
        .bytes()
        .chain(options)
        .fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{digest:016x}-{architecture}")
}

fn version() -> String {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the call writes two integers.
    let _ = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    format!("{major}.{minor}")
}

/// Returns the path of the cache folder: `$XDG_CACHE_HOME/godwit`, or `~/.cache/godwit`.
fn folder() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let home =
        || std::env::var_os("HOME").filter(|path| !path.is_empty()).map(|home| PathBuf::from(home).join(".cache"));
    Some(cache.or_else(home)?.join("godwit"))
}

/// Returns any cached binary of this source text, regardless of the compiler version.
fn cached_by_any(source: &str, architecture: &str) -> Option<PathBuf> {
    let stem = format!("{}-", stem(source, architecture));
    let entries = fs::read_dir(folder()?).ok()?;
    entries.filter_map(Result::ok).map(|entry| entry.path()).find(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with(&stem) && name.ends_with(".cubin")
    })
}

/// Writes a cache file. The file is renamed atomically, because another process may read the cache
/// at the same time. Errors are ignored, because a missing cache file only slows down the next
/// start.
fn store(path: &std::path::Path, cubin: &[u8]) {
    let Some(folder) = path.parent() else { return };
    let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&unfinished, cubin));
    if written.and_then(|()| fs::rename(&unfinished, path)).is_err() {
        let _ = fs::remove_file(&unfinished);
    }
}

/// The compiler's log, or its error.
struct Log(String);

impl From<result::NvrtcError> for Log {
    fn from(error: result::NvrtcError) -> Self {
        Self(error.to_string())
    }
}

fn compile(source: &str, architecture: &str) -> Result<Vec<u8>, Log> {
    let Ok(source) = CString::new(source) else { unreachable!("the source contains no zero byte") };
    let program = result::create_program(&source, Some(c"kernels.cu"))?;
    let options: Vec<String> = OPTIONS
        .iter()
        .map(|option| (*option).to_owned())
        .chain([format!("--gpu-architecture={architecture}")])
        .collect();
    // SAFETY: the program was just created, and is destroyed only after its last use.
    let compiled = unsafe { result::compile_program(program, &options) };
    let cubin = match compiled {
        // SAFETY: see above.
        Ok(()) => unsafe { read(program) }.map_err(Log::from),
        Err(error) => {
            // SAFETY: see above. The log ends with a zero.
            let log = unsafe { result::get_program_log(program) }.map(|log| Log(to_text(&log)));
            Err(log.unwrap_or_else(|_| error.into()))
        }
    };
    // SAFETY: created once and destroyed once.
    let _ = unsafe { result::destroy_program(program) };
    cubin
}

/// # Safety
/// The program must be compiled and not yet destroyed.
unsafe fn read(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut bytes = 0;
    // SAFETY: the caller guarantees that the program is compiled. The buffer has the length that
    // the compiler reports.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut bytes).result()?;
        let mut cubin = vec![0_u8; bytes];
        sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast::<c_char>()).result()?;
        Ok(cubin)
    }
}

fn to_text(log: &[c_char]) -> String {
    let bytes: Vec<u8> = log.iter().map(|&byte| byte as u8).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).map(|log| log.to_string_lossy().into_owned()).unwrap_or_default()
}
