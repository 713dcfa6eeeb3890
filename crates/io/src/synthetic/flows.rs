//! Flows: what their packets share, and which are a worker's.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use godwit_packet::{BUCKETS, Steering};

use super::config::{Config, IpVersion};
use super::draw::{Draws, below, draw};
use super::generator::{ETHERNET_BYTES, HEADERS_BYTES_MAX, Shape};
use super::schedule::Schedule;
use super::units::{Prefix, Span};
use crate::Error;

/// What differs between flows. One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    /// Source and destination address back to back, 8 or 32 bytes of it.
    pub(super) addresses: [u8; 32],
    /// Source and destination port.
    pub(super) ports: [u8; 4],
    pub(super) flow_hash: u32,
    /// Sum of the words of the IPv4 header but for its length.
    pub(super) ip_sum: u32,
    /// Sum of the words of pseudo header and transport header but for lengths.
    pub(super) transport_sum: u32,
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
    /// The flows of a worker, and which packets of the sequence are its.
    pub(super) fn new(
        config: &Config,
        shape: Shape,
        steering: Arc<Steering>,
        worker: usize,
        headers: [u8; HEADERS_BYTES_MAX],
    ) -> Result<(Self, Schedule), Error> {
        let maker = FlowMaker::new(config, shape, Arc::clone(&steering), headers);
        if config.flows == 0 {
            return Ok((Self::Random(maker), Schedule::all()));
        }
        let mut seen = HashSet::with_capacity(config.flows);
        // Every worker makes all flows, to know which exist, and keeps its own.
        let mut own: Vec<Vec<Flow>> = vec![Vec::new(); BUCKETS];
        let mut counts = [0; BUCKETS];
        let seed = draw(config.seed, u64::MAX / 3);
        // A flow may be drawn twice; a space too small for so many flows shows by that happening all the time.
        let mut attempts = 0..64 * (config.flows as u64 + 64);
        while seen.len() < config.flows {
            let attempt = attempts.next().ok_or_else(|| {
                let reason = "there are not that many different flows in the prefixes and ports given";
                Error::config("flows", config.flows, reason)
            })?;
            let flow = maker.flow(draw(seed, attempt));
            if seen.insert((flow.addresses, flow.ports)) {
                let bucket = usize::from(flow.bucket);
                counts[bucket] += 1;
                if steering.worker_of(bucket) == worker {
                    own[bucket].push(flow);
                }
            }
        }
        let mut ready = Ready { flows: Vec::with_capacity(own.iter().map(Vec::len).sum()), groups: Vec::new() };
        let groups = std::array::from_fn(|bucket| {
            let flows = std::mem::take(&mut own[bucket]);
            let group = (!flows.is_empty()).then_some(ready.groups.len() as u16)?;
            ready.groups.push(Group { first: ready.flows.len() as u32, count: flows.len() as u32 });
            ready.flows.extend(flows);
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

    /// The worker of a flow.
    #[inline(always)]
    pub(super) fn worker(&self, flow: &Flow) -> usize {
        self.steering.worker_of(usize::from(flow.bucket))
    }

    /// The flow that a random number stands for.
    pub(super) fn flow(&self, random: u64) -> Flow {
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
        let bucket = self.steering.bucket(frame, &parsed, flow_hash) as u8;
        let ip_sum = match self.shape.ip {
            IpVersion::V4 => sum(&self.headers[ETHERNET_BYTES..ports_at]) + sum(&addresses),
            IpVersion::V6 => 0,
        };
        // The pseudo header has the protocol as the low byte of a big-endian word (RFC 768, RFC 8200 section 8.1).
        let protocol = u32::from((u16::from(self.shape.protocol())).to_be());
        let transport_sum = sum(&self.headers[ports_at..]) + sum(&addresses) + sum(&ports) + protocol;
        Flow { addresses, ports, flow_hash, ip_sum, transport_sum, bucket }
    }
}

/// One's complement sum of native words, not folded; `bytes` has an even length and fits a packet's headers.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_ne_bytes([word[0], word[1]]))).sum()
}
