//! From a source text to a cubin for one architecture, by NVRTC; kept on disk by content.
//!
//! The file's name is made of everything that a cubin depends on: the source, the architecture, the options, the
//! compiler's version. Nothing ever becomes out of date; whatever is there may be deleted at any time.

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::path::PathBuf;

use cudarc::nvrtc::{result, sys};

use crate::Error;

const OPTIONS: [&str; 2] = ["--std=c++17", "--extra-device-vectorization"];

/// Whether kernels for the architecture can be had; if not, why, in one sentence.
pub(super) fn available(architecture: &str) -> Result<(), String> {
    // SAFETY: loading NVRTC has no requirements.
    if unsafe { sys::is_culib_present() } || kept_by_any(godwit_kernels::cuda_source(), architecture).is_some() {
        return Ok(());
    }
    Err("NVIDIA's run-time compiler NVRTC (libnvrtc.so, of the CUDA toolkit) is not here".to_owned())
}

/// A source text compiled for an architecture such as `sm_90`.
///
/// # Errors
/// [`Error::Build`] with the compiler's log.
pub(super) fn cubin(id: &str, source: &str, architecture: &str) -> Result<Vec<u8>, Error> {
    // SAFETY: loading NVRTC has no requirements.
    if !unsafe { sys::is_culib_present() } {
        let kept = kept_by_any(source, architecture).and_then(|path| fs::read(path).ok());
        return kept.ok_or_else(|| Error::Unusable {
            id: id.to_owned(),
            reason: available(architecture).err().unwrap_or_default(),
        });
    }
    let version = version();
    let path = folder().map(|folder| folder.join(format!("{}-{version}.cubin", stem(source, architecture))));
    if let Some(kept) = path.as_ref().and_then(|path| fs::read(path).ok()) {
        return Ok(kept);
    }
    let cubin = compile(source, architecture).map_err(|log| Error::Build {
        id: id.to_owned(),
        driver: format!("NVRTC {version}"),
        log,
    })?;
    if let Some(path) = path {
        keep(&path, &cubin);
    }
    Ok(cubin)
}

/// What the file in the cache is called, without the compiler's version.
fn stem(source: &str, architecture: &str) -> String {
    // FNV-1a: tells versions apart, guards against nothing.
    let options = OPTIONS.iter().flat_map(|option| option.bytes());
    let digest = source
        .bytes()
        .chain(options)
        .fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{digest:016x}-{architecture}")
}

fn version() -> String {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two integers.
    let _ = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    format!("{major}.{minor}")
}

/// `$XDG_CACHE_HOME/godwit`, else `~/.cache/godwit`.
fn folder() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let home =
        || std::env::var_os("HOME").filter(|path| !path.is_empty()).map(|home| PathBuf::from(home).join(".cache"));
    Some(cache.or_else(home)?.join("godwit"))
}

/// Kernels that any version of the compiler made of this very source.
fn kept_by_any(source: &str, architecture: &str) -> Option<PathBuf> {
    let stem = format!("{}-", stem(source, architecture));
    let entries = fs::read_dir(folder()?).ok()?;
    entries.filter_map(Result::ok).map(|entry| entry.path()).find(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with(&stem) && name.ends_with(".cubin")
    })
}

/// Whole or not at all: another process may read at the same time. A cache that cannot be written costs only time.
fn keep(path: &std::path::Path, cubin: &[u8]) {
    let Some(folder) = path.parent() else { return };
    let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&unfinished, cubin));
    if written.and_then(|()| fs::rename(&unfinished, path)).is_err() {
        let _ = fs::remove_file(&unfinished);
    }
}

fn compile(source: &str, architecture: &str) -> Result<Vec<u8>, String> {
    let Ok(source) = CString::new(source) else { unreachable!("the source text has no zero") };
    let program = result::create_program(&source, Some(c"kernels.cu")).map_err(|error| error.to_string())?;
    let options: Vec<String> = OPTIONS
        .iter()
        .map(|option| (*option).to_owned())
        .chain([format!("--gpu-architecture={architecture}")])
        .collect();
    // SAFETY: the program was just made and is destroyed below, after its last use.
    let compiled = unsafe { result::compile_program(program, &options) };
    let cubin = match compiled {
        // SAFETY: as above.
        Ok(()) => unsafe { read(program) }.map_err(|error| error.to_string()),
        Err(error) => {
            // SAFETY: as above; the log ends in a zero.
            let log = unsafe { result::get_program_log(program) }.map(|log| to_text(&log));
            Err(log.unwrap_or_else(|_| error.to_string()))
        }
    };
    // SAFETY: made once, destroyed once.
    let _ = unsafe { result::destroy_program(program) };
    cubin
}

/// # Safety
/// The program was compiled, and is not destroyed yet.
unsafe fn read(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut bytes = 0;
    // SAFETY: the caller's promise; the cubin is as long as the compiler says.
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
