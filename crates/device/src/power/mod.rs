//! How much energy a device takes, where the machine tells: never a guess.
//!
//! | source | file | measures | gives |
//! |---|---|---|---|
//! | RAPL, through powercap | `rapl.rs` | `cpu`: packages and their memory | energy counters |
//! | NVML | `nvml.rs` | `cuda:N`, and `opencl:N` on the same GPU | an energy counter, or power samples |
//! | hwmon | `hwmon.rs` | GPUs by PCI address (amdgpu, xe, i915); processors whose driver is not RAPL's | an energy counter, or power samples |
//!
//! A meter measures the whole device for as long as it is asked: what the device takes when idle and what other
//! programs do there is part of it. A device without a meter has a sentence in the meter's place.

mod hwmon;
mod nvml;
mod rapl;

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::{Found, cpu, cuda, opencl};

/// What measures a device, or why nothing does.
#[derive(Debug, Serialize)]
pub struct FoundMeter {
    /// The device: `cpu`, `cuda:0`, `opencl:1`.
    pub device: String,
    /// The meter's own name: `package-0`, `amdgpu`; empty where there is none.
    pub name: String,
    /// `rapl`, `nvml` or `hwmon`; `None` where nothing measures this device.
    pub kind: Option<&'static str>,
    /// The meter, or why the device's power is not measured.
    #[serde(skip_serializing_if = "Result::is_ok", serialize_with = "reason")]
    pub meter: Result<Meter, String>,
}

fn reason<S: serde::Serializer>(meter: &Result<Meter, String>, serializer: S) -> Result<S::Ok, S::Error> {
    meter.as_ref().map_or_else(|reason| reason.as_str(), |_| "").serialize(serializer)
}

impl FoundMeter {
    fn new(device: &str, name: String, kind: &'static str, source: Result<Box<dyn Source>, String>) -> Self {
        let meter = source.and_then(|source| Meter::start(source, Instant::now()));
        Self { device: device.to_owned(), name, kind: Some(kind), meter }
    }

    fn none(device: &str, reason: &str) -> Self {
        Self { device: device.to_owned(), name: String::new(), kind: None, meter: Err(reason.to_owned()) }
    }
}

/// What a source of figures says at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reading {
    /// A counter of energy, joules, that starts again from 0 at `wraps`.
    Energy { joules: f64, wraps: Option<f64> },
    /// Power at this moment.
    Watts(f64),
}

/// Where readings come from.
trait Source: Send {
    fn read(&self) -> Result<Reading, String>;
}

/// Adds up the energy that one source tells of.
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
    /// A meter whose source answers.
    fn start(source: Box<dyn Source>, now: Instant) -> Result<Self, String> {
        let last = source.read()?;
        Ok(Self { source, last, last_at: now, joules: 0.0 })
    }

    /// Joules since this meter was found. To be asked often enough: power is integrated between samples, and a
    /// counter may start again from 0 only once between two of them (RAPL's do in a minute at full load).
    ///
    /// # Errors
    /// The source does not answer any more: why, in one sentence. What was added up until then is lost.
    pub fn joules(&mut self) -> Result<f64, String> {
        self.joules_at(Instant::now())
    }

    fn joules_at(&mut self, now: Instant) -> Result<f64, String> {
        let reading = self.source.read()?;
        let elapsed_s = now.saturating_duration_since(self.last_at).as_secs_f64();
        self.joules += match (self.last, reading) {
            (Reading::Energy { joules: last, .. }, Reading::Energy { joules, .. }) if joules >= last => joules - last,
            (Reading::Energy { joules: last, .. }, Reading::Energy { joules, wraps: Some(wraps) }) => {
                joules + (wraps - last).max(0.0)
            }
            (Reading::Energy { .. }, Reading::Energy { .. }) => {
                return Err("its energy counter went backwards".to_owned());
            }
            (Reading::Watts(last), Reading::Watts(watts)) => (last + watts) / 2.0 * elapsed_s,
            _ => return Err("it changed what it measures".to_owned()),
        };
        (self.last, self.last_at) = (reading, now);
        Ok(self.joules)
    }
}

/// What measures these devices, by their names in configurations: at least one entry for each, in the same order, more
/// where several meters measure parts of one.
pub fn meters(devices: &[&str]) -> Vec<FoundMeter> {
    let others = if devices.iter().all(|device| *device == cpu::ID) { Vec::new() } else { others() };
    meters_in(Path::new("/sys"), devices, &others)
}

/// Every device that is not the CPU.
fn others() -> Vec<Found> {
    [opencl::probe(), cuda::probe()].into_iter().flat_map(|probe| probe.found).collect()
}

