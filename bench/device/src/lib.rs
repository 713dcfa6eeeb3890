//! Measures the rates of a device without packets or programs. Benches use them as upper limits.
//!
//! | method | CPU | OpenCL | CUDA |
//! |---|---|---|---|
//! | [`Measure::copy`] | memory to memory, one core per direction | two queues | two streams |
//! | [`Measure::launch`] | none | empty kernel, until its end is visible | the same |
//! | [`Measure::mailbox`] | none | none | one thread answers a word |
//! | [`Measure::random_reads`] | interleaved chains on each core | one chain per work-item | one chain per thread |
//! | [`Measure::lookups`] | one core, all chains interleaved | copies and one launch | the same |
//!
//! OpenCL and CUDA copies use page-locked memory. A CPU core interleaves up to [`CHAINS_PER_CORE`]
//! chains of random reads. There is one file per kind of device, and a row in the table of
//! [`open`].

mod cpu;
mod cuda;
mod opencl;

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use godwit_device::{Error, KINDS};

/// Maximum number of chains that one CPU core interleaves.
pub const CHAINS_PER_CORE: usize = 16;

/// Number of rates in [`CopyRates`].
const RATES: usize = 3;

/// Copy rates, in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyRates {
    /// Rate to the device, without copies in the other direction.
    pub host_to_device: f64,
    /// Rate from the device to the host, without copies in the other direction.
    pub device_to_host: f64,
    /// Total rate of both directions at the same time. Half of it is the limit for packets that are
    /// copied both ways.
    pub both: f64,
}

/// A device whose rates can be measured. Each call takes about the given time. The device should
/// have no other work during a measurement.
pub trait Measure {
    /// Measures copies of `bytes` bytes, with several copies in flight. Calls `begin` before each
    /// of the three measurements, after all preparation. Callers that measure several devices at
    /// once synchronise in `begin`.
    ///
    /// # Errors
    /// Fails if the driver fails or the device has too little memory.
    fn copy(&mut self, bytes: usize, time: Duration, begin: &dyn Fn()) -> Result<CopyRates, Error>;

    /// Returns `count` launch latencies of an empty kernel, in nanoseconds. A latency ends when the
    /// host knows that the kernel has ended. Returns `None` if the device has no launches.
    ///
    /// # Errors
    /// Fails if the driver fails.
    fn launch(&mut self, count: usize) -> Result<Option<Vec<f64>>, Error>;

    /// Returns `count` round-trip times between the host and a polling kernel, in nanoseconds. A
    /// round trip lasts from the host's write until the kernel's answer. Returns `None` if the
    /// device has no such kernel.
    ///
    /// # Errors
    /// Fails if the driver fails.
    fn mailbox(&mut self, count: usize) -> Result<Option<Vec<f64>>, Error> {
        let _ = count;
        Ok(None)
    }

    /// Returns the number of random 4-byte reads per second in a table of `bytes` bytes, with
    /// `chains` parallel chains. Each read gives its chain the next index. `bytes` is rounded down
    /// to a power of two.
    ///
    /// # Errors
    /// Fails if the driver fails or the device has too little memory for the table.
    fn random_reads(&mut self, bytes: usize, chains: usize, time: Duration) -> Result<f64, Error>;

    /// Measures lookup batches for about `time`, and returns their times in nanoseconds. A batch
    /// has one lookup per element of `headers`. A lookup is a chain of `depth` dependent reads in
    /// the table of [`Measure::random_reads`]. The time includes the transfer of headers to the
    /// device and of results back (G-Opt, section 2.6.1). `headers` receives the results of
    /// [`lookup`].
    ///
    /// # Errors
    /// Fails if the driver fails or the device has too little memory for the table.
    fn lookups(&mut self, bytes: usize, headers: &mut [u32], depth: u32, time: Duration) -> Result<Vec<f64>, Error>;
}

/// Opens a device by its number.
type Open = fn(usize) -> Result<Box<dyn Measure>, Error>;

/// Measurements by device kind.
const MEASURES: [(&str, Open); 3] = [
    (godwit_device::cpu::ID, |_| Ok(Box::new(cpu::CpuMeasure::new()))),
    (godwit_device::opencl::ID, |number| Ok(Box::new(opencl::OpenClMeasure::new(number)?))),
    (godwit_device::cuda::ID, |number| Ok(Box::new(cuda::CudaMeasure::new(number)?))),
];

/// Opens the device `id` for measurements.
///
/// # Errors
/// Returns [`Error::Absent`] if `id` is not a device name, or the error of the device.
pub fn open(id: &str) -> Result<Box<dyn Measure>, Error> {
    let number = KINDS.iter().find_map(|kind| Some((kind.name, kind.number(id)?)));
    let found = number.and_then(|(kind, number)| Some((MEASURES.iter().find(|(name, _)| *name == kind)?.1, number)));
    let Some((open, number)) = found else { return Err(Error::Absent { id: id.to_owned() }) };
    open(number)
}

