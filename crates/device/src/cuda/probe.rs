//! What CUDA devices there are, what each can do, and why one is not used.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};

use super::driver::text;
use super::{ID, compiler};
use crate::{Capabilities, Found, Mode, ModeFound, Probe, Svm};

/// Oldest compute capability that Godwit uses: the first (Volta) whose threads of a warp wait for each other one by one
/// and whose memory model knows acquire and release.
const CAPABILITY_MIN: (i32, i32) = (7, 0);
/// Oldest driver, as it says it: of CUDA 12.0, whose graphs take new arguments.
const DRIVER_MIN: i32 = 12_000;

/// Asks the driver.
pub fn probe() -> Probe {
    match devices() {
        Ok(count) => Probe { found: (0..count).filter_map(|number| describe(number).ok()).collect(), reason: None },
        Err(reason) => Probe { found: Vec::new(), reason: Some(reason) },
    }
}

/// How many devices there are, never 0; asked once. Initialises the driver.
pub(super) fn devices() -> Result<usize, String> {
    static DEVICES: OnceLock<Result<usize, String>> = OnceLock::new();
    DEVICES.get_or_init(count).clone()
}

fn count() -> Result<usize, String> {
    // SAFETY: loading NVIDIA's library has no requirements.
    if !unsafe { sys::is_culib_present() } {
        return Err("CUDA is not used: there is no NVIDIA driver library (libcuda.so.1) here".to_owned());
    }
    let refuse = |error| format!("CUDA is not used: NVIDIA's driver library is here, but it says: {}", text(error));
    match result::init() {
        Ok(()) => {}
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => {
            return Err("CUDA is not used: NVIDIA's driver is here, but finds no device".to_owned());
        }
        Err(error) => return Err(refuse(error)),
    }
    match result::device::get_count().map_err(refuse)? {
        0 => Err("CUDA is not used: NVIDIA's driver is here, but finds no device".to_owned()),
        count => Ok(count as usize),
    }
}

/// What one device is. A question that the driver does not answer counts as the least it could say.
pub(super) fn describe(number: usize) -> Result<Found, DriverError> {
    let device = result::device::get(number as i32)?;
    // SAFETY: the device exists.
    let ask = |attribute| unsafe { result::device::get_attribute(device, attribute) }.unwrap_or(0);
    let (major, minor) = capability(device);
    // SAFETY: as above.
    let memory_bytes = unsafe { result::device::total_mem(device) }.unwrap_or(0) as u64;
    let mut driver = 0;
    // SAFETY: writes one integer.
    let _ = unsafe { sys::cuDriverGetVersion(&mut driver) };
    let cuda = version(driver);
    Ok(Found {
        capabilities: Capabilities {
            id: format!("{ID}:{number}"),
            name: result::device::get_name(device).unwrap_or_default(),
            compute_units: ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).max(1) as usize,
            warp_packets: ask(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE).max(1) as usize,
            memory_bytes,
            features: vec![format!("CUDA {cuda}"), architecture((major, minor))],
        },
        platform: "NVIDIA CUDA".to_owned(),
        driver: cuda,
        kind: "gpu",
        host_memory: ask(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0,
        local_memory_bytes: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK).max(0) as u64,
        buffer_bytes_max: memory_bytes,
        svm: Svm::default(),
        modes: [Mode::Launch, Mode::Persistent].map(|mode| ModeFound { mode, lacks: None }).into(),
        chain_lacks: None,
        pci: pci(device),
        usable: usable(driver, (major, minor), ask(Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) != 0),
    })
}

/// Its compute capability: major, minor.
pub(super) fn capability(device: sys::CUdevice) -> (i32, i32) {
    // SAFETY: the device exists.
    let ask = |attribute| unsafe { result::device::get_attribute(device, attribute) }.unwrap_or(0);
    (
        ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )
}

/// A version of CUDA as people write it.
fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// What the compiler calls a compute capability: `sm_90`.
pub(super) fn architecture((major, minor): (i32, i32)) -> String {
    format!("sm_{major}{minor}")
}

/// See [`Found::usable`].
fn usable(driver: i32, capability: (i32, i32), maps_host_memory: bool) -> Result<(), String> {
    if driver < DRIVER_MIN {
        return Err(format!("its driver is of CUDA {}; {} is the least", version(driver), version(DRIVER_MIN)));
    }
    if capability < CAPABILITY_MIN {
        let ((major, minor), (major_min, minor_min)) = (capability, CAPABILITY_MIN);
        return Err(format!("its compute capability is {major}.{minor}; {major_min}.{minor_min} is the least"));
    }
    if !maps_host_memory {
        return Err("it cannot reach the host's memory".to_owned());
    }
    compiler::available(&architecture(capability))
}

fn pci(device: sys::CUdevice) -> Option<String> {
    let mut place: [c_char; 32] = [0; 32];
    // SAFETY: the driver writes at most as many bytes as it is told, with a zero at the end.
    unsafe { sys::cuDeviceGetPCIBusId(place.as_mut_ptr(), place.len() as i32, device) }.result().ok()?;
    // SAFETY: as above.
    let place = unsafe { CStr::from_ptr(place.as_ptr()) };
    Some(place.to_string_lossy().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_device_is_not_used_is_said() {
        for (driver, capability, maps, why) in [
            (11_080, (9, 0), true, "its driver is of CUDA 11.8; 12.0 is the least"),
            (12_000, (6, 1), true, "its compute capability is 6.1; 7.0 is the least"),
            (13_020, (7, 0), false, "it cannot reach the host's memory"),
        ] {
            assert_eq!(usable(driver, capability, maps), Err(why.to_owned()));
        }
    }
}
