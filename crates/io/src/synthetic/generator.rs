//! Generates packets. Each packet gets a flow, a length, the headers of the flow, and the remaining
//! fields.

use std::sync::Arc;

use godwit_packet::simd::{self, Isa, Vectorized};
use godwit_packet::{Batch, Descriptor, Region, Stamp, Steering};

use super::config::{Config, IpVersion, PayloadKind, Transport};
use super::draw::draw;
use super::flows::{Flow, Flows, HEAD_BYTES, NO_TAIL, Tail};
use super::headers::Shape;
use super::lengths::Lengths;
use super::payload::{Payload, STEP_BYTES};
use super::program::{Position, Program};
use super::schedule::{Cursor, Schedule};
use super::units::Rate;
use crate::{Error, PortCounters};

/// Times at which packets or bits are due. [`Generator::units_per`] selects the unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Number of packets or bits that are due now.
    pub(super) due: u64,
    /// Index of the packet or bit that is due at `start_ns`.
    pub(super) first: u64,
    /// Time at which the packet or bit `first` is due, in nanoseconds.
    pub(super) start_ns: u64,
    /// Time between two packets or bits, in nanoseconds.
    pub(super) unit_ns: f64,
}

impl Pace {
    /// Returns the time at which a packet or bit is due.
    #[inline(always)]
    fn time_ns(&self, unit: u64) -> u64 {
        if self.unit_ns == 0.0 {
            return self.start_ns;
        }
        // In an unused entry, `unit` may be less than `first`. The subtraction then wraps around,
        // but the result is never used.
        self.start_ns.wrapping_add((unit.wrapping_sub(self.first) as f64 * self.unit_ns) as u64)
    }
}

/// Reason for which [`Generator::fill`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The generator appended all requested packets, or examined the maximum number of packets.
    Enough,
    /// No packet buffer is free.
    RegionFull,
    /// The next packet is not due yet.
    NotDue,
    /// All packets of the sequence were generated.
    Ended,
}

/// Generates the packets of one worker. A program can use the generator without a port.
#[derive(Debug)]
pub struct Generator {
    shape: Shape,
    lengths: Lengths,
    /// Whether the prepared headers contain the length fields. This is true if all packets have the
    /// same length.
    has_lengths: bool,
    flows: Flows,
    payload: Payload,
    /// Whether all packets of a flow have the same headers. This requires packets of equal length,
    /// and a payload that is constant or has no checksum.
    is_one_frame: bool,
    seed: u64,
    port: u8,
    worker: usize,
    schedule: Schedule,
    /// Position in the schedule. The search for the worker's next packet continues from there.
    at: Cursor,
    sequence_end: u64,
    /// Sequence number of the packet at which the frame lengths or the proportions of traffic
    /// classes change next. If they do not change again, it is the number after the last packet.
    until: u64,
    units_per: UnitsPer,
    load: Option<Load>,
    counters: PortCounters,
}

/// The load program of a port, and the current position in it.
#[derive(Debug)]
struct Load {
    program: Arc<Program>,
    /// Frame lengths for each `size` in the load program. The entry in use is `None`, because its
    /// value was moved out of the list.
    lengths: Vec<Option<Lengths>>,
    /// Index of the frame lengths in use.
    size: usize,
    /// Upper limit of the random numbers for each traffic class. A packet belongs to the first
    /// class whose limit exceeds the packet's random number. The list is empty if there are no
    /// classes.
    limits: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitsPer {
    Packet,
    Bit,
}

/// Arguments of [`Generator::fill_prepared`].
struct FillPrepared<'a, const V6: bool, const TCP: bool, const COPY: usize> {
    generator: &'a mut Generator,
    region: &'a mut Region,
    batch: &'a mut Batch,
    packets: usize,
    pace: &'a Pace,
}

impl<const V6: bool, const TCP: bool, const COPY: usize> Vectorized for FillPrepared<'_, V6, TCP, COPY> {
    type Output = Stop;

    #[inline(always)]
    fn run(self, _: impl Isa) -> Stop {
        self.generator.fill_prepared::<V6, TCP, COPY>(self.region, self.batch, self.packets, self.pace)
    }
}

