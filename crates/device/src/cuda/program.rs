//! The programs made ready: all kernels in one module, the table images, and what the entries are told of both.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::result;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use godwit_kernels::image::ALIGNMENT_BYTES;
use godwit_packet::ImageRef;
use zeroize::{Zeroize, Zeroizing};

use super::driver::{Context, DeviceMemory, DevicePointer, PinnedMemory, Stream, failed};
use super::module::{Function, Module};
use super::{compiler, probe};
use crate::chain::Needs;
use crate::{DeviceChain, Error, Program};

/// `gw_device` (kernels/dialect/loops_cuda.h): what every launch is told.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceArguments {
    pub(super) shadow: DevicePointer,
    pub(super) host: DevicePointer,
    pub(super) images: DevicePointer,
    pub(super) image_offsets: DevicePointer,
    pub(super) reaches: DevicePointer,
}

/// All kernels, compiled for one device.
pub(super) struct Kernels {
    pub(super) chunk: Function,
    pub(super) persistent: Function,
    /// Most groups of a launch; each takes bins until none is left.
    pub(super) groups_max: usize,
    /// Groups that run at the same time, if nothing else does: persistent ones must not be more.
    pub(super) groups_resident: usize,
    /// What the device counts cycles by, cycles per microsecond.
    pub(super) cycles_per_us: f64,
}

impl Kernels {
    pub(super) fn load(context: &Arc<Context>, source: &str) -> Result<Self, Error> {
        let id = &context.id;
        let architecture = probe::architecture(probe::capability(context.device));
        let cubin = compiler::cubin(id, source, &architecture)?;
        let module = Arc::new(Module::new(context, &cubin).map_err(failed(id, "load the kernels"))?);
        let scratch_bytes = module.number("gw_scratch_bytes")?;
        let function = |name| {
            let small = failed(id, "give a group of lanes the shared memory that the kernels need");
            module.function(name)?.with_scratch(scratch_bytes).map_err(small)
        };
        let (chunk, persistent) = (function("gw_chunk")?, function("gw_persistent")?);
        let units = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).max(1) as usize;
        let khz = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).max(1);
        Ok(Self {
            groups_max: units * chunk.groups_per_unit(GROUP_LANES),
            groups_resident: units * persistent.groups_per_unit(GROUP_LANES),
            cycles_per_us: f64::from(khz) / 1000.0,
            chunk,
            persistent,
        })
    }
}

/// Threads of a block.
pub(super) const GROUP_LANES: u32 = godwit_kernels::CUDA_GROUP_LANES;

/// Room for all that [`Tables`] holds but the chain, so that nothing is left behind where a vector grew.
fn images_bytes(programs: &[Arc<dyn Program>]) -> usize {
    programs.iter().map(|program| program.image().len() + 5 * ALIGNMENT_BYTES).sum::<usize>() + 5 * ALIGNMENT_BYTES
}

/// The table images of all programs, and how far each reads and writes, in the device's memory.
pub(super) struct Tables {
    memory: DeviceMemory,
    offsets_at: u64,
    reaches_at: u64,
    image_offsets: Vec<u64>,
    updates: Mutex<Updates>,
}

/// The way of changed bytes to the device. Allocated beforehand: while persistent groups run, the driver may wait for
/// them before it gives memory.
struct Updates {
    stream: Stream,
    staging: PinnedMemory,
    /// A copy was not seen to end: the staging memory may still be read.
    stuck: bool,
}

/// Bytes of an update that are copied at once.
const STAGING_BYTES: usize = 64 << 10;

