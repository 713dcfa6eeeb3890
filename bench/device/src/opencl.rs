//! Measures copies, launches and memory reads of an OpenCL device.

use std::time::{Duration, Instant};

use godwit_device::opencl::driver::failed;
use godwit_device::opencl::present;
use godwit_device::{Error, Found};
use godwit_packet::Memory;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::Device as ClDevice;
use opencl3::error_codes::ClError;
use opencl3::kernel::Kernel;
use opencl3::memory::{Buffer, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, ClMem};
use opencl3::memory::{CL_MAP_READ, CL_MAP_WRITE};
use opencl3::program::Program as ClProgram;
use opencl3::types::CL_NON_BLOCKING;

use crate::{CopyRates, Measure, table_word, table_words};

const SOURCE: &str = include_str!("opencl.cl");
/// Copies in flight per direction before the host waits.
const COPIES: usize = 8;
/// Number of steps of each chain in one launch.
const STEPS: u32 = 256;
/// Maximum memory for copies per direction, in bytes.
const COPY_BYTES_MAX: usize = 256 << 20;

/// An OpenCL device.
// Fields are dropped in this order: objects of the context before the context.
pub(crate) struct OpenClMeasure {
    /// The last table and its number of words. Reuse saves time, because filling a large table
    /// takes longer than measuring it.
    table: Option<(usize, Buffer<u8>)>,
    nothing: Kernel,
    random_reads: Kernel,
    lookups: Kernel,
    _program: ClProgram,
    queues: [CommandQueue; 2],
    context: Context,
    found: Found,
}

impl OpenClMeasure {
    pub(crate) fn new(number: usize) -> Result<Self, Error> {
        let (found, device) = present(number)?;
        let id = found.capabilities.id.clone();
        let context = Context::from_device(device).map_err(failed(&id, "create a context"))?;
        let program = ClProgram::create_and_build_from_source(&context, SOURCE, "-cl-std=CL1.2")
            .map_err(|log| Error::Build { id: id.clone(), driver: found.driver.clone(), log })?;
        let kernel = |name| Kernel::create(&program, name).map_err(failed(&id, "create a kernel"));
        let (nothing, random_reads, lookups) =
            (kernel("gw_nothing")?, kernel("gw_random_reads")?, kernel("gw_lookups")?);
        let queues = [queue(&context, device, &id)?, queue(&context, device, &id)?];
        Ok(Self { table: None, nothing, random_reads, lookups, _program: program, queues, context, found })
    }

    fn id(&self) -> &str {
        &self.found.capabilities.id
    }

    /// Creates a table with `words` words.
    fn fill(&self, words: usize) -> Result<Buffer<u8>, Error> {
        let bytes = words * size_of::<u32>();
        let mut table = self.buffer(bytes, 0, "a table")?;
        let mut content = Memory::new(bytes, "a table")?;
        for (index, word) in content.as_chunks_mut::<4>().0.iter_mut().take(words).enumerate() {
            *word = table_word(index).to_le_bytes();
        }
        let queue = &self.queues[0];
        // SAFETY: the content has the size of the buffer, and lives until the queue has finished.
        let written = unsafe { queue.enqueue_write_buffer(&mut table, CL_NON_BLOCKING, 0, &content[..bytes], &[]) };
        // Wait even after an error, so that the driver no longer uses the memory.
        let finished = queue.finish();
        written.and(finished).map_err(failed(self.id(), "fill a table"))?;
        Ok(table)
    }

    /// Takes the table with `words` words. The caller puts it back.
    fn take_table(&mut self, words: usize) -> Result<Buffer<u8>, Error> {
        match self.table.take() {
            Some((filled, table)) if filled == words => Ok(table),
            _ => self.fill(words),
        }
    }

    fn buffer(&self, bytes: usize, flags: u64, what: &'static str) -> Result<Buffer<u8>, Error> {
        if bytes as u64 > self.found.buffer_bytes_max {
            let id = self.id().to_owned();
            return Err(Error::TooLarge { id, what, bytes: bytes as u64, bytes_max: self.found.buffer_bytes_max });
        }
        // SAFETY: the call passes no host pointer.
        let buffer = unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE | flags, bytes, std::ptr::null_mut()) };
        buffer.map_err(failed(self.id(), "create a buffer"))
    }
}

fn queue(context: &Context, device: &ClDevice, id: &str) -> Result<CommandQueue, Error> {
    // SAFETY: the device belongs to the context.
    unsafe { CommandQueue::create(context, device.id(), 0) }.map_err(failed(id, "create a command queue"))
}

