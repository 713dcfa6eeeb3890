//! Flows that a worker generates. All packets of a flow have the same addresses and ports. Each
//! flow belongs to one worker.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use godwit_packet::{BUCKETS, Steering};

use super::config::{Config, IpVersion, PayloadKind};
use super::draw::{Draws, below, draw};
use super::headers::{HEADERS_BYTES_MAX, Shape, Sums};
use super::program::ClassKeys;
use super::schedule::Schedule;
use super::units::{Prefix, Span};
use crate::Error;

/// Headers of one flow, generated in advance. The struct fills one cache line. If all packets have
/// the same length, the headers are complete for a payload of zeros. Any other payload changes only
/// the transport checksum.
///
/// If lengths differ, the length fields and the checksum fields are 0. The partial checksums in
/// `sums` exclude these fields.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    /// First bytes of the headers. If the headers are longer, a [`Tail`] contains the other header
    /// bytes.
    pub(super) head: [u8; HEAD_BYTES],
    pub(super) flow_hash: u32,
    pub(super) sums: Sums,
}

/// Number of header bytes in a [`Flow`].
pub(super) const HEAD_BYTES: usize = 48;

const TAIL_BYTES: usize = HEADERS_BYTES_MAX - HEAD_BYTES;

/// Header bytes of a flow that follow the first [`HEAD_BYTES`] bytes.
pub(super) type Tail = [u8; TAIL_BYTES];

pub(super) const NO_TAIL: Tail = [0; TAIL_BYTES];

/// A new flow, and the hash bucket to which it belongs.
pub(super) struct NewFlow {
    pub(super) flow: Flow,
    pub(super) tail: Tail,
    bucket: u8,
}

/// Selects how the flow of each packet is determined.
#[derive(Debug)]
pub(super) enum Flows {
    Prepared(PreparedFlows),
    Random(FlowMaker),
}

/// Flows of one worker that are generated in advance. Each group of flows belongs to one hash
/// bucket of the worker.
#[derive(Debug)]
pub(super) struct PreparedFlows {
    flows: Vec<Flow>,
    /// Header bytes of each flow after the first [`HEAD_BYTES`] bytes. The list is empty if no flow
    /// has such bytes.
    tails: Vec<Tail>,
    /// Index range of the flows for each flow group and traffic class. The entry has the index
    /// `group * classes + class`.
    groups: Vec<Group>,
    /// Number of traffic classes, at least one.
    classes: usize,
}

/// Nonempty range of flows with consecutive indices.
#[derive(Clone, Copy, Debug)]
struct Group {
    first: u32,
    count: u32,
}

impl PreparedFlows {
    fn push(&mut self, flows: Vec<NewFlow>, has_tails: bool) {
        self.groups.push(Group { first: self.flows.len() as u32, count: flows.len() as u32 });
        self.flows.extend(flows.iter().map(|new_flow| new_flow.flow));
        if has_tails {
            self.tails.extend(flows.iter().map(|new_flow| new_flow.tail));
        }
    }

    /// Gives each traffic class of a flow group at least one flow. A class without flows uses the
    /// flows of another class in the group.
    fn fill_empty(&mut self, group: usize) {
        let classes = &mut self.groups[group * self.classes..];
        let Some(other) = classes.iter().copied().find(|class| class.count > 0) else { return };
        classes.iter_mut().filter(|class| class.count == 0).for_each(|class| *class = other);
    }

    /// Returns the index of a random flow from a group of flows. All flows of the group are equally
    /// likely.
    #[inline(always)]
    pub(super) fn index(&self, group: usize, random: u64) -> u32 {
        let Group { first, count } = self.groups[group];
        first + below(random as u32, count)
    }

    /// Returns the index of a random flow of a traffic class in the group.
    #[inline(always)]
    pub(super) fn index_of_class(&self, group: usize, class: usize, random: u64) -> u32 {
        self.index(group * self.classes + class, random)
    }

    #[inline(always)]
    pub(super) fn get(&self, index: u32) -> &Flow {
        &self.flows[index as usize]
    }

    /// Returns the header bytes of a flow after the first [`HEAD_BYTES`] bytes. The headers must be
    /// longer than [`HEAD_BYTES`].
    #[inline(always)]
    pub(super) fn tail(&self, index: u32) -> &Tail {
        &self.tails[index as usize]
    }

