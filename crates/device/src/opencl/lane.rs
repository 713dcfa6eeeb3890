//! One worker's connection to an OpenCL device in launch mode: a command queue, and one slot per
//! chunk in flight.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::Bin;
use godwit_packet::Region;
use godwit_sched::Chunk;
use opencl3::command_queue::{CL_QUEUE_PROFILING_ENABLE, CommandQueue};
use opencl3::error_codes::ClError;

use super::slot::{Events, Launched, Slot};
use super::{OpenClDevice, failed};
use crate::{BinTime, Error, Lane, Rejected};

/// Time between two polls while a dropped lane waits for its chunks.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Lane in launch mode. It returns chunks in the order of submission. The number of chunks in
/// flight is not limited; slots are created when they are first needed.
///
/// Dropping a lane waits for its chunks in flight, or until the watchdog declares the device lost.
/// The packets of these chunks are then gone. To get them back, poll until [`Lane::in_flight`] is
/// 0.
pub(super) struct OpenClLane {
    held: ManuallyDrop<Held>,
    times: Vec<BinTime>,
    /// When the oldest chunk in flight was submitted, or became the oldest.
    since: Instant,
    /// Whether the lane has reported that the device is lost.
    reported_lost: bool,
}

/// Resources that a lost device may still access, and driver objects, whose release may wait for
/// the device.
// Fields are dropped in this order.
struct Held {
    /// Chunks in flight, oldest first.
    in_flight: VecDeque<Flight>,
    /// Free slots.
    slots: Vec<Slot>,
    queue: CommandQueue,
    device: Arc<OpenClDevice>,
}

/// A chunk on the device.
struct Flight {
    chunk: Chunk,
    slot: Slot,
    /// `None` if the driver accepted some of the commands and then failed. The device is then lost.
    events: Option<Events>,
}

impl Held {
    /// Returns the index of the oldest chunk whose launch has ended, and the result of the launch.
    fn first_ended(&self) -> Option<(usize, Result<(), ClError>)> {
        self.in_flight.iter().map(Flight::progress).enumerate().find_map(|(index, progress)| match progress {
            Progress::Ended(result) => Some((index, result)),
            _ => None,
        })
    }
}

/// State of a launch.
enum Progress {
    Running,
    Ended(Result<(), ClError>),
    /// The driver failed to report the state.
    Unknown(ClError),
}

impl Flight {
    fn progress(&self) -> Progress {
        let Some(Events { launched, copied }) = &self.events else { return Progress::Running };
        let last = copied.as_ref().unwrap_or(launched);
        match last.command_execution_status() {
            Ok(status) if status.0 > 0 => Progress::Running,
            // Reading the status is not a synchronization point. Waiting is one, and returns at
            // once.
            Ok(status) if status.0 == 0 => Progress::Ended(last.wait()),
            Ok(status) => Progress::Ended(Err(ClError(status.0))),
            Err(error) => Progress::Unknown(error),
        }
    }
}

impl OpenClLane {
    pub(super) fn new(device: Arc<OpenClDevice>) -> Result<Self, Error> {
        device.watch.check_alive()?;
        let id = &device.found.capabilities.id;
        // SAFETY: the device belongs to the context. The flags do not request out-of-order
        // execution.
        let queue = unsafe { CommandQueue::create(&device.context, device.device.id(), CL_QUEUE_PROFILING_ENABLE) };
        let queue = queue.map_err(failed(id, "create a command queue"))?;
        let held = Held { in_flight: VecDeque::new(), slots: Vec::new(), queue, device };
        Ok(Self { held: ManuallyDrop::new(held), times: Vec::new(), since: Instant::now(), reported_lost: false })
    }

    /// Returns a slot with room for the chunk.
    fn slot(&mut self, chunk: &Chunk) -> Result<Slot, Error> {
        // A slot that is too small is dropped. This is rare, because all chunks of a packer have
        // the same size.
        if let Some(slot) = self.held.slots.pop().filter(|slot| slot.holds(chunk)) {
            return Ok(slot);
        }
        Slot::new(&self.held.device.parts(), chunk.bins.len().max(chunk.bins.capacity()), chunk.descriptors.len())
    }

    fn launch(&mut self, region: &mut Region, chunk: &Chunk) -> Result<(Slot, Launched), Error> {
        let mut slot = self.slot(chunk)?;
        slot.write(chunk);
        let Held { slots, queue, device, .. } = &mut *self.held;
        match slot.launch(&device.parts(), queue, region, chunk) {
            Ok(launched) => Ok((slot, launched)),
            Err(error) => {
                slots.push(slot);
                Err(error)
            }
        }
    }

