//! Finds OpenCL devices and their features, and reports why a device is unusable.

use std::sync::OnceLock;

use opencl3::device::{
    CL_DEVICE_ATOMIC_ORDER_ACQ_REL, CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES, CL_DEVICE_SVM_ATOMICS,
    CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, CL_DEVICE_SVM_FINE_GRAIN_BUFFER, CL_DEVICE_SVM_FINE_GRAIN_SYSTEM,
    CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, Device,
};
use opencl3::error_codes::{ClError, DLOPEN_RUNTIME_LOAD_FAILED};
use opencl3::platform::{Platform, get_platforms};

use crate::error::{Error, Unavailable};
use crate::found::{Capabilities, Found, ModeFound, Probe, Svm};
use crate::options::Mode;

/// Kind in device names, as in `opencl:0`.
pub const ID: &str = "opencl";

/// Error that the OpenCL loader returns if it finds no driver (`cl_khr_icd`:
/// `CL_PLATFORM_NOT_FOUND_KHR`).
const PLATFORM_NOT_FOUND: i32 = -1001;

/// Name of the OpenCL C 3.0 feature for atomic operations that the host and all devices can see.
const SCOPE_FEATURE: &[u8] = b"__opencl_c_atomic_scope_all_devices";

/// Queries the OpenCL loader and all drivers. The call takes as long as the slowest driver.
pub fn probe() -> Probe {
    match devices() {
        Ok(devices) => {
            let found = devices.iter().enumerate();
            let found = found.map(|(number, (platform, device))| describe(number, platform, device)).collect();
            Probe { found, reason: None }
        }
        Err(reason) => Probe { found: Vec::new(), reason: Some(reason) },
    }
}

/// Returns every device of every platform, with the name of its platform. The devices are
/// enumerated only once, because a number must always mean the same device. Besides, PoCL returns
/// no devices to a thread while another thread makes the first query.
fn devices() -> Result<&'static [(String, Device)], Unavailable> {
    static DEVICES: OnceLock<Result<Vec<(String, Device)>, Unavailable>> = OnceLock::new();
    DEVICES.get_or_init(enumerate).as_deref().map_err(Clone::clone)
}

fn enumerate() -> Result<Vec<(String, Device)>, Unavailable> {
    let platforms = match get_platforms() {
        Ok(platforms) => platforms,
        Err(ClError(DLOPEN_RUNTIME_LOAD_FAILED)) => {
            return Err(setup("the OpenCL loader (libOpenCL.so.1) was not found"));
        }
        Err(ClError(PLATFORM_NOT_FOUND)) => Vec::new(),
        Err(error) => {
            let reason = format!("OpenCL is unavailable: the OpenCL loader failed: {error}");
            return Err(Unavailable::Failed(reason));
        }
    };
    if platforms.is_empty() {
        return Err(setup("the OpenCL loader found no driver (no platform)"));
    }
    let devices_of = |platform: &Platform| {
        let name = text(platform.name());
        let devices = platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default();
        devices.into_iter().map(move |device| (name.clone(), Device::new(device)))
    };
    let devices: Vec<_> = platforms.iter().flat_map(devices_of).collect();
    if devices.is_empty() {
        let names: Vec<_> = platforms.iter().map(|platform| text(platform.name())).collect();
        return Err(setup(&format!("the drivers ({}) found no device", names.join(", "))));
    }
    Ok(devices)
}

fn setup(reason: &str) -> Unavailable {
    Unavailable::Setup(format!("OpenCL is unavailable: {reason}"))
}

/// Returns the device that [`probe`] lists under `number`, or an error if Godwit cannot use the
/// device.
pub(super) fn usable(number: usize) -> Result<(Found, &'static Device), Error> {
    let (found, device) = present(number)?;
    match found.usable {
        Ok(()) => Ok((found, device)),
        Err(reason) => Err(Error::Unusable { id: found.capabilities.id, reason }),
    }
}

