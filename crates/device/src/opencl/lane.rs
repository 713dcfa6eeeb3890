//! One worker's way to an OpenCL device: a command queue, and a slot for each chunk in flight.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use godwit_abi::Bin;
use godwit_packet::Region;
use godwit_sched::Chunk;
use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, CommandQueue};
use opencl3::error_codes::ClError;
use opencl3::event::Event;

use super::slot::{Slot, SlotParts};
use super::{OpenClDevice, failed};
use crate::check::check;
use crate::{BinTime, Error, Lane, Rejected};

/// See the module. Chunks finish in the order in which they were submitted. As many can be in flight as the caller has;
/// slots are made when they are first needed.
///
/// Dropping a lane waits for what is in flight; to have the packets back, poll until [`Lane::in_flight`] is 0 first.
pub(super) struct OpenClLane {
    /// Not in flight.
    slots: ManuallyDrop<Vec<Slot>>,
    /// Oldest first.
    in_flight: ManuallyDrop<VecDeque<Flight>>,
    times: Vec<BinTime>,
    queue: CommandQueue,
    device: ManuallyDrop<Arc<OpenClDevice>>,
}

/// A chunk on the device.
struct Flight {
    chunk: Chunk,
    slot: Slot,
    launched: Event,
}

impl OpenClLane {
    pub(super) fn new(device: Arc<OpenClDevice>) -> Result<Self, Error> {
        let id = &device.found.capabilities.id;
        // SAFETY: the device is the context's. Without a flag that says otherwise the queue runs commands in order.
        let queue = unsafe { CommandQueue::create(&device.context, device.device.id(), CL_QUEUE_PROFILING_ENABLE) };
        let queue = queue.map_err(failed(id, "make a command queue"))?;
        Ok(Self {
            slots: ManuallyDrop::new(Vec::new()),
            in_flight: ManuallyDrop::new(VecDeque::new()),
            times: Vec::new(),
            queue,
            device: ManuallyDrop::new(device),
        })
    }

    fn check(&self, region: &mut Region, chunk: &Chunk) -> Result<(), Error> {
        if region.arena_base() != self.device.arena.base().as_ptr() {
            return Err(Error::Chunk { reason: "its packets lie in another arena than the device's".to_owned() });
        }
        let programs = &self.device.programs;
        check(region, chunk, |instance| programs.get(usize::from(instance)).map(|program| program.kernel()))
    }

    /// A slot with room for the chunk.
    fn slot(&mut self, chunk: &Chunk) -> Result<Slot, Error> {
        // One that is too small is given up: chunks of a packer all have the same size.
        if let Some(slot) = self.slots.pop().filter(|slot| slot.holds(chunk)) {
            return Ok(slot);
        }
        let OpenClDevice { found, context, kernels, tables, arena_buffer, .. } = &**self.device;
        let parts = SlotParts { found, context, kernels, tables, arena: arena_buffer };
        Slot::new(&parts, chunk.bins.len().max(chunk.bins.capacity()), chunk.descriptors.len())
    }

    fn launch(&mut self, chunk: &Chunk) -> Result<(Slot, Event), Error> {
        let mut slot = self.slot(chunk)?;
        slot.write(chunk);
        let id = &self.device.found.capabilities.id;
        match slot.launch(&self.device.kernels, &self.queue, chunk.bins.len()) {
            Ok(launched) => Ok((slot, launched)),
            Err(error) => {
                self.slots.push(slot);
                Err(failed(id, "launch a kernel")(error))
            }
        }
    }

    /// Whether the oldest chunk's launch has ended; if so, well or not.
    fn ended(&self, launched: &Event) -> Option<Result<(), ClError>> {
        match launched.command_execution_status() {
            Ok(status) if status.0 > 0 => None,
            // A status is no synchronisation point; waiting is one, and returns at once.
            Ok(status) if status.0 == 0 => Some(launched.wait()),
            Ok(status) => Some(Err(ClError(status.0))),
            // Nobody knows how far the launch is: its packets come back when all is done, as far as the driver can tell.
            Err(error) => Some(self.queue.finish().and(Err(error))),
        }
    }
}

