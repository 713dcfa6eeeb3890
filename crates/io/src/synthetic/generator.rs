//! Makes packets: draws a flow and a length, copies the headers that all packets share, patches what differs.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use godwit_packet::{Batch, Descriptor, Region, Stamp, Steering};

use super::config::{Config, IpVersion, Transport};
use super::draw::{Draws, Lengths, below, draw};
use super::payload::Payload;
use super::units::{Prefix, Rate};
use crate::{Error, PortCounters};

/// Headers are copied in one piece of this size, bytes: Ethernet, IPv6 and TCP have 74.
const HEADERS_BYTES_MAX: usize = 80;

const ETHERNET_BYTES: usize = 14;

/// Which headers packets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    ip: IpVersion,
    transport: Transport,
}

impl Shape {
    pub(super) fn of(config: &Config) -> Self {
        Self { ip: config.ip, transport: config.protocol }
    }

    const fn ip_bytes(self) -> usize {
        match self.ip {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        }
    }

    const fn transport_bytes(self) -> usize {
        match self.transport {
            Transport::Udp => 8,
            Transport::Tcp => 20,
        }
    }

    pub(super) const fn headers_bytes(self) -> usize {
        ETHERNET_BYTES + self.ip_bytes() + self.transport_bytes()
    }

    const fn protocol(self) -> u8 {
        match self.transport {
            Transport::Udp => 17,
            Transport::Tcp => 6,
        }
    }
}

/// What differs between flows. One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Flow {
    /// Source and destination address back to back, 8 or 32 bytes of it.
    addresses: [u8; 32],
    /// Source and destination port.
    ports: [u8; 4],
    flow_hash: u32,
    /// Sum of the words of the IPv4 header but for its length.
    ip_sum: u32,
    /// Sum of the words of pseudo header and transport header but for lengths.
    transport_sum: u32,
    worker: u32,
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
    /// It made as many as asked for, or looked at enough that were not its own.
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
    worker: u32,
    sequence: u64,
    sequence_end: u64,
    units_per: UnitsPer,
    units: u64,
    counters: PortCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitsPer {
    Packet,
    Bit,
}