/// Queue and memory of one copy direction. The driver page-locks the host memory.
struct Direction<'a> {
    queue: &'a CommandQueue,
    device: Buffer<u8>,
    pinned: Buffer<u8>,
    mapped: *mut std::ffi::c_void,
    bytes: usize,
    copies: usize,
}

impl<'a> Direction<'a> {
    fn new(measure: &'a OpenClMeasure, queue: &'a CommandQueue, bytes: usize) -> Result<Self, Error> {
        let copies = (COPY_BYTES_MAX / bytes).clamp(1, COPIES);
        let device = measure.buffer(bytes * copies, 0, "memory for copies")?;
        let pinned = measure.buffer(bytes * copies, CL_MEM_ALLOC_HOST_PTR, "memory for copies")?;
        let mut mapped = std::ptr::null_mut();
        // SAFETY: the whole buffer is mapped once, and has no other use until `drop` unmaps it.
        let event = unsafe {
            let access = CL_MAP_READ | CL_MAP_WRITE;
            queue.enqueue_map_buffer(&pinned, CL_NON_BLOCKING, access, 0, bytes * copies, &mut mapped, &[])
        };
        event.and_then(|event| event.wait()).map_err(failed(measure.id(), "map a buffer"))?;
        // SAFETY: the mapping has this length and is writable.
        unsafe { std::ptr::write_bytes(mapped.cast::<u8>(), 1, bytes * copies) };
        Ok(Self { queue, device, pinned, mapped, bytes, copies })
    }

    /// Starts one round of copies.
    fn start(&mut self, to_device: bool) -> Result<(), ClError> {
        (0..self.copies).try_for_each(|copy| self.start_at(copy * self.bytes, to_device))?;
        self.queue.flush()
    }

    /// Starts a copy of the first bytes.
    fn start_one(&mut self, to_device: bool) -> Result<(), ClError> {
        self.start_at(0, to_device)
    }

    fn start_at(&mut self, offset: usize, to_device: bool) -> Result<(), ClError> {
        // SAFETY: both buffers have `self.bytes` bytes at the offset and live until the queue has
        // finished. Only commands of this queue access them, and it runs these one after the other.
        unsafe {
            let host = self.mapped.cast::<u8>().add(offset);
            if to_device {
                let host = std::slice::from_raw_parts(host, self.bytes);
                self.queue.enqueue_write_buffer(&mut self.device, CL_NON_BLOCKING, offset, host, &[])?;
            } else {
                let host = std::slice::from_raw_parts_mut(host, self.bytes);
                self.queue.enqueue_read_buffer(&self.device, CL_NON_BLOCKING, offset, host, &[])?;
            }
        }
        Ok(())
    }

    /// Returns the words of the first copy. No command may be in flight.
    fn host_words(&mut self) -> &mut [u32] {
        // SAFETY: the mapping has this length, is aligned for all types and was written. The caller
        // ensures that no command uses it.
        unsafe { std::slice::from_raw_parts_mut(self.mapped.cast(), self.bytes / size_of::<u32>()) }
    }
}

impl Drop for Direction<'_> {
    fn drop(&mut self) {
        let _ = self.queue.finish();
        // SAFETY: `mapped` is the mapping of this buffer, and no copy is in flight.
        let _ = unsafe { self.queue.enqueue_unmap_mem_object(self.pinned.get(), self.mapped, &[]) };
        let _ = self.queue.finish();
    }
}