/// Measures copies of `bytes` bytes on all devices at the same time, with one thread per device.
///
/// # Errors
/// Returns the error of the first device that fails in [`open`] or [`Measure::copy`].
pub fn copy_at_once(ids: &[&str], bytes: usize, time: Duration) -> Result<Vec<CopyRates>, Error> {
    let together = Barrier::new(ids.len());
    let copy = |id: &str| {
        // Number of measurements that this device has started. If it fails, it releases the other
        // devices.
        let begun = Cell::new(0);
        let begin = || {
            begun.set(begun.get() + 1);
            together.wait();
        };
        let rates = open(id).and_then(|mut device| device.copy(bytes, time, &begin));
        while begun.get() < RATES {
            begin();
        }
        rates
    };
    thread::scope(|scope| {
        let threads: Vec<_> = ids.iter().map(|id| scope.spawn(|| copy(id))).collect();
        // Propagate a panic of another thread.
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(join).collect()
    })
}

/// Returns the number of words in a table of `bytes` bytes, rounded down to a power of two. Each
/// word is the index of another word. Chains add their step number to each index, so that they do
/// not end in a short cycle.
fn table_words(bytes: usize) -> usize {
    let words = (bytes / size_of::<u32>()).max(2);
    1 << words.ilog2()
}

/// Returns the content of word `index` of the table.
fn table_word(index: usize) -> u32 {
    // The finalizer of MurmurHash3: every bit of the index affects every bit of the result.
    let mut word = (index as u32).wrapping_mul(0x9e37_79b9).wrapping_add(0x7f4a_7c15);
    word = (word ^ (word >> 16)).wrapping_mul(0x85eb_ca6b);
    word = (word ^ (word >> 13)).wrapping_mul(0xc2b2_ae35);
    word ^ (word >> 16)
}

/// Computes the result of a lookup without the table. The result is the last index of a chain that
/// starts at `header`.
pub fn lookup(bytes: usize, header: u32, depth: u32) -> u32 {
    let mask = table_words(bytes) - 1;
    (0..depth).fold(header, |index, step| table_word(index as usize & mask).wrapping_add(step))
}

#[cfg(test)]
mod tests {
    use godwit_device::LAST_RESORT;

    use super::*;

    #[test]
    fn every_kind_of_device_is_measured() {
        let kinds: Vec<_> = KINDS.iter().filter(|kind| !kind.is_for_tests()).map(|kind| kind.name).collect();
        assert!(kinds.iter().all(|kind| MEASURES.iter().any(|(name, _)| name == kind)), "{kinds:?}");
    }

    fn measure(id: &str) {
        let time = Duration::from_millis(5);
        let mut device = open(id).unwrap();
        for bytes in [64, 1 << 20] {
            let CopyRates { host_to_device, device_to_host, both } = device.copy(bytes, time, &|| {}).unwrap();
            assert!(host_to_device > 0.0 && device_to_host > 0.0 && both > 0.0, "{id}: {bytes}");
        }
        for chains in [1, 16, 100] {
            assert!(device.random_reads(1 << 20, chains, time).unwrap() > 0.0, "{id}: {chains}");
        }
        for depth in [0, 1, 10] {
            let headers: Vec<u32> = (0..100).map(|header: u32| header.wrapping_mul(0x9e37_79b9)).collect();
            let mut results = headers.clone();
            let times = device.lookups(1 << 20, &mut results, depth, time).unwrap();
            assert!(!times.is_empty() && times.iter().all(|ns| *ns > 0.0), "{id}: {times:?}");
            let expected: Vec<u32> = headers.iter().map(|header| lookup(1 << 20, *header, depth)).collect();
            assert_eq!(results, expected, "{id}, depth {depth}");
        }
        if let Some(times) = device.launch(5).unwrap() {
            assert!(times.len() == 5 && times.iter().all(|ns| *ns > 0.0), "{id}: {times:?}");
        }
    }

    #[test]
    fn measures_every_usable_device() {
        measure(LAST_RESORT);
        for found in godwit_device::found().iter().filter(|found| found.usable.is_ok()) {
            measure(&found.capabilities.id);
        }
    }

    #[test]
    fn reports_absent_devices() {
        assert!(matches!(open("fpga:0"), Err(Error::Absent { .. })));
        let time = Duration::from_millis(1);
        // The CPU must not wait for the absent device.
        assert!(matches!(copy_at_once(&[LAST_RESORT, "fpga:0"], 4096, time), Err(Error::Absent { .. })));
        let rates = copy_at_once(&[LAST_RESORT, LAST_RESORT], 4096, time).unwrap();
        assert!(rates.len() == 2 && rates.iter().all(|rates| rates.both > 0.0), "{rates:?}");
    }

    #[test]
    fn table_size_is_a_power_of_two_and_words_are_spread() {
        assert_eq!([0, 8, 100, 4096, 5000].map(table_words), [2, 2, 16, 1024, 1024]);
        let mut seen = [false; 256];
        (0..4096).for_each(|index| seen[table_word(index) as usize & 255] = true);
        assert!(seen.iter().filter(|seen| **seen).count() > 250);
    }
}