/// Returns the device that [`probe`] lists under `number`, even if Godwit cannot use it.
///
/// # Errors
/// Returns [`Error::Absent`] if there is no device with this number, or [`Error::Unusable`] if
/// there is no OpenCL device at all.
pub fn present(number: usize) -> Result<(Found, &'static Device), Error> {
    let id = format!("{ID}:{number}");
    let devices = devices().map_err(|reason| Error::Unusable { id: id.clone(), reason })?;
    let Some((platform, device)) = devices.get(number) else { return Err(Error::Absent { id }) };
    Ok((describe(number, platform, device), device))
}

/// Returns the properties of one device. A property that the driver does not report gets its lowest
/// possible value.
fn describe(number: usize, platform: &str, device: &Device) -> Found {
    let svm = svm(device);
    let language = text(device.opencl_c_version());
    let extensions = text(device.extensions());
    let mut features = vec![text(device.version()), language];
    let has = |feature: &&str| extensions.split_whitespace().any(|extension| extension == *feature);
    features.extend(["cl_khr_pci_bus_info", "cl_khr_subgroups"].into_iter().filter(has).map(str::to_owned));
    let kind = device.dev_type().unwrap_or(0);
    let is_cpu = kind & CL_DEVICE_TYPE_CPU != 0;
    Found {
        capabilities: Capabilities {
            id: format!("{ID}:{number}"),
            name: text(device.name()),
            compute_units: device.max_compute_units().map_or(1, |units| units as usize),
            warp_packets: warp_packets(device, &extensions),
            memory_bytes: device.global_mem_size().unwrap_or(0),
            features,
        },
        platform: platform.to_owned(),
        driver: text(device.driver_version()),
        kind: match kind {
            kind if kind & CL_DEVICE_TYPE_CPU != 0 => "cpu",
            kind if kind & CL_DEVICE_TYPE_GPU != 0 => "gpu",
            _ => "other",
        },
        // The device can work in host memory only if the caches of device and host are coherent.
        // They are coherent if the device is the processor itself, or if it supports fine-grained
        // SVM.
        host_memory: device.host_unified_memory().unwrap_or(false) && (is_cpu || svm.fine),
        local_memory_bytes: device.local_mem_size().unwrap_or(0),
        buffer_bytes_max: device.max_mem_alloc_size().unwrap_or(0),
        svm,
        modes: modes(device, platform, is_cpu, svm),
        chain_lacks: aborts_on_barriers(platform, &text(device.driver_version()))
            .then(|| Unavailable::Setup("this PoCL version may crash while it compiles kernels for chains".to_owned())),
        pci: pci(device, &extensions),
        usable: check_usable(device),
    }
}

/// Returns whether the driver is a version of PoCL whose compiler may end the process while it
/// compiles kernels with barriers. This was seen with version 5.0 of Ubuntu 24.04. Versions 3.1 and
/// 6.0 compile all kernels.
fn aborts_on_barriers(platform: &str, driver: &str) -> bool {
    platform == "Portable Computing Language" && (driver.starts_with("4.") || driver.starts_with("5."))
}

/// Returns whether the device supports each mode. Persistent mode needs atomic operations that the
/// host and all devices can see.
fn modes(device: &Device, platform: &str, is_cpu: bool, svm: Svm) -> Vec<ModeFound> {
    const NEEDED: u64 = CL_DEVICE_ATOMIC_ORDER_ACQ_REL | CL_DEVICE_ATOMIC_SCOPE_ALL_DEVICES;
    // OpenCL 2 cannot be queried for atomic operations. It always supports those that OpenCL 3
    // makes optional.
    let is_version_2 = text(device.version()).starts_with("OpenCL 2.");
    let has_scope = is_version_2 || device.atomic_memory_capabilities().unwrap_or(0) & NEEDED == NEEDED;
    // PoCL 3.1 supports atomic operations that are visible to the host and to all devices, but its
    // compiler does not report this feature. On a CPU device, atomic operations of device scope are
    // also visible to the host.
    let features = device.opencl_c_features().unwrap_or_default();
    let has_feature = is_version_2 || is_cpu || features.iter().any(|feature| text_of(&feature.name) == SCOPE_FEATURE);
    let unsupported = |reason: &str| Some(Unavailable::Unsupported(reason.to_owned()));
    let lacks = if aborts_on_barriers(platform, &text(device.driver_version())) {
        let reason = "this PoCL version may crash while it compiles kernels for persistent groups";
        Some(Unavailable::Setup(reason.to_owned()))
    } else if !svm.fine || !svm.atomics {
        unsupported("host and device cannot communicate while a kernel runs (no fine-grained SVM with atomics)")
    } else if !has_scope || !has_feature {
        unsupported("its atomic operations do not include the host")
    } else {
        None
    };
    let persistent = ModeFound { mode: Mode::Persistent, lacks };
    vec![ModeFound { mode: Mode::Launch, lacks: None }, persistent]
}

