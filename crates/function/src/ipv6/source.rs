//! Lookup of source addresses on the CPU, for the reverse-path filter.

use std::sync::Arc;

use godwit_packet::Image;
use godwit_wire::ethertype;

use super::tables::Layout;
use super::walk::{Part, Table};
use crate::routing::{SourceLookup, SourceRoute, packet_of};

const HEADER_BYTES: usize = 40;

pub(super) struct Ipv6Sources {
    pub(super) image: Arc<Image>,
    pub(super) layout: Layout,
}

impl Ipv6Sources {
    /// Returns the next hop index for an address, with the same algorithm as the kernel.
    pub(super) fn lookup(&self, address: u128) -> Option<u32> {
        let part = |offset| Part { image: &self.image, offset };
        let Layout { form, root_bits, root_offset, lines_offset, .. } = self.layout;
        Table { form, root_bits, root: part(root_offset), lines: part(lines_offset) }.lookup(address)
    }
}

impl SourceLookup for Ipv6Sources {
    fn image(&self) -> &Image {
        &self.image
    }

    /// Returns the route to the source address of the packet in `frame`. Link-local addresses and
    /// the address `::` have no routes, so the filter ignores them.
    fn route(&self, frame: &[u8]) -> SourceRoute {
        let Some(packet) = packet_of(frame, ethertype::IPV6, HEADER_BYTES) else { return SourceRoute::NotFiltered };
        let source = u128::from_be_bytes(*packet[8..].first_chunk().unwrap_or(&[0; 16]));
        if source == 0 || source >> 118 == 0xfe80 >> 6 {
            return SourceRoute::NotFiltered;
        }
        let next_hop = self.lookup(source);
        next_hop.map_or(SourceRoute::None, |index| SourceRoute::NextHop(self.layout.next_hop(index)))
    }
}