impl Tables {
    /// ```text
    /// 0       offsets[0]      offsets[1]          offsets_at            reaches_at
    /// | chain | image 0 ...  | image 1 ... | ... | offsets, u64 each | (reads, writes), u32 each |      at 64-byte boundaries
    /// ```
    pub(super) fn new(
        context: &Arc<Context>,
        programs: &[Arc<dyn Program>],
        chain: &[u8],
        needs: &[Needs],
    ) -> Result<Self, Error> {
        // Wiped when dropped: images hold keys.
        let mut bytes: Zeroizing<Vec<u8>> = Zeroizing::new(Vec::with_capacity(images_bytes(programs) + chain.len()));
        let mut offsets: Vec<u8> = Vec::new();
        let mut reaches: Vec<u8> = Vec::new();
        let mut image_offsets = Vec::new();
        let align = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(ALIGNMENT_BYTES), 0);
        bytes.extend(chain);
        align(&mut bytes);
        for (program, needs) in programs.iter().zip(needs) {
            image_offsets.push(bytes.len() as u64);
            offsets.extend((bytes.len() as u64).to_le_bytes());
            reaches.extend(u32::from(needs.reads_bytes).to_le_bytes());
            reaches.extend(u32::from(needs.writes_bytes).to_le_bytes());
            let image = program.image();
            let at = bytes.len();
            bytes.resize(at + image.len(), 0);
            image.copy_to(0, &mut bytes[at..]);
            align(&mut bytes);
        }
        let offsets_at = bytes.len() as u64;
        bytes.extend(offsets);
        align(&mut bytes);
        let reaches_at = bytes.len() as u64;
        bytes.extend(reaches);
        let memory = DeviceMemory::new(context, bytes.len(), "the table images")?;
        memory.fill(&bytes)?;
        let staging = PinnedMemory::new(context, STAGING_BYTES)?;
        let updates = Mutex::new(Updates { stream: Stream::new(context)?, staging, stuck: false });
        Ok(Self { memory, offsets_at, reaches_at, image_offsets, updates })
    }

    /// See [`crate::Device::update_image`]. Gives up after `patience`.
    pub(super) fn update(
        &self,
        context: &Context,
        program: usize,
        image: ImageRef<'_>,
        range: Range<usize>,
        patience: Duration,
    ) -> Result<(), Error> {
        let target = self.image_offsets[program] + range.start as u64;
        self.write(context, target, range.len(), |at, part| image.copy_to(range.start + at, part), patience)
    }

    /// See [`crate::Device::update_chain`]. Gives up after `patience`.
    pub(super) fn update_chain(&self, context: &Context, chain: &DeviceChain, patience: Duration) -> Result<(), Error> {
        let write = |(at, bytes): (usize, Vec<u8>)| {
            let copy = |from: usize, part: &mut [u8]| part.copy_from_slice(&bytes[from..from + part.len()]);
            self.write(context, at as u64, bytes.len(), copy, patience)
        };
        chain.parts().into_iter().try_for_each(write)
    }

    /// Writes `bytes` bytes at `target` of the memory; `copy_to(at, part)` fills a part of them.
    fn write(
        &self,
        context: &Context,
        target: u64,
        bytes: usize,
        copy_to: impl Fn(usize, &mut [u8]),
        patience: Duration,
    ) -> Result<(), Error> {
        let action = "copy a part of a table image";
        let answer = failed(&context.id, action);
        context.bind().map_err(&answer)?;
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        let Updates { stream, staging, stuck } = &mut *updates;
        for at in (0..bytes).step_by(STAGING_BYTES) {
            if *stuck {
                let reason = "an earlier copy has not ended".to_owned();
                return Err(Error::Driver { id: context.id.clone(), action, reason });
            }
            let bytes = STAGING_BYTES.min(bytes - at);
            let part = &mut staging.bytes_mut()[..bytes];
            copy_to(at, part);
            let target = self.memory.pointer + target + at as u64;
            // SAFETY: within the image's place; the staging memory is left alone until the copy has ended, and never freed
            // when that is not seen (`stuck`, and a device that is lost frees nothing).
            unsafe { result::memcpy_htod_async(target, part, stream.stream) }.map_err(&answer)?;
            let waiting = Instant::now();
            while !stream.is_idle().map_err(&answer)? {
                if waiting.elapsed() > patience {
                    *stuck = true;
                    break;
                }
                std::thread::yield_now();
            }
            if !*stuck {
                // It may hold keys.
                staging.bytes_mut()[..bytes].zeroize();
            }
        }
        match *stuck {
            false => Ok(()),
            true => {
                let reason = format!("it did not answer within {patience:?}");
                Err(Error::Driver { id: context.id.clone(), action, reason })
            }
        }
    }

    pub(super) fn arguments(&self, shadow: DevicePointer, host: DevicePointer) -> DeviceArguments {
        let images = self.memory.pointer;
        DeviceArguments {
            shadow,
            host,
            images,
            image_offsets: images + self.offsets_at,
            reaches: images + self.reaches_at,
        }
    }
}
