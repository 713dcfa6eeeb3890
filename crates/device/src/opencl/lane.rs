//! One worker's way to an OpenCL device: a command queue, and a slot for each chunk in flight.

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

/// How long a lane that is dropped sleeps between two looks at what is in flight.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);

/// See the module. Chunks finish in the order in which they were submitted. As many can be in flight as the caller has;
/// slots are made when they are first needed.
///
/// Dropping a lane waits for what is in flight, or until the watchdog gives the device up; to have the packets back,
/// poll until [`Lane::in_flight`] is 0 first.
pub(super) struct OpenClLane {
    held: ManuallyDrop<Held>,
    times: Vec<BinTime>,
    /// When the oldest chunk in flight was submitted, or became the oldest.
    since: Instant,
    /// Whether it has said that the device is lost.
    said_lost: bool,
}

/// What a device that is lost may still reach, and the driver's objects, whose release may wait for the device.
// Fields are dropped in this order.
struct Held {
    /// Oldest first.
    in_flight: VecDeque<Flight>,
    /// Not in flight.
    slots: Vec<Slot>,
    queue: CommandQueue,
    device: Arc<OpenClDevice>,
}

/// A chunk on the device.
struct Flight {
    chunk: Chunk,
    slot: Slot,
    /// None: the driver took a part of the commands and then failed. The device is lost then.
    events: Option<Events>,
}

impl Held {
    /// The oldest chunk whose launch has ended, and how it ended.
    fn first_ended(&self) -> Option<(usize, Result<(), ClError>)> {
        self.in_flight.iter().map(Flight::progress).enumerate().find_map(|(at, progress)| match progress {
            Progress::Ended(ended) => Some((at, ended)),
            _ => None,
        })
    }
}

/// How far a launch is.
enum Progress {
    UnderWay,
    Ended(Result<(), ClError>),
    /// The driver does not say.
    Unknown(ClError),
}

impl Flight {
    fn progress(&self) -> Progress {
        let Some(Events { launched, copied }) = &self.events else { return Progress::UnderWay };
        let last = copied.as_ref().unwrap_or(launched);
        match last.command_execution_status() {
            Ok(status) if status.0 > 0 => Progress::UnderWay,
            // A status is no synchronisation point; waiting is one, and returns at once.
            Ok(status) if status.0 == 0 => Progress::Ended(last.wait()),
            Ok(status) => Progress::Ended(Err(ClError(status.0))),
            Err(error) => Progress::Unknown(error),
        }
    }
}

impl OpenClLane {
    pub(super) fn new(device: Arc<OpenClDevice>) -> Result<Self, Error> {
        device.watch.demand_alive()?;
        let id = &device.found.capabilities.id;
        // SAFETY: the device is the context's. Without a flag that says otherwise the queue runs commands in order.
        let queue = unsafe { CommandQueue::create(&device.context, device.device.id(), CL_QUEUE_PROFILING_ENABLE) };
        let queue = queue.map_err(failed(id, "make a command queue"))?;
        let held = Held { in_flight: VecDeque::new(), slots: Vec::new(), queue, device };
        Ok(Self { held: ManuallyDrop::new(held), times: Vec::new(), since: Instant::now(), said_lost: false })
    }

