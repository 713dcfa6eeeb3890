//! Measures the energy consumption of devices. The energy of a device without a counter or sensor
//! is not estimated.
//!
//! | source | file | measures |
//! |---|---|---|
//! | RAPL, by powercap | `rapl.rs` | `cpu`: packages and their memory |
//! | NVML | `nvml.rs` | `cuda:N`, and `opencl:N` on the same GPU |
//! | hwmon | `hwmon.rs` | GPUs by PCI address (amdgpu, xe, i915), and processors without RAPL |
//!
//! RAPL provides energy counters. NVML and hwmon provide energy counters or power samples.
//!
//! A meter measures the whole device, including the idle consumption and the work of other
//! programs. For a device without a meter, a sentence gives the reason.

mod hwmon;
mod nvml;
mod rapl;

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::error::Unavailable;
use crate::found::Found;
use crate::kind::{Kind, PowerMeter, found, kind_of};

/// The meter of a device, or the reason why there is none.
#[derive(Debug, Serialize)]
pub struct FoundMeter {
    /// Name of the device, such as `cpu`, `cuda:0` or `opencl:1`.
    pub device: String,
    /// Name of the energy meter, such as `package-0` or `amdgpu`. The name is empty if the device
    /// has no meter.
    pub name: String,
    /// Kind of the energy meter: `rapl`, `nvml` or `hwmon`. The value is `None` if the device has
    /// no meter.
    pub kind: Option<&'static str>,
    /// The meter, or the reason why there is none.
    #[serde(skip_serializing_if = "Result::is_ok", serialize_with = "reason")]
    pub meter: Result<Meter, Unavailable>,
}

fn reason<S: serde::Serializer>(meter: &Result<Meter, Unavailable>, serializer: S) -> Result<S::Ok, S::Error> {
    meter.as_ref().err().map(Unavailable::to_string).unwrap_or_default().serialize(serializer)
}

impl FoundMeter {
    fn new(device: &str, name: String, kind: &'static str, source: Box<dyn Source>) -> Self {
        let meter = Meter::start(source, Instant::now());
        Self { device: device.to_owned(), name, kind: Some(kind), meter }
    }

    fn none(device: &str, reason: &str) -> Self {
        let meter = Err(Unavailable::Unsupported(reason.to_owned()));
        Self { device: device.to_owned(), name: String::new(), kind: None, meter }
    }
}

/// One reading of an energy source.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reading {
    /// Value of an energy counter in joules. When the counter reaches `wraps`, it restarts from 0.
    Energy { joules: f64, wraps: Option<f64> },
    /// Current power, in watts.
    Watts(f64),
}

/// A source of energy readings, such as a sysfs file.
trait Source: Send {
    fn read(&self) -> Result<Reading, Unavailable>;
}

/// Sums up the energy readings of one source.
pub struct Meter {
    source: Box<dyn Source>,
    last: Reading,
    last_at: Instant,
    joules: f64,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("last", &self.last).field("joules", &self.joules).finish_non_exhaustive()
    }
}

impl Meter {
    /// Starts a meter. Fails if the source cannot be read.
    fn start(source: Box<dyn Source>, now: Instant) -> Result<Self, Unavailable> {
        let last = source.read()?;
        Ok(Self { source, last, last_at: now, joules: 0.0 })
    }

    /// Returns the energy in joules since the meter started. Calls must be frequent, because each
    /// call adds one power sample. An energy counter must not wrap twice between two calls. At full
    /// load, RAPL counters wrap within a minute.
    ///
    /// # Errors
    /// Returns the reason if the sensor cannot be read. The energy that was measured so far is then
    /// lost.
    pub fn joules(&mut self) -> Result<f64, Unavailable> {
        self.joules_at(Instant::now())
    }

    fn joules_at(&mut self, now: Instant) -> Result<f64, Unavailable> {
        let reading = self.source.read()?;
        let elapsed_s = now.saturating_duration_since(self.last_at).as_secs_f64();
        self.joules += match (self.last, reading) {
            (Reading::Energy { joules: last, .. }, Reading::Energy { joules, .. }) if joules >= last => joules - last,
            (Reading::Energy { joules: last, .. }, Reading::Energy { joules, wraps: Some(wraps) }) => {
                joules + (wraps - last).max(0.0)
            }
            (Reading::Energy { .. }, Reading::Energy { .. }) => {
                return Err(Unavailable::Failed("its energy counter went backwards".to_owned()));
            }
            (Reading::Watts(last), Reading::Watts(watts)) => (last + watts) / 2.0 * elapsed_s,
            _ => return Err(Unavailable::Failed("it changed between energy and power readings".to_owned())),
        };
        (self.last, self.last_at) = (reading, now);
        Ok(self.joules)
    }
}

