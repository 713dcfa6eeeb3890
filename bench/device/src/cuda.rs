//! Measures copies, launches, mailbox answers and memory reads of a CUDA device.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::result::DriverError;
use cudarc::driver::sys;
use godwit_device::Error;
use godwit_device::cuda::driver::{Context, DeviceMemory, Function, Module, PinnedMemory, Stream, cubin, failed};
use godwit_device::cuda::{architecture_of, context};

use crate::{CopyRates, Measure, table_word, table_words};

const SOURCE: &str = include_str!("cuda.cu");
/// Copies in flight per direction before the host waits.
const COPIES: usize = 8;
/// Number of steps of each chain in one launch.
const STEPS: u32 = 256;
/// Maximum memory for copies per direction, in bytes.
const COPY_BYTES_MAX: usize = 256 << 20;
/// Number of threads in a block of `gw_random_reads`.
const LANES: u32 = 256;
/// Value that ends `gw_answer`.
const END: u32 = u32::MAX;

/// A CUDA device.
pub(crate) struct CudaMeasure {
    /// The last table and its number of words. Reuse saves time, because filling a large table
    /// takes longer than measuring it.
    table: Option<(usize, DeviceMemory)>,
    nothing: Function,
    random_reads: Function,
    lookups: Function,
    answer: Function,
    streams: [Stream; 2],
    context: Arc<Context>,
}

impl CudaMeasure {
    pub(crate) fn new(number: usize) -> Result<Self, Error> {
        let context = context(number)?;
        let cubin = cubin(&context.id, SOURCE, &architecture_of(&context))?;
        let module = Arc::new(Module::new(&context, &cubin).map_err(failed(&context.id, "load the kernels"))?);
        Ok(Self {
            table: None,
            nothing: module.function("gw_nothing")?,
            random_reads: module.function("gw_random_reads")?,
            lookups: module.function("gw_lookups")?,
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

/// Returns the total copy rate of all directions, in bytes per second. The flag selects copies to
/// the device.
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
        let context = Arc::clone(&self.context);
        let failed = failed(&context.id, "read memory at random");
        context.bind().map_err(&failed)?;
        let words = table_words(bytes);
        let chains = chains.max(1);
        let table = self.table(words)?;
        let last = DeviceMemory::new(&self.context, chains * size_of::<u32>(), "the results of chains")?;
        let stream = &self.streams[0];
        let launch = || -> Result<(), DriverError> {
            let (mut table, mut last) = (table, last.pointer);
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

    fn lookups(&mut self, bytes: usize, headers: &mut [u32], depth: u32, time: Duration) -> Result<Vec<f64>, Error> {
        let context = Arc::clone(&self.context);
        let failed = failed(&context.id, "look up headers");
        context.bind().map_err(&failed)?;
        let words = table_words(bytes);
        let table = self.table(words)?;
        let bytes = size_of_val(&*headers);
        let (device, host) =
            (DeviceMemory::new(&self.context, bytes, "headers")?, PinnedMemory::new(&self.context, bytes)?);
        let host = HostWords { memory: host, words: headers.len() };
        let stream = &self.streams[0];
        let batch = || -> Result<(), DriverError> {
            let (mut table, mut indices) = (table, device.pointer);
            let (mut mask, mut steps, mut count) = (words as u32 - 1, depth, headers.len() as u32);
            let mut values: [*mut c_void; 5] = [
                (&raw mut table).cast(),
                (&raw mut mask).cast(),
                (&raw mut steps).cast(),
                (&raw mut indices).cast(),
                (&raw mut count).cast(),
            ];
            let host = host.memory.base().as_ptr();
            // SAFETY: both buffers have this length. The values match the kernel's parameters, the
            // mask keeps each chain within the table, and each chain accesses only its own header.
            // All memory lives until the stream is idle.
            unsafe {
                sys::cuMemcpyHtoDAsync_v2(device.pointer, host.cast(), bytes, stream.stream).result()?;
                self.lookups.launch(stream, count.div_ceil(LANES), LANES, &mut values)?;
                sys::cuMemcpyDtoHAsync_v2(host.cast(), device.pointer, bytes, stream.stream).result()?;
            }
            stream.synchronize()
        };
        host.write(headers);
        batch().map_err(&failed)?;
        let (started, mut times) = (Instant::now(), Vec::new());
        while times.is_empty() || started.elapsed() < time {
            host.write(headers);
            let begun = Instant::now();
            batch().map_err(&failed)?;
            times.push(begun.elapsed().as_nanos().max(1) as f64);
        }
        host.read(headers);
        Ok(times)
    }
}

impl CudaMeasure {
    /// Returns the device address of a table with `words` words.
    fn table(&mut self, words: usize) -> Result<sys::CUdeviceptr, Error> {
        let table = match self.table.take() {
            Some((filled, table)) if filled == words => table,
            _ => {
                let table = DeviceMemory::new(&self.context, words * size_of::<u32>(), "a table")?;
                let content: Vec<u8> = (0..words).flat_map(|index| table_word(index).to_le_bytes()).collect();
                table.fill(&content)?;
                table
            }
        };
        let pointer = table.pointer;
        self.table = Some((words, table));
        Ok(pointer)
    }
}

/// Words in page-locked memory. The host accesses them only while the device does not.
struct HostWords {
    memory: PinnedMemory,
    words: usize,
}

impl HostWords {
    fn write(&self, words: &[u32]) {
        assert_eq!(words.len(), self.words);
        // SAFETY: the memory has this length, and no copy is in flight.
        unsafe { self.memory.base().cast::<u32>().as_ptr().copy_from_nonoverlapping(words.as_ptr(), self.words) };
    }

    fn read(&self, words: &mut [u32]) {
        assert_eq!(words.len(), self.words);
        // SAFETY: see above.
        unsafe { words.as_mut_ptr().copy_from_nonoverlapping(self.memory.base().cast::<u32>().as_ptr(), self.words) };
    }
}