impl UnitsPer {
    /// Units that a packet has.
    #[inline(always)]
    fn of(self, frame_bytes: u16) -> u64 {
        match self {
            Self::Packet => 1,
            Self::Bit => 8 * u64::from(frame_bytes),
        }
    }
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
        Ok(Self {
            shape,
            lengths: Lengths::new(&config.size, shape.headers_bytes() as u16),
            flows: Flows::new(config, shape, steering, headers)?,
            payload: Payload::new(config)?,
            headers,
            seed: config.seed,
            port,
            worker: worker as u32,
            sequence: 0,
            sequence_end: if config.packets == 0 { u64::MAX } else { config.packets },
            units_per: if matches!(config.rate, Rate::BitsPerS(_)) { UnitsPer::Bit } else { UnitsPer::Packet },
            units: 0,
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
        let full = batch.len() + packets;
        let frame_bytes_max = region.frame_bytes_max();
        // Kept in registers: frames are written through a pointer that might, for all the compiler knows, change self.
        let (seed, sequence_end, worker, port) = (self.seed, self.sequence_end, self.worker, self.port);
        let (lengths, units_per, pace) = (self.lengths.clone(), self.units_per, *pace);
        let (mut sequence, mut units) = (self.sequence, self.units);
        let (mut made_packets, mut made_bytes, mut oversized) = (0, 0, 0);
        let mut stop = Stop::Enough;
        // Bounds the call where most packets are other workers'.
        for _ in 0..packets.saturating_mul(16) {
            if batch.len() == full {
                break;
            }
            if sequence == sequence_end {
                stop = Stop::Ended;
                break;
            }
            if units > pace.due {
                stop = Stop::NotDue;
                break;
            }
            let random = draw(seed, sequence);
            let frame_bytes = lengths.pick((random >> 32) as u32);
            let made;
            let flow = match &self.flows {
                Flows::Ready(flows) => {
                    flows.prefetch(seed, sequence.wrapping_add(PREFETCH_PACKETS));
                    flows.flow(random)
                }
                Flows::Random(maker) => {
                    made = maker.flow(random);
                    &made
                }
            };
            if flow.worker == worker && usize::from(frame_bytes) > frame_bytes_max {
                oversized += 1;
            } else if flow.worker == worker {
                let Some(place) = region.allocate(frame_bytes.into()) else {
                    stop = Stop::RegionFull;
                    break;
                };
                // Written in its place, field by field: a copy of the whole, just written in parts, would wait for
                // the store buffer, which was a third of the time (`examples/generate_cost`).
                let index = batch.len();
                batch.push(Descriptor::default(), Stamp { sequence, time_ns: pace.time_ns(units) });
                let descriptor = &mut batch.descriptors[index];
                descriptor.window = place.window;
                descriptor.head = place.head;
                descriptor.length = frame_bytes;
                descriptor.room = place.room;
                descriptor.port = port;
                descriptor.flow_hash = flow.flow_hash;
                let window = &mut region.window_mut(descriptor)[usize::from(place.head)..];
                self.emit::<V6, TCP, COPY>(flow, random, frame_bytes, window);
                made_packets += 1;
                made_bytes += u64::from(frame_bytes);
            }
            sequence += 1;
            units += units_per.of(frame_bytes);
        }
        (self.sequence, self.units) = (sequence, units);
        self.counters.received_packets += made_packets;
        self.counters.received_bytes += made_bytes;
        self.counters.oversized += oversized;
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
        while self.sequence != self.sequence_end && due.saturating_sub(self.units) > units {
            let random = draw(self.seed, self.sequence);
            let frame_bytes = self.lengths.pick((random >> 32) as u32);
            let worker = match &self.flows {
                Flows::Ready(flows) => flows.flow(random).worker,
                Flows::Random(maker) => maker.flow(random).worker,
            };
            self.counters.missed += u64::from(worker == self.worker);
            self.sequence += 1;
            self.units += self.units_per.of(frame_bytes);
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
        if self.sequence == self.sequence_end { u64::MAX } else { self.sequence }
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

/// Where flows come from.
#[derive(Debug)]
enum Flows {
    Ready(Ready),
    Random(FlowMaker),
}

/// Flows made in advance; at least one.
#[derive(Debug)]
struct Ready {
    flows: Vec<Flow>,
}

/// How far ahead flows are prefetched.
const PREFETCH_PACKETS: u64 = 12;

/// More flows than this do not stay in a core's own caches.
const CACHED_FLOWS: usize = 16 << 10;

impl Ready {
    #[inline(always)]
    fn flow(&self, random: u64) -> &Flow {
        &self.flows[below(random as u32, self.flows.len() as u32) as usize]
    }

    /// Brings the flow of a packet to come into the cache. Does nothing where that would not help.
    #[inline(always)]
    fn prefetch(&self, seed: u64, sequence: u64) {
        #[cfg(target_arch = "x86_64")]
        if self.flows.len() > CACHED_FLOWS {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let flow: *const Flow = self.flow(draw(seed, sequence));
            // SAFETY: a prefetch reads nothing that the program could see, and the address is that of a live flow.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(flow.cast()) };
        }
    }
}

impl Flows {
    fn new(
        config: &Config,
        shape: Shape,
        steering: Arc<Steering>,
        headers: [u8; HEADERS_BYTES_MAX],
    ) -> Result<Self, Error> {
        let maker = FlowMaker::new(config, shape, steering, headers);
        if config.flows == 0 {
            return Ok(Self::Random(maker));
        }
        let mut seen = HashSet::with_capacity(config.flows);
        let mut flows = Vec::with_capacity(config.flows);
        let seed = draw(config.seed, u64::MAX / 3);
        // A flow may be drawn twice; a space too small for so many flows shows by that happening all the time.
        let mut attempts = 0..64 * (config.flows as u64 + 64);
        while flows.len() < config.flows {
            let attempt = attempts.next().ok_or_else(|| {
                let reason = "there are not that many different flows in the prefixes and ports given";
                Error::config("flows", config.flows, reason)
            })?;
            let flow = maker.flow(draw(seed, attempt));
            if seen.insert((flow.addresses, flow.ports)) {
                flows.push(flow);
            }
        }
        Ok(Self::Ready(Ready { flows }))
    }
}

struct FlowMaker {
    shape: Shape,
    source: Prefix,
    destination: Prefix,
    destinations: Vec<IpAddr>,
    source_port: super::Span,
    destination_port: super::Span,
    headers: [u8; HEADERS_BYTES_MAX],
    steering: Arc<Steering>,
}

impl std::fmt::Debug for FlowMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowMaker").field("source", &self.source).field("destination", &self.destination).finish()
    }
}

impl FlowMaker {
    fn new(config: &Config, shape: Shape, steering: Arc<Steering>, headers: [u8; HEADERS_BYTES_MAX]) -> Self {
        // Private address space: RFC 1918, RFC 4193.
        let default = match shape.ip {
            IpVersion::V4 => Prefix { address: IpAddr::from([10, 0, 0, 0]), length_bits: 8 },
            IpVersion::V6 => Prefix { address: IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 0]), length_bits: 8 },
        };
        Self {
            shape,
            source: config.source.unwrap_or(default),
            destination: config.destination.unwrap_or(default),
            destinations: config.destinations.clone(),
            source_port: config.source_port,
            destination_port: config.destination_port,
            headers,
            steering,
        }
    }

