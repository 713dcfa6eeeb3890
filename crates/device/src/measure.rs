//! What a device itself can do, with no packets and no programs: what benches hold figures against.
//!
//! | | CPU | OpenCL | CUDA |
//! |---|---|---|---|
//! | file | `cpu/measure.rs` | `opencl/measure.rs` | `cuda/measure.rs` |
//! | [`Measure::copy`] | memory to memory, by one core; both ways: by two | page-locked memory to a buffer and back, by its queues | page-locked memory to the device and back, by two streams |
//! | [`Measure::launch`] | nothing is launched | an empty kernel, until the host knows that it has ended | the same |
//! | [`Measure::mailbox`] | | | a thread that answers a word in page-locked memory |
//! | [`Measure::random_reads`] | chains of dependent reads, up to [`CHAINS_PER_CORE`] interleaved on a core | one chain for each work-item | one chain for each thread |

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use crate::{Error, cpu, cuda, opencl};

/// Most chains that one core of the CPU follows at once.
pub const CHAINS_PER_CORE: usize = 16;

/// Of [`CopyRates`].
const RATES: usize = 3;

/// How fast copies are, bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyRates {
    /// To the device, nothing going the other way.
    pub host_to_device: f64,
    /// From the device, nothing going the other way.
    pub device_to_host: f64,
    /// Both ways at once, in sum. Half of it is the limit of one way for packets that go there and back.
    pub both: f64,
}

/// A device whose own rates can be measured. Each call takes about the time that it is given, and nothing else should
/// run on the device meanwhile.
pub trait Measure {
    /// With copies of `bytes`, several under way. `begin` is called before each of the three rates is measured, when all is
    /// ready for it: who measures several devices at once waits there.
    ///
    /// # Errors
    /// The device's driver failed, or has no room for copies of that size.
    fn copy(&mut self, bytes: usize, time: Duration, begin: &dyn Fn()) -> Result<CopyRates, Error>;

    /// Nanoseconds from before a kernel that does nothing is launched until the host knows that it has ended, `count`
    /// times; `None` where nothing is launched.
    ///
    /// # Errors
    /// The device's driver failed.
    fn launch(&mut self, count: usize) -> Result<Option<Vec<f64>>, Error>;

    /// Nanoseconds from before the host writes a word until it sees the answer of a kernel that waits for it, `count` times;
    /// `None` where nothing waits.
    ///
    /// # Errors
    /// The device's driver failed.
    fn mailbox(&mut self, count: usize) -> Result<Option<Vec<f64>>, Error> {
        let _ = count;
        Ok(None)
    }

    /// Reads of 4 bytes per second at random places of a table of `bytes`, followed by `chains` chains at once: each
    /// read says where its chain reads next. `bytes` is rounded down to a power of two.
    ///
    /// # Errors
    /// The device's driver failed, or has no room for the table.
    fn random_reads(&mut self, bytes: usize, chains: usize, time: Duration) -> Result<f64, Error>;
}

/// Makes the device called `id` ready to be measured.
///
/// # Errors
/// [`Error::Absent`] for a name that is none; otherwise what the device of that kind says.
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

/// Copies of `bytes` of all these devices at the same time, each by a thread of its own.
///
/// # Errors
/// As [`open`] and [`Measure::copy`], of the first device that fails.
pub fn copy_at_once(ids: &[&str], bytes: usize, time: Duration) -> Result<Vec<CopyRates>, Error> {
    let together = Barrier::new(ids.len());
    let copy = |id: &str| {
        // Rates that this device has begun to measure: when it fails, the others do not wait for it.
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
        // A panic of another thread is this one's.
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().map(join).collect()
    })
}

/// Places of a table of `bytes`, a power of two, and its content: every place names any other. Chains add the number of
/// the step to what they read, so that none is caught in a short circle.
pub(crate) fn table_words(bytes: usize) -> usize {
    let words = (bytes / size_of::<u32>()).max(2);
    1 << words.ilog2()
}

/// Fills a table: the content of place `index` does not depend on the others.
pub(crate) fn table_word(index: usize) -> u32 {
    // The finaliser of MurmurHash3: every bit of the index decides every bit of the word.
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
    fn every_device_here_can_be_measured() {
        measure(cpu::ID);
        for found in opencl::probe().found.iter().filter(|found| found.usable.is_ok()) {
            measure(&found.capabilities.id);
        }
    }

    #[test]
    fn a_device_that_is_not_here_is_named() {
        assert!(matches!(open("fpga:0"), Err(Error::Absent { .. })));
        let time = Duration::from_millis(1);
        // The other does not wait for it for ever.
        assert!(matches!(copy_at_once(&[cpu::ID, "fpga:0"], 4096, time), Err(Error::Absent { .. })));
        let rates = copy_at_once(&[cpu::ID, cpu::ID], 4096, time).unwrap();
        assert!(rates.len() == 2 && rates.iter().all(|rates| rates.both > 0.0), "{rates:?}");
    }

    #[test]
    fn a_table_is_a_power_of_two_and_spread() {
        assert_eq!([0, 8, 100, 4096, 5000].map(table_words), [2, 2, 16, 1024, 1024]);
        let mut seen = [false; 256];
        (0..4096).for_each(|index| seen[table_word(index) as usize & 255] = true);
        assert!(seen.iter().filter(|seen| **seen).count() > 250);
    }
}