/// Number of packets in a block. The generator selects the flows of all packets of a block before
/// it writes the first packet. A block is long enough to hide the memory latency, and fits into the
/// L1 cache.
const BLOCK_PACKETS: usize = 32;

/// Constant that makes the random numbers for classes independent of the random numbers for flows.
const CLASS_SEED: u64 = 0x3c6e_f372_fe94_f82b;

/// Number of packets of the next block whose buffers are prefetched while a block is written.
const NEXT_PACKETS: usize = Region::FETCHED_AHEAD_PACKETS;

impl Generator {
    /// Creates a generator for the packets that arrive on `port` and belong to `worker`.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid or the pattern file cannot be read.
    pub fn new(config: &Config, steering: Arc<Steering>, worker: usize, port: u8) -> Result<Self, Error> {
        config.validate()?;
        let shape = Shape::of(config);
        let program = Program::read(config)?.map(Arc::new);
        let (sizes, classes) = match &program {
            Some(program) => (&program.sizes[..], &program.classes[..]),
            None => (std::slice::from_ref(&config.size), &[][..]),
        };
        for &size in sizes {
            Config { size, ..config.clone() }.validate()?;
        }
        let all = |size| Lengths::new(config.seed, size, shape.headers_bytes() as u16);
        let mut all: Vec<Option<Lengths>> = sizes.iter().map(all).map(Some).collect();
        let fixed = all[0].as_ref().and_then(Lengths::fixed).filter(|_| sizes.len() == 1);
        let (flows, schedule) = Flows::new(config, shape, steering, worker, fixed, classes)?;
        let lengths = all[0].take().unwrap_or(Lengths::Fixed(0));
        let sequence_end = if config.packets == 0 { u64::MAX } else { config.packets };
        let sequence_end = sequence_end.min(program.as_ref().map_or(u64::MAX, |program| program.packets()));
        Ok(Self {
            shape,
            is_one_frame: fixed.is_some() && matches!(config.payload, PayloadKind::Zero | PayloadKind::Stale),
            has_lengths: fixed.is_some(),
            lengths,
            flows,
            payload: Payload::new(config)?,
            seed: config.seed,
            port,
            worker,
            at: schedule.start(),
            schedule,
            sequence_end,
            until: sequence_end,
            load: program.map(|program| Load { program, lengths: all, size: 0, limits: Vec::new() }),
            units_per: if matches!(config.rate, Rate::BitsPerS(_)) { UnitsPer::Bit } else { UnitsPer::Packet },
            counters: PortCounters::default(),
        })
    }

    /// Appends up to `packets` packets to the batch and returns their number.
    ///
    /// Appends fewer packets if no buffer is free, if the sequence has ended, or if nearly all
    /// packets belong to other workers.
    pub fn fill(&mut self, region: &mut Region, batch: &mut Batch, packets: usize) -> usize {
        let before = batch.len();
        self.fill_paced(region, batch, packets, &Pace { due: u64::MAX, first: 0, start_ns: 0, unit_ns: 0.0 });
        batch.len() - before
    }

    /// Appends packets that are due.
    pub(super) fn fill_paced(&mut self, region: &mut Region, batch: &mut Batch, packets: usize, pace: &Pace) -> Stop {
        let Some(program) = self.program() else { return self.fill_segment(region, batch, packets, pace) };
        let full = batch.len() + packets;
        loop {
            let Some(position) = program.position(self.at.sequence).filter(|_| self.sequence_next() != u64::MAX) else {
                return Stop::Ended;
            };
            self.enter(&position);
            let start_ns = pace.start_ns.wrapping_add(position.start_ns);
            let pace = match pace.unit_ns {
                0.0 => *pace,
                _ => Pace { due: pace.due, first: position.first, start_ns, unit_ns: position.packet_ns },
            };
            let stop = self.fill_segment(region, batch, full - batch.len(), &pace);
            if stop != Stop::Ended || self.at.sequence < position.end {
                return stop;
            }
        }
    }