/// Returns the reason if Godwit cannot use the device.
fn check_usable(device: &Device) -> Result<(), Unavailable> {
    let refuse = |reason: &str| Err(Unavailable::Unsupported(reason.to_owned()));
    if !device.available().unwrap_or(false) {
        return Err(Unavailable::Setup("its driver reports it as not available".to_owned()));
    }
    if !device.compiler_available().unwrap_or(false) {
        return refuse("its driver has no OpenCL C compiler");
    }
    if !device.endian_little().unwrap_or(false) {
        return refuse("it is big-endian, but the table images are little-endian");
    }
    let version = text(device.version());
    if version.starts_with("OpenCL 1.0") || version.starts_with("OpenCL 1.1") {
        return refuse("its OpenCL version is older than 1.2");
    }
    Ok(())
}

fn svm(device: &Device) -> Svm {
    let has = device.svm_capabilities().unwrap_or(0);
    Svm {
        coarse: has & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER != 0,
        fine: has & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0,
        system: has & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM != 0,
        atomics: has & CL_DEVICE_SVM_ATOMICS != 0,
    }
}

/// Returns the preferred work-group size multiple (OpenCL 3.0). If the device lacks this query,
/// returns the value of a vendor extension.
fn warp_packets(device: &Device, extensions: &str) -> usize {
    if let Ok(multiple) = device.preferred_work_group_size_multiple() {
        return multiple.max(1);
    }
    let vendors = match extensions {
        nvidia if nvidia.contains("cl_nv_device_attribute_query") => device.wrap_size_nv().ok(),
        amd if amd.contains("cl_amd_device_attribute_query") => device.wavefront_width_amd().ok(),
        _ => None,
    };
    vendors.map_or(1, |packets| packets.max(1) as usize)
}

fn pci(device: &Device, extensions: &str) -> Option<String> {
    let write =
        |domain: u32, bus: u32, slot: u32, function: u32| format!("{domain:04x}:{bus:02x}:{slot:02x}.{function}");
    if extensions.contains("cl_khr_pci_bus_info") {
        let address = device.pcibusinfokhr_intel().ok()?;
        return Some(write(address.pci_domain, address.pci_bus, address.pci_device, address.pci_function));
    }
    if extensions.contains("cl_nv_device_attribute_query") {
        // The lower three bits of this PCI slot number are the PCI function. The vendor extension
        // does not report the PCI domain.
        let slot = device.pci_slot_id_nv().ok()?;
        return Some(write(0, device.pci_bus_id_nv().ok()?, slot >> 3, slot & 7));
    }
    if extensions.contains("cl_amd_device_attribute_query") {
        let address = device.topology_amd().ok()?;
        return Some(write(0, address.bus.into(), address.device.into(), address.function.into()));
    }
    None
}

/// Trims spaces, newlines and zeros from a driver's text.
fn text(answer: Result<String, ClError>) -> String {
    answer.map(|text| text.trim_matches(['\0', ' ', '\n']).to_owned()).unwrap_or_default()
}

/// Returns the bytes of a C string without its terminating zero.
fn text_of(name: &[u8]) -> &[u8] {
    name.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::aborts_on_barriers;

    #[test]
    fn only_some_pocl_versions_abort() {
        let pocl = |driver| aborts_on_barriers("Portable Computing Language", driver);
        assert!(pocl("4.0") && pocl("5.0+debian"));
        assert!(!pocl("3.1+debian") && !pocl("6.0+debian"));
        assert!(!aborts_on_barriers("NVIDIA CUDA", "5.0"));
    }
}
