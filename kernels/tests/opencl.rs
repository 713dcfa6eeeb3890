//! Every kernel compiles for every OpenCL device here, and a chunk run there ends as on the CPU.

mod common;

use std::io::Write as _;
use std::ptr;

use common::CASES;
use common::chunk::Chunk;
use godwit_kernels::opencl_source;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;

const GROUP_LANES: usize = 32;
const GROUPS: usize = 2;

/// Every device of every platform; says so when there is none.
fn devices() -> Vec<Device> {
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

/// A device with a queue, and what lies in its memory.
struct Bench {
    context: Context,
    queue: CommandQueue,
}

impl Bench {
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
}

#[test]
fn a_chunk_ends_on_every_opencl_device_as_on_the_cpu() {
    let chunk = Chunk::of(&CASES, 500, &[GROUP_LANES + 1, 1, 256, 2]);
    let expected = chunk.run_on_cpu(&CASES);
    for device in devices() {
        let name = device.name().unwrap();
        let context = Context::from_device(&device).unwrap();
        let program = Program::create_and_build_from_source(&context, opencl_source(), "-cl-std=CL1.2 -Werror")
            .unwrap_or_else(|log| panic!("{name}:\n{log}"));
        let kernel = Kernel::create(&program, "gw_chunk").unwrap();
        // SAFETY: the queue is used from this thread only.
        let queue = unsafe { CommandQueue::create(&context, device.id(), 0).unwrap() };
        let bench = Bench { context, queue };

        let mut batch = chunk.batch.clone();
        let arena = bench.upload(batch.arena.bytes());
        let images = bench.upload(chunk.images.bytes());
        let image_offsets = bench.upload(&chunk.image_offsets);
        let descriptors = bench.upload(&batch.descriptors);
        let parameters = bench.upload(&batch.parameters);
        let outcomes = bench.upload(&batch.outcomes);
        let bins = bench.upload(&chunk.bins);
        let next_bin = bench.upload(&[0_u32]);
        // SAFETY: the arguments are those of gw_chunk in loops_opencl.h, in its order.
        unsafe {
            ExecuteKernel::new(&kernel)
                .set_arg(&arena)
                .set_arg(&images)
                .set_arg(&image_offsets)
                .set_arg(&descriptors)
                .set_arg(&parameters)
                .set_arg(&outcomes)
                .set_arg(&bins)
                .set_arg(&(chunk.bins.len() as u32))
                .set_arg(&next_bin)
                .set_global_work_size(GROUPS * GROUP_LANES)
                .set_local_work_size(GROUP_LANES)
                .enqueue_nd_range(&bench.queue)
                .unwrap();
        }
        bench.queue.finish().unwrap();
        bench.download(&arena, batch.arena.bytes_mut());
        bench.download(&descriptors, &mut batch.descriptors);
        bench.download(&outcomes, &mut batch.outcomes);

        assert_eq!(batch.outcomes, expected.outcomes, "{name}");
        assert_eq!(batch.descriptors, expected.descriptors, "{name}");
        assert!(batch.arena.bytes() == expected.arena.bytes(), "{name}: frames differ");
    }
}

/// With the default of a device that has it, a generic address space must not be needed either.
#[test]
fn every_kernel_compiles_for_every_version_of_opencl_c() {
    for device in devices() {
        let context = Context::from_device(&device).unwrap();
        for option in ["", "-cl-std=CL3.0"] {
            let built = Program::create_and_build_from_source(&context, opencl_source(), option);
            if let Err(log) = built {
                panic!("{} with {option:?}:\n{log}", device.name().unwrap());
            }
        }
    }
}
