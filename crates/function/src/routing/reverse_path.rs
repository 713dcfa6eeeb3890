//! Unicast reverse-path filter (RFC 3704). It drops packets whose source address has no route back.
//!
//! | mode | a packet passes if the route to its source |
//! |---|---|
//! | `strict` | forwards to the port at which the packet arrived |
//! | `loose` | forwards to any port |
//!
//! The filter runs on the CPU, before the kernel. A function without a filter skips this step.

use std::collections::BTreeMap;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Image, Region};
use godwit_wire::ethertype;
use serde::Deserialize;
use toml::Spanned;

use crate::config::value;
use crate::{BuildContext, Complete, Error, Prepare, Work};

/// Configuration table `reverse_path`, which maps port names to filter modes.
pub(crate) type ReversePathConfig = BTreeMap<Spanned<String>, Mode>;

/// Mode of the filter.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Strict,
    Loose,
}

/// Filter mode of each port, indexed by port number. `None` means no filter.
#[derive(Clone, Debug)]
pub(crate) struct ReversePath(Vec<Option<Mode>>);

impl ReversePath {
    /// Replaces port names with numbers.
    pub(crate) fn resolve(config: &ReversePathConfig, context: &BuildContext<'_>) -> Result<Self, Error> {
        let mut modes = vec![None; context.ports.len()];
        for (port, mode) in config {
            let Some(index) = context.ports.iter().position(|known| known == port.get_ref()) else {
                let known = context.ports.join(", ");
                let message =
                    format!("reverse_path: there is no port named \"{}\"; the ports are: {known}", port.get_ref());
                return Err(value(port.span(), message));
            };
            modes[index] = Some(*mode);
        }
        Ok(Self(modes))
    }

    fn mode(&self, port: u8) -> Option<Mode> {
        self.0.get(usize::from(port)).copied().flatten()
    }
}

/// Result of the lookup of a source address.
pub(crate) enum SourceRoute {
    /// The frame carries no packet that the filter applies to.
    NotFiltered,
    /// No route covers the source address.
    None,
    /// A route covers the source address. The value is the table offset of its next hop.
    NextHop(usize),
}

/// Looks up the source address of a packet in a function's table.
pub(crate) trait SourceLookup: Send {
    fn image(&self) -> &Image;

    /// Returns the route to the source of the packet in a frame.
    fn route(&self, frame: &[u8]) -> SourceRoute;
}

/// Flags of next hops that do not forward packets: `local`, `blackhole` and `unreachable`. They are
/// in the lowest byte of a next hop, and are the same for `ipv4` and `ipv6`.
const NOT_FORWARDED: u64 = (godwit_kernels::image::IPV4_HOP_LOCAL
    | godwit_kernels::image::IPV4_HOP_BLACKHOLE
    | godwit_kernels::image::IPV4_HOP_UNREACHABLE) as u64;

/// Work on the CPU for a function with a reverse-path filter.
pub(crate) struct ReversePathHost<L> {
    pub(crate) filter: ReversePath,
    pub(crate) lookup: L,
    /// Kind of processing for the packets that pass the filter.
    pub(crate) variant: u8,
    /// Drop reason of the packets that do not pass the filter.
    pub(crate) reason: u8,
    /// Further CPU code of the same function, which runs after the kernel.
    pub(crate) inner: Option<Box<dyn Complete>>,
}

impl<L: SourceLookup> ReversePathHost<L> {
    fn passes(&self, mode: Mode, port: u8, frame: &[u8]) -> bool {
        let next_hop = match self.lookup.route(frame) {
            SourceRoute::NotFiltered => return true,
            SourceRoute::None => return false,
            SourceRoute::NextHop(offset) => self.lookup.image().load_u64(offset),
        };
        next_hop & NOT_FORWARDED == 0 && (mode == Mode::Loose || (next_hop >> 8) as u8 == port)
    }
}

impl<L: SourceLookup> Prepare for ReversePathHost<L> {
    fn prepare(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>) {
        let run = Work::Run { variant: self.variant, parameter: 0 };
        work.extend(descriptors.iter().map(|packet| match self.filter.mode(packet.port) {
            Some(mode) if !self.passes(mode, packet.port, region.frame(packet)) => {
                Work::Done(Outcome::drop(self.reason))
            }
            _ => run,
        }));
    }
}

impl<L: SourceLookup> Complete for ReversePathHost<L> {
    fn finish(&mut self, region: &mut Region, descriptors: &mut [Descriptor], outcomes: &mut [Outcome]) {
        if let Some(inner) = &mut self.inner {
            inner.finish(region, descriptors, outcomes);
        }
    }
}

/// Returns the packet in a frame with at most one 802.1Q tag. Returns `None` if the EtherType is
/// not `wanted`, or if the packet has fewer than `bytes` bytes.
pub(crate) fn packet_of(frame: &[u8], wanted: u16, bytes: usize) -> Option<&[u8]> {
    let ether_type = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let at = match ether_type(12)? {
        ethertype::VLAN if ether_type(16)? == wanted => 18,
        found if found == wanted => 14,
        _ => return None,
    };
    frame.get(at..).filter(|packet| packet.len() >= bytes)
}