    /// A slot with room for the chunk.
    fn slot(&mut self, chunk: &Chunk) -> Result<Slot, Error> {
        // One that is too small is given up: chunks of a packer all have the same size.
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

    /// All chunks in flight, as the error that says why the device is lost. What they were launched with is leaked.
    fn hand_back(&mut self) -> Error {
        self.said_lost = true;
        let chunks = self.held.in_flight.drain(..).map(|Flight { chunk, slot, events }| {
            std::mem::forget((slot, events));
            chunk
        });
        let chunks = chunks.collect();
        self.held.device.watch.lost_with(chunks)
    }

    /// Waits for all that is in flight, as long as the watchdog lets it. Whether the device has let go of everything.
    fn drain(&mut self) -> bool {
        let watch = &self.held.device.watch;
        for flight in &self.held.in_flight {
            while let Progress::UnderWay = flight.progress() {
                if watch.is_overdue(self.since) {
                    watch.lose_silent();
                }
                if watch.lost().is_some() {
                    return false;
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
            self.since = watch.heard();
        }
        // Where the driver cannot say that the device is done, it may go on writing.
        watch.lost().is_none() && self.held.queue.finish().is_ok()
    }
}

impl Lane for OpenClLane {
    fn submit(&mut self, region: &mut Region, mut chunk: Chunk) -> Result<(), Box<Rejected>> {
        chunk.ran_chain = self.held.device.runs_chain;
        let alive = self.held.device.watch.demand_alive();
        let launched =
            alive.and_then(|()| self.held.device.check(region, &chunk)).and_then(|()| self.launch(region, &chunk));
        match launched {
            Ok((slot, launched)) => {
                let events = match launched {
                    Launched::Whole(events) => Some(events),
                    // What it took may be under way: `poll` will hand the chunk back.
                    Launched::Part(error) => {
                        self.held.device.watch.lose(format!("its driver failed to take a chunk: {error}"));
                        None
                    }
                };
                if self.held.in_flight.is_empty() {
                    self.since = Instant::now();
                }
                self.held.in_flight.push_back(Flight { chunk, slot, events });
                // A queue may hold commands back until somebody waits. Should this fail, `poll` will hear of it.
                let _ = self.held.queue.flush();
                Ok(())
            }
            Err(error) => Err(Box::new(Rejected { chunk, error })),
        }
    }

    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, Error> {
        let watch = &self.held.device.watch;
        let progress = self.held.in_flight.front().map_or(Progress::UnderWay, Flight::progress);
        let (at, ended) = match progress {
            Progress::Ended(ended) => (0, ended),
            Progress::UnderWay => {
                if !self.held.in_flight.is_empty() && watch.is_overdue(self.since) {
                    watch.lose_silent();
                }
                if watch.lost().is_none() || self.said_lost {
                    return Ok(None);
                }
                // Slots with queues of their own go on when another is stuck.
                match self.held.first_ended() {
                    Some(ended) => ended,
                    None => return Err(self.hand_back()),
                }
            }
            // Nobody knows how far the launch is, nor whether it will ever end.
            Progress::Unknown(error) => {
                watch.lose(format!("its driver does not say how far it is: {error}"));
                return Err(self.hand_back());
            }
        };
        let Some(Flight { mut chunk, mut slot, events }) = self.held.in_flight.remove(at) else { return Ok(None) };
        self.since = self.held.device.watch.heard();
        self.times.clear();
        if let Err(error) = ended {
            self.held.slots.push(slot);
            let id = self.held.device.found.capabilities.id.clone();
            return Err(Error::Failed { id, reason: error.to_string(), chunk: Box::new(chunk) });
        }
        slot.read(&self.held.device.packets, region, &mut chunk);
        self.held.slots.push(slot);
        let times = events
            .map(|Events { launched, .. }| (launched.profiling_command_start(), launched.profiling_command_end()));
        if let Some((Ok(started), Ok(finished))) = times {
            share_time(&chunk.bins, finished.saturating_sub(started), &mut self.times);
        }
        Ok(Some(chunk))
    }

    fn in_flight(&self) -> usize {
        self.held.in_flight.len()
    }

    /// The time of the chunk's launch, shared out over its bins: the driver tells no more.
    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}

impl Drop for OpenClLane {
    fn drop(&mut self) {
        // What a device may still write is never given back.
        if self.drain() {
            // SAFETY: nothing of it is used after this.
            unsafe { ManuallyDrop::drop(&mut self.held) };
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
    use opencl3::event::{Event, create_user_event, set_user_event_status};

    use super::*;
    use crate::opencl::slot::Packets;
    use crate::opencl::{own, probe};
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

    /// The number of a device that can be used; says so when there is none.
    fn device_number() -> Option<usize> {
        let number = probe().found.iter().position(|found| found.usable.is_ok());
        if number.is_none() {
            // Past the test harness, which shows nothing of a test that passes.
            std::io::stderr().write_all(b"skipped: no OpenCL device here can be used\n").unwrap();
        }
        number
    }

    fn wait_for(lane: &OpenClLane, at: usize) {
        while let Progress::UnderWay = lane.held.in_flight[at].progress() {
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// A launch that fails is played by an event that the test ends, well or not, when it likes.
    #[test]
    fn a_chunk_whose_launch_fails_comes_back_and_so_do_the_others() {
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

    /// The driver refuses a copy of packets to a shadow of the arena that is too short for them, when it has taken the
    /// copy of arrays before it.
    #[test]
    fn a_chunk_that_the_driver_takes_in_part_is_lost_and_what_was_done_before_is_not() {
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
        // Not rejected, which would mean that nothing has touched it.
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
        // Neither waits for anything.
        drop((lane, other));
    }

    /// What never ends is played by an event that the test does not end.
    #[test]
    fn what_is_done_when_another_lane_loses_the_device_is_handed_out_first() {
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

            device.watch.lose("another lane said so".to_owned());
            for buffer in [first_buffer, last_buffer] {
                let done = lane.poll(region).unwrap().unwrap();
                assert_eq!((done.descriptors[0], done.outcomes[0].verdict), (buffer, 0));
            }
            let error = lane.poll(region).unwrap_err();
            let Error::Lost { reason, chunks, .. } = error else { panic!("{error}") };
            assert_eq!((reason.as_str(), chunks.len()), ("another lane said so", 1));
            assert_eq!(chunks[0].descriptors[0], stuck_buffer);
            assert!(lane.poll(region).unwrap().is_none(), "a device is lost once");
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
