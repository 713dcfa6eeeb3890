//! Copies between host and device.

use std::ffi::c_void;
use std::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::OnceLock;

use cudarc::driver::result::DriverError;
use cudarc::driver::sys;

use super::memory::DevicePointer;
use super::stream::Stream;
use crate::transfer::{Block, Direction};

/// List of copies between page-locked host memory and device memory. Copies of contiguous bytes are
/// submitted together in one driver call, because each call takes a lock that all threads share.
#[derive(Default)]
pub(crate) struct Copies {
    to: Vec<DevicePointer>,
    from: Vec<DevicePointer>,
    bytes: Vec<usize>,
    blocks: Vec<Rows>,
}

/// Byte ranges of equal length at equal distances. Each range lies in a different packet buffer.
struct Rows {
    direction: Direction,
    device: DevicePointer,
    /// Host address of the first byte range, with exposed provenance.
    host: usize,
    block: Block,
}

impl Copies {
    /// Adds a copy of `bytes` bytes.
    pub(crate) fn add(&mut self, direction: Direction, device: DevicePointer, host: *mut u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let host = host.expose_provenance() as DevicePointer;
        let (to, from) = match direction {
            Direction::ToDevice => (device, host),
            Direction::ToHost => (host, device),
        };
        self.to.push(to);
        self.from.push(from);
        self.bytes.push(bytes);
    }

    /// Adds a copy of `block` between `host` and `device`. The offset of the block applies to both
    /// addresses.
    pub(crate) fn add_block(&mut self, direction: Direction, device: DevicePointer, host: *mut u8, block: Block) {
        let (device, host) = (device + block.offset as u64, host.wrapping_add(block.offset));
        if block.is_row() {
            return self.add(direction, device, host, block.bytes);
        }
        self.blocks.push(Rows { direction, device, host: host.expose_provenance(), block });
    }

    /// Enqueues all added copies, and removes them from `self`. Copies of several byte ranges come
    /// last. All other copies may run in any order.
    ///
    /// # Safety
    /// Host and device memory must be valid for these bytes, and must have no other use until the
    /// copies have ended.
    pub(crate) unsafe fn submit(&mut self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: guaranteed by the caller.
        let submitted = unsafe { self.submit_rows(stream) }.and_then(|()| {
            self.blocks.iter().try_for_each(|rows| {
                // SAFETY: guaranteed by the caller.
                unsafe { sys::cuMemcpy2DAsync_v2(&rows.described(), stream.stream) }.result()
            })
        });
        self.to.clear();
        self.from.clear();
        self.bytes.clear();
        self.blocks.clear();
        submitted
    }

    /// Enqueues the copies of contiguous bytes.
    ///
    /// # Safety
    /// Same as for [`Copies::submit`].
    unsafe fn submit_rows(&mut self, stream: &Stream) -> Result<(), DriverError> {
        let count = self.bytes.len();
        if count > 1 && supports_batches() {
            // SAFETY: all fields are integers, for which 0 means that the locations are unknown.
            let mut attributes: sys::CUmemcpyAttributes = unsafe { std::mem::zeroed() };
            attributes.srcAccessOrder = sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
            let mut first = 0;
            let (to, from, bytes) = (self.to.as_mut_ptr(), self.from.as_mut_ptr(), self.bytes.as_mut_ptr());
            // SAFETY: the arrays have `count` values, and the attributes apply from the first copy
            // on. The caller guarantees the rest.
            return unsafe {
                sys::cuMemcpyBatchAsync_v2(to, from, bytes, count, &mut attributes, &mut first, 1, stream.stream)
            }
            .result();
        }
        let mut each = self.to.iter().zip(&self.from).zip(&self.bytes);
        // SAFETY: guaranteed by the caller.
        each.try_for_each(|((&to, &from), &bytes)| unsafe {
            sys::cuMemcpyAsync(to, from, bytes, stream.stream).result()
        })
    }
}

impl Rows {
    fn described(&self) -> sys::CUDA_MEMCPY2D {
        let Self { direction, device, host, block } = *self;
        let is_to_device = direction == Direction::ToDevice;
        let (host_type, device_type) = (sys::CUmemorytype::CU_MEMORYTYPE_HOST, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE);
        let (from, to) = if is_to_device { (host_type, device_type) } else { (device_type, host_type) };
        sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: from,
            srcHost: if is_to_device { with_exposed_provenance::<c_void>(host) } else { null() },
            srcDevice: if is_to_device { 0 } else { device },
            srcArray: null_mut(),
            srcPitch: block.pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: to,
            dstHost: if is_to_device { null_mut() } else { with_exposed_provenance_mut::<c_void>(host) },
            dstDevice: if is_to_device { device } else { 0 },
            dstArray: null_mut(),
            dstPitch: block.pitch,
            WidthInBytes: block.bytes,
            Height: block.rows,
        }
    }
}

/// Returns whether the driver can enqueue several copies in one call (CUDA 13.0 or later).
fn supports_batches() -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(|| {
        let mut version = 0;
        // SAFETY: the call writes one integer.
        let queried = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
        queried.is_ok() && version >= 13_000
    })
}
