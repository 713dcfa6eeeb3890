//! Flows: what their packets share, and which are a worker's.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use godwit_packet::{BUCKETS, Steering};

use super::config::{Config, IpVersion, PayloadKind};
use super::draw::{Draws, below, draw};
use super::headers::{HEADERS_BYTES_MAX, Shape, Sums};
use super::schedule::Schedule;
use super::units::{Prefix, Span};
use crate::Error;

/// What differs between flows: headers, ready to be copied. One cache line.
///
/// Where all packets have one length, this is one of them with a payload of zeros: with another, only the transport checksum is
/// another. Else lengths and checksums are 0, and nothing of them is in the sums.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    /// The first bytes of the headers: all of those of UDP over IPv4. Where they are longer, what follows is in a [`Tail`].
    pub(super) head: [u8; HEAD_BYTES],
    pub(super) flow_hash: u32,
    pub(super) sums: Sums,
}

/// Bytes of headers that lie in a [`Flow`].
pub(super) const HEAD_BYTES: usize = 48;

const TAIL_BYTES: usize = HEADERS_BYTES_MAX - HEAD_BYTES;

/// The rest of a flow's headers.
pub(super) type Tail = [u8; TAIL_BYTES];

/// Where headers have none.
pub(super) const NO_TAIL: Tail = [0; TAIL_BYTES];

/// A flow, just made.
pub(super) struct Made {
    pub(super) flow: Flow,
    pub(super) tail: Tail,
    bucket: u8,
}

/// Where flows come from.
#[derive(Debug)]
pub(super) enum Flows {
    Ready(Ready),
    Random(FlowMaker),
}

/// Flows made in advance: those of this worker, in groups, one for each of its buckets.
#[derive(Debug)]
pub(super) struct Ready {
    flows: Vec<Flow>,
    /// Of each flow; none where the headers fit into flows.
    tails: Vec<Tail>,
    groups: Vec<Group>,
}

/// Flows next to each other; at least one.
#[derive(Clone, Copy, Debug)]
struct Group {
    first: u32,
    count: u32,
}

impl Ready {
    /// Index of one of a group, each equally likely.
    #[inline(always)]
    pub(super) fn index(&self, group: usize, random: u64) -> u32 {
        let Group { first, count } = self.groups[group];
        first + below(random as u32, count)
    }

    #[inline(always)]
    pub(super) fn get(&self, index: u32) -> &Flow {
        &self.flows[index as usize]
    }

    /// Only where headers are longer than [`HEAD_BYTES`].
    #[inline(always)]
    pub(super) fn tail(&self, index: u32) -> &Tail {
        &self.tails[index as usize]
    }

    /// Brings a flow into the cache: thousands of them do not stay in a core's own caches, which packets and whatever works
    /// on them want too.
    #[inline(always)]
    pub(super) fn prefetch(&self, index: u32) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let flow = self.flows.as_ptr().wrapping_add(index as usize);
            // SAFETY: a prefetch reads nothing that the program could see, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(flow.cast()) };
        }
    }
}

