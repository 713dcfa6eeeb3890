//! Measures processors and their memory through RAPL, the energy counters of Intel and AMD. Linux
//! provides them in powercap:
//!
//! ```text
//! /sys/class/powercap/intel-rapl:0     name = package-0    energy_uj, max_energy_range_uj
//!                     intel-rapl:0:0   name = core         part of the package: ignored
//!                     intel-rapl:0:1   name = dram         not part of the package: measured
//!                     intel-rapl:1     name = psys         whole machine: ignored
//! ```
//!
//! Since CVE-2020-8694, only root may read `energy_uj`.

use std::path::{Path, PathBuf};

use super::{FoundMeter, Reading, Source, entries, number, text};
use crate::error::Unavailable;

const KIND: &str = "rapl";
const MICRO: f64 = 1e-6;

/// Finds the energy meters of all processor packages and their memory. Ignores the folders
/// `intel-rapl-mmio:N`, because they measure the same packages again.
pub(super) fn meters(sysfs: &Path, device: &str) -> Vec<FoundMeter> {
    let domains = entries(&sysfs.join("class/powercap"));
    let domains = domains.into_iter().filter(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("intel-rapl:"))
    });
    domains
        .filter_map(|folder| {
            let name = text(&folder.join("name"));
            let counts = name.starts_with("package") || name == "dram";
            counts.then(|| FoundMeter::new(device, name, KIND, Box::new(Domain { folder })))
        })
        .collect()
}

struct Domain {
    folder: PathBuf,
}

impl Source for Domain {
    fn read(&self) -> Result<Reading, Unavailable> {
        let joules = number(&self.folder.join("energy_uj"))? as f64 * MICRO;
        let wraps = number(&self.folder.join("max_energy_range_uj")).ok().map(|range| range as f64 * MICRO);
        Ok(Reading::Energy { joules, wraps })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::write;
    use super::*;

    #[test]
    fn measures_packages_and_memory_but_not_their_parts() {
        let root = tempfile::tempdir().unwrap();
        let domain = |folder: &str, name: &str| {
            let file = |file: &str| format!("class/powercap/{folder}/{file}");
            write(
                root.path(),
                &[
                    (&file("name"), &format!("{name}\n")),
                    (&file("energy_uj"), "1000000\n"),
                    (&file("max_energy_range_uj"), "10000000\n"),
                ],
            );
        };
        domain("intel-rapl:0", "package-0");
        domain("intel-rapl:0:0", "core");
        domain("intel-rapl:0:1", "dram");
        domain("intel-rapl:1", "psys");
        domain("intel-rapl-mmio:0", "package-0");
        domain("dtpm", "package-0");
        let mut found = meters(root.path(), "cpu");
        assert_eq!(found.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(), ["package-0", "dram"]);
        let meter = found[0].meter.as_mut().unwrap();
        assert_eq!(meter.joules(), Ok(0.0));
        // The counter grows from 1 J to 9.5 J. It then wraps to 0 at 10 J, and grows to 0.25 J.
        write(root.path(), &[("class/powercap/intel-rapl:0/energy_uj", "9500000\n")]);
        assert_eq!(meter.joules(), Ok(8.5));
        write(root.path(), &[("class/powercap/intel-rapl:0/energy_uj", "250000\n")]);
        assert_eq!(meter.joules(), Ok(9.25));
    }

    #[test]
    fn reports_files_that_cannot_be_read() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("class/powercap/intel-rapl:0/name", "package-0\n")]);
        let found = meters(root.path(), "cpu").remove(0);
        assert!(found.meter.unwrap_err().to_string().contains("energy_uj"));
        write(root.path(), &[("class/powercap/intel-rapl:0/energy_uj", "many\n")]);
        let found = meters(root.path(), "cpu").remove(0);
        assert!(found.meter.unwrap_err().to_string().contains("energy_uj contains no number"));
    }

    #[test]
    fn finds_no_meter_without_powercap() {
        assert!(meters(tempfile::tempdir().unwrap().path(), "cpu").is_empty());
    }
}
