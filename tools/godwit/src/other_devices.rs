//! What there is besides the CPU, and why it is not used. Nothing is loaded: the files of loaders and drivers tell.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A kind of device that no kernel runs on yet.
#[derive(Debug, Serialize)]
pub(crate) struct OtherDevice {
    /// `opencl` or `cuda`.
    pub(crate) kind: &'static str,
    /// Whether such a device, or something that poses as one, is likely to be here.
    pub(crate) present: bool,
    /// What is here, and why it is not used.
    pub(crate) sentence: String,
}

/// OpenCL and CUDA.
pub(crate) fn all() -> Vec<OtherDevice> {
    vec![opencl(), cuda()]
}

/// Where the dynamic loader looks, in the layouts that distributions have.
const LIBRARY_FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
];

fn opencl() -> OtherDevice {
    let drivers = opencl_drivers(Path::new("/etc/OpenCL/vendors"));
    let sentence = match (library("libOpenCL.so.1"), drivers.as_slice()) {
        (None, []) => "opencl: not used: there is no OpenCL loader (libOpenCL.so.1) here".to_owned(),
        (None, drivers) => {
            format!("opencl: not used: there is a driver ({}) but no loader (libOpenCL.so.1) here", drivers.join(", "))
        }
        (Some(_), []) => "opencl: not used: there is a loader but no driver here".to_owned(),
        (Some(_), drivers) => format!(
            "opencl: not used: loader and driver ({}) are here, but kernels do not run on OpenCL yet",
            drivers.join(", ")
        ),
    };
    OtherDevice { kind: "opencl", present: !drivers.is_empty(), sentence }
}

/// Names of the drivers that the loader finds in its folder.
fn opencl_drivers(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| PathBuf::from(entry.file_name()));
    let drivers = names.filter(|name| name.extension() == Some(OsStr::new("icd")));
    let mut drivers: Vec<String> =
        drivers.filter_map(|name| Some(name.file_stem()?.to_string_lossy().into_owned())).collect();
    drivers.sort();
    drivers
}

fn cuda() -> OtherDevice {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let device = version.is_some() || Path::new("/dev/nvidiactl").exists();
    let sentence = match (device, library("libcuda.so.1")) {
        (false, _) => "cuda: not used: there is no NVIDIA driver here".to_owned(),
        (true, None) => "cuda: not used: an NVIDIA driver is here, but not its library (libcuda.so.1)".to_owned(),
        (true, Some(_)) => "cuda: not used: an NVIDIA driver is here, but kernels do not run on CUDA yet".to_owned(),
    };
    OtherDevice { kind: "cuda", present: device, sentence }
}

/// The library called `name`, where the loader would find it.
fn library(name: &str) -> Option<PathBuf> {
    let search = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&search).chain(LIBRARY_FOLDERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_are_the_icd_files_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["pocl.icd", "mesa.icd", "notes.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(opencl_drivers(folder.path()), ["mesa", "pocl"]);
        assert!(opencl_drivers(&folder.path().join("none")).is_empty());
    }

    #[test]
    fn each_kind_has_its_sentence() {
        for device in all() {
            assert!(device.sentence.starts_with(&format!("{}: not used: ", device.kind)), "{device:?}");
        }
    }
}
