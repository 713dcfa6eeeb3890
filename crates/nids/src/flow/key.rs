//! Addresses, ports, protocol and VLANs of a flow.

use crate::app::Direction;
use crate::packet::{Packet, Transport};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

/// Identity of a flow, such as its addresses and ports. Equality and hash ignore which side is the
/// client.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Client address.
    pub client: IpAddr,
    /// Server address.
    pub server: IpAddr,
    /// Client port. For ICMP, this is the type of the request.
    pub client_port: u16,
    /// Server port. For ICMP, this is the type of the reply.
    pub server_port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// VLAN identifiers.
    pub vlans: [u16; 3],
    /// Identifier of ICMP echo messages.
    pub id: u16,
    /// Number of tunnels around the packets of the flow.
    pub depth: u8,
}

impl Key {
    /// Returns the flow key of a packet, whose sender counts as the client. Returns `None` for
    /// packets that do not form flows.
    pub fn of(packet: &Packet<'_>) -> Option<Self> {
        if packet.fragment {
            return None;
        }
        let mut key = Self {
            client: packet.source,
            server: packet.destination,
            client_port: packet.source_port,
            server_port: packet.destination_port,
            protocol: packet.protocol,
            vlans: packet.vlans,
            id: 0,
            depth: packet.outer.map_or(0, |outer| outer.depth),
        };
        match packet.transport {
            Transport::Tcp(_) | Transport::Udp | Transport::Sctp(_) => {}
            Transport::Icmp(icmp) => {
                let answer = icmp_answer(packet.version, icmp.kind);
                key.client_port = u16::from(icmp.kind);
                key.server_port = u16::from(answer.unwrap_or(icmp.kind));
                key.id = icmp.echo.map_or(0, |echo| echo.0);
            }
            Transport::Other if matches!(packet.protocol, 4 | 41 | 50) => {}
            Transport::Other => return None,
        }
        Some(key)
    }

    /// Exchanges client and server.
    pub fn swap(&mut self) {
        std::mem::swap(&mut self.client, &mut self.server);
        std::mem::swap(&mut self.client_port, &mut self.server_port);
    }

    /// Returns the direction of a packet of this flow.
    pub fn direction(&self, packet: &Key) -> Direction {
        let same = packet.client == self.client && packet.client_port == self.client_port;
        if same { Direction::ToServer } else { Direction::ToClient }
    }

    fn ordered(&self) -> ((IpAddr, u16), (IpAddr, u16)) {
        let (a, b) = ((self.client, self.client_port), (self.server, self.server_port));
        if a <= b { (a, b) } else { (b, a) }
    }
}

/// Returns the ICMP type that answers a request, or the request type for an answer.
fn icmp_answer(version: u8, kind: u8) -> Option<u8> {
    Some(match (version, kind) {
        (4, 8) => 0,
        (4, 0) => 8,
        (4, 13) => 14,
        (4, 14) => 13,
        (6, 128) => 129,
        (6, 129) => 128,
        _ => return None,
    })
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.ordered() == other.ordered()
            && self.protocol == other.protocol
            && self.vlans == other.vlans
            && self.id == other.id
            && self.depth == other.depth
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Hash a few wide values instead of many fields, because each value costs a call to the
        // hasher.
        let ((low, low_port), (high, high_port)) = self.ordered();
        for address in [low, high] {
            match address {
                IpAddr::V4(v4) => state.write_u32(v4.into()),
                IpAddr::V6(v6) => state.write_u128(v6.into()),
            }
        }
        let ports = u64::from(low_port) << 32 | u64::from(high_port) << 16 | u64::from(self.id);
        state.write_u64(ports | u64::from(self.protocol) << 48 | u64::from(self.depth) << 56);
        state.write_u64(u64::from(self.vlans[0]) | u64::from(self.vlans[1]) << 16 | u64::from(self.vlans[2]) << 32);
    }
}
