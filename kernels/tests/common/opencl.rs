//! The OpenCL devices here, and one launch of a chunk on one of them.

use std::io::Write as _;
use std::ptr;

use godwit_abi::{CHAIN_SCRATCH_PACKET_BYTES, MAILBOX_SLOT_PACKETS};
use godwit_kernels::opencl_source;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;

use crate::common::batch::Batch;
use crate::common::chunk::Chunk;

/// Every device of every platform; says so when there is none.
pub(crate) fn devices() -> Vec<Device> {
    let devices: Vec<Device> = get_platforms()
        .unwrap_or_default()
        .iter()
        .flat_map(|platform| platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default())
        .map(Device::new)
        .collect();
    if devices.is_empty() {
        // Past the test harness, which shows nothing of a test that passes.
        std::io::stderr().write_all(b"skipped: no OpenCL device here (pocl-opencl-icd and ocl-icd-libopencl1 bring one that needs no GPU)\n").unwrap();
    }
    devices
}

/// The kernels, built for one device with a queue.
pub(crate) struct Bench {
    pub(crate) name: String,
    context: Context,
    queue: CommandQueue,
    kernel: Kernel,
}

impl Bench {
    pub(crate) fn new(device: &Device, options: &str) -> Self {
        let name = format!("{} {options}", device.name().unwrap());
        let context = Context::from_device(device).unwrap();
        let program = Program::create_and_build_from_source(&context, opencl_source(), options)
            .unwrap_or_else(|log| panic!("{name}:\n{log}"));
        let kernel = Kernel::create(&program, "gw_chunk").unwrap();
        // SAFETY: the queue is used from this thread only.
        let queue = unsafe { CommandQueue::create(&context, device.id(), 0).unwrap() };
        Self { name, context, queue, kernel }
    }

    fn upload<T: Copy>(&self, values: &[T]) -> Buffer<T> {
        // SAFETY: no host memory is handed over; the write blocks and fits.
        unsafe {
            let mut buffer = Buffer::create(&self.context, CL_MEM_READ_WRITE, values.len(), ptr::null_mut()).unwrap();
            self.queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, values, &[]).unwrap();
            buffer
        }
    }

    fn download<T: Copy>(&self, buffer: &Buffer<T>, values: &mut [T]) {
        // SAFETY: the read blocks, and `values` is as long as what was uploaded.
        unsafe { self.queue.enqueue_read_buffer(buffer, CL_BLOCKING, 0, values, &[]).unwrap() };
    }

    /// What the device makes of the chunk, with so many groups of so many lanes.
    pub(crate) fn run(&self, chunk: &Chunk, groups: usize, group_lanes: usize) -> Batch {
        let mut batch = chunk.batch.clone();
        let arena = self.upload(batch.arena.bytes());
        let images = self.upload(chunk.images.bytes());
        let image_offsets = self.upload(&chunk.image_offsets);
        let descriptors = self.upload(&batch.descriptors);
        let parameters = self.upload(&batch.parameters);
        let outcomes = self.upload(&batch.outcomes);
        let bins = self.upload(&chunk.bins);
        let next_bin = self.upload(&[0_u32]);
        let trails = self.upload(&batch.trails);
        let places = batch.descriptors.len().next_multiple_of(MAILBOX_SLOT_PACKETS);
        let scratch = self.upload(&vec![0_u8; places * CHAIN_SCRATCH_PACKET_BYTES]);
        // SAFETY: the arguments are those of gw_chunk in loops_opencl.h, in its order.
        unsafe {
            ExecuteKernel::new(&self.kernel)
                .set_arg(&arena)
                .set_arg(&images)
                .set_arg(&image_offsets)
                .set_arg(&descriptors)
                .set_arg(&parameters)
                .set_arg(&outcomes)
                .set_arg(&bins)
                .set_arg(&(chunk.bins.len() as u32))
                .set_arg(&next_bin)
                .set_arg(&trails)
                .set_arg(&scratch)
                .set_arg(&(places as u32))
                .set_global_work_size(groups * group_lanes)
                .set_local_work_size(group_lanes)
                .enqueue_nd_range(&self.queue)
                .unwrap();
        }
        self.queue.finish().unwrap();
        self.download(&arena, batch.arena.bytes_mut());
        self.download(&descriptors, &mut batch.descriptors);
        self.download(&outcomes, &mut batch.outcomes);
        self.download(&trails, &mut batch.trails);
        batch
    }
}