    fn enter(&mut self, position: &Position<'_>) {
        let Some(load) = &mut self.load else { return };
        self.until = self.sequence_end.min(position.end);
        if load.size != position.size
            && let Some(next) = load.lengths[position.size].take()
        {
            load.lengths[load.size] = Some(std::mem::replace(&mut self.lengths, next));
            load.size = position.size;
        }
        load.limits.clear();
        load.limits.extend_from_slice(position.limits);
    }

    /// Returns the load program, if the port has one.
    pub(super) fn program(&self) -> Option<Arc<Program>> {
        self.load.as_ref().map(|load| Arc::clone(&load.program))
    }

    fn fill_segment(&mut self, region: &mut Region, batch: &mut Batch, packets: usize, pace: &Pace) -> Stop {
        use {IpVersion::*, Transport::*};
        // Each combination of IP version and transport protocol has a separate loop, in which all
        // header offsets are constants.
        match (self.shape.ip, self.shape.transport) {
            (V4, Udp) => self.fill_as::<false, false, 48>(region, batch, packets, pace),
            (V4, Tcp) => self.fill_as::<false, true, 64>(region, batch, packets, pace),
            (V6, Udp) => self.fill_as::<true, false, 64>(region, batch, packets, pace),
            (V6, Tcp) => self.fill_as::<true, true, 80>(region, batch, packets, pace),
        }
    }

    /// Appends packets of one IP version and transport protocol. `COPY` is the length of the
    /// headers, rounded up to a size that is cheap to copy.
    fn fill_as<const V6: bool, const TCP: bool, const COPY: usize>(
        &mut self,
        region: &mut Region,
        batch: &mut Batch,
        packets: usize,
        pace: &Pace,
    ) -> Stop {
        match &self.flows {
            Flows::Prepared(_) => {
                simd::run(FillPrepared::<V6, TCP, COPY> { generator: self, region, batch, packets, pace })
            }
            Flows::Random(_) => self.fill_random::<V6, TCP, COPY>(region, batch, packets, pace),
        }
    }

