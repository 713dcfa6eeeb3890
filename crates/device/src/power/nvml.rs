//! NVIDIA GPUs, by their management library NVML, which is loaded at the first use.

use std::sync::OnceLock;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::{Reading, Source};

pub(super) const KIND: &str = "nvml";
/// Prefix of the names of devices that have the same numbers in NVML.
const CUDA: &str = "cuda:";
const MILLI: f64 = 1e-3;

/// Returns the source for the GPU at PCI address `pci`. Without an address, it uses the GPU with
/// the number of the device. That number is wrong if `CUDA_VISIBLE_DEVICES` or `CUDA_DEVICE_ORDER`
/// is set, so the function then fails.
pub(super) fn source(device: &str, pci: Option<&str>) -> Result<(String, Box<dyn Source>), String> {
    let nvml = library()?;
    let gpu = match pci {
        Some(pci) => nvml.device_by_pci_bus_id(pci),
        None => nvml.device_by_index(index(device)?),
    };
    let gpu = gpu.map_err(|error| format!("NVML does not find it: {error}"))?;
    let name = gpu.name().unwrap_or_else(|_| "GPU".to_owned());
    // GPUs older than Volta report only power.
    let counts = gpu.total_energy_consumption().is_ok();
    Ok((name, Box::new(Gpu { gpu, counts })))
}

fn index(device: &str) -> Result<u32, String> {
    let renumbered = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"];
    if let Some(variable) = renumbered.iter().find(|variable| std::env::var_os(variable).is_some()) {
        return Err(format!("{variable} is set, so its number does not identify the GPU"));
    }
    let number = device.strip_prefix(CUDA).and_then(|number| number.parse().ok());
    number.ok_or_else(|| "it is not a CUDA device".to_owned())
}

fn library() -> Result<&'static Nvml, String> {
    static LIBRARY: OnceLock<Result<Nvml, String>> = OnceLock::new();
    let load = || {
        Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(_) => "NVML (libnvidia-ml.so.1) was not found".to_owned(),
            error => format!("NVML failed to start: {error}"),
        })
    };
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

struct Gpu {
    gpu: Device<'static>,
    /// Whether the GPU has an energy counter.
    counts: bool,
}

impl Source for Gpu {
    fn read(&self) -> Result<Reading, String> {
        let reading = if self.counts {
            let joules = self.gpu.total_energy_consumption().map(|millijoules| millijoules as f64 * MILLI);
            // A 64-bit counter of millijoules since the driver was loaded.
            joules.map(|joules| Reading::Energy { joules, wraps: None })
        } else {
            self.gpu.power_usage().map(|milliwatts| Reading::Watts(f64::from(milliwatts) * MILLI))
        };
        reading.map_err(|error| format!("NVML failed to read its power: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without NVML, the reason names NVML. With NVML, no device has this PCI address.
    #[test]
    fn reports_why_a_gpu_has_no_meter() {
        let Err(reason) = source("cuda:0", Some("ffff:ff:1f.7")) else { panic!("found a device at ffff:ff:1f.7") };
        assert!(reason.contains("NVML"), "{reason}");
    }
}
