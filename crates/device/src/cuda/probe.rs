//! Finds CUDA devices and their features, and reports why a device is unusable.

use std::ffi::{CStr, c_char};
use std::sync::{Arc, OnceLock};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};

use super::driver::{Context, available, failed, text};
use crate::error::{Error, Unavailable};
use crate::found::{Capabilities, Found, ModeFound, Probe, Svm};
use crate::options::Mode;

/// Kind in device names, as in `cuda:0`.
pub const ID: &str = "cuda";

/// Minimum compute capability of a device, 7.0 (Volta). Since Volta, the threads of a warp can wait
/// for each other individually, and the memory model has acquire and release operations.
const CAPABILITY_MIN: (i32, i32) = (7, 0);
/// Minimum driver version, CUDA 12.0, in the format of the driver. Since this version, the kernel
/// arguments in a CUDA graph can be replaced.
const DRIVER_MIN: i32 = 12_000;

/// Queries the driver for its devices.
pub fn probe() -> Probe {
    match devices() {
        Ok(count) => Probe { found: (0..count).filter_map(|number| describe(number).ok()).collect(), reason: None },
        Err(reason) => Probe { found: Vec::new(), reason: Some(reason) },
    }
}

/// Returns the number of CUDA devices, which is at least 1, or the reason why there is none. The
/// first call initializes the driver, and later calls return the same result.
fn devices() -> Result<usize, Unavailable> {
    static DEVICES: OnceLock<Result<usize, Unavailable>> = OnceLock::new();
    DEVICES.get_or_init(count).clone()
}

const NO_DEVICE: &str = "CUDA is unavailable: the NVIDIA driver found no device";

fn count() -> Result<usize, Unavailable> {
    // SAFETY: loading NVIDIA's library has no preconditions.
    if !unsafe { sys::is_culib_present() } {
        let reason = "CUDA is unavailable: the NVIDIA driver library (libcuda.so.1) was not found";
        return Err(Unavailable::Setup(reason.to_owned()));
    }
    let refuse = |error| Unavailable::Failed(format!("CUDA is unavailable: the NVIDIA driver failed: {}", text(error)));
    let no_device = || Unavailable::Setup(NO_DEVICE.to_owned());
    match result::init() {
        Ok(()) => {}
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => return Err(no_device()),
        Err(error) => return Err(refuse(error)),
    }
    match result::device::get_count().map_err(refuse)? {
        0 => Err(no_device()),
        count => Ok(count as usize),
    }
}

/// Returns the name of device `number`, if it exists.
fn id_of(number: usize) -> Result<String, Error> {
    let id = format!("{ID}:{number}");
    match devices() {
        Ok(count) if number < count => Ok(id),
        Ok(_) => Err(Error::Absent { id }),
        Err(reason) => Err(Error::Unusable { id, reason }),
    }
}

/// Opens the context of the device that [`probe`] lists under `number`.
///
/// # Errors
/// Returns [`Error::Absent`] if there is no device with this number, [`Error::Unusable`] if there
/// is no CUDA device at all, or [`Error::Driver`] if the driver fails.
pub fn context(number: usize) -> Result<Arc<Context>, Error> {
    let id = id_of(number)?;
    Context::new(&id, result::device::get(number as i32).map_err(failed(&id, "open it"))?)
}

/// Returns the properties of device `number`, or an error if Godwit cannot use the device.
pub(super) fn found(number: usize) -> Result<Found, Error> {
    let id = id_of(number)?;
    let found = describe(number).map_err(failed(&id, "describe it"))?;
    match found.usable {
        Ok(()) => Ok(found),
        Err(reason) => Err(Error::Unusable { id, reason }),
    }
}

/// Returns the properties of one device. A property that the driver does not report gets its lowest
/// possible value.
fn describe(number: usize) -> Result<Found, DriverError> {
    let device = result::device::get(number as i32)?;
    // SAFETY: the device exists.
    let ask = |attribute| unsafe { result::device::get_attribute(device, attribute) }.unwrap_or(0);
    let (major, minor) = capability(device);
    // SAFETY: see above.
    let memory_bytes = unsafe { result::device::total_mem(device) }.unwrap_or(0) as u64;
    let mut driver = 0;
    // SAFETY: the call writes one integer.
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

/// Returns the architecture of the device as the compiler names it, such as `sm_90`.
pub fn architecture_of(context: &Context) -> String {
    architecture(capability(context.device))
}

/// Returns the compute capability: major and minor.
fn capability(device: sys::CUdevice) -> (i32, i32) {
    // SAFETY: the device exists.
    let ask = |attribute| unsafe { result::device::get_attribute(device, attribute) }.unwrap_or(0);
    (
        ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )
}

/// Formats a CUDA version number, such as 12.4 for 12040.
fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// Converts a compute capability to the name of the architecture, such as `sm_90`.
fn architecture((major, minor): (i32, i32)) -> String {
    format!("sm_{major}{minor}")
}

/// Returns the reason if Godwit cannot use the device.
fn usable(driver: i32, capability: (i32, i32), maps_host_memory: bool) -> Result<(), Unavailable> {
    if driver < DRIVER_MIN {
        let (driver, minimum) = (version(driver), version(DRIVER_MIN));
        let reason = format!("its driver supports CUDA {driver}, but Godwit needs at least {minimum}");
        return Err(Unavailable::Setup(reason));
    }
    if capability < CAPABILITY_MIN {
        let ((major, minor), (major_min, minor_min)) = (capability, CAPABILITY_MIN);
        let reason =
            format!("its compute capability is {major}.{minor}, but Godwit needs at least {major_min}.{minor_min}");
        return Err(Unavailable::Unsupported(reason));
    }
    if !maps_host_memory {
        return Err(Unavailable::Unsupported("it cannot access host memory".to_owned()));
    }
    available(&architecture(capability))
}

fn pci(device: sys::CUdevice) -> Option<String> {
    let mut address: [c_char; 32] = [0; 32];
    // SAFETY: the driver writes at most `address.len()` bytes, with a zero at the end.
    unsafe { sys::cuDeviceGetPCIBusId(address.as_mut_ptr(), address.len() as i32, device) }.result().ok()?;
    // SAFETY: see above.
    let address = unsafe { CStr::from_ptr(address.as_ptr()) };
    Some(address.to_string_lossy().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_why_a_device_is_unusable() {
        for (driver, capability, maps, values) in [
            (11_080, (9, 0), true, ["11.8", "12.0"]),
            (12_000, (6, 1), true, ["6.1", "7.0"]),
            (13_020, (7, 0), false, ["access", "host memory"]),
        ] {
            let reason = usable(driver, capability, maps).unwrap_err().to_string();
            assert!(values.iter().all(|value| reason.contains(value)), "{reason}");
        }
    }
}
