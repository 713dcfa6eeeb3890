//! Makes packets: draws a flow and a length, copies the headers that all packets share, patches what differs.

use std::sync::Arc;

use godwit_packet::{Batch, Descriptor, Region, Stamp, Steering};

use super::config::{Config, IpVersion, Transport};
use super::draw::draw;
use super::flows::{Flow, Flows};
use super::lengths::Lengths;
use super::payload::Payload;
use super::schedule::{Cursor, Schedule};
use super::units::Rate;
use crate::{Error, PortCounters};

/// Headers are copied in one piece of this size, bytes: Ethernet, IPv6 and TCP have 74.
pub(super) const HEADERS_BYTES_MAX: usize = 80;

pub(super) const ETHERNET_BYTES: usize = 14;

/// Which headers packets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) ip: IpVersion,
    transport: Transport,
}

impl Shape {
    pub(super) fn of(config: &Config) -> Self {
        Self { ip: config.ip, transport: config.protocol }
    }

    pub(super) const fn ip_bytes(self) -> usize {
        match self.ip {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        }
    }

    pub(super) const fn transport_bytes(self) -> usize {
        match self.transport {
            Transport::Udp => 8,
            Transport::Tcp => 20,
        }
    }

    pub(super) const fn headers_bytes(self) -> usize {
        ETHERNET_BYTES + self.ip_bytes() + self.transport_bytes()
    }

    pub(super) const fn protocol(self) -> u8 {
        match self.transport {
            Transport::Udp => 17,
            Transport::Tcp => 6,
        }
    }
}

/// When packets are due. Units are packets or bits, see [`Generator::units`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Units that are due.
    pub(super) due: u64,
    /// Time of unit 0.
    pub(super) start_ns: u64,
    /// From one unit to the next.
    pub(super) unit_ns: f64,
}

impl Pace {
    /// When a unit is due.
    #[inline(always)]
    fn time_ns(&self, unit: u64) -> u64 {
        if self.unit_ns == 0.0 {
            return self.start_ns;
        }
        self.start_ns.wrapping_add((unit as f64 * self.unit_ns) as u64)
    }
}

/// Why [`Generator::fill`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It made as many as asked for, or looked at enough.
    Enough,
    /// There is no free window.
    RegionFull,
    /// The next packet is not due yet.
    NotDue,
    /// There are no more packets.
    Ended,
}

/// Makes one worker's packets of a sequence; usable without a port.
#[derive(Debug)]
pub struct Generator {
    shape: Shape,
    lengths: Lengths,
    flows: Flows,
    payload: Payload,
    /// Headers with all that is the same in all packets.
    headers: [u8; HEADERS_BYTES_MAX],
    seed: u64,
    port: u8,
    worker: usize,
    schedule: Schedule,
    /// The next packet that may be this worker's.
    at: Cursor,
    sequence_end: u64,
    units_per: UnitsPer,
    counters: PortCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitsPer {
    Packet,
    Bit,
}

/// Packets that are drawn before the first of them is written: enough for a flow to come from memory meanwhile, few enough
/// for all of them to stay in the first cache.
const BLOCK_PACKETS: usize = 32;

/// A packet that is to be written.
#[derive(Clone, Copy)]
struct Drawn {
    random: u64,
    /// Index of its flow.
    flow: u32,
    /// Packets of the block that were looked at, to this one.
    looked_at: u32,
}

impl Drawn {
    const NONE: Self = Self { random: 0, flow: 0, looked_at: 0 };
}

impl Generator {
    /// A generator of the packets of `worker` that come in by `port`.
    ///
    /// # Errors
    /// The configuration cannot work, or the pattern file cannot be read.
    pub fn new(config: &Config, steering: Arc<Steering>, worker: usize, port: u8) -> Result<Self, Error> {
        config.validate()?;
        let shape = Shape::of(config);
        let headers = headers(config, shape);
        let lengths = Lengths::new(config.seed, &config.size, shape.headers_bytes() as u16);
        let (flows, schedule) = Flows::new(config, shape, steering, worker, headers)?;
        Ok(Self {
            shape,
            lengths,
            flows,
            payload: Payload::new(config)?,
            headers,
            seed: config.seed,
            port,
            worker,
            at: schedule.start(),
            schedule,
            sequence_end: if config.packets == 0 { u64::MAX } else { config.packets },
            units_per: if matches!(config.rate, Rate::BitsPerS(_)) { UnitsPer::Bit } else { UnitsPer::Packet },
            counters: PortCounters::default(),
        })
    }

