//! Measures copies, launches, mailbox answers and memory reads of a CUDA device.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::driver::{Context, DeviceMemory, PinnedMemory, Stream, failed};
use super::module::{Function, Module};
use super::{ID, compiler, probe};
use crate::Error;
use crate::measure::{CopyRates, Measure, table_word, table_words};

const SOURCE: &str = include_str!("measure.cu");
/// Number of copies per direction in flight before the host waits.
const COPIES: usize = 8;
/// Number of steps of each chain in one launch.
const STEPS: u32 = 256;
/// Maximum memory for copies per direction, in bytes.
const COPY_BYTES_MAX: usize = 256 << 20;
/// Number of threads in a block of `gw_random_reads`.
const LANES: u32 = 256;
/// Value that ends `gw_answer`.
const END: u32 = u32::MAX;

/// See [`crate::measure`].
pub(crate) struct CudaMeasure {
    nothing: Function,
    random_reads: Function,
    answer: Function,
    streams: [Stream; 2],
    context: Arc<Context>,
}

impl CudaMeasure {
    pub(crate) fn new(number: usize) -> Result<Self, Error> {
        let id = format!("{ID}:{number}");
        let count = probe::devices().map_err(|reason| Error::Unusable { id: id.clone(), reason })?;
        if number >= count {
            return Err(Error::Absent { id });
        }
        let context = Context::new(&id, result::device::get(number as i32).map_err(failed(&id, "open it"))?)?;
        let architecture = probe::architecture(probe::capability(context.device));
        let cubin = compiler::cubin(&id, SOURCE, &architecture)?;
        let module = Arc::new(Module::new(&context, &cubin).map_err(failed(&id, "load the kernels"))?);
        Ok(Self {
            nothing: module.function("gw_nothing")?,
            random_reads: module.function("gw_random_reads")?,
            answer: module.function("gw_answer")?,
            streams: [Stream::new(&context)?, Stream::new(&context)?],
            context,
        })
    }
}

/// Memory and stream of one copy direction.
struct Direction<'a> {
    stream: &'a Stream,
    device: DeviceMemory,
    host: PinnedMemory,
    bytes: usize,
    copies: usize,
}

impl<'a> Direction<'a> {
    fn new(context: &Arc<Context>, stream: &'a Stream, bytes: usize) -> Result<Self, Error> {
        let copies = (COPY_BYTES_MAX / bytes).clamp(1, COPIES);
        let device = DeviceMemory::new(context, bytes * copies, "memory for copies")?;
        let host = PinnedMemory::new(context, bytes * copies)?;
        Ok(Self { stream, device, host, bytes, copies })
    }

    /// Starts one round of copies.
    fn start(&self, to_device: bool) -> Result<(), DriverError> {
        for copy in 0..self.copies {
            let offset = copy * self.bytes;
            let (host, device) = (self.host.base().as_ptr().wrapping_add(offset), self.device.pointer + offset as u64);
            // SAFETY: both buffers have `self.bytes` bytes at the offset, are used only by these
            // copies, and live until the stream is idle.
            let copied = unsafe {
                match to_device {
                    true => sys::cuMemcpyHtoDAsync_v2(device, host.cast(), self.bytes, self.stream.stream),
                    false => sys::cuMemcpyDtoHAsync_v2(host.cast(), device, self.bytes, self.stream.stream),
                }
            };
            copied.result()?;
        }
        Ok(())
    }
}

impl Drop for Direction<'_> {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