    /// Appends packets of the prepared flows. Selects and prefetches the flows for a block of
    /// packets, and then writes these packets. Each step is a short loop, so the processor can work
    /// on several packets at once.
    #[inline(always)]
    fn fill_prepared<const V6: bool, const TCP: bool, const COPY: usize>(
        &mut self,
        region: &mut Region,
        batch: &mut Batch,
        packets: usize,
        pace: &Pace,
    ) -> Stop {
        let Flows::Prepared(flows) = &self.flows else { unreachable!("the caller checked the variant") };
        let (seed, sequence_end, port, pace) = (self.seed, self.until, self.port, *pace);
        let limits = self.load.as_ref().map_or(&[][..], |load| &load.limits);
        let (frame_bytes_max, steps, fixed_bytes) =
            (region.frame_bytes_max(), self.schedule.steps(), self.lengths.fixed());
        let (mut at, mut counters) = (self.at, self.counters);
        // If the last packet of a block is due, all packets of the block are due, so one check is
        // enough. This requires a rate in packets, no packet above the maximum length, and no
        // traffic classes.
        let is_plain = self.units_per == UnitsPer::Packet
            && usize::from(self.lengths.longest()) <= frame_bytes_max
            && limits.is_empty();
        // Random number and flow index of each packet of the block.
        let (mut randoms, mut indices) = ([0; BLOCK_PACKETS], [0; BLOCK_PACKETS]);
        // Number of packets that were examined before each packet of the block. The count includes
        // packets that are too long.
        let mut before: [usize; BLOCK_PACKETS] = std::array::from_fn(|packet| packet);
        let mut lengths = [fixed_bytes.unwrap_or(0); BLOCK_PACKETS + NEXT_PACKETS];
        let mut stamps = [Stamp::default(); BLOCK_PACKETS];
        let payload_at = const { shape::<V6, TCP>().headers_bytes() };
        let zeros = fixed_bytes.filter(|_| self.payload.is_zero()).map(|bytes| usize::from(bytes) - payload_at);
        let mut left = packets;
        let mut stop = Stop::Enough;
        while left > 0 && stop == Stop::Enough {
            if at.sequence >= sequence_end {
                stop = Stop::Ended;
                break;
            }
            let (from, mut count, mut examined, mut next) = (at, 0, 0, 0..0);
            let known = steps.from(at, left.min(BLOCK_PACKETS) + NEXT_PACKETS);
            let mut slots = &known[..known.len().min(left).min(BLOCK_PACKETS)];
            let last = slots.last().map_or(u64::MAX, |slot| at.round_start + u64::from(slot.position));
            if is_plain && last < sequence_end && last <= pace.due {
                for ((slot, random), stamp) in slots.iter().zip(&mut randoms).zip(&mut stamps) {
                    let sequence = at.round_start + u64::from(slot.position);
                    *stamp = Stamp { sequence, time_ns: pace.start_ns };
                    *random = sequence;
                }
                self.lengths.of_slots(at.round_start, known, &mut lengths);
                // A separate loop permits the compiler to vectorize it.
                randoms[..slots.len()].iter_mut().for_each(|random| *random = draw(seed, *random));
                for ((slot, &random), index) in slots.iter().zip(&randoms).zip(&mut indices) {
                    *index = flows.index(slot.group.into(), random);
                    flows.prefetch(*index);
                }
                if pace.unit_ns != 0.0 {
                    stamps.iter_mut().for_each(|stamp| stamp.time_ns = pace.time_ns(stamp.sequence));
                }
                (count, examined, next, slots) = (slots.len(), slots.len(), slots.len()..known.len(), &[]);
            }
            for slot in slots {
                let sequence = at.round_start + u64::from(slot.position);
                if sequence >= sequence_end {
                    stop = Stop::Ended;
                    break;
                }
                let units = match self.units_per {
                    UnitsPer::Packet => sequence,
                    UnitsPer::Bit => 8 * self.lengths.bytes_before(sequence),
                };
                if units > pace.due {
                    stop = Stop::NotDue;
                    break;
                }
                (before[count], examined) = (examined, examined + 1);
                let frame_bytes = fixed_bytes.unwrap_or_else(|| self.lengths.bytes(sequence));
                if usize::from(frame_bytes) > frame_bytes_max {
                    counters.oversized += 1;
                    continue;
                }
                randoms[count] = draw(seed, sequence);
                indices[count] = match limits {
                    [] => flows.index(slot.group.into(), randoms[count]),
                    _ => flows.index_of_class(slot.group.into(), class(seed, sequence, limits), randoms[count]),
                };
                flows.prefetch(indices[count]);
                lengths[count] = frame_bytes;
                stamps[count] = Stamp { sequence, time_ns: pace.time_ns(units) };
                count += 1;
            }
            left -= examined;
            let (lengths, next) = (&lengths[..count], &lengths[next]);
            let generated = if self.is_one_frame && COPY <= HEAD_BYTES {
                // The prepared flow contains the complete frame except for its payload of zeros.
                region.allocate_each(lengths, next, &mut batch.descriptors, |packet, descriptor, out| {
                    let flow = flows.get(indices[packet % BLOCK_PACKETS]);
                    (descriptor.port, descriptor.flow_hash) = (port, flow.flow_hash);
                    copy_head::<COPY>(flow, out);
                    if let Some(bytes) = zeros {
                        zero_payload(out, payload_at, bytes);
                    }
                })
            } else {
                region.allocate_each(lengths, next, &mut batch.descriptors, |packet, descriptor, out| {
                    let (random, index) = (randoms[packet % BLOCK_PACKETS], indices[packet % BLOCK_PACKETS]);
                    let flow = flows.get(index);
                    let tail = if COPY > HEAD_BYTES { flows.tail(index) } else { &NO_TAIL };
                    (descriptor.port, descriptor.flow_hash) = (port, flow.flow_hash);
                    self.emit::<V6, TCP, COPY>(flow, tail, random, descriptor.length, out);
                })
            };
            if generated < count {
                stop = Stop::RegionFull;
                examined = before[generated];
            }
            batch.stamps.extend_from_slice(&stamps[..generated]);
            counters.received_packets += generated as u64;
            counters.received_bytes += lengths[..generated].iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
            at = steps.ahead(from, examined);
        }
        (self.at, self.counters) = (at, counters);
        stop
    }