    /// Appends up to `packets` packets to the batch, and returns how many. Fewer: the region is full, the sequence has ended, or
    /// nearly all packets are other workers'.
    pub fn fill(&mut self, region: &mut Region, batch: &mut Batch, packets: usize) -> usize {
        let before = batch.len();
        self.fill_paced(region, batch, packets, &Pace { due: u64::MAX, start_ns: 0, unit_ns: 0.0 });
        batch.len() - before
    }

    pub(super) fn fill_paced(&mut self, region: &mut Region, batch: &mut Batch, packets: usize, pace: &Pace) -> Stop {
        use {IpVersion::*, Transport::*};
        // One loop for each kind of headers, with all offsets known.
        match (self.shape.ip, self.shape.transport) {
            (V4, Udp) => self.fill_as::<false, false, 48>(region, batch, packets, pace),
            (V4, Tcp) => self.fill_as::<false, true, 64>(region, batch, packets, pace),
            (V6, Udp) => self.fill_as::<true, false, 64>(region, batch, packets, pace),
            (V6, Tcp) => self.fill_as::<true, true, 80>(region, batch, packets, pace),
        }
    }

    /// `COPY`: the headers' length, rounded up to what copies well.
    fn fill_as<const V6: bool, const TCP: bool, const COPY: usize>(
        &mut self,
        region: &mut Region,
        batch: &mut Batch,
        packets: usize,
        pace: &Pace,
    ) -> Stop {
        match &self.flows {
            Flows::Ready(_) => self.fill_ready::<V6, TCP, COPY>(region, batch, packets, pace),
            Flows::Random(_) => self.fill_random::<V6, TCP, COPY>(region, batch, packets, pace),
        }
    }

    /// With flows made in advance. A block of packets is drawn first, and written then: the flows have time to come into the
    /// cache, and either loop is short enough for the processor to work on several packets at once.
    fn fill_ready<const V6: bool, const TCP: bool, const COPY: usize>(
        &mut self,
        region: &mut Region,
        batch: &mut Batch,
        packets: usize,
        pace: &Pace,
    ) -> Stop {
        let Flows::Ready(flows) = &self.flows else { unreachable!("the caller looked") };
        let (seed, sequence_end, port, pace) = (self.seed, self.sequence_end, self.port, *pace);
        let (frame_bytes_max, steps, fixed_bytes) =
            (region.frame_bytes_max(), self.schedule.steps(), self.lengths.fixed());
        let (mut at, mut counters) = (self.at, self.counters);
        // Where all packets have one length, and are numbered by what they are due by, a look at the last of a block tells all.
        let plain_bytes =
            fixed_bytes.filter(|&bytes| self.units_per == UnitsPer::Packet && usize::from(bytes) <= frame_bytes_max);
        let mut drawn = [Drawn::NONE; BLOCK_PACKETS];
        let mut lengths = [plain_bytes.unwrap_or(0); BLOCK_PACKETS];
        let mut stamps = [Stamp::default(); BLOCK_PACKETS];
        let mut descriptors = [Descriptor::default(); BLOCK_PACKETS];
        let mut left = packets;
        let mut stop = Stop::Enough;
        while left > 0 && stop == Stop::Enough {
            if at.sequence >= sequence_end {
                stop = Stop::Ended;
                break;
            }
            let (from, mut count, mut looked_at) = (at, 0, 0);
            let mut slots = steps.from(at, left.min(BLOCK_PACKETS));
            let last = slots.last().map_or(u64::MAX, |slot| at.turn_start + u64::from(slot.place));
            if plain_bytes.is_some() && last < sequence_end && last <= pace.due {
                for ((slot, drawn), stamp) in slots.iter().zip(&mut drawn).zip(&mut stamps) {
                    let sequence = at.turn_start + u64::from(slot.place);
                    let random = draw(seed, sequence);
                    let flow = flows.index(slot.group.into(), random);
                    flows.prefetch(flow);
                    count += 1;
                    *drawn = Drawn { random, flow, looked_at: count as u32 };
                    *stamp = Stamp { sequence, time_ns: pace.time_ns(sequence) };
                }
                (looked_at, slots) = (count, &[]);
            }
            for slot in slots {
                let sequence = at.turn_start + u64::from(slot.place);
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
                looked_at += 1;
                let frame_bytes = fixed_bytes.unwrap_or_else(|| self.lengths.bytes(sequence));
                if usize::from(frame_bytes) > frame_bytes_max {
                    counters.oversized += 1;
                    continue;
                }
                let random = draw(seed, sequence);
                let flow = flows.index(slot.group.into(), random);
                flows.prefetch(flow);
                drawn[count] = Drawn { random, flow, looked_at: looked_at as u32 };
                lengths[count] = frame_bytes;
                stamps[count] = Stamp { sequence, time_ns: pace.time_ns(units) };
                count += 1;
            }
            left -= looked_at;
            let mut packets = drawn.iter().zip(&mut descriptors);
            let made = region.allocate_each(&lengths[..count], |place, out| {
                // A block has as many packets of each.
                let Some((drawn, descriptor)) = packets.next() else { return };
                let flow = flows.get(drawn.flow);
                descriptor.window = place.window;
                descriptor.head = place.head;
                descriptor.length = place.length;
                descriptor.room = place.room;
                descriptor.port = port;
                descriptor.flow_hash = flow.flow_hash;
                self.emit::<V6, TCP, COPY>(flow, drawn.random, place.length, out);
            });
            if made < count {
                // The next one is the first without a window.
                stop = Stop::RegionFull;
                looked_at = drawn[made].looked_at as usize - 1;
            }
            batch.descriptors.extend_from_slice(&descriptors[..made]);
            batch.stamps.extend_from_slice(&stamps[..made]);
            counters.received_packets += made as u64;
            counters.received_bytes += lengths[..made].iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
            at = steps.ahead(from, looked_at);
        }
        (self.at, self.counters) = (at, counters);
        stop
    }

