//! Measures the rates of a device without packets or programs. Benches use them as upper limits.
//!
//! | method | CPU | OpenCL | CUDA |
//! |---|---|---|---|
//! | [`Measure::copy`] | memory to memory, one core per direction | two queues | two streams |
//! | [`Measure::launch`] | none | empty kernel, until its end is visible | the same |
//! | [`Measure::mailbox`] | none | none | one thread answers a word |
//! | [`Measure::random_reads`] | interleaved chains on each core | one chain per work-item | one chain per thread |
//!
//! OpenCL and CUDA copies use page-locked memory. A CPU core interleaves up to [`CHAINS_PER_CORE`]
//! chains of dependent reads.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use crate::{Error, cpu, cuda, opencl};

/// Maximum number of chains that one CPU core interleaves.
pub const CHAINS_PER_CORE: usize = 16;

/// Number of rates in [`CopyRates`].
const RATES: usize = 3;

/// Copy rates, in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyRates {
    /// Rate to the device, without copies in the other direction.
    pub host_to_device: f64,
    /// Rate from the device, without copies in the other direction.
    pub device_to_host: f64,
    /// Sum of the rates of both directions at the same time. Half of it limits packets that are
    /// copied both ways.
    pub both: f64,
}

/// A device whose rates can be measured. Each call takes about the given time. Nothing else should
/// run on the device during a measurement.
pub trait Measure {
    /// Measures copies of `bytes` bytes, with several copies in flight. Calls `begin` before each
    /// of the three measurements, after all preparation. Callers that measure several devices at
    /// once synchronize in `begin`.
    ///
    /// # Errors
    /// Fails if the driver fails or the device has too little memory.
    fn copy(&mut self, bytes: usize, time: Duration, begin: &dyn Fn()) -> Result<CopyRates, Error>;

    /// Returns `count` launch latencies of an empty kernel, in nanoseconds. A latency ends when the
    /// host knows that the kernel has ended. Returns `None` if the device launches nothing.
    ///
    /// # Errors
    /// Fails if the driver fails.
    fn launch(&mut self, count: usize) -> Result<Option<Vec<f64>>, Error>;

    /// Returns `count` round-trip times, in nanoseconds, from a write of the host to the answer of
    /// a polling kernel. Returns `None` if the device has no such kernel.
    ///
    /// # Errors
    /// Fails if the driver fails.
    fn mailbox(&mut self, count: usize) -> Result<Option<Vec<f64>>, Error> {
        let _ = count;
        Ok(None)
    }

    /// Returns the number of random 4-byte reads per second in a table of `bytes` bytes, by
    /// `chains` parallel chains. Each read gives its chain the next index. `bytes` is rounded down
    /// to a power of two.
    ///
    /// # Errors
    /// Fails if the driver fails or the device has too little memory for the table.
    fn random_reads(&mut self, bytes: usize, chains: usize, time: Duration) -> Result<f64, Error>;
}

/// Opens the device `id` for measurements.
///
/// # Errors
/// Returns [`Error::Absent`] if `id` is not a device name, or the error of the device.
pub fn open(id: &str) -> Result<Box<dyn Measure>, Error> {
    if id == cpu::ID {
        return Ok(Box::new(cpu::CpuMeasure::new()));
    }
    if let Some(number) = opencl::number(id) {
        return Ok(Box::new(opencl::OpenClMeasure::new(number)?));
    }
    if let Some(number) = cuda::number(id) {
        return Ok(Box::new(cuda::CudaMeasure::new(number)?));
    }
    Err(Error::Absent { id: id.to_owned() })
}

/// Measures copies of `bytes` bytes on all devices at the same time, with one thread per device.
///
/// # Errors
/// Returns the error of the first device that fails in [`open`] or [`Measure::copy`].
pub fn copy_at_once(ids: &[&str], bytes: usize, time: Duration) -> Result<Vec<CopyRates>, Error> {
    let together = Barrier::new(ids.len());
    let copy = |id: &str| {
        // Number of rates that this device has started to measure. If it fails, it releases the
        // other devices.
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
pub(crate) fn table_words(bytes: usize) -> usize {
    let words = (bytes / size_of::<u32>()).max(2);
    1 << words.ilog2()
}

/// Returns the content of word `index` of the table.
pub(crate) fn table_word(index: usize) -> u32 {
    // The finalizer of MurmurHash3: every bit of the index affects every bit of the result.
    let mut word = (index as u32).wrapping_mul(0x9e37_79b9).wrapping_add(0x7f4a_7c15);
    word = (word ^ (word >> 16)).wrapping_mul(0x85eb_ca6b);
    word = (word ^ (word >> 13)).wrapping_mul(0xc2b2_ae35);
    word ^ (word >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        if let Some(times) = device.launch(5).unwrap() {
            assert!(times.len() == 5 && times.iter().all(|ns| *ns > 0.0), "{id}: {times:?}");
        }
    }

    #[test]
    fn measures_every_usable_device() {
        measure(cpu::ID);
        for found in opencl::probe().found.iter().filter(|found| found.usable.is_ok()) {
            measure(&found.capabilities.id);
        }
    }

    #[test]
    fn reports_absent_devices() {
        assert!(matches!(open("fpga:0"), Err(Error::Absent { .. })));
        let time = Duration::from_millis(1);
        // The CPU must not wait for the absent device.
        assert!(matches!(copy_at_once(&[cpu::ID, "fpga:0"], 4096, time), Err(Error::Absent { .. })));
        let rates = copy_at_once(&[cpu::ID, cpu::ID], 4096, time).unwrap();
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