    /// Appends packets with random addresses. Each packet belongs to a new flow. Skips packets of
    /// other workers.
    fn fill_random<const V6: bool, const TCP: bool, const COPY: usize>(
        &mut self,
        region: &mut Region,
        batch: &mut Batch,
        packets: usize,
        pace: &Pace,
    ) -> Stop {
        let Flows::Random(maker) = &self.flows else { unreachable!("the caller checked the variant") };
        let full = batch.len() + packets;
        let (frame_bytes_max, steps) = (region.frame_bytes_max(), self.schedule.steps());
        let (mut at, mut counters) = (self.at, self.counters);
        let mut stop = Stop::Enough;
        // The loop examines a limited number of packets, because most of them may belong to other
        // workers.
        for _ in 0..packets.saturating_mul(16) {
            if batch.len() == full {
                break;
            }
            if at.sequence >= self.until {
                stop = Stop::Ended;
                break;
            }
            let units = match self.units_per {
                UnitsPer::Packet => at.sequence,
                UnitsPer::Bit => 8 * self.lengths.bytes_before(at.sequence),
            };
            if units > pace.due {
                stop = Stop::NotDue;
                break;
            }
            let random = draw(self.seed, at.sequence);
            let new_flow = maker.flow(random);
            if maker.worker(&new_flow) == self.worker {
                let frame_bytes = self.lengths.bytes(at.sequence);
                if usize::from(frame_bytes) > frame_bytes_max {
                    counters.oversized += 1;
                } else {
                    let Some(descriptor) = region.allocate(frame_bytes.into()) else {
                        stop = Stop::RegionFull;
                        break;
                    };
                    let out = &mut region.buffer_mut(&descriptor)[usize::from(descriptor.head)..];
                    self.emit::<V6, TCP, COPY>(&new_flow.flow, &new_flow.tail, random, frame_bytes, out);
                    let stamp = Stamp { sequence: at.sequence, time_ns: pace.time_ns(units) };
                    batch.push(Descriptor { port: self.port, flow_hash: new_flow.flow.flow_hash, ..descriptor }, stamp);
                    counters.received_packets += 1;
                    counters.received_bytes += u64::from(frame_bytes);
                }
            }
            at = steps.ahead(at, 1);
        }
        (self.at, self.counters) = (at, counters);
        stop
    }

    /// Writes a frame of `frame_bytes` bytes to the beginning of `out`. May also overwrite the
    /// bytes after the frame.
    #[inline(always)]
    fn emit<const V6: bool, const TCP: bool, const COPY: usize>(
        &self,
        flow: &Flow,
        tail: &Tail,
        random: u64,
        frame_bytes: u16,
        out: &mut [u8],
    ) {
        let shape = const { shape::<V6, TCP>() };
        let payload = shape.headers_bytes();
        let payload_bytes = usize::from(frame_bytes) - payload;
        if out.len() < COPY {
            // `out` is too short for a copy of fixed size, so a local array holds the headers
            // first.
            let mut headers = headers::<COPY>(flow, tail);
            let payload_sum = self.payload.emit(random, payload_bytes, &mut out[payload..]);
            self.finish(shape, flow, frame_bytes, payload_sum, &mut headers);
            out[..payload].copy_from_slice(&headers[..payload]);
            return;
        }
        out[..COPY].copy_from_slice(&headers::<COPY>(flow, tail));
        if self.is_one_frame {
            self.payload.emit(random, payload_bytes, &mut out[payload..]);
            return;
        }
        let payload_sum = self.payload.emit(random, payload_bytes, &mut out[payload..]);
        if let Some(headers) = out.first_chunk_mut::<COPY>() {
            self.finish(shape, flow, frame_bytes, payload_sum, headers);
        }
    }

    /// Writes the lengths and checksums of the packet into its headers. Without checksums, the
    /// checksum field stays 0.
    #[inline(always)]
    fn finish<const COPY: usize>(
        &self,
        shape: Shape,
        flow: &Flow,
        frame_bytes: u16,
        payload_sum: u64,
        headers: &mut [u8; COPY],
    ) {
        let sum = match self.has_lengths {
            true => flow.sums.transport,
            false => shape.set_lengths(flow.sums, frame_bytes, headers),
        };
        if self.payload.has_checksum() {
            shape.set_checksum(u64::from(sum) + payload_sum, headers);
        }
    }