impl Lane for OpenClLane {
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>> {
        let launched = self.check(region, &chunk).and_then(|()| self.launch(&chunk));
        match launched {
            Ok((slot, launched)) => {
                self.in_flight.push_back(Flight { chunk, slot, launched });
                // A queue may hold commands back until somebody waits. Should this fail, `poll` will hear of it.
                let _ = self.queue.flush();
                Ok(())
            }
            Err(error) => Err(Box::new(Rejected { chunk, error })),
        }
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, Error> {
        let Some(ended) = self.in_flight.front().and_then(|flight| self.ended(&flight.launched)) else {
            return Ok(None);
        };
        // `ended` is of the first, so there is one.
        let Some(Flight { mut chunk, mut slot, launched }) = self.in_flight.pop_front() else { return Ok(None) };
        self.times.clear();
        if let Err(error) = ended {
            self.slots.push(slot);
            let id = self.device.found.capabilities.id.clone();
            return Err(Error::Failed { id, reason: error.to_string(), chunk: Box::new(chunk) });
        }
        slot.read(&mut chunk);
        self.slots.push(slot);
        if let (Ok(started), Ok(finished)) = (launched.profiling_command_start(), launched.profiling_command_end()) {
            share_time(&chunk.bins, finished.saturating_sub(started), &mut self.times);
        }
        Ok(Some(chunk))
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The time of the chunk's launch, shared out over its bins: the driver tells no more.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}

impl Drop for OpenClLane {
    fn drop(&mut self) {
        // Where the driver cannot say that the device is done, it may go on writing: the memory is never given back then.
        if self.queue.finish().is_ok() {
            // SAFETY: none of the three is used after this.
            unsafe {
                ManuallyDrop::drop(&mut self.in_flight);
                ManuallyDrop::drop(&mut self.slots);
                ManuallyDrop::drop(&mut self.device);
            }
        }
    }
}

/// Shares out the time of a launch by packets times the longest frame, bin by bin. The shares add up to the time within
/// a nanosecond a bin. Bins that ran side by side count as if they had run one after the other on a faster device.
fn share_time(bins: &[Bin], elapsed_ns: u64, times: &mut Vec<BinTime>) {
    let weight = |bin: &Bin| u128::from(bin.count) * u128::from(bin.length_bytes.max(1));
    let whole = bins.iter().map(weight).sum::<u128>().max(1);
    times.extend((0..).zip(bins).map(|(index, bin)| {
        // A share is at most the whole time.
        BinTime { bin: index, elapsed_ns: (u128::from(elapsed_ns) * weight(bin) / whole) as u64 }
    }));
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use godwit_abi::{Descriptor, Outcome};
    use godwit_packet::{Arena, ArenaConfig};
    use opencl3::event::{create_user_event, set_user_event_status};

    use super::*;
    use crate::opencl::probe;
    use crate::{DeviceOptions, Program};

    /// The function `template`, as far as a device that compiles its kernel needs it.
    struct Template;

    impl Program for Template {
        fn name(&self) -> &str {
            "template"
        }

        fn kernel(&self) -> u8 {
            godwit_kernels::TEMPLATE
        }

        fn image(&self) -> &[u8] {
            &[]
        }

        fn variant(&self) -> u8 {
            0
        }

        fn reads_bytes(&self) -> u16 {
            12
        }

        fn writes_bytes(&self) -> u16 {
            12
        }

        fn run_ref(&self, _: &mut [u8], _: &mut Descriptor, _: u8, _: u64) -> Outcome {
            unreachable!("the test does not compare")
        }
    }

    fn chunk(region: &mut Region) -> Chunk {
        let mut chunk = Chunk::new(1, 1);
        chunk.bins.push(Bin { count: 1, kernel: godwit_kernels::TEMPLATE, ..Bin::default() });
        chunk.descriptors[0] = region.allocate(64).unwrap();
        chunk.outcomes[0] = Outcome::drop(77);
        chunk.packets = 1;
        chunk
    }

    /// A launch that fails is played by an event that the test ends, well or not, when it likes.
    #[test]
    fn a_chunk_whose_launch_fails_comes_back_and_so_do_the_others() {
        let found = probe().found;
        let Some(number) = found.iter().position(|found| found.usable.is_ok()) else {
            // Past the test harness, which shows nothing of a test that passes.
            std::io::stderr().write_all(b"skipped: no OpenCL device here can be used\n").unwrap();
            return;
        };
        let arena = Arena::new(ArenaConfig { packets: 3, ..ArenaConfig::default() }, 1).unwrap();
        let options = DeviceOptions::default();
        let device = Arc::new(OpenClDevice::new(number, vec![Arc::new(Template)], &arena.handle(), &options).unwrap());
        let region = &mut arena.split().remove(0);
        let mut lane = OpenClLane::new(Arc::clone(&device)).unwrap();

        let first = chunk(region);
        lane.submit(region, first).unwrap();
        let failing = chunk(region);
        let descriptor = failing.descriptors[0];
        let slot = lane.slot(&failing).unwrap();
        let event = create_user_event(device.context.get()).unwrap();
        lane.in_flight.push_back(Flight { chunk: failing, slot, launched: Event::new(event) });
        let last = chunk(region);
        lane.submit(region, last).unwrap();
        assert_eq!(lane.in_flight(), 3);

        let done = loop {
            if let Some(chunk) = lane.poll(region).unwrap() {
                break chunk;
            }
        };
        assert_eq!(done.outcomes[0].verdict, 0);
        // The third may be done already, but not before the second, which is not waited for.
        for _ in 0..1000 {
            assert!(lane.poll(region).unwrap().is_none());
        }
        const OUT_OF_RESOURCES: i32 = -5;
        set_user_event_status(event, OUT_OF_RESOURCES).unwrap();
        let error = lane.poll(region).unwrap_err();
        assert!(error.to_string().contains("failed with 1 packets in its hands"), "{error}");
        let Error::Failed { chunk: failed, .. } = error else { panic!("{error}") };
        assert_eq!((failed.descriptors[0], failed.outcomes[0]), (descriptor, Outcome::drop(77)));
        assert_eq!(lane.in_flight(), 1);
        while lane.in_flight() > 0 {
            if let Some(chunk) = lane.poll(region).unwrap() {
                assert_eq!(chunk.outcomes[0].verdict, 0);
            }
        }
    }

    #[test]
    fn time_is_shared_by_packets_and_bytes() {
        let bin = |count, length_bytes| Bin { count, length_bytes, ..Bin::default() };
        let mut times = Vec::new();
        share_time(&[bin(10, 64), bin(5, 1280), bin(0, 64)], 704, &mut times);
        assert_eq!(
            times.iter().map(|time| (time.bin, time.elapsed_ns)).collect::<Vec<_>>(),
            [(0, 64), (1, 640), (2, 0)]
        );
        times.clear();
        share_time(&[bin(u16::MAX, u16::MAX); 3], u64::MAX, &mut times);
        assert!(times.iter().all(|time| time.elapsed_ns == u64::MAX / 3));
        times.clear();
        share_time(&[bin(0, 0)], 100, &mut times);
        assert_eq!(times[0].elapsed_ns, 0);
    }
}
