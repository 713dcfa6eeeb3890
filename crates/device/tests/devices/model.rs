//! Tests of the modelled device. They cover its processing times, the sharing of the device between
//! workers, and slow and lost devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_device::model::{ModelClock, ModelDevice, ModelOptions, ModelState};
use godwit_device::{Device, DeviceOptions, Error, Implementation, Lane, Program};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_sched::place::Fit;
use godwit_sched::{Chunk, Packer, PackerConfig};

use crate::template::Template;

const FRAME_BYTES: usize = 100;

/// Costs of the modelled device in these tests: 1 µs per submission, 10 ns per packet, 1 ns per
/// byte, and 50 µs until the worker sees the result.
const COSTS: Fit = Fit {
    chunk_ns: 1_000.0,
    packet_ns: 10.0,
    byte_ns: 1.0,
    floor_ns: 0.0,
    bin_ns: 0.0,
    host_ns: 0.0,
    submit_ns: 0.0,
    trip_ns: 50_000.0,
    trip_byte_ns: 0.0,
    tail: 1.0,
    error_median: 0.0,
    error_max: 0.0,
};

/// Returns two connections to a modelled device that has a virtual clock.
struct Bed {
    now_ns: Arc<AtomicU64>,
    state: Arc<ModelState>,
    lanes: Vec<Box<dyn Lane>>,
    regions: Vec<Region>,
}

impl Bed {
    fn new() -> Self {
        Self::failing_after(None)
    }

    /// Returns connections to a device that fails after `fails_after_chunks` submissions.
    fn failing_after(fails_after_chunks: Option<u64>) -> Self {
        let (now_ns, state) = (Arc::new(AtomicU64::new(1_000)), Arc::new(ModelState::default()));
        let clock = ModelClock::Virtual(Arc::clone(&now_ns));
        let model = ModelOptions { costs: vec![COSTS], clock, fails_after_chunks, state: Arc::clone(&state) };
        let options = DeviceOptions { model, lanes: 2, ..DeviceOptions::default() };
        let programs = vec![(Arc::new(Template) as Arc<dyn Program>, Implementation::Native)];
        let device = Arc::new(ModelDevice::new(0, programs, &options).unwrap());
        let lanes = (0..2).map(|_| Arc::clone(&device).lane().unwrap()).collect();
        let regions = Arena::new(ArenaConfig { packets: 256, ..ArenaConfig::default() }, 2).unwrap().split();
        Self { now_ns, state, lanes, regions }
    }

    /// Submits `packets` packets together through one connection to the device.
    fn submit(&mut self, lane: usize, packets: usize) {
        let chunk = chunk(&mut self.regions[lane], packets);
        self.lanes[lane].submit(&mut self.regions[lane], chunk).unwrap();
    }

    /// Returns the number of packets in each submission that one connection to the device returns
    /// until the time `now_ns`.
    fn poll(&mut self, lane: usize, now_ns: u64) -> Vec<u32> {
        self.now_ns.store(now_ns, Ordering::Relaxed);
        let region = &mut self.regions[lane];
        std::iter::from_fn(|| self.lanes[lane].poll(region).unwrap()).map(|chunk| chunk.packets).collect()
    }
}

fn chunk(region: &mut Region, packets: usize) -> Chunk {
    let mut packer = Packer::new(PackerConfig::default(), &[godwit_kernels::TEMPLATE], 2).unwrap();
    for _ in 0..packets {
        let descriptor = region.allocate(FRAME_BYTES).unwrap();
        region.frame_mut(&descriptor).iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        packer.insert(0, 0, 0, descriptor, 0);
    }
    packer.take(0).unwrap()
}

#[test]
fn chunks_return_at_their_time_and_in_order() {
    let mut bed = Bed::new();
    bed.submit(0, 10);
    bed.submit(0, 20);
    assert_eq!(bed.lanes[0].in_flight(), 2);
    // A submission takes 1 µs, and 110 ns per packet. The second submission waits until the device
    // has finished the first one.
    let first = 1_000 + 1_000 + 10 * 110 + 50_000;
    assert!(bed.poll(0, first - 1).is_empty());
    assert_eq!(bed.poll(0, first), [10]);
    assert_eq!(bed.lanes[0].bin_times()[0].elapsed_ns, 1_000 + 10 * 110);
    let second = first + 1_000 + 20 * 110;
    assert!(bed.poll(0, second - 1).is_empty());
    assert_eq!(bed.poll(0, second), [20]);
    assert_eq!(bed.lanes[0].in_flight(), 0);
}

#[test]
fn lanes_share_the_device_and_it_can_slow_down() {
    let mut bed = Bed::new();
    bed.submit(0, 10);
    bed.state.slow_down(300);
    bed.submit(1, 10);
    let first = 1_000 + 2_100 + 50_000;
    assert_eq!(bed.poll(0, first), [10]);
    assert!(bed.poll(1, first + 3 * 2_100 - 1).is_empty());
    assert_eq!(bed.poll(1, first + 3 * 2_100), [10]);
}

#[test]
fn packets_are_processed_as_on_the_cpu() {
    let mut bed = Bed::new();
    bed.submit(0, 5);
    bed.now_ns.store(u64::MAX / 2, Ordering::Relaxed);
    let region = &mut bed.regions[0];
    let done = bed.lanes[0].poll(region).unwrap().unwrap();
    for at in done.bins.iter().flat_map(|bin| done.range(bin)) {
        let frame = region.frame(&done.descriptors[at]);
        // The function `template` swaps the MAC addresses of each packet.
        assert_eq!(frame[..14], [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13]);
        assert_eq!(done.outcomes[at].verdict, 0);
    }
}

#[test]
fn lost_device_returns_all_chunks_once_and_takes_no_more() {
    let mut bed = Bed::new();
    bed.submit(0, 10);
    bed.submit(0, 20);
    bed.state.lose();
    let region = &mut bed.regions[0];
    let error = bed.lanes[0].poll(region).unwrap_err();
    let Error::Lost { id, chunks, .. } = error else { panic!("{error}") };
    assert_eq!((id.as_str(), chunks.iter().map(|chunk| chunk.packets).sum::<u32>()), ("model:0", 30));
    assert_eq!(bed.lanes[0].in_flight(), 0);
    assert!(bed.lanes[0].poll(region).unwrap().is_none());
    let next = chunk(region, 3);
    let rejected = bed.lanes[0].submit(region, next).unwrap_err();
    assert_eq!(rejected.chunk.packets, 3);
    // A connection without submissions in flight also reports that the device is lost.
    assert!(matches!(bed.lanes[1].poll(&mut bed.regions[1]), Err(Error::Lost { chunks, .. }) if chunks.is_empty()));
}

#[test]
fn device_fails_after_a_number_of_chunks() {
    let mut bed = Bed::failing_after(Some(2));
    bed.submit(0, 10);
    bed.submit(1, 20);
    let next = chunk(&mut bed.regions[0], 3);
    let rejected = bed.lanes[0].submit(&mut bed.regions[0], next).unwrap_err();
    assert_eq!(rejected.chunk.packets, 3);
    for (lane, packets) in [(0, 10), (1, 20)] {
        let Err(Error::Lost { chunks, .. }) = bed.lanes[lane].poll(&mut bed.regions[lane]) else { panic!("not lost") };
        assert_eq!(chunks.iter().map(|chunk| chunk.packets).collect::<Vec<_>>(), [packets]);
    }
}

#[test]
fn names_are_valid_in_configurations() {
    assert!(godwit_device::is_id("model:0") && !godwit_device::is_id("model"));
    assert!(!godwit_device::has_own_memory("model:0"));
}