    /// Skips the oldest packets until at most `units` packets or bits wait. `due` is the total
    /// number of packets or bits that are due. Counts the skipped packets of this worker as missed.
    pub(super) fn miss(&mut self, due: u64, units: u64) {
        let steps = self.schedule.steps();
        while self.at.sequence < self.sequence_end {
            let before = match self.units_per {
                UnitsPer::Packet => self.at.sequence,
                UnitsPer::Bit => 8 * self.lengths.bytes_before(self.at.sequence),
            };
            if due.saturating_sub(before) <= units {
                return;
            }
            let own = match &self.flows {
                Flows::Prepared(_) => true,
                Flows::Random(maker) => maker.worker(&maker.flow(draw(self.seed, self.at.sequence))) == self.worker,
            };
            self.counters.missed += u64::from(own);
            self.at = steps.ahead(self.at, 1);
        }
    }

    pub(super) fn units_mean(&self) -> f64 {
        match self.units_per {
            UnitsPer::Packet => 1.0,
            UnitsPer::Bit => 8.0 * self.lengths.mean_bytes(),
        }
    }

    /// Returns the sequence number of the next packet, or `u64::MAX` after the last packet.
    pub fn sequence_next(&self) -> u64 {
        if self.at.sequence >= self.sequence_end { u64::MAX } else { self.at.sequence }
    }

    /// Returns the counters of the generator. Each generated packet is counted as received.
    pub fn counters(&self) -> PortCounters {
        self.counters
    }
}

#[inline(always)]
fn class(seed: u64, sequence: u64, limits: &[u32]) -> usize {
    let random = draw(seed ^ CLASS_SEED, sequence) as u32;
    // The last class that occurs has the limit `u32::MAX`.
    limits.iter().position(|&limit| random < limit || limit == u32::MAX).unwrap_or(0)
}

const fn shape<const V6: bool, const TCP: bool>() -> Shape {
    Shape {
        ip: if V6 { IpVersion::V6 } else { IpVersion::V4 },
        transport: if TCP { Transport::Tcp } else { Transport::Udp },
    }
}

/// Copies the header bytes of a flow to `out`, except the bytes in its [`Tail`]. May also overwrite
/// the bytes after the headers.
#[inline(always)]
fn copy_head<const COPY: usize>(flow: &Flow, out: &mut [u8]) {
    match (out.first_chunk_mut::<COPY>(), flow.head.first_chunk::<COPY>()) {
        (Some(out), Some(head)) => *out = *head,
        _ => copy_short(flow, out),
    }
}

/// Copies the first header bytes of a flow to a short buffer.
#[inline(never)]
fn copy_short(flow: &Flow, out: &mut [u8]) {
    out.iter_mut().zip(&flow.head).for_each(|(out, byte)| *out = *byte);
}

/// Writes a payload of zeros. May also overwrite the bytes after the payload.
///
/// A short payload is written with stores of a fixed size, because a function call would take 26
/// instructions per packet.
#[inline(always)]
fn zero_payload(out: &mut [u8], at: usize, bytes: usize) {
    match out.get_mut(at..).and_then(|payload| payload.first_chunk_mut::<STEP_BYTES>()) {
        Some(payload) if bytes <= STEP_BYTES => *payload = [0; STEP_BYTES],
        _ => zero_long(&mut out[at..], bytes),
    }
}

#[inline(never)]
fn zero_long(payload: &mut [u8], bytes: usize) {
    payload[..bytes].fill(0);
}

#[inline(always)]
fn headers<const COPY: usize>(flow: &Flow, tail: &Tail) -> [u8; COPY] {
    let mut headers = [0; COPY];
    headers[..HEAD_BYTES].copy_from_slice(&flow.head);
    headers[HEAD_BYTES..].copy_from_slice(&tail[..COPY - HEAD_BYTES]);
    headers
}
