//! Notes which stations are wanted: those of packets that the kernel found no address for.

use std::net::IpAddr;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::Region;
use godwit_wire::{Ethernet, Ipv4, Vlan, ethertype};

use super::VERDICT_UNRESOLVED;
use crate::routing::Wanted;
use crate::{HostHalf, Work};

pub(super) struct Ipv4Host {
    pub(super) wanted: Arc<Wanted>,
}

impl HostHalf for Ipv4Host {
    fn prepare(&mut self, _region: &Region, _descriptors: &[Descriptor], _work: &mut Vec<Work>) {}

    fn prepares(&self) -> bool {
        false
    }

    fn finish(&mut self, region: &mut Region, descriptors: &mut [Descriptor], outcomes: &mut [Outcome]) {
        for (descriptor, outcome) in descriptors.iter().zip(outcomes) {
            if outcome.verdict == VERDICT_UNRESOLVED
                && let Some(address) = destination(region.frame(descriptor))
            {
                self.wanted.note(outcome.port, address);
            }
        }
    }
}

fn destination(frame: &[u8]) -> Option<IpAddr> {
    let ethernet = Ethernet::new_checked(frame).ok()?;
    let packet = match ethernet.ethertype() {
        ethertype::VLAN => Vlan::new_checked(ethernet.payload()).ok()?.payload().to_vec(),
        _ => ethernet.payload().to_vec(),
    };
    Some(Ipv4::new_checked(&packet[..]).ok()?.destination().into())
}
