//! Tables of all packet functions, in OpenCL buffers.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use godwit_kernels::image::ALIGNMENT_BYTES;
use godwit_packet::{Image, ImageRef, Memory};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::Device;
use opencl3::memory::Buffer;
use zeroize::{Zeroize, Zeroizing};

use super::driver::{
    PAGE_BYTES, buffer, check_buffer_size, copy_to_device, copy_to_host, failed, over, over_read_only, queue, wait_for,
};
use crate::bytes::bytes_of;
use crate::chain::DeviceChain;
use crate::error::Error;
use crate::found::Found;
use crate::program::Program;

/// Tables of all packet functions, in OpenCL buffers.
// The order of the fields matters, because each buffer must be dropped before its memory.
pub(super) struct Tables {
    pub(super) images: Buffer<u8>,
    /// Offset of each function's tables in `images`, as one `u64` per program.
    pub(super) offsets: Buffer<u8>,
    copies: Copies,
    /// Offset of each function's tables, for accesses by the host.
    image_offsets: Vec<usize>,
}

/// Memory to which changes of tables are written.
enum Copies {
    /// The OpenCL buffers lie in this host memory. The number is the offset of the tables in it.
    Shared(Image, usize),
    /// The OpenCL buffers lie in device memory. This command queue copies changes to them.
    Own(Mutex<CommandQueue>),
}

impl Tables {
    /// Copies the tables of all functions to OpenCL buffers. The first buffer holds the offset of
    /// each table. The second buffer holds the function chain and the tables:
    ///
    /// ```text
    /// 0                                  offsets[0]       offsets[1]
    /// | offsets, one u64 a program ... | | chain | image 0 ...  | | image 1 ... |      all at 64-byte boundaries
    /// ```
    pub(super) fn new(
        found: &Found,
        context: &Context,
        device: &Device,
        programs: &[Arc<dyn Program>],
        chain: &[u8],
        is_own: bool,
    ) -> Result<Self, Error> {
        // OpenCL does not allow empty buffers, and drivers share host memory in whole pages.
        let offsets_bytes = (programs.len().max(1) * size_of::<u64>()).next_multiple_of(PAGE_BYTES);
        let mut offsets: Vec<u64> = Vec::with_capacity(programs.len());
        let mut image_offsets = Vec::with_capacity(programs.len());
        let mut images_bytes = chain.len().next_multiple_of(ALIGNMENT_BYTES);
        for program in programs {
            offsets.push(images_bytes as u64);
            image_offsets.push(images_bytes);
            images_bytes += program.image().len().next_multiple_of(ALIGNMENT_BYTES);
        }
        let images_bytes = images_bytes.max(1).next_multiple_of(PAGE_BYTES);
        let mut memory = Memory::new(offsets_bytes + images_bytes, "the table images of a device")?;
        memory[..size_of_val(offsets.as_slice())].copy_from_slice(bytes_of(&offsets));
        memory[offsets_bytes..][..chain.len()].copy_from_slice(chain);
        for (program, &offset) in programs.iter().zip(&offsets) {
            let image = program.image();
            image.copy_to(0, &mut memory[offsets_bytes + offset as usize..][..image.len()]);
        }
        if is_own {
            let images = own_copy(found, context, device, &memory[offsets_bytes..])?;
            let offsets = own_copy(found, context, device, &memory[..offsets_bytes])?;
            let copies = Copies::Own(Mutex::new(queue(found, context, device)?));
            // The memory may contain secret keys.
            memory.zeroize();
            return Ok(Self { images, offsets, copies, image_offsets });
        }
        let memory = Image::new(memory);
        // SAFETY: the offset lies within the memory.
        let images_base = unsafe { memory.base().add(offsets_bytes) };
        let has_counters = programs.iter().any(|program| !program.counter_bytes().is_empty());
        // SAFETY: both ranges lie within the memory, which lives as long as the buffers in `Self`.
        // Only `update` writes it, and only bytes that no packet uses. Only kernels write counters.
        let (images, offsets) = unsafe {
            let over = if has_counters { over } else { over_read_only };
            let images = over(found, context, images_base, images_bytes, "the table images")?;
            (images, over_read_only(found, context, memory.base(), offsets_bytes, "the table images")?)
        };
        Ok(Self { images, offsets, copies: Copies::Shared(memory, offsets_bytes), image_offsets })
    }

