//! Stress tests that detect stale and incomplete data. All packets differ, and all of their bytes
//! are checked on the host and on the device.

use std::sync::Arc;
use std::time::Instant;

use godwit_abi::{Bin, Outcome};
use godwit_device::{Device, Lane};
use godwit_packet::Region;
use godwit_sched::Chunk;
use godwit_test_support::Random;

/// Kind of processing by which the function `template` reads and writes whole frames in these
/// tests.
const WHOLE: u8 = 77;
pub(crate) const BIN_PACKETS: usize = 64;
const IN_FLIGHT: usize = 4;
/// Number of packet buffers that each worker needs.
pub(crate) const BUFFERS: usize = 100 * BIN_PACKETS;

/// Returns the kernel source with a changed function `template`. For the kind of processing
/// [`WHOLE`], it returns the sum of the frame's words as outcome value, and inverts every byte.
pub(crate) fn summing_kernels(source: &str) -> String {
    let before = "gw_swap_macs(gw_frame(lane, descriptor));\n    gw_verdict(outcome, GW_TEMPLATE_FORWARD, 0, 0);";
    let instead = "
        if (lane->variant == 77u) {
            GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
            gw_u32 sum = (gw_u32)lane->parameter;
            for (gw_u32 at = 0; at < descriptor->length; at += 4) {
                const gw_u32 word = gw_load_be32(frame + at);
                sum = sum * 16777619u ^ word;
                gw_store_be32(frame + at, ~word);
            }
            gw_verdict(outcome, GW_TEMPLATE_FORWARD, 0, sum);
            return;
        }";
    assert!(source.contains(before), "the kernel of template has changed");
    source.replace(before, &format!("{instead}\n    {before}"))
}

/// Returns a random number for a packet. The number determines the length and the content of the
/// packet.
fn mixed(number: u64) -> u64 {
    Random::new(number).next_u64()
}

/// Returns the length of a packet in bytes, a multiple of 4. Most packets are short, because many
/// packets must fit into the memory.
fn length(number: u64) -> usize {
    let random = mixed(number);
    16 + 4 * (if random & 15 == 0 { random >> 32 & 255 } else { random >> 32 & 31 }) as usize
}

/// Returns the words of a packet's frame.
fn content(number: u64) -> impl Iterator<Item = u32> {
    let mut state = mixed(number) as u32 | 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    })
}

/// Allocates a buffer and writes packet `number` to it.
fn write(region: &mut Region, chunk: &mut Chunk, at: usize, number: u64) {
    let descriptor = region.allocate(length(number)).expect("the region has buffers for all chunks in flight");
    for (bytes, word) in region.frame_mut(&descriptor).chunks_exact_mut(4).zip(content(number)) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    chunk.descriptors[at] = descriptor;
    chunk.parameters[at] = number;
    chunk.outcomes[at] = Outcome::drop(77);
}

/// Fills a submission with a random number of batches of packets of random sizes. Some batches are
/// empty.
pub(crate) fn fill(region: &mut Region, mut chunk: Chunk, next: &mut u64, end: u64) -> Chunk {
    chunk.bins.clear();
    chunk.packets = 0;
    let bins_max = chunk.descriptors.len() / BIN_PACKETS;
    let random = mixed(!*next);
    for bin in 0..1 + random as usize % bins_max {
        let first = bin * BIN_PACKETS;
        let count = (mixed(random.wrapping_add(bin as u64)) % (BIN_PACKETS as u64 + 1)).min(end - *next) as usize;
        for at in first..first + count {
            write(region, &mut chunk, at, *next);
            *next += 1;
        }
        let (count, first) = (count as u16, first as u32);
        chunk.bins.push(Bin { first, count, kernel: godwit_kernels::TEMPLATE, variant: WHOLE, ..Bin::default() });
        chunk.packets += u32::from(count);
    }
    chunk
}