impl Flows {
    /// The flows of a worker, and which packets of the sequence are its. `frame_bytes`: length of all packets, where they have one.
    pub(super) fn new(
        config: &Config,
        shape: Shape,
        steering: Arc<Steering>,
        worker: usize,
        frame_bytes: Option<u16>,
    ) -> Result<(Self, Schedule), Error> {
        let maker = FlowMaker::new(config, shape, Arc::clone(&steering), frame_bytes);
        if config.flows == 0 {
            return Ok((Self::Random(maker), Schedule::all()));
        }
        let mut seen = HashSet::with_capacity(config.flows);
        // Every worker makes all flows, to know which exist, and keeps its own.
        let mut own: Vec<Vec<Made>> = (0..BUCKETS).map(|_| Vec::new()).collect();
        let mut counts = [0; BUCKETS];
        let seed = draw(config.seed, u64::MAX / 3);
        // A flow may be drawn twice; a space too small for so many flows shows by that happening all the time.
        let mut attempts = 0..64 * (config.flows as u64 + 64);
        while seen.len() < config.flows {
            let attempt = attempts.next().ok_or_else(|| {
                let reason = "there are not that many different flows in the prefixes and ports given";
                Error::config("flows", config.flows, reason)
            })?;
            let made = maker.flow(draw(seed, attempt));
            if seen.insert((made.flow.head, made.tail)) {
                let bucket = usize::from(made.bucket);
                counts[bucket] += 1;
                if steering.worker_of(bucket) == worker {
                    own[bucket].push(made);
                }
            }
        }
        let count = own.iter().map(Vec::len).sum();
        let has_tails = shape.headers_bytes() > HEAD_BYTES;
        let mut ready = Ready {
            flows: Vec::with_capacity(count),
            tails: Vec::with_capacity(if has_tails { count } else { 0 }),
            groups: Vec::new(),
        };
        let groups = std::array::from_fn(|bucket| {
            let flows = std::mem::take(&mut own[bucket]);
            let group = (!flows.is_empty()).then_some(ready.groups.len() as u16)?;
            ready.groups.push(Group { first: ready.flows.len() as u32, count: flows.len() as u32 });
            ready.flows.extend(flows.iter().map(|made| made.flow));
            if has_tails {
                ready.tails.extend(flows.iter().map(|made| made.tail));
            }
            Some(group)
        });
        Ok((Self::Ready(ready), Schedule::new(draw(config.seed, u64::MAX / 7), &counts, &groups)))
    }
}

pub(super) struct FlowMaker {
    shape: Shape,
    source: Prefix,
    destination: Prefix,
    destinations: Vec<IpAddr>,
    source_port: Span,
    destination_port: Span,
    headers: [u8; HEADERS_BYTES_MAX],
    /// Length of all packets, where they have one.
    frame_bytes: Option<u16>,
    /// Whether packets have one above IP.
    has_checksum: bool,
    steering: Arc<Steering>,
}

impl std::fmt::Debug for FlowMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowMaker").field("source", &self.source).field("destination", &self.destination).finish()
    }
}

impl FlowMaker {
    fn new(config: &Config, shape: Shape, steering: Arc<Steering>, frame_bytes: Option<u16>) -> Self {
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
            headers: shape.headers(config),
            frame_bytes,
            has_checksum: config.payload != PayloadKind::Stale,
            steering,
        }
    }

    /// The worker of a flow.
    #[inline(always)]
    pub(super) fn worker(&self, made: &Made) -> usize {
        self.steering.worker_of(usize::from(made.bucket))
    }

    /// The flow that a random number stands for.
    pub(super) fn flow(&self, random: u64) -> Made {
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
        let (addresses_at, transport_at) = (self.shape.addresses_at(), self.shape.transport_at());
        let mut headers = self.headers;
        let (from, to) = headers[addresses_at..transport_at].split_at_mut(address_bytes);
        from.copy_from_slice(&source[..address_bytes]);
        to.copy_from_slice(&destination[..address_bytes]);
        let ports = [draws.port(self.source_port), draws.port(self.destination_port)];
        headers[transport_at..transport_at + 2].copy_from_slice(&ports[0].to_be_bytes());
        headers[transport_at + 2..transport_at + 4].copy_from_slice(&ports[1].to_be_bytes());
        let mut sums = self.shape.sums(&headers);

        // Steering sees the headers, as a NIC does: a frame without payload.
        let mut frame = headers;
        self.shape.set_lengths(sums, self.shape.headers_bytes() as u16, &mut frame);
        let frame = &frame[..self.shape.headers_bytes()];
        let parsed = godwit_wire::parse(frame);
        let flow_hash = self.steering.flow_hash(&parsed);
        let bucket = self.steering.bucket(frame, &parsed, flow_hash) as u8;

        if let Some(frame_bytes) = self.frame_bytes {
            sums.transport = self.shape.set_lengths(sums, frame_bytes, &mut headers);
            if self.has_checksum {
                self.shape.set_checksum(sums.transport.into(), &mut headers);
            }
        }
        let mut made = Made { flow: Flow { head: [0; HEAD_BYTES], flow_hash, sums }, tail: [0; TAIL_BYTES], bucket };
        made.flow.head.copy_from_slice(&headers[..HEAD_BYTES]);
        made.tail.copy_from_slice(&headers[HEAD_BYTES..]);
        made
    }
}