    /// Copies changed bytes of a function's tables to the device.
    pub(super) fn update(
        &self,
        id: &str,
        program: usize,
        image: ImageRef<'_>,
        range: Range<usize>,
        timeout: Duration,
    ) -> Result<(), Error> {
        let mut bytes = Zeroizing::new(vec![0; range.len()]);
        image.copy_to(range.start, &mut bytes);
        self.write(id, self.image_offsets[program] + range.start, bytes, timeout)
    }

    /// Replaces the function chain on the device.
    pub(super) fn update_chain(&self, id: &str, chain: &DeviceChain, timeout: Duration) -> Result<(), Error> {
        let mut parts = chain.parts().into_iter();
        parts.try_for_each(|(offset, bytes)| self.write(id, offset, Zeroizing::new(bytes), timeout))
    }

    /// Reads `range` of the program's table image into `bytes`. Returns `None` if the copy fails or
    /// takes longer than `timeout`.
    pub(super) fn read(&self, program: usize, range: Range<usize>, bytes: &mut [u8], timeout: Duration) -> Option<()> {
        let offset = self.image_offsets[program] + range.start;
        match &self.copies {
            Copies::Shared(memory, images_at) => ImageRef::from(memory).copy_to(images_at + offset, bytes),
            Copies::Own(queue) => {
                let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                let mut copied = vec![0; bytes.len()];
                let host = NonNull::from(&mut copied[..]).cast();
                // SAFETY: nothing else uses the copy. It is freed only after the command has ended.
                let event = unsafe { copy_to_host(&queue, &self.images, offset, host, bytes.len()) };
                match event.and_then(|event| queue.flush().and(wait_for(&event, timeout))) {
                    Ok(true) => bytes.copy_from_slice(&copied),
                    _ => {
                        std::mem::forget(copied);
                        return None;
                    }
                }
            }
        }
        Some(())
    }

    /// Writes `bytes` to the table memory at `offset`. Returns an error if the copy takes longer
    /// than `timeout`.
    fn write(&self, id: &str, offset: usize, bytes: Zeroizing<Vec<u8>>, timeout: Duration) -> Result<(), Error> {
        let action = "copy a part of a table image";
        match &self.copies {
            Copies::Shared(memory, images_at) => memory.write(images_at + offset, &bytes),
            Copies::Own(queue) if !bytes.is_empty() => {
                let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                let host = NonNull::from(&bytes[..]).cast();
                // SAFETY: nothing writes the bytes. They are dropped only after the copy has ended.
                let copied = unsafe { copy_to_device(&queue, &self.images, offset, host, bytes.len()) };
                match copied.and_then(|event| queue.flush().and(wait_for(&event, timeout))) {
                    Ok(true) => {}
                    Ok(false) => {
                        std::mem::forget(bytes);
                        let reason = format!("no response within {timeout:?}");
                        return Err(Error::Driver { id: id.to_owned(), action, reason });
                    }
                    Err(error) => return Err(failed(id, action)(error)),
                }
            }
            Copies::Own(_) => {}
        }
        Ok(())
    }
}

/// Creates a buffer in device memory, and copies `bytes` into it.
fn own_copy(found: &Found, context: &Context, device: &Device, bytes: &[u8]) -> Result<Buffer<u8>, Error> {
    let id = &found.capabilities.id;
    check_buffer_size(found, bytes.len(), "the table images")?;
    let buffer = buffer(context, bytes.len()).map_err(failed(id, "create a buffer"))?;
    let queue = queue(found, context, device)?;
    // SAFETY: nothing writes the bytes, and this function waits for the copy. If waiting fails, the
    // device is not used.
    let copied = unsafe { copy_to_device(&queue, &buffer, 0, NonNull::from(bytes).cast(), bytes.len()) };
    copied.and_then(|_| queue.finish()).map_err(failed(id, "copy the table images"))?;
    Ok(buffer)
}