    /// Returns the error for a lost device, with all chunks in flight. Their slots and events are
    /// leaked.
    fn lose(&mut self) -> Error {
        self.reported_lost = true;
        let chunks = self.held.in_flight.drain(..).map(|Flight { chunk, slot, events }| {
            std::mem::forget((slot, events));
            chunk
        });
        let chunks = chunks.collect();
        self.held.device.watch.lost_with(chunks)
    }

    /// Waits for all chunks in flight. Returns `false` if the watchdog declares the device lost.
    fn drain(&mut self) -> bool {
        let watch = &self.held.device.watch;
        for flight in &self.held.in_flight {
            while let Progress::Running = flight.progress() {
                if watch.is_overdue(self.since) {
                    watch.lose_silent();
                }
                if watch.lost().is_some() {
                    return false;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
            self.since = watch.record_progress();
        }
        // If the driver cannot confirm the end, the device may continue to write.
        watch.lost().is_none() && self.held.queue.finish().is_ok()
    }
}

impl Lane for OpenClLane {
    fn submit(&mut self, region: &mut Region, mut chunk: Chunk) -> Result<(), Box<Rejected>> {
        chunk.ran_chain = self.held.device.runs_chain;
        let alive = self.held.device.watch.check_alive();
        let launched =
            alive.and_then(|()| self.held.device.check(region, &chunk)).and_then(|()| self.launch(region, &chunk));
        match launched {
            Ok((slot, launched)) => {
                let events = match launched {
                    Launched::Whole(events) => Some(events),
                    // Accepted commands may be running, so `poll` returns the chunk.
                    Launched::Part(error) => {
                        self.held.device.watch.lose(format!("the driver failed to take a chunk: {error}"));
                        None
                    }
                };
                if self.held.in_flight.is_empty() {
                    self.since = Instant::now();
                }
                self.held.in_flight.push_back(Flight { chunk, slot, events });
                // A queue may delay commands until a thread waits for them. If the flush fails,
                // `poll` reports it.
                let _ = self.held.queue.flush();
                Ok(())
            }
            Err(error) => Err(Box::new(Rejected { chunk, error })),
        }
    }

    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, Error> {
        let watch = &self.held.device.watch;
        let progress = self.held.in_flight.front().map_or(Progress::Running, Flight::progress);
        let (index, result) = match progress {
            Progress::Ended(result) => (0, result),
            Progress::Running => {
                if !self.held.in_flight.is_empty() && watch.is_overdue(self.since) {
                    watch.lose_silent();
                }
                if watch.lost().is_none() || self.reported_lost {
                    return Ok(None);
                }
                // Slots with their own queues continue while another one is stuck.
                match self.held.first_ended() {
                    Some(ended) => ended,
                    None => return Err(self.lose()),
                }
            }
            // The launch may still be running, or may never end.
            Progress::Unknown(error) => {
                watch.lose(format!("the driver failed to report the state of a launch: {error}"));
                return Err(self.lose());
            }
        };
        let Some(Flight { mut chunk, mut slot, events }) = self.held.in_flight.remove(index) else { return Ok(None) };
        self.since = self.held.device.watch.record_progress();
        self.times.clear();
        if let Err(error) = result {
            self.held.slots.push(slot);
            let id = self.held.device.found.capabilities.id.clone();
            return Err(Error::Failed { id, reason: error.to_string(), chunk: Box::new(chunk) });
        }
        slot.read(&self.held.device.packets, region, &mut chunk);
        self.held.slots.push(slot);
        let times = events
            .map(|Events { launched, .. }| (launched.profiling_command_start(), launched.profiling_command_end()));
        if let Some((Ok(started), Ok(finished))) = times {
            divide_time(&chunk.bins, finished.saturating_sub(started), &mut self.times);
        }
        Ok(Some(chunk))
    }

    fn in_flight(&self) -> usize {
        self.held.in_flight.len()
    }

    /// The time of the launch, divided between its bins. The driver does not measure single bins.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}

impl Drop for OpenClLane {
    fn drop(&mut self) {
        // Resources of a device that may still write are leaked.
        if self.drain() {
            // SAFETY: `held` is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.held) };
        }
    }
}

/// Divides the time of a launch between its bins, by packets times the longest frame. The parts add
/// up to the time, except for one nanosecond per bin. Bins that ran in parallel count as if they
/// ran one after the other on a faster device.
fn divide_time(bins: &[Bin], elapsed_ns: u64, times: &mut Vec<BinTime>) {
    let weight = |bin: &Bin| u128::from(bin.count) * u128::from(bin.length_bytes.max(1));
    let total = bins.iter().map(weight).sum::<u128>().max(1);
    times.extend((0..).zip(bins).map(|(index, bin)| {
        // The result fits: no bin takes more than the whole time.
        BinTime { bin: index, elapsed_ns: (u128::from(elapsed_ns) * weight(bin) / total) as u64 }
    }));
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use godwit_abi::{Descriptor, Outcome};
    use godwit_packet::{Arena, ArenaConfig};
    use opencl3::event::{Event, create_user_event, set_user_event_status};

    use super::*;
    use crate::opencl::slot::Packets;
    use crate::opencl::{own, probe};
    use crate::{DeviceOptions, Program};

    /// The function `template`, with the properties that a device needs.
    struct Template;

    impl Program for Template {
        fn name(&self) -> &str {
            "template"
        }

        fn kernel(&self) -> u8 {
            godwit_kernels::TEMPLATE
        }

        fn image(&self) -> godwit_packet::ImageRef<'_> {
            [][..].into()
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

        fn headroom_bytes(&self) -> u16 {
            0
        }

        fn tailroom_bytes(&self) -> u16 {
            0
        }

        fn run_ref(&self, _: &mut [u8], _: &mut Descriptor, _: u8, _: u64) -> Outcome {
            unreachable!("the test does not run the reference")
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

    /// Returns the number of a usable device. Prints a message if there is none.
    fn device_number() -> Option<usize> {
        let number = probe().found.iter().position(|found| found.usable.is_ok());
        if number.is_none() {
            // Written directly, because the test harness hides the output of tests that pass.
            std::io::stderr().write_all(b"skipped: no usable OpenCL device\n").unwrap();
        }
        number
    }

    fn wait_for(lane: &OpenClLane, index: usize) {
        while let Progress::Running = lane.held.in_flight[index].progress() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Simulates a launch by an event that the test completes with an error.
    #[test]
    fn returns_the_chunk_of_a_failed_launch_and_all_others() {
        let Some(number) = device_number() else { return };
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
        let events = Events { launched: Event::new(event), copied: None };
        lane.held.in_flight.push_back(Flight { chunk: failing, slot, events: Some(events) });
        let last = chunk(region);
        lane.submit(region, last).unwrap();
        assert_eq!(lane.in_flight(), 3);

        let done = loop {
            if let Some(chunk) = lane.poll(region).unwrap() {
                break chunk;
            }
        };
        assert_eq!(done.outcomes[0].verdict, 0);
        // The third chunk may be finished, but it is not returned before the second one.
        for _ in 0..1000 {
            assert!(lane.poll(region).unwrap().is_none());
        }
        const OUT_OF_RESOURCES: i32 = -5;
        set_user_event_status(event, OUT_OF_RESOURCES).unwrap();
        let error = lane.poll(region).unwrap_err();
        assert!(error.to_string().contains("failed with 1 packets"), "{error}");
        let Error::Failed { chunk: failed, .. } = error else { panic!("{error}") };
        assert_eq!((failed.descriptors[0], failed.outcomes[0]), (descriptor, Outcome::drop(77)));
        assert_eq!(lane.in_flight(), 1);
        while lane.in_flight() > 0 {
            if let Some(chunk) = lane.poll(region).unwrap() {
                assert_eq!(chunk.outcomes[0].verdict, 0);
            }
        }
    }

    /// The shadow of the arena is too short. So the driver accepts the copy of the arrays, and
    /// refuses the copy of the packets.
    #[test]
    fn a_partly_accepted_chunk_is_lost_and_finished_chunks_are_returned() {
        let Some(number) = device_number() else { return };
        let arena = Arena::new(ArenaConfig { packets: 8, ..ArenaConfig::default() }, 1).unwrap();
        let (options, programs) = (DeviceOptions::default(), vec![Arc::new(Template) as Arc<dyn Program>]);
        let mut device = OpenClDevice::with_own_memory(number, programs, &arena.handle(), &options).unwrap();
        let region = &mut arena.split().remove(0);
        let (mut near, mut far) = (chunk(region), chunk(region));
        if near.descriptors[0].buffer > far.descriptors[0].buffer {
            std::mem::swap(&mut near, &mut far);
        }
        let Packets::Own(own) = &mut device.packets else { panic!("it has memory of its own") };
        own.shadow = own::buffer(&device.context, far.descriptors[0].buffer_offset()).unwrap();
        let device = Arc::new(device);
        let (mut lane, mut other) =
            (OpenClLane::new(Arc::clone(&device)).unwrap(), OpenClLane::new(Arc::clone(&device)).unwrap());

        let buffers = [near.descriptors[0], far.descriptors[0]];
        lane.submit(region, near).unwrap();
        wait_for(&lane, 0);
        // The chunk is not rejected, because the device may have accessed it.
        lane.submit(region, far).unwrap();
        assert_eq!(lane.in_flight(), 2);
        let done = lane.poll(region).unwrap().unwrap();
        assert_eq!((done.descriptors[0], done.outcomes[0].verdict), (buffers[0], 0));
        let error = lane.poll(region).unwrap_err();
        let Error::Lost { reason, chunks, .. } = error else { panic!("{error}") };
        assert!(reason.contains("failed to take a chunk"), "{reason}");
        assert_eq!((chunks.len(), chunks[0].descriptors[0]), (1, buffers[1]));
        for lane in [&mut lane, &mut other] {
            let late = chunk(region);
            let rejected = lane.submit(region, late).unwrap_err();
            assert!(matches!(rejected.error, Error::Unusable { .. }), "{}", rejected.error);
        }
        // Neither drop blocks.
        drop((lane, other));
    }

    /// Simulates a stuck launch by an event that never completes.
    #[test]
    fn returns_finished_chunks_before_it_reports_a_lost_device() {
        let Some(number) = device_number() else { return };
        for is_own in [false, true] {
            let arena = Arena::new(ArenaConfig { packets: 8, ..ArenaConfig::default() }, 1).unwrap();
            let (options, programs) = (DeviceOptions::default(), vec![Arc::new(Template) as Arc<dyn Program>]);
            let device = match is_own {
                true => OpenClDevice::with_own_memory(number, programs, &arena.handle(), &options),
                false => OpenClDevice::new(number, programs, &arena.handle(), &options),
            };
            let device = Arc::new(device.unwrap());
            let region = &mut arena.split().remove(0);
            let mut lane = OpenClLane::new(Arc::clone(&device)).unwrap();
            let (first, stuck, last) = (chunk(region), chunk(region), chunk(region));
            let [first_buffer, stuck_buffer, last_buffer] = [&first, &stuck, &last].map(|chunk| chunk.descriptors[0]);
            lane.submit(region, first).unwrap();
            let slot = lane.slot(&stuck).unwrap();
            let event = create_user_event(device.context.get()).unwrap();
            let events = Events { launched: Event::new(event), copied: None };
            lane.held.in_flight.push_back(Flight { chunk: stuck, slot, events: Some(events) });
            lane.submit(region, last).unwrap();
            wait_for(&lane, 0);
            wait_for(&lane, 2);

            device.watch.lose("lost by another lane".to_owned());
            for buffer in [first_buffer, last_buffer] {
                let done = lane.poll(region).unwrap().unwrap();
                assert_eq!((done.descriptors[0], done.outcomes[0].verdict), (buffer, 0));
            }
            let error = lane.poll(region).unwrap_err();
            let Error::Lost { reason, chunks, .. } = error else { panic!("{error}") };
            assert_eq!((reason.as_str(), chunks.len()), ("lost by another lane", 1));
            assert_eq!(chunks[0].descriptors[0], stuck_buffer);
            assert!(lane.poll(region).unwrap().is_none(), "a lost device is reported once");
        }
    }

    #[test]
    fn divides_time_by_packets_and_bytes() {
        let bin = |count, length_bytes| Bin { count, length_bytes, ..Bin::default() };
        let mut times = Vec::new();
        divide_time(&[bin(10, 64), bin(5, 1280), bin(0, 64)], 704, &mut times);
        assert_eq!(
            times.iter().map(|time| (time.bin, time.elapsed_ns)).collect::<Vec<_>>(),
            [(0, 64), (1, 640), (2, 0)]
        );
        times.clear();
        divide_time(&[bin(u16::MAX, u16::MAX); 3], u64::MAX, &mut times);
        assert!(times.iter().all(|time| time.elapsed_ns == u64::MAX / 3));
        times.clear();
        divide_time(&[bin(0, 0)], 100, &mut times);
        assert_eq!(times[0].elapsed_ns, 0);
    }
}