/// Finds the energy meters of devices. The result has at least one entry per device, in the order
/// of `devices`. A device has several entries if several meters measure parts of it.
pub fn meters(devices: &[&str]) -> Vec<FoundMeter> {
    let by_processors = |device: &&str| kind_of(device).is_some_and(|kind| kind.power() == PowerMeter::Processors);
    let others = if devices.iter().all(by_processors) { Vec::new() } else { found() };
    meters_in(Path::new("/sys"), devices, &others)
}

fn meters_in(sysfs: &Path, devices: &[&str], others: &[Found]) -> Vec<FoundMeter> {
    devices
        .iter()
        .flat_map(|device| {
            let kind = kind_of(device);
            let found = others.iter().find(|found| found.capabilities.id == *device);
            let is_part_of_cpu = found.is_some_and(|found| found.kind == "cpu");
            match kind.map(Kind::power) {
                Some(PowerMeter::Processors) => of_cpu(sysfs, device),
                power if is_part_of_cpu || power == Some(PowerMeter::PartOfCpu) => {
                    let sentence = "it runs on the CPU's own cores, so its energy counts as the CPU's";
                    vec![FoundMeter::none(device, sentence)]
                }
                _ => vec![of_gpu(sysfs, device, kind, found.and_then(|found| found.pci.as_deref()))],
            }
        })
        .collect()
}

fn of_cpu(sysfs: &Path, device: &str) -> Vec<FoundMeter> {
    let rapl = rapl::meters(sysfs, device);
    if rapl.iter().any(|found| found.meter.is_ok()) {
        return rapl;
    }
    let hwmon = hwmon::of_cpu(sysfs, device);
    if !hwmon.is_empty() {
        return hwmon;
    }
    if rapl.is_empty() {
        let sentence = "this machine has no energy counter for its processors (neither powercap nor hwmon)";
        return vec![FoundMeter::none(device, sentence)];
    }
    rapl
}

fn of_gpu(sysfs: &Path, device: &str, kind: Option<&Kind>, pci: Option<&str>) -> FoundMeter {
    let hwmon = pci.and_then(|pci| hwmon::of_pci(sysfs, device, pci));
    if let Some(found) = hwmon.filter(|found| found.meter.is_ok()) {
        return found;
    }
    let number = kind.filter(|kind| kind.power() == PowerMeter::NvmlNumber).and_then(|kind| kind.number(device));
    match (nvml::source(number, pci), pci) {
        (Ok((name, source)), _) => FoundMeter::new(device, name, nvml::KIND, source),
        (Err(reason), None) => {
            let sentence = format!("hwmon cannot be used because its driver reports no PCI address; {reason}");
            FoundMeter::none(device, &sentence)
        }
        (Err(reason), Some(_)) => FoundMeter::none(device, &format!("hwmon has no sensor for it; {reason}")),
    }
}

/// Reads a number from a sysfs file.
fn number(path: &Path) -> Result<u64, Unavailable> {
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Unavailable::Setup(format!("no permission to read {}", path.display())),
        _ => Unavailable::Failed(format!("{} cannot be read: {error}", path.display())),
    })?;
    text.trim().parse().map_err(|_| Unavailable::Failed(format!("{} contains no number", path.display())))
}

