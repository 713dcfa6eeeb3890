use std::io::Write as _;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_packet::{Arena, ArenaConfig};
use opencl3::event::{Event, create_user_event, set_user_event_status};

use super::*;
use crate::opencl::slot::Packets;
use crate::opencl::{driver, probe};
use crate::options::DeviceOptions;
use crate::program::Program;

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

fn open(number: usize, arena: &Arena, is_own: bool) -> Opened {
    let (source, programs) = (godwit_kernels::opencl_source(), vec![Arc::new(Template) as Arc<dyn Program>]);
    Opened::new(number, programs, &arena.handle(), &DeviceOptions::default(), source, is_own).unwrap()
}

fn chunk(region: &mut Region) -> Chunk {
    let mut chunk = Chunk::new(1, 1);
    chunk.bins.push(Bin { count: 1, kernel: godwit_kernels::TEMPLATE, ..Bin::default() });
    chunk.descriptors[0] = region.allocate(64).unwrap();
    chunk.outcomes[0] = Outcome::drop(77);
    chunk.packets = 1;
    chunk
}

/// Returns the number of an OpenCL device that Godwit can use. Prints a message and returns `None`
/// if there is none.
fn device_number() -> Option<usize> {
    let number = probe().found.iter().position(|found| found.usable.is_ok());
    if number.is_none() {
        // The message is written to stderr directly, because the test harness hides the output of
        // tests that pass.
        std::io::stderr().write_all(b"skipped: no usable OpenCL device\n").unwrap();
    }
    number
}

fn wait_for(lane: &LaunchLane, index: usize) {
    while let Progress::Running = lane.held.in_flight[index].progress() {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Simulates a launch that fails. The connection to the device waits for an event, which the test
/// completes with an error.
#[test]
fn returns_the_chunk_of_a_failed_launch_and_all_others() {
    let Some(number) = device_number() else { return };
    let arena = Arena::new(ArenaConfig { packets: 3, ..ArenaConfig::default() }, 1).unwrap();
    let device = Arc::new(open(number, &arena, false));
    let region = &mut arena.split().remove(0);
    let mut lane = LaunchLane::new(Arc::clone(&device)).unwrap();

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
    // The third submission may already be finished, but it must not be returned before the second
    // one.
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

/// Simulates a driver that accepts only some commands of a submission. In this test, the device's
/// memory for packets is too small. The driver therefore accepts the copy of the submission's
/// arrays, and refuses the copy of its packets.
#[test]
fn a_partly_accepted_chunk_is_lost_and_finished_chunks_are_returned() {
    let Some(number) = device_number() else { return };
    let arena = Arena::new(ArenaConfig { packets: 8, ..ArenaConfig::default() }, 1).unwrap();
    let mut device = open(number, &arena, true);
    let region = &mut arena.split().remove(0);
    let (mut near, mut far) = (chunk(region), chunk(region));
    if near.descriptors[0].buffer > far.descriptors[0].buffer {
        std::mem::swap(&mut near, &mut far);
    }
    let Packets::Own(own) = &mut device.packets else { panic!("it has memory of its own") };
    own.buffer = driver::buffer(&device.context, far.descriptors[0].buffer_offset()).unwrap();
    let device = Arc::new(device);
    let (mut lane, mut other) =
        (LaunchLane::new(Arc::clone(&device)).unwrap(), LaunchLane::new(Arc::clone(&device)).unwrap());

    let buffers = [near.descriptors[0], far.descriptors[0]];
    lane.submit(region, near).unwrap();
    wait_for(&lane, 0);
    // The submission is accepted, because the device may already have accessed it.
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
    // Neither of the two drops blocks.
    drop((lane, other));
}

/// Simulates a launch that is stuck. The connection to the device waits for an event that never
/// completes.
#[test]
fn returns_finished_chunks_before_it_reports_a_lost_device() {
    let Some(number) = device_number() else { return };
    for is_own in [false, true] {
        let arena = Arena::new(ArenaConfig { packets: 8, ..ArenaConfig::default() }, 1).unwrap();
        let device = Arc::new(open(number, &arena, is_own));
        let region = &mut arena.split().remove(0);
        let mut lane = LaunchLane::new(Arc::clone(&device)).unwrap();
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
