//! Measures the energy that devices use during a run. The control thread reads the meters.

use std::time::{Duration, Instant};

use godwit_device::Unavailable;
use godwit_device::power::{FoundMeter, Meter, meters};

use crate::observe::report::PowerReport;

/// Interval between two readings of the energy meters. It is short enough to detect every overflow
/// of an energy counter.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Energy meters of the devices of a run.
pub(crate) struct Power {
    devices: Vec<DevicePower>,
    sampled: Instant,
}

struct DevicePower {
    device: String,
    meters: Vec<(String, Meter)>,
    /// Energy since the start of the run in joules, or the reason why it is unknown.
    joules: Result<f64, Unavailable>,
}

impl Power {
    /// Finds the energy meters of `devices`, and starts the measurement.
    pub(crate) fn new(devices: &[&str]) -> Self {
        Self::with_meters(devices, meters(devices))
    }

    fn with_meters(devices: &[&str], mut found: Vec<FoundMeter>) -> Self {
        let mut device = |name: &&str| {
            let (own, others) = std::mem::take(&mut found).into_iter().partition(|found| found.device == *name);
            found = others;
            DevicePower::new(name, own)
        };
        Self { devices: devices.iter().map(&mut device).collect(), sampled: Instant::now() }
    }

    /// Reads the meters if [`SAMPLE_INTERVAL`] has passed.
    pub(crate) fn sample(&mut self) {
        if self.sampled.elapsed() >= SAMPLE_INTERVAL {
            self.end();
        }
    }

    /// Reads the meters for the last time.
    pub(crate) fn end(&mut self) {
        self.sampled = Instant::now();
        self.devices.iter_mut().for_each(DevicePower::sample);
    }

    /// Returns the energy of each device since the start of the run, in joules. An element is
    /// `None` if the energy is not measured.
    pub(crate) fn joules(&self) -> impl Iterator<Item = Option<f64>> {
        self.devices.iter().map(|device| device.joules.as_ref().ok().copied())
    }

    /// Returns the report of each device. `counted` returns how many packets and submissions a
    /// device processed, given the device's index.
    pub(crate) fn reports(&self, elapsed_s: f64, counted: impl Fn(usize) -> [u64; 2]) -> Vec<PowerReport> {
        let report = |(index, device): (usize, &DevicePower)| {
            let joules = device.joules.as_ref().ok().copied();
            let [packets, chunks] = counted(index);
            let per = |whole: f64| joules.filter(|_| whole > 0.0).map(|joules| joules / whole);
            PowerReport {
                device: device.device.clone(),
                meters: device.meters.iter().map(|(name, _)| name.clone()).collect(),
                not_measured: device.joules.as_ref().err().map(Unavailable::to_string),
                joules,
                watts: per(elapsed_s),
                joules_per_packet: per(packets as f64),
                joules_per_chunk: per(chunks as f64),
            }
        };
        self.devices.iter().enumerate().map(report).collect()
    }
}

impl DevicePower {
    /// Creates the energy record of a device. Meters that cannot be read are omitted. If no meter
    /// can be read, the energy is not measured.
    fn new(device: &str, found: Vec<FoundMeter>) -> Self {
        let (mut meters, mut reason) = (Vec::new(), None);
        for FoundMeter { name, kind, meter, .. } in found {
            match meter {
                Ok(meter) => meters.push((format!("{} {name}", kind.unwrap_or_default()), meter)),
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        let joules = match reason {
            Some(reason) if meters.is_empty() => Err(reason),
            _ => Ok(0.0),
        };
        Self { device: device.to_owned(), meters, joules }
    }

    /// Reads the energy meters of the device. If one of them fails, the device's energy counts as
    /// not measured.
    fn sample(&mut self) {
        if self.joules.is_ok() {
            self.joules = self.meters.iter_mut().map(|(_, meter)| meter.joules()).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmeasured_device_has_a_reason_and_no_figures() {
        let found = |device: &str, reason: &str| FoundMeter {
            device: device.to_owned(),
            name: String::new(),
            kind: None,
            meter: Err(Unavailable::Unsupported(reason.to_owned())),
        };
        let mut power =
            Power::with_meters(&["cpu", "opencl:0"], vec![found("opencl:0", "no sensor"), found("cpu", "no counter")]);
        power.end();
        assert_eq!(power.joules().collect::<Vec<_>>(), [None, None]);
        let reports = power.reports(1.0, |_| [1, 1]);
        for (report, (device, reason)) in reports.iter().zip([("cpu", "no counter"), ("opencl:0", "no sensor")]) {
            assert_eq!((report.device.as_str(), report.not_measured.as_deref()), (device, Some(reason)));
            assert!(report.joules.or(report.watts).or(report.joules_per_packet).or(report.joules_per_chunk).is_none());
        }
    }

    #[test]
    fn this_machine_has_figures_or_a_reason() {
        let mut power = Power::new(&["cpu"]);
        std::thread::sleep(Duration::from_millis(10));
        power.end();
        let report = power.reports(2.0, |_| [1000, 10]).remove(0);
        match report.joules {
            None => assert!(report.meters.is_empty() && report.not_measured.is_some_and(|reason| !reason.is_empty())),
            Some(joules) => {
                assert!(joules >= 0.0 && !report.meters.is_empty() && report.not_measured.is_none());
                let figures = [report.watts, report.joules_per_packet, report.joules_per_chunk];
                assert_eq!(figures, [Some(joules / 2.0), Some(joules / 1000.0), Some(joules / 10.0)]);
            }
        }
    }
}