    /// Prefetches a flow into the cache.
    #[inline(always)]
    pub(super) fn prefetch(&self, index: u32) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let flow = self.flows.as_ptr().wrapping_add(index as usize);
            // SAFETY: a prefetch has no visible effect, for any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(flow.cast()) };
        }
    }
}

impl Flows {
    /// Creates the flows of a worker, and the schedule of its packets. `frame_bytes` is the length
    /// of all packets, or `None` if lengths differ. Each class in `classes` gets the configured
    /// number of flows.
    pub(super) fn new(
        config: &Config,
        shape: Shape,
        steering: Arc<Steering>,
        worker: usize,
        frame_bytes: Option<u16>,
        classes: &[ClassKeys],
    ) -> Result<(Self, Schedule), Error> {
        let maker = |config: &Config| FlowMaker::new(config, shape, Arc::clone(&steering), frame_bytes);
        if config.flows == 0 {
            if !classes.is_empty() {
                return Err(Error::config("flows", 0, "the classes of a load program need flows"));
            }
            return Ok((Self::Random(maker(config)), Schedule::all()));
        }
        let makers: Vec<FlowMaker> = match classes {
            [] => vec![maker(config)],
            _ => classes.iter().map(|class| maker(&class.apply(config))).collect(),
        };
        let mut seen = HashSet::with_capacity(config.flows * makers.len());
        // All workers generate the same list of flows. Each worker keeps only its own flows.
        let mut own: Vec<Vec<NewFlow>> = (0..BUCKETS * makers.len()).map(|_| Vec::new()).collect();
        let mut counts = [0; BUCKETS];
        for (class, maker) in makers.iter().enumerate() {
            let seed = draw(config.seed, u64::MAX / 3 - class as u64);
            // Random numbers may produce the same flow more than once. The number of attempts is
            // limited, because the configuration may permit too few different flows.
            let mut attempts = 0..64 * (config.flows as u64 + 64);
            while seen.len() < config.flows * (class + 1) {
                let attempt = attempts.next().ok_or_else(|| {
                    let reason = "the prefixes and ports have too few different flows";
                    Error::config("flows", config.flows, reason)
                })?;
                let new_flow = maker.flow(draw(seed, attempt));
                if seen.insert((new_flow.flow.head, new_flow.tail)) {
                    let bucket = usize::from(new_flow.bucket);
                    counts[bucket] += 1;
                    if steering.worker_of(bucket) == worker {
                        own[bucket * makers.len() + class].push(new_flow);
                    }
                }
            }
        }
        let count = own.iter().map(Vec::len).sum();
        let has_tails = shape.headers_bytes() > HEAD_BYTES;
        let mut prepared = PreparedFlows {
            flows: Vec::with_capacity(count),
            tails: Vec::with_capacity(if has_tails { count } else { 0 }),
            groups: Vec::new(),
            classes: makers.len(),
        };
        let groups = std::array::from_fn(|bucket| {
            let classes = &mut own[bucket * makers.len()..][..makers.len()];
            if classes.iter().all(Vec::is_empty) {
                return None;
            }
            let group = prepared.groups.len() / makers.len();
            for flows in classes {
                prepared.push(std::mem::take(flows), has_tails);
            }
            prepared.fill_empty(group);
            Some(group as u16)
        });
        Ok((Self::Prepared(prepared), Schedule::new(draw(config.seed, u64::MAX / 7), &counts, &groups)))
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
    /// Length of all packets in bytes, or `None` if lengths differ.
    frame_bytes: Option<u16>,
    /// Whether packets have a transport checksum.
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
        // The default prefixes are private address space (RFC 1918, RFC 4193).
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

    /// Returns the worker of a flow.
    #[inline(always)]
    pub(super) fn worker(&self, new_flow: &NewFlow) -> usize {
        self.steering.worker_of(usize::from(new_flow.bucket))
    }

    pub(super) fn flow(&self, random: u64) -> NewFlow {
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

        // A NIC selects the worker by the headers only, so this frame needs no payload.
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
        let mut new_flow =
            NewFlow { flow: Flow { head: [0; HEAD_BYTES], flow_hash, sums }, tail: [0; TAIL_BYTES], bucket };
        new_flow.flow.head.copy_from_slice(&headers[..HEAD_BYTES]);
        new_flow.tail.copy_from_slice(&headers[HEAD_BYTES..]);
        new_flow
    }
}
