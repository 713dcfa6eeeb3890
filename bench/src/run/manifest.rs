//! The machine and the build that produced results.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::run::{cores, devices};

/// Debian packages of the libraries that Godwit or its peers use, by library name.
const PACKAGES: [(&str, &[&str]); 6] = [
    ("ipsec-mb", &["libipsec-mb2", "libipsec-mb1"]),
    ("dpdk", &["libdpdk-dev", "dpdk"]),
    ("vectorscan", &["libvectorscan5", "libvectorscan-dev", "libhyperscan5"]),
    ("openssl", &["libssl3t64", "libssl3"]),
    ("pocl", &["libpocl2t64", "libpocl2"]),
    ("libxdp", &["libxdp1"]),
];

/// The machine and the build that produced results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Short name of the machine, such as `2-cores-amd-epyc-9b45`.
    pub machine: String,
    /// Model of the CPU.
    pub cpu: String,
    /// Number of cores that the process may use.
    pub cores: usize,
    /// Highest x86-64 level that the CPU supports.
    pub level: String,
    /// GPUs and other devices.
    pub gpus: Vec<Gpu>,
    /// Name of the distribution.
    pub os: String,
    /// Version of the kernel.
    pub kernel: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Short hash of the commit, or `unknown`.
    pub commit: String,
    /// Whether the source tree had changes.
    pub dirty: bool,
    /// Date of the run, UTC, as `YYYY-MM-DD`.
    pub date: String,
    /// Time of the run, UTC, as `HH:MM:SS`.
    pub time: String,
    /// Versions of libraries, by name.
    pub libraries: BTreeMap<String, String>,
    /// Frequency governor of the first core, if known.
    pub governor: Option<String>,
    /// Clock of the first core in MHz, if the machine reports it.
    pub clock_mhz: Option<f64>,
    /// Seconds of each bench, by name and device.
    pub seconds: BTreeMap<String, f64>,
}

/// A device other than the CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gpu {
    /// Name in Godwit, such as `cuda:0`.
    pub id: String,
    /// Name of the product.
    pub name: String,
    /// Version of the driver.
    pub driver: String,
}

impl Manifest {
    /// Describes this machine and this build. `machine` replaces the derived machine name.
    ///
    /// The commit comes from git in the current folder. Without a repository, the environment
    /// variables `GODWIT_COMMIT` and `GODWIT_DIRTY` (`1` for a tree with changes) replace it.
    pub fn of_this_machine(machine: Option<&str>) -> Self {
        let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let cores = cores::count();
        let found = devices::others();
        let gpu = found.iter().find(|found| found.kind == "gpu").map(|found| found.capabilities.name.as_str());
        let machine = machine.map_or_else(|| slug(cores, &cpu, gpu), str::to_owned);
        let gpu = |found: godwit_device::Found| Gpu {
            id: found.capabilities.id,
            name: found.capabilities.name,
            driver: found.driver,
        };
        let gpus: Vec<Gpu> = found.into_iter().map(gpu).collect();
        let mut levels = godwit_kernels::levels().iter().filter(|level| level.supported());
        let (commit, dirty) = commit();
        Self {
            machine,
            cores,
            level: levels.next_back().map_or_else(|| "unknown".to_owned(), |level| level.name.to_owned()),
            os: os().unwrap_or_else(|| std::env::consts::OS.to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()),
            memory_mib: field("/proc/meminfo", "MemTotal").and_then(|text| kilobytes(&text)).unwrap_or(0) >> 10,
            commit,
            dirty,
            date: date(SystemTime::now()),
            time: time_of_day(SystemTime::now()),
            libraries: libraries(),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clock_mhz: field("/proc/cpuinfo", "cpu MHz").and_then(|text| text.parse().ok()),
            seconds: BTreeMap::new(),
            cpu,
            gpus,
        }
    }
}

/// Returns a file without surrounding white space.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Returns the first value of `name` in a file with lines of the form `name : value`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse().ok()
}

fn os() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// Returns the output of a command, if it succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the commit of the source tree, and whether the tree has changes.
fn commit() -> (String, bool) {
    if let Some(commit) = output("git", &["rev-parse", "--short=10", "HEAD"]) {
        let changes = output("git", &["status", "--porcelain", "--untracked-files=no"]);
        return (commit, changes.is_none_or(|changes| !changes.is_empty()));
    }
    let variable = |name| std::env::var(name).ok();
    let commit = variable("GODWIT_COMMIT").unwrap_or_else(|| "unknown".to_owned());
    (commit, variable("GODWIT_DIRTY").is_some_and(|dirty| dirty == "1"))
}

fn libraries() -> BTreeMap<String, String> {
    let version = |package: &&str| {
        output("dpkg-query", &["--show", "--showformat", "${Version}", package]).filter(|text| !text.is_empty())
    };
    PACKAGES
        .iter()
        .filter_map(|(name, packages)| Some(((*name).to_owned(), packages.iter().find_map(version)?)))
        .collect()
}

/// Returns a machine name that contains the core count, the CPU and the first GPU.
fn slug(cores: usize, cpu: &str, gpu: Option<&str>) -> String {
    let text = format!("{cores}-cores {cpu} {}", gpu.unwrap_or_default());
    let mut slug = String::new();
    for word in text.to_lowercase().split(|letter: char| !letter.is_ascii_alphanumeric()) {
        if !word.is_empty() && !["r", "tm", "processor", "cpu", "core"].contains(&word) && !word.ends_with("ghz") {
            if !slug.is_empty() {
                slug.push('-');
            }
            slug += word;
        }
    }
    slug
}

/// Returns the date of a time, UTC, as `YYYY-MM-DD`.
fn date(time: SystemTime) -> String {
    let days = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs() / 86_400;
    // Days to civil date (Howard Hinnant, "chrono-compatible low-level date algorithms").
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Returns the time of day, UTC, as `HH:MM:SS`.
fn time_of_day(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_dates() {
        let day = |days: u64| date(UNIX_EPOCH + Duration::from_secs(days * 86_400 + 3600));
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(11_016), "2000-02-29");
        assert_eq!(day(20_781), "2026-11-24");
    }

    #[test]
    fn formats_times_of_day() {
        assert_eq!(time_of_day(UNIX_EPOCH + Duration::from_secs(86_400 + 3600 * 13 + 62)), "13:01:02");
    }

    #[test]
    fn names_machines_by_cores_cpu_and_gpu() {
        assert_eq!(slug(2, "AMD EPYC 9B45 Processor", None), "2-cores-amd-epyc-9b45");
        let cpu = "Intel(R) Xeon(R) Platinum 8581C CPU";
        assert_eq!(slug(16, cpu, Some("NVIDIA H200")), "16-cores-intel-xeon-platinum-8581c-nvidia-h200");
    }
}
