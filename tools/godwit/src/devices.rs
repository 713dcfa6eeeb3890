//! What devices are here besides the CPU, and why one is not used.

use std::path::{Path, PathBuf};

use godwit_device::opencl;
use serde::Serialize;

/// A kind of device of which nothing is used, and why.
#[derive(Debug, Serialize)]
pub(crate) struct NotUsed {
    /// `opencl` or `cuda`.
    pub(crate) kind: &'static str,
    /// Whether such a device is likely to be here.
    pub(crate) present: bool,
    /// What is here, and why it is not used.
    pub(crate) sentence: String,
}

/// OpenCL devices, and what is not used at all.
pub(crate) struct Others {
    pub(crate) opencl: Vec<godwit_device::Found>,
    pub(crate) not_used: Vec<NotUsed>,
}

/// Asks every driver.
pub(crate) fn others() -> Others {
    let godwit_device::Probe { found, reason } = opencl::probe();
    let no_opencl = reason.map(|sentence| NotUsed { kind: opencl::ID, present: false, sentence });
    Others { opencl: found, not_used: no_opencl.into_iter().chain([cuda()]).collect() }
}

/// What an OpenCL device is good for, in one sentence.
pub(crate) fn sentence(found: &godwit_device::Found) -> String {
    let id = &found.capabilities.id;
    match &found.usable {
        Ok(()) => format!("{id} runs every function that says device = \"{id}\""),
        Err(reason) => format!("{id} is not used: {reason}"),
    }
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

/// Nothing is loaded: the files of driver and library tell.
fn cuda() -> NotUsed {
    let present = Path::new("/proc/driver/nvidia/version").exists() || Path::new("/dev/nvidiactl").exists();
    let sentence = match (present, library("libcuda.so.1")) {
        (false, _) => "CUDA is not used: there is no NVIDIA driver here",
        (true, None) => "CUDA is not used: an NVIDIA driver is here, but not its library (libcuda.so.1)",
        (true, Some(_)) => "CUDA is not used: an NVIDIA driver is here, but kernels do not run on CUDA yet",
    };
    NotUsed { kind: "cuda", present, sentence: sentence.to_owned() }
}

/// The library called `name`, where the loader would find it.
fn library(name: &str) -> Option<PathBuf> {
    let search = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&search).chain(LIBRARY_FOLDERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.exists())
}
