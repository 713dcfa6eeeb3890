//! Mean power of a device during a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use godwit_device::Unavailable;
use godwit_device::power::{Meter, meters};

/// Time between two readings. Counters that wrap need frequent readings.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// A thread that reads the power meters of a device.
pub(crate) struct PowerWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<f64>>>,
}

impl PowerWatch {
    /// Starts the measurement, if the device has a meter.
    pub(crate) fn start(device: &str) -> Self {
        let own: Vec<Meter> = meters(&[device]).into_iter().filter_map(|found| found.meter.ok()).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = (!own.is_empty()).then(|| std::thread::spawn(move || watch(own, &stopped)));
        Self { stop, thread }
    }

    /// Ends the measurement. Returns the mean power in watts, or `None` if it was not measured.
    pub(crate) fn stop(self) -> Option<f64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread?.join().ok()?
    }
}

fn watch(mut meters: Vec<Meter>, stop: &AtomicBool) -> Option<f64> {
    let mut joules = || meters.iter_mut().map(Meter::joules).sum::<Result<f64, Unavailable>>().ok();
    let (started, before) = (Instant::now(), joules()?);
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(SAMPLE_INTERVAL);
        joules()?;
    }
    Some((joules()? - before) / started.elapsed().as_secs_f64())
}
