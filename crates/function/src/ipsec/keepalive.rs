//! Keepalives of ESP in UDP (RFC 3948, sections 2.3 and 4). An idle SA sends a UDP packet with one
//! byte, so that NATs on the path keep their mappings.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use godwit_abi::Descriptor;
use godwit_packet::Region;
use godwit_wire::checksum::checksum;
use godwit_wire::{Checksum, IpAddress, protocol};

use super::database::Database;
use super::sa::Sa;

const SECOND_NS: u64 = 1_000_000_000;
/// Maximum number of SAs checked per call. Without this limit, 100,000 idle SAs would stop a worker
/// from forwarding traffic.
const BATCH: usize = 64;
const UDP_BYTES: usize = 8;

/// Keepalive state of one worker, for the outbound SAs that it owns.
#[derive(Default)]
pub(super) struct Keepalives {
    idle: HashMap<u32, Idle>,
    /// Time of the next check of each SA in nanoseconds, with the SA index. The check is never
    /// later than the SA's next keepalive.
    due: BTreeSet<(u64, u32)>,
}

/// Keepalive state of one SA.
struct Idle {
    /// Time at which the SA last sent a packet, in nanoseconds.
    since_ns: u64,
    interval_ns: u64,
    /// Layer 2 header of the last packet that the SA sent.
    l2: Vec<u8>,
    port: u8,
    flow_hash: u32,
}

impl Keepalives {
    pub(super) fn sent(&mut self, sa: u32, seconds: u16, packet: &Descriptor, frame: &[u8], now_ns: u64) {
        let l2 = crate::fragments::ip_at(frame).map_or(&[][..], |at| &frame[..at]);
        let interval_ns = u64::from(seconds) * SECOND_NS;
        let idle = self.idle.entry(sa).or_insert_with(|| {
            self.due.insert((now_ns + interval_ns, sa));
            Idle { since_ns: now_ns, interval_ns, l2: Vec::new(), port: packet.port, flow_hash: packet.flow_hash }
        });
        (idle.since_ns, idle.interval_ns) = (now_ns, interval_ns);
        if idle.l2 != l2 {
            idle.l2.clear();
            idle.l2.extend(l2);
        }
    }

    /// Sends the due keepalives with the function `send`.
    pub(super) fn send(
        &mut self,
        database: &Database,
        region: &mut Region,
        now_ns: u64,
        mut send: impl FnMut(Descriptor),
    ) {
        for _ in 0..BATCH {
            let Some(&(at, index)) = self.due.first().filter(|(at, _)| *at <= now_ns) else { return };
            self.due.remove(&(at, index));
            let sa = database.sa(index).filter(|sa| sa.keepalive_s > 0 && !sa.is_inbound());
            let (Some(sa), Some(idle)) = (sa, self.idle.get_mut(&index)) else {
                self.idle.remove(&index);
                continue;
            };
            if idle.since_ns + idle.interval_ns <= now_ns {
                if let Some(frame) = frame(&sa, &idle.l2)
                    && let Some(packet) = region.allocate(frame.len())
                {
                    region.frame_mut(&packet).copy_from_slice(&frame);
                    send(Descriptor { port: idle.port, flow_hash: idle.flow_hash, ..packet });
                }
                idle.since_ns = now_ns;
            }
            self.due.insert((idle.since_ns + idle.interval_ns, index));
        }
    }

    /// Returns the time of the next call to [`Keepalives::send`] in nanoseconds.
    pub(super) fn wake_ns(&self) -> u64 {
        self.due.first().map_or(u64::MAX, |(at, _)| *at)
    }
}

/// Returns the keepalive frame of an SA. `l2` is the layer 2 header.
fn frame(sa: &Sa, l2: &[u8]) -> Option<Vec<u8>> {
    let udp = sa.udp?;
    let mut frame = l2.to_vec();
    let ether_type: &mut [u8] = frame.last_chunk_mut::<2>()?;
    let mut datagram = [udp.source_port, udp.destination_port, UDP_BYTES as u16 + 1, 0].map(u16::to_be_bytes).concat();
    datagram.push(0xff);
    match (sa.source, sa.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ether_type.copy_from_slice(&[8, 0]);
            let mut header = vec![0x45, 0, 0, 20 + datagram.len() as u8, 0, 0, 0, 0, sa.hop_limit, protocol::UDP, 0, 0];
            header.extend(source.octets());
            header.extend(destination.octets());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(header);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            ether_type.copy_from_slice(&[0x86, 0xdd]);
            let (source, destination) = (source.octets(), destination.octets());
            frame.extend([0x60, 0, 0, 0, 0, datagram.len() as u8, protocol::UDP, sa.hop_limit]);
            frame.extend(source);
            frame.extend(destination);
            // UDP over IPv6 needs a checksum (RFC 8200, section 8.1).
            let (source, destination) = (IpAddress::V6(source), IpAddress::V6(destination));
            let mut sum = Checksum::pseudo_header(source, destination, protocol::UDP, datagram.len() as u32);
            sum.add(&datagram);
            let sum = match sum.finish() {
                0 => 0xffff,
                sum => sum,
            };
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        _ => return None,
    }
    frame.extend(datagram);
    Some(frame)
}