fn meters_in(sysfs: &Path, devices: &[&str], others: &[Found]) -> Vec<FoundMeter> {
    devices
        .iter()
        .flat_map(|device| {
            if *device == cpu::ID {
                return of_cpu(sysfs, device);
            }
            match others.iter().find(|found| found.capabilities.id == *device) {
                Some(found) if found.kind == "cpu" => {
                    let sentence = "it is the CPU's own cores: what they take counts as the CPU's";
                    vec![FoundMeter::none(device, sentence)]
                }
                found => vec![of_gpu(sysfs, device, found.and_then(|found| found.pci.as_deref()))],
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
        let sentence = "this machine shows no energy counter of its processors (neither powercap nor hwmon)";
        return vec![FoundMeter::none(device, sentence)];
    }
    rapl
}

fn of_gpu(sysfs: &Path, device: &str, pci: Option<&str>) -> FoundMeter {
    let hwmon = pci.and_then(|pci| hwmon::of_pci(sysfs, device, pci));
    if let Some(found) = hwmon.filter(|found| found.meter.is_ok()) {
        return found;
    }
    match (nvml::source(device, pci), pci) {
        (Ok((name, source)), _) => FoundMeter::new(device, name, nvml::KIND, Ok(source)),
        (Err(reason), None) => {
            let sentence =
                format!("its driver does not tell where it is plugged in, so that hwmon cannot be asked; {reason}");
            FoundMeter::none(device, &sentence)
        }
        (Err(reason), Some(_)) => FoundMeter::none(device, &format!("hwmon shows nothing of it; {reason}")),
    }
}

/// A number in a file of sysfs.
fn number(path: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!("{} may not be read by this user", path.display()),
        _ => format!("{} cannot be read: {error}", path.display()),
    })?;
    text.trim().parse().map_err(|_| format!("{} holds no number", path.display()))
}

/// A line of text in a file of sysfs; empty where there is none.
fn text(path: &Path) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// What a folder of sysfs holds, in the order of its names; nothing where it is not there.
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
    use crate::{Capabilities, Svm};

    /// Writes files of a made-up sysfs.
    pub(super) fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, content) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }

    fn found(id: &str, kind: &'static str, pci: Option<&str>) -> Found {
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

    struct Steps(Mutex<Vec<Result<Reading, String>>>);

    impl Source for Steps {
        fn read(&self) -> Result<Reading, String> {
            self.0.lock().unwrap().remove(0)
        }
    }

    fn after(steps: Vec<Result<Reading, String>>, every: Duration) -> Vec<Result<f64, String>> {
        let now = Instant::now();
        let count = steps.len() as u32;
        let mut meter = Meter::start(Box::new(Steps(Mutex::new(steps))), now).unwrap();
        (1..count).map(|step| meter.joules_at(now + every * step)).collect()
    }

    #[test]
    fn counters_that_wrap_go_on_adding_up() {
        let at = |joules| Ok(Reading::Energy { joules, wraps: Some(100.0) });
        let told = after(vec![at(10.0), at(15.0), at(98.0), at(3.0)], Duration::from_secs(1));
        assert_eq!(told, [Ok(5.0), Ok(88.0), Ok(93.0)]);
    }

    #[test]
    fn a_counter_that_goes_backwards_without_a_reason_is_not_believed() {
        let at = |joules| Ok(Reading::Energy { joules, wraps: None });
        assert!(after(vec![at(10.0), at(9.0)], Duration::from_secs(1))[0].is_err());
    }

    #[test]
    fn power_is_integrated_between_samples() {
        let told =
            after([10.0, 30.0, 30.0].map(|watts| Ok(Reading::Watts(watts))).to_vec(), Duration::from_millis(500));
        assert_eq!(told, [Ok(10.0), Ok(25.0)]);
    }

    #[test]
    fn a_source_that_falls_silent_is_an_error() {
        let told = after(vec![Ok(Reading::Watts(1.0)), Err("gone".to_owned())], Duration::from_secs(1));
        assert_eq!(told, [Err("gone".to_owned())]);
    }

    #[test]
    fn rapl_comes_before_hwmon_and_hwmon_stands_in_for_it() {
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
    fn every_device_has_an_entry_with_a_reason_where_nothing_measures_it() {
        let root = tempfile::tempdir().unwrap();
        let others = [found("opencl:0", "cpu", None), found("opencl:1", "gpu", None)];
        let told = meters_in(root.path(), &["cpu", "opencl:0", "opencl:1"], &others);
        assert_eq!(told.iter().map(|found| found.device.as_str()).collect::<Vec<_>>(), ["cpu", "opencl:0", "opencl:1"]);
        let reasons: Vec<_> = told.into_iter().map(|found| found.meter.unwrap_err()).collect();
        assert!(reasons[0].contains("no energy counter"), "{reasons:?}");
        assert!(reasons[1].contains("CPU's own cores"), "{reasons:?}");
        assert!(reasons[2].contains("plugged in"), "{reasons:?}");
    }

    /// Whatever this machine has: figures that grow, or a reason.
    #[test]
    fn this_machine_measures_or_says_why_not() {
        let others = others();
        let ids: Vec<&str> = others.iter().map(|found| found.capabilities.id.as_str()).chain([cpu::ID]).collect();
        for found in meters(&ids) {
            match found.meter {
                Ok(mut meter) => {
                    let first = meter.joules().unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(meter.joules().unwrap() >= first && first >= 0.0);
                    assert!(found.kind.is_some() && !found.name.is_empty());
                }
                Err(reason) => assert!(reason.len() > 10, "{reason}"),
            }
        }
    }

    /// One counter read by a meter while it moves, as the engine's control thread does.
    #[test]
    fn a_meter_moves_to_another_thread() {
        struct Counter(Arc<AtomicU64>);
        impl Source for Counter {
            fn read(&self) -> Result<Reading, String> {
                Ok(Reading::Energy { joules: self.0.load(Ordering::Relaxed) as f64, wraps: None })
            }
        }
        let counter = Arc::new(AtomicU64::new(7));
        let mut meter = Meter::start(Box::new(Counter(Arc::clone(&counter))), Instant::now()).unwrap();
        counter.store(10, Ordering::Relaxed);
        assert_eq!(std::thread::spawn(move || meter.joules()).join().unwrap(), Ok(3.0));
    }
}