/// Returns the sum of the copy rates of all directions, in bytes per second. The flag selects
/// copies to the device.
fn rate(directions: &[(&Direction<'_>, bool)], time: Duration, begin: &dyn Fn()) -> Result<f64, DriverError> {
    let round = || -> Result<usize, DriverError> {
        directions.iter().try_for_each(|(direction, to_device)| direction.start(*to_device))?;
        directions.iter().try_for_each(|(direction, _)| direction.stream.synchronize())?;
        Ok(directions.iter().map(|(direction, _)| direction.bytes * direction.copies).sum())
    };
    // The first round touches all memory.
    round()?;
    begin();
    let (started, mut bytes) = (Instant::now(), 0);
    while bytes == 0 || started.elapsed() < time {
        bytes += round()?;
    }
    Ok(bytes as f64 / started.elapsed().as_secs_f64())
}

impl Measure for CudaMeasure {
    fn copy(&mut self, bytes: usize, time: Duration, begin: &dyn Fn()) -> Result<CopyRates, Error> {
        let failed = failed(&self.context.id, "copy");
        self.context.bind().map_err(&failed)?;
        let bytes = bytes.max(1);
        let to_device = Direction::new(&self.context, &self.streams[0], bytes)?;
        let to_host = Direction::new(&self.context, &self.streams[1], bytes)?;
        Ok(CopyRates {
            host_to_device: rate(&[(&to_device, true)], time, begin).map_err(&failed)?,
            device_to_host: rate(&[(&to_host, false)], time, begin).map_err(&failed)?,
            both: rate(&[(&to_device, true), (&to_host, false)], time, begin).map_err(&failed)?,
        })
    }

    fn launch(&mut self, count: usize) -> Result<Option<Vec<f64>>, Error> {
        let launch = || -> Result<f64, DriverError> {
            let started = Instant::now();
            // SAFETY: the kernel has no parameters.
            unsafe { self.nothing.launch(&self.streams[0], 1, 1, &mut []) }?;
            self.streams[0].synchronize()?;
            Ok(started.elapsed().as_nanos() as f64)
        };
        let all = || -> Result<Vec<f64>, DriverError> {
            self.context.bind()?;
            launch()?;
            (0..count).map(|_| launch()).collect()
        };
        all().map(Some).map_err(failed(&self.context.id, "launch a kernel"))
    }

    fn mailbox(&mut self, count: usize) -> Result<Option<Vec<f64>>, Error> {
        let failed = failed(&self.context.id, "answer in a mailbox");
        self.context.bind().map_err(&failed)?;
        let words = PinnedMemory::new(&self.context, 128)?;
        // SAFETY: the two words are 64 bytes apart. Device and host access them only by atomic
        // operations.
        let (question, answer) = unsafe {
            let base = words.base().as_ptr().cast::<u32>();
            (AtomicU32::from_ptr(base), AtomicU32::from_ptr(base.add(16)))
        };
        let (mut word, mut rounds) = (words.pointer, count as u32);
        let mut values: [*mut c_void; 2] = [(&raw mut word).cast(), (&raw mut rounds).cast()];
        // SAFETY: the values match the kernel's parameters. The words live until the stream is
        // idle.
        unsafe { self.answer.launch(&self.streams[0], 1, 1, &mut values) }.map_err(&failed)?;
        let begun = Instant::now();
        let mut times = Vec::with_capacity(count);
        for round in 1..=rounds {
            let started = Instant::now();
            question.store(round, Ordering::Release);
            while answer.load(Ordering::Acquire) != round {
                if begun.elapsed() > Duration::from_secs(10) {
                    question.store(END, Ordering::Release);
                    break;
                }
                std::hint::spin_loop();
            }
            times.push(started.elapsed().as_nanos() as f64);
        }
        self.streams[0].synchronize().map_err(&failed)?;
        Ok(Some(times))
    }

    fn random_reads(&mut self, bytes: usize, chains: usize, time: Duration) -> Result<f64, Error> {
        let failed = failed(&self.context.id, "read memory at random");
        self.context.bind().map_err(&failed)?;
        let words = table_words(bytes);
        let chains = chains.max(1);
        let table = DeviceMemory::new(&self.context, words * size_of::<u32>(), "a table")?;
        let last = DeviceMemory::new(&self.context, chains * size_of::<u32>(), "the results of chains")?;
        let content: Vec<u8> = (0..words).flat_map(|index| table_word(index).to_le_bytes()).collect();
        table.fill(&content)?;
        let stream = &self.streams[0];
        let launch = || -> Result<(), DriverError> {
            let (mut table, mut last) = (table.pointer, last.pointer);
            let (mut mask, mut steps, mut count) = (words as u32 - 1, STEPS, chains as u32);
            let mut values: [*mut c_void; 5] = [
                (&raw mut table).cast(),
                (&raw mut mask).cast(),
                (&raw mut steps).cast(),
                (&raw mut last).cast(),
                (&raw mut count).cast(),
            ];
            // SAFETY: the values match the kernel's parameters. The mask keeps each chain within
            // the table, and each chain writes only its own result. Both buffers live until the
            // stream is idle.
            unsafe { self.random_reads.launch(stream, count.div_ceil(LANES), LANES, &mut values) }?;
            stream.synchronize()
        };
        launch().map_err(&failed)?;
        let (started, mut launches) = (Instant::now(), 0_usize);
        while launches == 0 || started.elapsed() < time {
            launch().map_err(&failed)?;
            launches += 1;
        }
        Ok((launches * chains * STEPS as usize) as f64 / started.elapsed().as_secs_f64())
    }
}