    fn flow(&self, random: u64) -> Flow {
        let mut draws = Draws::new(random);
        let source = draws.address(&self.source);
        let destination = match self.destinations.len() {
            0 => draws.address(&self.destination),
            count => {
                let index = below(draws.next() as u32, count as u32) as usize;
                draws.address(&Prefix { address: self.destinations[index], length_bits: 128 })
            }
        };
        let address_bytes = if self.shape.ip == IpVersion::V4 { 4 } else { 16 };
        let mut addresses = [0; 32];
        addresses[..address_bytes].copy_from_slice(&source[..address_bytes]);
        addresses[address_bytes..2 * address_bytes].copy_from_slice(&destination[..address_bytes]);
        let mut ports = [0; 4];
        ports[..2].copy_from_slice(&draws.port(self.source_port).to_be_bytes());
        ports[2..].copy_from_slice(&draws.port(self.destination_port).to_be_bytes());

        // Steering sees the headers, as a NIC does: a frame without payload.
        let headers_bytes = self.shape.headers_bytes();
        let mut frame = self.headers;
        let (length_at, addresses_at, length) = match self.shape.ip {
            IpVersion::V4 => (16, 26, headers_bytes - ETHERNET_BYTES),
            IpVersion::V6 => (18, 22, self.shape.transport_bytes()),
        };
        frame[length_at..length_at + 2].copy_from_slice(&(length as u16).to_be_bytes());
        frame[addresses_at..addresses_at + 2 * address_bytes].copy_from_slice(&addresses[..2 * address_bytes]);
        let ports_at = headers_bytes - self.shape.transport_bytes();
        frame[ports_at..ports_at + 4].copy_from_slice(&ports);
        let frame = &frame[..headers_bytes];
        let parsed = godwit_wire::parse(frame);
        let flow_hash = self.steering.flow_hash(&parsed);
        let worker = self.steering.worker(frame, &parsed, flow_hash) as u32;
        let ip_sum = match self.shape.ip {
            IpVersion::V4 => sum(&self.headers[ETHERNET_BYTES..ports_at]) + sum(&addresses),
            IpVersion::V6 => 0,
        };
        // The pseudo header has the protocol as the low byte of a big-endian word (RFC 768, RFC 8200 section 8.1).
        let protocol = u32::from((u16::from(self.shape.protocol())).to_be());
        let transport_sum = sum(&self.headers[ports_at..]) + sum(&addresses) + sum(&ports) + protocol;
        Flow { addresses, ports, flow_hash, ip_sum, transport_sum, worker }
    }
}

/// One's complement sum of native words, not folded; `bytes` has an even length and fits a packet's headers.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_ne_bytes([word[0], word[1]]))).sum()
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
