//! Reference implementation of the switch, written from IEEE 802.1Q. It parses headers with
//! `godwit-wire` instead of offsets. It finds addresses in a map instead of the kernel's table.

use godwit_abi::{Descriptor, Outcome, PORT_FLOOD};
use godwit_wire::{Ethernet, MacAddress, Vlan, ethertype};

use super::control::Entries;
use super::switch::Switch;
use super::{
    DROP_PORT, DROP_SAME_PORT, DROP_SOURCE, DROP_TRUNCATED, DROP_VLAN, NOTICE, VERDICT_FLOOD, VERDICT_FORWARD,
    VERDICT_RESERVED, key, tags,
};

/// Switches one frame.
pub(super) fn run_ref(buffer: &mut [u8], descriptor: &Descriptor, switch: &Switch, entries: &Entries) -> Outcome {
    let frame = crate::frame_mut(buffer, descriptor);
    let Ok(ethernet) = Ethernet::new_checked(&*frame) else { return Outcome::drop(DROP_TRUNCATED) };
    let tag = match ethernet.ethertype() {
        ethertype::VLAN => match Vlan::new_checked(ethernet.payload()) {
            Ok(tag) => Some(tag.id()),
            Err(_) => return Outcome::drop(DROP_TRUNCATED),
        },
        _ => None,
    };
    let ingress = descriptor.port;
    let Some(port) = switch.port(ingress) else { return Outcome::drop(DROP_PORT) };
    // Frames without a tag or with the VLAN identifier 0 belong to the VLAN of the port (IEEE
    // 802.1Q, clause 6.9.1).
    let vid = match tag {
        Some(vid @ 1..) => port.is_trunk.then_some(vid),
        Some(0) | None => port.untagged,
    };
    // The ingress filter drops frames of VLANs to which the port does not belong (clause 8.6.2).
    let Some(vid) = vid.filter(|vid| switch.is_member(*vid, ingress)) else { return Outcome::drop(DROP_VLAN) };
    let (source, destination) = (ethernet.source(), ethernet.destination());
    if source.is_multicast() || source == MacAddress([0; 6]) {
        return Outcome::drop(DROP_SOURCE);
    }
    // A bridge does not forward frames to reserved addresses (clause 8.6.3, table 8-1).
    if let MacAddress([0x01, 0x80, 0xc2, 0x00, 0x00, 0x00..=0x0f]) = destination {
        return Outcome { value: vid.into(), ..Outcome::verdict(VERDICT_RESERVED) };
    }
    // The learning process notes new source addresses (clause 8.7).
    let is_known = entries
        .get(&key(vid, source))
        .is_some_and(|entry| entry.is_static || (entry.port == ingress && entry.is_fresh));
    let value = u32::from(vid) | if port.learns && !is_known { NOTICE } else { 0 };
    // The filtering database determines the port of the destination (clause 8.8).
    let to = entries.get(&key(vid, destination)).filter(|_| !destination.is_multicast());
    match to.map(|entry| entry.port) {
        None => Outcome { port: PORT_FLOOD, value, ..Outcome::verdict(VERDICT_FLOOD) },
        Some(egress) if egress == ingress => Outcome { value, ..Outcome::drop(DROP_SAME_PORT) },
        Some(egress) => {
            let edit = tags::edit(tag, switch.is_tagged(vid, egress));
            Outcome { port: egress.into(), value: value | edit, ..Outcome::verdict(VERDICT_FORWARD) }
        }
    }
}
