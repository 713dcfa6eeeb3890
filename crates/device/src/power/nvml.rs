//! NVIDIA GPUs through their management library, loaded when it is first asked for.

use std::sync::OnceLock;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::{Reading, Source};

pub(super) const KIND: &str = "nvml";
/// How the devices' names that are numbered as NVML does start.
const CUDA: &str = "cuda:";
const MILLI: f64 = 1e-3;

/// The GPU that is plugged in at `pci`; where that is not known, the one of the same number, which is right unless
/// `CUDA_VISIBLE_DEVICES` or `CUDA_DEVICE_ORDER` says otherwise: then nothing is measured.
pub(super) fn source(device: &str, pci: Option<&str>) -> Result<(String, Box<dyn Source>), String> {
    let nvml = library()?;
    let gpu = match pci {
        Some(pci) => nvml.device_by_pci_bus_id(pci),
        None => nvml.device_by_index(index(device)?),
    };
    let gpu = gpu.map_err(|error| format!("NVML does not know it: {error}"))?;
    let name = gpu.name().unwrap_or_else(|_| "GPU".to_owned());
    // Older than Volta: power only.
    let counts = gpu.total_energy_consumption().is_ok();
    Ok((name, Box::new(Gpu { gpu, counts })))
}

fn index(device: &str) -> Result<u32, String> {
    let renumbered = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"];
    if let Some(variable) = renumbered.iter().find(|variable| std::env::var_os(variable).is_some()) {
        return Err(format!("{variable} is set, so that its number does not tell which GPU it is"));
    }
    let number = device.strip_prefix(CUDA).and_then(|number| number.parse().ok());
    number.ok_or_else(|| "it is no CUDA device".to_owned())
}

fn library() -> Result<&'static Nvml, String> {
    static LIBRARY: OnceLock<Result<Nvml, String>> = OnceLock::new();
    let load = || {
        Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(_) => "NVML (libnvidia-ml.so.1) is not here".to_owned(),
            error => format!("NVML does not start: {error}"),
        })
    };
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

struct Gpu {
    gpu: Device<'static>,
    /// Whether it counts energy.
    counts: bool,
}

impl Source for Gpu {
    fn read(&self) -> Result<Reading, String> {
        let reading = if self.counts {
            let joules = self.gpu.total_energy_consumption().map(|millijoules| millijoules as f64 * MILLI);
            // 64 bits of millijoules since the driver was loaded.
            joules.map(|joules| Reading::Energy { joules, wraps: None })
        } else {
            self.gpu.power_usage().map(|milliwatts| Reading::Watts(f64::from(milliwatts) * MILLI))
        };
        reading.map_err(|error| format!("NVML does not tell its power: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without NVML the reason is what counts; with it, a device that cannot be there.
    #[test]
    fn a_gpu_that_is_not_there_has_a_reason() {
        let Err(reason) = source("cuda:0", Some("ffff:ff:1f.7")) else { panic!("there is such a device") };
        assert!(reason.contains("NVML"), "{reason}");
    }
}
