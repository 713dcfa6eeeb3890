//! Tables of all packet functions in device memory, and the kernel arguments that point to them.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::result;
use godwit_kernels::image::ALIGNMENT_BYTES;
use godwit_packet::ImageRef;
use zeroize::{Zeroize, Zeroizing};

use super::driver::{Context, DeviceMemory, DevicePointer, PinnedMemory, Stream, failed};
use crate::chain::DeviceChain;
use crate::error::Error;
use crate::program::{AccessNeeds, Program};

/// Kernel arguments that are the same in all launches. The C struct is `gw_device`
/// (kernels/dialect/loops_cuda.h).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceArguments {
    pub(super) shadow: DevicePointer,
    pub(super) host: DevicePointer,
    pub(super) images: DevicePointer,
    pub(super) image_offsets: DevicePointer,
    pub(super) reaches: DevicePointer,
}

/// Returns the total size of all function tables. A vector with this capacity never reallocates, so
/// it leaves no copies of secret keys in freed memory.
fn images_bytes(programs: &[Arc<dyn Program>]) -> usize {
    programs.iter().map(|program| program.image().len() + 5 * ALIGNMENT_BYTES).sum::<usize>() + 5 * ALIGNMENT_BYTES
}

/// Tables of all packet functions in device memory, and the number of bytes that each function
/// accesses in a packet.
pub(super) struct Tables {
    memory: DeviceMemory,
    offsets_at: u64,
    reaches_at: u64,
    image_offsets: Vec<u64>,
    updates: Mutex<Updates>,
}

/// Resources that copy table changes to the device. They are allocated in advance, because a driver
/// may block an allocation while persistent work-groups run.
struct Updates {
    stream: Stream,
    staging: PinnedMemory,
    /// Whether a copy has exceeded its timeout. The device may then still read the staging buffer,
    /// which must not be used again.
    stuck: bool,
}

/// Size of the staging buffer, in bytes.
const STAGING_BYTES: usize = 64 << 10;

impl Tables {
    /// Copies the function chain and the tables of all functions to device memory. In the following
    /// layout, an image contains the tables of one function. `offsets_at` and `reaches_at` are
    /// offsets of two arrays. The array at `reaches_at` contains the numbers of bytes that each
    /// function reads and writes in a packet.
    ///
    /// ```text
    /// 0       offsets[0]      offsets[1]          offsets_at            reaches_at
    /// | chain | image 0 ...  | image 1 ... | ... | offsets, u64 each | (reads, writes), u32 each |      at 64-byte boundaries
    /// ```
    pub(super) fn new(
        context: &Arc<Context>,
        programs: &[Arc<dyn Program>],
        chain: &[u8],
        needs: &[AccessNeeds],
    ) -> Result<Self, Error> {
        // Wiped on drop, because tables contain cryptographic keys.
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
            let offset = bytes.len();
            bytes.resize(offset + image.len(), 0);
            image.copy_to(0, &mut bytes[offset..]);
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

    /// Copies changed table bytes of a function to the device. Fails after `timeout`.
    pub(super) fn update(
        &self,
        context: &Context,
        program: usize,
        image: ImageRef<'_>,
        range: Range<usize>,
        timeout: Duration,
    ) -> Result<(), Error> {
        let target = self.image_offsets[program] + range.start as u64;
        self.write(context, target, range.len(), |offset, part| image.copy_to(range.start + offset, part), timeout)
    }

    /// Copies `range` of the program's table image from the device to `bytes`, whose length is at
    /// most [`STAGING_BYTES`]. Returns `None` if the copy fails or takes longer than `timeout`.
    pub(super) fn read(
        &self,
        context: &Context,
        program: usize,
        range: Range<usize>,
        bytes: &mut [u8],
        timeout: Duration,
    ) -> Option<()> {
        context.bind().ok()?;
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        let Updates { stream, staging, stuck } = &mut *updates;
        if *stuck {
            return None;
        }
        let source = self.memory.pointer + self.image_offsets[program] + range.start as u64;
        let part = &mut staging.bytes_mut()[..bytes.len()];
        // SAFETY: the source lies within the image. The staging buffer has no other use until the
        // copy has ended, and is never freed if the copy does not end (`stuck`).
        unsafe { result::memcpy_dtoh_async(part, source, stream.stream) }.ok()?;
        let waiting = Instant::now();
        while !stream.is_idle().ok()? {
            if waiting.elapsed() > timeout {
                *stuck = true;
                return None;
            }
            std::thread::yield_now();
        }
        bytes.copy_from_slice(&staging.bytes_mut()[..bytes.len()]);
        Some(())
    }

    /// See [`crate::Device::update_chain`]. Fails after `timeout`.
    pub(super) fn update_chain(&self, context: &Context, chain: &DeviceChain, timeout: Duration) -> Result<(), Error> {
        let write = |(offset, bytes): (usize, Vec<u8>)| {
            let copy = |from: usize, part: &mut [u8]| part.copy_from_slice(&bytes[from..from + part.len()]);
            self.write(context, offset as u64, bytes.len(), copy, timeout)
        };
        chain.parts().into_iter().try_for_each(write)
    }

    /// Writes `bytes` bytes to the tables in device memory, at offset `target`. Calls
    /// `copy_to(offset, part)` to fill `part` with the data at `offset`.
    fn write(
        &self,
        context: &Context,
        target: u64,
        bytes: usize,
        copy_to: impl Fn(usize, &mut [u8]),
        timeout: Duration,
    ) -> Result<(), Error> {
        let action = "copy a part of a table image";
        let failed = failed(&context.id, action);
        context.bind().map_err(&failed)?;
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        let Updates { stream, staging, stuck } = &mut *updates;
        for offset in (0..bytes).step_by(STAGING_BYTES) {
            if *stuck {
                let reason = "an earlier copy has not ended".to_owned();
                return Err(Error::Driver { id: context.id.clone(), action, reason });
            }
            let bytes = STAGING_BYTES.min(bytes - offset);
            let part = &mut staging.bytes_mut()[..bytes];
            copy_to(offset, part);
            let target = self.memory.pointer + target + offset as u64;
            // SAFETY: the target lies within the image. The staging buffer has no other use until
            // the copy has ended, and is never freed if the copy does not end (`stuck`, or a lost
            // device).
            unsafe { result::memcpy_htod_async(target, part, stream.stream) }.map_err(&failed)?;
            let waiting = Instant::now();
            while !stream.is_idle().map_err(&failed)? {
                if waiting.elapsed() > timeout {
                    *stuck = true;
                    break;
                }
                std::thread::yield_now();
            }
            if !*stuck {
                // The staging buffer may contain secret keys.
                staging.bytes_mut()[..bytes].zeroize();
            }
        }
        match *stuck {
            false => Ok(()),
            true => {
                let reason = format!("no response within {timeout:?}");
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
