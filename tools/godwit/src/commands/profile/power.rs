//! Measures the power of a device that sleeps, and of one that waits for packets.

use std::thread;
use std::time::{Duration, Instant};

use godwit_device::power::{Meter, meters};

/// Interval between two readings of a meter.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Meters of one device.
pub(super) struct Meters {
    /// Kind of the meters: `rapl`, `nvml` or `hwmon`.
    pub(super) kind: &'static str,
    meters: Vec<Meter>,
}

impl Meters {
    /// Finds the meters of a device. Otherwise, returns the reason why its power is not measured.
    pub(super) fn of(device: &str) -> Result<Self, String> {
        let (mut kind, mut usable, mut reason) = (None, Vec::new(), String::new());
        for found in meters(&[device]) {
            match found.meter {
                Ok(meter) => {
                    kind = kind.or(found.kind);
                    usable.push(meter);
                }
                Err(error) => reason = error.to_string(),
            }
        }
        match kind {
            Some(kind) => Ok(Self { kind, meters: usable }),
            None => Err(reason),
        }
    }

    /// Returns the mean power during the next `time`, in watts.
    pub(super) fn watts(&mut self, time: Duration) -> Result<f64, String> {
        let (before, started) = (self.joules()?, Instant::now());
        let mut after = before;
        while started.elapsed() < time {
            thread::sleep(SAMPLE_INTERVAL.min(time));
            after = self.joules()?;
        }
        Ok((after - before) / started.elapsed().as_secs_f64())
    }

    fn joules(&mut self) -> Result<f64, String> {
        self.meters.iter_mut().map(|meter| meter.joules().map_err(|error| error.to_string())).sum()
    }
}