    /// With flows made for each packet, of which only some are this worker's.
    fn fill_random<const V6: bool, const TCP: bool, const COPY: usize>(
        &mut self,
        region: &mut Region,
        batch: &mut Batch,
        packets: usize,
        pace: &Pace,
    ) -> Stop {
        let Flows::Random(maker) = &self.flows else { unreachable!("the caller looked") };
        let full = batch.len() + packets;
        let (frame_bytes_max, steps) = (region.frame_bytes_max(), self.schedule.steps());
        let (mut at, mut counters) = (self.at, self.counters);
        let mut stop = Stop::Enough;
        // Bounds the call where packets are looked at that are other workers'.
        for _ in 0..packets.saturating_mul(16) {
            if batch.len() == full {
                break;
            }
            if at.sequence >= self.sequence_end {
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
            let flow = maker.flow(random);
            if maker.worker(&flow) == self.worker {
                let frame_bytes = self.lengths.bytes(at.sequence);
                if usize::from(frame_bytes) > frame_bytes_max {
                    counters.oversized += 1;
                } else {
                    let Some(place) = region.allocate(frame_bytes.into()) else {
                        stop = Stop::RegionFull;
                        break;
                    };
                    let out = &mut region.window_mut(&place)[usize::from(place.head)..];
                    self.emit::<V6, TCP, COPY>(&flow, random, frame_bytes, out);
                    let stamp = Stamp { sequence: at.sequence, time_ns: pace.time_ns(units) };
                    batch.push(Descriptor { port: self.port, flow_hash: flow.flow_hash, ..place }, stamp);
                    counters.received_packets += 1;
                    counters.received_bytes += u64::from(frame_bytes);
                }
            }
            at = steps.ahead(at, 1);
        }
        (self.at, self.counters) = (at, counters);
        stop
    }

    /// Writes a frame of `frame_bytes` bytes to the beginning of `out`; what lies behind it is scratch.
    #[inline(always)]
    fn emit<const V6: bool, const TCP: bool, const COPY: usize>(
        &self,
        flow: &Flow,
        random: u64,
        frame_bytes: u16,
        out: &mut [u8],
    ) {
        let payload = ETHERNET_BYTES + if V6 { 40 } else { 20 } + if TCP { 20 } else { 8 };
        let payload_bytes = usize::from(frame_bytes) - payload;
        let common: &[u8; COPY] = self.headers.first_chunk().expect("COPY is at most HEADERS_BYTES_MAX");
        if out.len() < COPY {
            // A window that ends within the copy: the headers are made aside.
            let mut headers = *common;
            let payload_sum = self.payload.emit(random, payload_bytes, &mut out[payload..]);
            patch::<V6, TCP, COPY>(flow, frame_bytes, payload_sum, &mut headers);
            out[..payload].copy_from_slice(&headers[..payload]);
            return;
        }
        out[..COPY].copy_from_slice(common);
        let payload_sum = self.payload.emit(random, payload_bytes, &mut out[payload..]);
        if let Some(headers) = out.first_chunk_mut() {
            patch::<V6, TCP, COPY>(flow, frame_bytes, payload_sum, headers);
        }
    }

    /// Passes over packets until at most `units` units before `due` are waiting; this worker's are missed.
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
                Flows::Ready(_) => true,
                Flows::Random(maker) => maker.worker(&maker.flow(draw(self.seed, self.at.sequence))) == self.worker,
            };
            self.counters.missed += u64::from(own);
            self.at = steps.ahead(self.at, 1);
        }
    }

    /// Units that packets have on average.
    pub(super) fn units_mean(&self) -> f64 {
        match self.units_per {
            UnitsPer::Packet => 1.0,
            UnitsPer::Bit => 8.0 * self.lengths.mean_bytes(),
        }
    }

    /// Number of the next packet; `u64::MAX` when there is none.
    pub fn sequence_next(&self) -> u64 {
        if self.at.sequence >= self.sequence_end { u64::MAX } else { self.at.sequence }
    }

    /// What was made so far, counted as received.
    pub fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Fills in what differs: lengths, addresses, ports, checksums.