/// Fills a submission with full batches. The buffers of these packets are adjacent.
pub(crate) fn fill_up(region: &mut Region, chunk: &mut Chunk, next: u64) {
    chunk.bins.clear();
    for (at, number) in (0..chunk.descriptors.len()).zip(next..) {
        write(region, chunk, at, number);
    }
    for first in (0..chunk.descriptors.len() as u32).step_by(BIN_PACKETS) {
        let count = BIN_PACKETS as u16;
        chunk.bins.push(Bin { first, count, kernel: godwit_kernels::TEMPLATE, variant: WHOLE, ..Bin::default() });
    }
    chunk.packets = chunk.descriptors.len() as u32;
}

/// Checks that the device read all bytes of each packet, and that the host sees all bytes that the
/// device wrote.
pub(crate) fn check(region: &mut Region, chunk: &Chunk) {
    for bin in &chunk.bins {
        for at in chunk.range(bin) {
            let (descriptor, number) = (chunk.descriptors[at], chunk.parameters[at]);
            let mut sum = number as u32;
            let frame = region.frame(&descriptor);
            assert_eq!(frame.len(), length(number));
            for (at, (bytes, word)) in frame.chunks_exact(4).zip(content(number)).enumerate() {
                sum = sum.wrapping_mul(16_777_619) ^ word;
                assert_eq!(
                    bytes,
                    (!word).to_be_bytes(),
                    "packet {number}: word {at} differs from what the device wrote"
                );
            }
            let expected = Outcome { value: sum, ..Outcome::verdict(0) };
            assert_eq!(chunk.outcomes[at], expected, "packet {number}: the device read other bytes");
            region.release(&descriptor);
        }
    }
}

/// Sends the packets `next..end` through one connection to the device. The buffer that was freed
/// last is allocated first, so each buffer is reused at once.
pub(crate) fn run(lane: &mut dyn Lane, region: &mut Region, next: u64, end: u64) {
    run_programs(lane, region, next, end, 1);
}

/// Sends the packets `next..end` through one connection to the device. The batches belong to
/// `programs` programs in rotation. Returns the number of batches for each program.
pub(crate) fn run_programs(
    lane: &mut dyn Lane,
    region: &mut Region,
    mut next: u64,
    end: u64,
    programs: usize,
) -> Vec<u64> {
    let mut bins = vec![0; programs];
    let mut spare: Vec<_> = (0..IN_FLIGHT).map(|bins| Chunk::new(48, BIN_PACKETS * [48, 3, 17, 30][bins])).collect();
    while next < end || lane.in_flight() > 0 {
        if next < end && !spare.is_empty() {
            let chunk = spare.swap_remove(mixed(next) as usize % spare.len());
            let mut chunk = fill(region, chunk, &mut next, end);
            for (bin, program) in chunk.bins.iter_mut().zip((0..programs).cycle()) {
                bin.instance = program as u16;
                bins[program] += 1;
            }
            lane.submit(region, chunk).unwrap_or_else(|rejected| panic!("{}", rejected.error));
        }
        while let Some(chunk) = lane.poll(region).unwrap() {
            assert_eq!(lane.bin_times().len(), chunk.bins.len());
            check(region, &chunk);
            spare.push(chunk);
        }
    }
    assert_eq!(region.allocated(), 0);
    bins
}

/// Sends packets through a device from several workers, each with its own memory region. Buffers
/// and mailbox slots are reused many times.
pub(crate) fn by_workers(device: Arc<dyn Device>, regions: Vec<Region>, packets: u64) {
    let (workers, started) = (regions.len() as u64, Instant::now());
    std::thread::scope(|scope| {
        for (worker, mut region) in (0..).zip(regions) {
            let mut lane = Arc::clone(&device).lane().unwrap();
            let share = packets / workers;
            scope.spawn(move || run(&mut *lane, &mut region, worker * share, (worker + 1) * share));
        }
    });
    println!("{packets} packets by {workers} workers in {:.1} s", started.elapsed().as_secs_f64());
}