/// Reads a line of text from a sysfs file. Returns an empty string if the file cannot be read.
fn text(path: &Path) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Returns the paths of all entries in a sysfs folder, sorted by name. The result is empty if the
/// folder does not exist.
fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::cpu;
    use crate::found::{Capabilities, Svm};

    /// Writes files of a simulated sysfs.
    pub(super) fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, content) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }

    fn device(id: &str, kind: &'static str, pci: Option<&str>) -> Found {
        Found {
            capabilities: Capabilities {
                id: id.to_owned(),
                name: String::new(),
                compute_units: 1,
                warp_packets: 1,
                memory_bytes: 0,
                features: Vec::new(),
            },
            platform: String::new(),
            driver: String::new(),
            kind,
            host_memory: true,
            local_memory_bytes: 0,
            buffer_bytes_max: 0,
            svm: Svm::default(),
            modes: Vec::new(),
            chain_lacks: None,
            pci: pci.map(str::to_owned),
            usable: Ok(()),
        }
    }

    struct Steps(Mutex<Vec<Result<Reading, Unavailable>>>);

    impl Source for Steps {
        fn read(&self) -> Result<Reading, Unavailable> {
            self.0.lock().unwrap().remove(0)
        }
    }

    fn after(steps: Vec<Result<Reading, Unavailable>>, every: Duration) -> Vec<Result<f64, Unavailable>> {
        let now = Instant::now();
        let count = steps.len() as u32;
        let mut meter = Meter::start(Box::new(Steps(Mutex::new(steps))), now).unwrap();
        (1..count).map(|step| meter.joules_at(now + every * step)).collect()
    }

    #[test]
    fn adds_up_counters_that_wrap() {
        let at = |joules| Ok(Reading::Energy { joules, wraps: Some(100.0) });
        let joules = after(vec![at(10.0), at(15.0), at(98.0), at(3.0)], Duration::from_secs(1));
        assert_eq!(joules, [Ok(5.0), Ok(88.0), Ok(93.0)]);
    }

    #[test]
    fn rejects_a_counter_that_goes_backwards_without_wrapping() {
        let at = |joules| Ok(Reading::Energy { joules, wraps: None });
        assert!(after(vec![at(10.0), at(9.0)], Duration::from_secs(1))[0].is_err());
    }

    #[test]
    fn integrates_power_between_samples() {
        let joules =
            after([10.0, 30.0, 30.0].map(|watts| Ok(Reading::Watts(watts))).to_vec(), Duration::from_millis(500));
        assert_eq!(joules, [Ok(10.0), Ok(25.0)]);
    }

    #[test]
    fn reports_a_source_that_cannot_be_read() {
        let gone = || Unavailable::Failed("gone".to_owned());
        let joules = after(vec![Ok(Reading::Watts(1.0)), Err(gone())], Duration::from_secs(1));
        assert_eq!(joules, [Err(gone())]);
    }

    #[test]
    fn prefers_rapl_to_hwmon() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[("class/hwmon/hwmon3/name", "fam15h_power\n"), ("class/hwmon/hwmon3/power1_input", "45000000\n")],
        );
        let kinds = || meters_in(root.path(), &["cpu"], &[]).iter().map(|found| found.kind).collect::<Vec<_>>();
        assert_eq!(kinds(), [Some("hwmon")]);
        write(
            root.path(),
            &[
                ("class/powercap/intel-rapl:0/name", "package-0\n"),
                ("class/powercap/intel-rapl:0/energy_uj", "5\n"),
                ("class/powercap/intel-rapl:0/max_energy_range_uj", "100\n"),
            ],
        );
        assert_eq!(kinds(), [Some("rapl")]);
    }

    #[test]
    fn every_device_has_a_meter_or_a_reason() {
        let root = tempfile::tempdir().unwrap();
        let others = [device("opencl:0", "cpu", None), device("opencl:1", "gpu", None)];
        let meters = meters_in(root.path(), &["cpu", "opencl:0", "opencl:1", "model:0"], &others);
        assert_eq!(
            meters.iter().map(|found| found.device.as_str()).collect::<Vec<_>>(),
            ["cpu", "opencl:0", "opencl:1", "model:0"]
        );
        let reasons: Vec<_> = meters.into_iter().map(|found| found.meter.unwrap_err().to_string()).collect();
        assert!(reasons[0].contains("no energy counter"), "{reasons:?}");
        assert!(reasons[1].contains("CPU's own cores"), "{reasons:?}");
        assert!(reasons[2].contains("PCI address"), "{reasons:?}");
        assert!(reasons[3].contains("CPU's own cores"), "{reasons:?}");
    }

    /// Each device of this machine either has a meter whose energy does not decrease, or a reason
    /// why no meter exists.
    #[test]
    fn devices_of_this_machine_have_a_meter_or_a_reason() {
        let others = found();
        let ids: Vec<&str> = others.iter().map(|found| found.capabilities.id.as_str()).chain([cpu::ID]).collect();
        for found in meters(&ids) {
            match found.meter {
                Ok(mut meter) => {
                    let first = meter.joules().unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(meter.joules().unwrap() >= first && first >= 0.0);
                    assert!(found.kind.is_some() && !found.name.is_empty());
                }
                Err(reason) => assert!(reason.to_string().len() > 10, "{reason}"),
            }
        }
    }

    /// The control thread of the engine must be able to read meters that another thread has opened.
    #[test]
    fn meters_can_move_to_another_thread() {
        struct Counter(Arc<AtomicU64>);
        impl Source for Counter {
            fn read(&self) -> Result<Reading, Unavailable> {
                Ok(Reading::Energy { joules: self.0.load(Ordering::Relaxed) as f64, wraps: None })
            }
        }
        let counter = Arc::new(AtomicU64::new(7));
        let mut meter = Meter::start(Box::new(Counter(Arc::clone(&counter))), Instant::now()).unwrap();
        counter.store(10, Ordering::Relaxed);
        assert_eq!(std::thread::spawn(move || meter.joules()).join().unwrap(), Ok(3.0));
    }
}
