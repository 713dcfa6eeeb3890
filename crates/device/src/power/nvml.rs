//! Measures NVIDIA GPUs through NVML, NVIDIA's management library. The library is loaded at the
//! first use.

use std::sync::OnceLock;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::{Reading, Source};
use crate::error::Unavailable;

pub(super) const KIND: &str = "nvml";
const MILLI: f64 = 1e-3;

/// Returns the energy sensor of the GPU with the PCI address `pci`. Without an address, `number` is
/// the NVML number of the GPU. CUDA and NVML number the GPUs differently if `CUDA_VISIBLE_DEVICES`
/// or `CUDA_DEVICE_ORDER` is set. In this case, the function fails without an address.
pub(super) fn source(number: Option<usize>, pci: Option<&str>) -> Result<(String, Box<dyn Source>), Unavailable> {
    let nvml = library()?;
    let gpu = match pci {
        Some(pci) => nvml.device_by_pci_bus_id(pci),
        None => nvml.device_by_index(index(number)?),
    };
    let gpu = gpu.map_err(|error| Unavailable::Failed(format!("NVML does not find it: {error}")))?;
    let name = gpu.name().unwrap_or_else(|_| "GPU".to_owned());
    // GPUs older than Volta report only power.
    let counts = gpu.total_energy_consumption().is_ok();
    Ok((name, Box::new(Gpu { gpu, counts })))
}

fn index(number: Option<usize>) -> Result<u32, Unavailable> {
    let renumbered = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"];
    if let Some(variable) = renumbered.iter().find(|variable| std::env::var_os(variable).is_some()) {
        let reason = format!("{variable} is set, so its number does not identify the GPU");
        return Err(Unavailable::Setup(reason));
    }
    let number = number.and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| Unavailable::Unsupported("NVML does not know it".to_owned()))
}

fn library() -> Result<&'static Nvml, Unavailable> {
    static LIBRARY: OnceLock<Result<Nvml, Unavailable>> = OnceLock::new();
    let load = || {
        Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(_) => Unavailable::Setup("NVML (libnvidia-ml.so.1) was not found".to_owned()),
            error => Unavailable::Failed(format!("NVML failed to start: {error}")),
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
    fn read(&self) -> Result<Reading, Unavailable> {
        let reading = if self.counts {
            let joules = self.gpu.total_energy_consumption().map(|millijoules| millijoules as f64 * MILLI);
            // The 64-bit counter of millijoules since the driver was loaded never wraps.
            joules.map(|joules| Reading::Energy { joules, wraps: None })
        } else {
            self.gpu.power_usage().map(|milliwatts| Reading::Watts(f64::from(milliwatts) * MILLI))
        };
        reading.map_err(|error| Unavailable::Failed(format!("NVML failed to read its power: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_why_a_gpu_has_no_meter() {
        let Err(reason) = source(Some(0), Some("ffff:ff:1f.7")) else { panic!("found a device at ffff:ff:1f.7") };
        assert!(reason.to_string().contains("NVML"), "{reason}");
    }
}