#[inline(always)]
fn patch<const V6: bool, const TCP: bool, const COPY: usize>(
    flow: &Flow,
    frame_bytes: u16,
    payload_sum: u64,
    headers: &mut [u8; COPY],
) {
    let transport = ETHERNET_BYTES + if V6 { 40 } else { 20 };
    let transport_length = (frame_bytes - transport as u16).to_be();
    if V6 {
        // RFC 8200, section 3.
        headers[18..20].copy_from_slice(&transport_length.to_ne_bytes());
        headers[22..54].copy_from_slice(&flow.addresses);
    } else {
        // RFC 791, section 3.1.
        let length = (frame_bytes - ETHERNET_BYTES as u16).to_be();
        let checksum = !fold(u64::from(flow.ip_sum) + u64::from(length));
        headers[16..18].copy_from_slice(&length.to_ne_bytes());
        headers[24..26].copy_from_slice(&checksum.to_ne_bytes());
        headers[26..34].copy_from_slice(&flow.addresses[..8]);
    }
    headers[transport..transport + 4].copy_from_slice(&flow.ports);
    let sum = u64::from(flow.transport_sum) + payload_sum + u64::from(transport_length);
    if TCP {
        headers[transport + 16..transport + 18].copy_from_slice(&(!fold(sum)).to_ne_bytes());
    } else {
        // The length counts twice, in the header and in the pseudo header; a sum of 0 is written in its other form (RFC 768).
        let checksum = !fold(sum + u64::from(transport_length));
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        headers[transport + 4..transport + 6].copy_from_slice(&transport_length.to_ne_bytes());
        headers[transport + 6..transport + 8].copy_from_slice(&checksum.to_ne_bytes());
    }
}

/// The headers with everything that no packet changes.
fn headers(config: &Config, shape: Shape) -> [u8; HEADERS_BYTES_MAX] {
    let mut headers = [0; HEADERS_BYTES_MAX];
    headers[..6].copy_from_slice(&config.destination_mac.0);
    headers[6..12].copy_from_slice(&config.source_mac.0);
    const HOPS: u8 = 64;
    match shape.ip {
        IpVersion::V4 => {
            headers[12..14].copy_from_slice(&[0x08, 0x00]);
            // Version and header length; don't fragment, so that the identification may be 0 (RFC 6864, section 4.1).
            headers[14] = 0x45;
            headers[20] = 0x40;
            headers[22] = HOPS;
            headers[23] = shape.protocol();
        }
        IpVersion::V6 => {
            headers[12..14].copy_from_slice(&[0x86, 0xdd]);
            headers[14] = 0x60;
            headers[20] = shape.protocol();
            headers[21] = HOPS;
        }
    }
    if shape.transport == Transport::Tcp {
        let tcp = &mut headers[ETHERNET_BYTES + shape.ip_bytes()..];
        const ACK: u8 = 0x10;
        tcp[12..16].copy_from_slice(&[5 << 4, ACK, 0xff, 0xff]);
    }
    headers
}

/// Folds the carries back in (RFC 1071, section 1). `sum` is below 2^40: sums of at most 2^16 words and lengths.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    debug_assert!(sum < 1 << 40);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}
