//! Lookup of source addresses on the CPU, for the reverse-path filter.

use std::sync::Arc;

use godwit_packet::Image;
use godwit_wire::ethertype;

use super::tables::Layout;
use crate::routing::{SourceLookup, SourceRoute, packet_of};
use crate::tables::lpm4::{GROUP_ENTRIES, NO_ROUTE};

const HEADER_BYTES: usize = 20;

pub(super) struct Ipv4Sources {
    pub(super) image: Arc<Image>,
    pub(super) layout: Layout,
}

impl Ipv4Sources {
    fn entry(&self, table: usize, index: usize) -> u32 {
        match self.layout.table.entry_bytes {
            2 => self.image.load_u16(table + 2 * index).into(),
            _ => self.image.load_u32(table + 4 * index),
        }
    }

    /// Returns the next hop index for an address, with the same algorithm as the kernel.
    pub(super) fn lookup(&self, address: u32) -> Option<u32> {
        let top = self.layout.table.top();
        let mut entry = self.entry(self.layout.table.tbl24_offset, (address >> 8) as usize);
        if entry & top != 0 {
            let first = (entry & (top - 1)) as usize * GROUP_ENTRIES;
            entry = self.entry(self.layout.table.tbl8_offset, first + (address & 255) as usize);
        }
        (entry != self.layout.table.entry(NO_ROUTE)).then_some(entry)
    }
}

impl SourceLookup for Ipv4Sources {
    fn image(&self) -> &Image {
        &self.image
    }

    fn route(&self, frame: &[u8]) -> SourceRoute {
        let Some(packet) = packet_of(frame, ethertype::IPV4, HEADER_BYTES) else { return SourceRoute::NotFiltered };
        let source = u32::from_be_bytes(*packet[12..].first_chunk().unwrap_or(&[0; 4]));
        let next_hop = self.lookup(source);
        next_hop.map_or(SourceRoute::None, |index| SourceRoute::NextHop(self.layout.next_hop(index)))
    }
}
