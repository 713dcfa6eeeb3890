//! Reads the energy sensors of GPUs and some processors through the hwmon interface of Linux:
//!
//! ```text
//! /sys/class/hwmon/hwmon4/name             amdgpu
//!                         device           -> ../../../0000:03:00.0    the measured device
//!                         energy1_input    counter in microjoules      xe, i915, amd_energy
//!                         power1_average   microwatts                  amdgpu
//!                         power1_input     microwatts                  newer amdgpu, fam15h_power
//! ```

use std::path::{Path, PathBuf};

use super::{FoundMeter, Reading, Source, entries, number, text};
use crate::error::Unavailable;

const KIND: &str = "hwmon";
const MICRO: f64 = 1e-6;
/// Names of drivers that measure processors. `amd_energy` measures each core and each processor
/// socket, and `fam15h_power` measures each processor package.
const ENERGY_OF_SOCKETS: &str = "amd_energy";
const POWER_OF_PACKAGES: &str = "fam15h_power";

/// Finds the energy sensors of processors.
pub(super) fn of_cpu(sysfs: &Path, device: &str) -> Vec<FoundMeter> {
    let mut found = Vec::new();
    for folder in entries(&sysfs.join("class/hwmon")) {
        let driver = text(&folder.join("name"));
        match driver.as_str() {
            ENERGY_OF_SOCKETS => {
                // The counters of the processor sockets already include the energy of the cores.
                let sockets = entries(&folder).into_iter().filter_map(|path| {
                    let label = text(&path);
                    let prefix = path.file_name()?.to_str()?.strip_suffix("_label")?.to_owned();
                    label.starts_with("Esocket").then(|| (label, folder.join(format!("{prefix}_input"))))
                });
                found.extend(sockets.map(|(label, file)| meter(device, label, Sensor::Energy(file))));
            }
            POWER_OF_PACKAGES => found.extend(sensor(&folder).map(|sensor| meter(device, driver, sensor))),
            _ => {}
        }
    }
    found
}

/// Finds the sensor of the device at PCI address `pci`.
pub(super) fn of_pci(sysfs: &Path, device: &str, pci: &str) -> Option<FoundMeter> {
    let is_at_address = |folder: &PathBuf| {
        let device = std::fs::canonicalize(folder.join("device")).ok();
        device.and_then(|device| Some(device.file_name()?.to_str()?.eq_ignore_ascii_case(pci))).unwrap_or(false)
    };
    let folders = entries(&sysfs.join("class/hwmon")).into_iter().filter(is_at_address);
    let mut sensors = folders.filter_map(|folder| Some((text(&folder.join("name")), sensor(&folder)?)));
    sensors.next().map(|(driver, sensor)| meter(device, driver, sensor))
}

fn meter(device: &str, name: String, sensor: Sensor) -> FoundMeter {
    FoundMeter::new(device, name, KIND, Box::new(sensor))
}

/// Returns the best sensor in an hwmon folder. An energy counter is better than a power sensor.
fn sensor(folder: &Path) -> Option<Sensor> {
    let file = |name: &str| Some(folder.join(name)).filter(|file| file.exists());
    let power = || file("power1_average").or_else(|| file("power1_input")).map(Sensor::Power);
    file("energy1_input").map(Sensor::Energy).or_else(power)
}

enum Sensor {
    Energy(PathBuf),
    Power(PathBuf),
}

impl Source for Sensor {
    fn read(&self) -> Result<Reading, Unavailable> {
        Ok(match self {
            // The file contains a 64-bit counter of microjoules, which does not wrap in the
            // lifetime of a machine.
            Self::Energy(file) => Reading::Energy { joules: number(file)? as f64 * MICRO, wraps: None },
            Self::Power(file) => Reading::Watts(number(file)? as f64 * MICRO),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::write;
    use super::*;

    /// Creates a folder `hwmonN` whose `device` is at `pci`.
    fn plug(root: &Path, number: u32, pci: &str, files: &[(&str, &str)]) {
        let device = root.join("devices").join(pci);
        std::fs::create_dir_all(&device).unwrap();
        let folder = format!("class/hwmon/hwmon{number}");
        for (name, content) in files {
            write(root, &[(&format!("{folder}/{name}"), content)]);
        }
        std::os::unix::fs::symlink(device, root.join(folder).join("device")).unwrap();
    }

    #[test]
    fn finds_a_gpu_by_its_pci_address() {
        let root = tempfile::tempdir().unwrap();
        plug(root.path(), 0, "0000:01:00.0", &[("name", "nvme\n"), ("temp1_input", "30000\n")]);
        plug(root.path(), 1, "0000:03:00.0", &[("name", "amdgpu\n"), ("power1_average", "31000000\n")]);
        plug(
            root.path(),
            2,
            "0000:00:02.0",
            &[("name", "xe\n"), ("energy1_input", "4000000\n"), ("power1_input", "1\n")],
        );
        let amd = of_pci(root.path(), "opencl:0", "0000:03:00.0").unwrap();
        assert_eq!((amd.name.as_str(), amd.kind), ("amdgpu", Some("hwmon")));
        assert!(matches!(amd.meter.unwrap().last, Reading::Watts(31.0)));
        let mut intel = of_pci(root.path(), "opencl:1", "0000:00:02.0").unwrap().meter.unwrap();
        write(root.path(), &[("class/hwmon/hwmon2/energy1_input", "4500000\n")]);
        assert_eq!(intel.joules(), Ok(0.5));
        // The device at 0000:01:00.0 has no energy sensor. No device exists at 0000:09:00.0.
        assert!(of_pci(root.path(), "opencl:2", "0000:01:00.0").is_none());
        assert!(of_pci(root.path(), "opencl:2", "0000:09:00.0").is_none());
        assert!(of_cpu(root.path(), "cpu").is_empty());
    }

    #[test]
    fn measures_sockets_but_not_their_cores() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("class/hwmon/hwmon0/name", "amd_energy\n"),
                ("class/hwmon/hwmon0/energy1_label", "Ecore000\n"),
                ("class/hwmon/hwmon0/energy1_input", "1000000\n"),
                ("class/hwmon/hwmon0/energy9_label", "Esocket0\n"),
                ("class/hwmon/hwmon0/energy9_input", "9000000\n"),
            ],
        );
        let found = of_cpu(root.path(), "cpu");
        assert_eq!(found.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(), ["Esocket0"]);
        assert!(matches!(found[0].meter.as_ref().unwrap().last, Reading::Energy { joules: 9.0, wraps: None }));
    }

    #[test]
    fn reports_a_sensor_that_cannot_be_read() {
        let root = tempfile::tempdir().unwrap();
        plug(root.path(), 0, "0000:03:00.0", &[("name", "amdgpu\n"), ("power1_input", "much\n")]);
        let found = of_pci(root.path(), "opencl:0", "0000:03:00.0").unwrap();
        assert!(found.meter.unwrap_err().to_string().contains("power1_input contains no number"));
    }
}
