//! OpenCL devices of this machine, and the launch of a chunk on one of them.

use std::ptr;

use godwit_abi::{CHAIN_SCRATCH_PACKET_BYTES, MAILBOX_SLOT_PACKETS};
use godwit_kernels::opencl_source;
use godwit_test_support::skip;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;

use super::batch::Batch;
use super::chunk::Chunk;

/// Returns every device of every platform. Reports a skipped test if there is none.
pub(crate) fn devices() -> Vec<Device> {
    let devices: Vec<Device> = get_platforms()
        .unwrap_or_default()
        .iter()
        .flat_map(|platform| platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default())
        .map(Device::new)
        .collect();
    if devices.is_empty() {
        skip("there is no OpenCL device (pocl-opencl-icd and ocl-icd-libopencl1 install one that needs no GPU)");
    }
    devices
}

/// Kernels that are compiled for one device, and a queue of this device.
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
        // SAFETY: only this thread uses the queue.
        let queue = unsafe { CommandQueue::create(&context, device.id(), 0).unwrap() };
        Self { name, context, queue, kernel }
    }

    fn upload<T: Copy>(&self, values: &[T]) -> Buffer<T> {
        // SAFETY: the buffer uses no host memory. The write blocks, and the buffer has the length
        // of `values`.
        unsafe {
            let mut buffer = Buffer::create(&self.context, CL_MEM_READ_WRITE, values.len(), ptr::null_mut()).unwrap();
            self.queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, values, &[]).unwrap();
            buffer
        }
    }

    fn download<T: Copy>(&self, buffer: &Buffer<T>, values: &mut [T]) {
        // SAFETY: the read blocks, and `values` has the length of the uploaded values.
        unsafe { self.queue.enqueue_read_buffer(buffer, CL_BLOCKING, 0, values, &[]).unwrap() };
    }

    /// Runs a chunk with `groups` groups of `group_lanes` lanes, and returns its packets.
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
        let packets_max = batch.descriptors.len().next_multiple_of(MAILBOX_SLOT_PACKETS);
        let scratch = self.upload(&vec![0_u8; packets_max * CHAIN_SCRATCH_PACKET_BYTES]);
        // SAFETY: the arguments are those of `gw_chunk` in loops_opencl.h, in the same order.
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
                .set_arg(&(packets_max as u32))
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