/// Returns the total copy rate of all directions, in bytes per second. The flag selects copies to
/// the device.
fn rate(directions: &mut [(&mut Direction<'_>, bool)], time: Duration, begin: &dyn Fn()) -> Result<f64, ClError> {
    let round = |directions: &mut [(&mut Direction<'_>, bool)]| -> Result<usize, ClError> {
        let mut bytes = 0;
        for (direction, to_device) in directions.iter_mut() {
            direction.start(*to_device)?;
            bytes += direction.bytes * direction.copies;
        }
        for (direction, _) in directions.iter() {
            direction.queue.finish()?;
        }
        Ok(bytes)
    };
    // The first round touches all memory.
    round(directions)?;
    begin();
    let (started, mut bytes) = (Instant::now(), 0);
    while bytes == 0 || started.elapsed() < time {
        bytes += round(directions)?;
    }
    Ok(bytes as f64 / started.elapsed().as_secs_f64())
}

impl Measure for OpenClMeasure {
    fn copy(&mut self, bytes: usize, time: Duration, begin: &dyn Fn()) -> Result<CopyRates, Error> {
        let bytes = bytes.max(1);
        let mut to_device = Direction::new(self, &self.queues[0], bytes)?;
        let mut to_host = Direction::new(self, &self.queues[1], bytes)?;
        let failed = |error| failed(self.id(), "copy")(error);
        Ok(CopyRates {
            host_to_device: rate(&mut [(&mut to_device, true)], time, begin).map_err(failed)?,
            device_to_host: rate(&mut [(&mut to_host, false)], time, begin).map_err(failed)?,
            both: rate(&mut [(&mut to_device, true), (&mut to_host, false)], time, begin).map_err(failed)?,
        })
    }

    fn launch(&mut self, count: usize) -> Result<Option<Vec<f64>>, Error> {
        let launch = || -> Result<f64, ClError> {
            let started = Instant::now();
            // SAFETY: the kernel has no arguments.
            let event = unsafe {
                self.queues[0].enqueue_nd_range_kernel(self.nothing.get(), 1, std::ptr::null(), &1, &1, &[])?
            };
            event.wait()?;
            Ok(started.elapsed().as_nanos() as f64)
        };
        let launch = || launch().map_err(failed(self.id(), "launch a kernel"));
        // The first launch includes the compilation by the driver.
        launch()?;
        (0..count).map(|_| launch()).collect::<Result<_, _>>().map(Some)
    }

    fn random_reads(&mut self, bytes: usize, chains: usize, time: Duration) -> Result<f64, Error> {
        let words = table_words(bytes);
        let chains = chains.max(1);
        let last = self.buffer(chains * size_of::<u32>(), 0, "the results of chains")?;
        let table = self.take_table(words)?;
        let queue = &self.queues[0];
        let run = |table: &Buffer<u8>| -> Result<f64, ClError> {
            // SAFETY: the arguments have the types of the parameters. The buffers live until the
            // queue has finished.
            unsafe {
                self.random_reads.set_arg(0, &table.get())?;
                self.random_reads.set_arg(1, &(words as u32 - 1))?;
                self.random_reads.set_arg(2, &STEPS)?;
                self.random_reads.set_arg(3, &last.get())?;
            }
            let launch = || -> Result<(), ClError> {
                // SAFETY: the mask keeps each chain within the table, and each chain writes only
                // its own result.
                unsafe {
                    let all = &chains;
                    let group = std::ptr::null();
                    queue.enqueue_nd_range_kernel(self.random_reads.get(), 1, std::ptr::null(), all, group, &[])?;
                }
                queue.finish()
            };
            launch()?;
            let (started, mut launches) = (Instant::now(), 0usize);
            while launches == 0 || started.elapsed() < time {
                launch()?;
                launches += 1;
            }
            Ok((launches * chains * STEPS as usize) as f64 / started.elapsed().as_secs_f64())
        };
        let rate = run(&table);
        // Wait even after an error, so that the driver no longer uses the memory.
        let _ = queue.finish();
        self.table = Some((words, table));
        rate.map_err(failed(self.id(), "read memory at random"))
    }

    fn lookups(&mut self, bytes: usize, headers: &mut [u32], depth: u32, time: Duration) -> Result<Vec<f64>, Error> {
        let words = table_words(bytes);
        let table = self.take_table(words)?;
        let queue = &self.queues[0];
        // One copy per direction is in flight at a time.
        let mut copies = Direction::new(self, queue, size_of_val(&*headers))?;
        let run = |copies: &mut Direction<'_>, headers: &mut [u32]| -> Result<Vec<f64>, ClError> {
            // SAFETY: the arguments have the types of the parameters. The buffers live until the
            // queue has finished.
            unsafe {
                self.lookups.set_arg(0, &table.get())?;
                self.lookups.set_arg(1, &(words as u32 - 1))?;
                self.lookups.set_arg(2, &depth)?;
                self.lookups.set_arg(3, &copies.device.get())?;
            }
            let (started, mut times) = (Instant::now(), Vec::new());
            // The first batch includes the compilation by the driver.
            let mut is_first = true;
            while times.is_empty() || started.elapsed() < time {
                copies.host_words().copy_from_slice(headers);
                let begun = Instant::now();
                copies.start_one(true)?;
                let (all, group) = (headers.len(), std::ptr::null());
                // SAFETY: the mask keeps each chain within the table, and each chain accesses only
                // its own header.
                unsafe {
                    queue.enqueue_nd_range_kernel(self.lookups.get(), 1, std::ptr::null(), &all, group, &[])?;
                }
                copies.start_one(false)?;
                queue.finish()?;
                if !std::mem::take(&mut is_first) {
                    times.push(begun.elapsed().as_nanos().max(1) as f64);
                }
            }
            headers.copy_from_slice(copies.host_words());
            Ok(times)
        };
        let times = run(&mut copies, headers);
        // Wait even after an error, so that the driver no longer uses the memory.
        let _ = queue.finish();
        drop(copies);
        self.table = Some((words, table));
        times.map_err(failed(self.id(), "look up headers"))
    }
}
