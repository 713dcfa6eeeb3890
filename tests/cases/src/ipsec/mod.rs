//! Cases of `ipsec`: every suite in every mode, between every pair of IP versions, with and without
//! extended sequence numbers and UDP, and packets of other implementations.

pub mod association;
pub mod batch;
pub mod hostile;
pub mod vectors;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use godwit_function::{Function, Work};
use godwit_packet::{Arena, ArenaConfig};
use godwit_test_support::{FrameBuilder, Random};
use godwit_wire::ethertype;

use crate::{Case, build, frames};
use association::{Association, Headers, every};

/// Number of packets for each SA.
const PACKETS: usize = 8;

pub(super) fn cases() -> Vec<Case> {
    let all = every();
    let outbound: String = all.iter().map(Association::outbound).collect();
    let inbound: String = all.iter().map(Association::inbound).collect();
    let (sender, receiver) = (build("ipsec", &outbound, 1), build("ipsec", &inbound, 1));
    let mut random = Random::new(3);
    let mut plain: Vec<Vec<u8>> = all.iter().flat_map(|association| packets(association, &mut random)).collect();
    let mut encapsulated = encapsulate(&*sender, &plain);
    // The host half decides most of these frames without the kernel.
    plain.extend(frames::frames(3, 1000, &frames::any_address, &frames::any_payload));
    damage(&mut random, &mut plain, 6);
    damage(&mut random, &mut encapsulated, 3);
    vec![
        Case { name: "ipsec, encrypt", function: sender, frames: plain },
        Case { name: "ipsec, decrypt", function: receiver, frames: encapsulated },
        others(&mut random),
    ]
}

/// Returns frames for an SA: with the shortest packet, with packets of one to two cipher blocks,
/// and with packets of up to 1300 bytes.
fn packets(association: &Association, random: &mut Random) -> Vec<Vec<u8>> {
    let lengths = [0, 16 + random.below(17), random.below(100), random.below(300)];
    let mut frames = Vec::new();
    for index in 0..PACKETS {
        let length = lengths.get(index).copied().unwrap_or_else(|| random.below(1300));
        let packet = association.plain(random, length, Headers::Any);
        let builder = if random.one_in(3) { FrameBuilder::new().vlan(7) } else { FrameBuilder::new() };
        let ethertype = if association.inner_ipv6() { ethertype::IPV6 } else { ethertype::IPV4 };
        let mut frame = builder.ethernet(ethertype, &packet);
        // Half of the short frames have Ethernet padding.
        let padding = random.below(2) * 60_usize.saturating_sub(frame.len());
        frame.extend(random.bytes(padding));
        frames.push(frame);
    }
    frames
}

/// Returns the frames that the sending gateway makes of `frames`.
fn encapsulate(sender: &dyn Function, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let config = ArenaConfig { packets: frames.len(), ..Default::default() };
    let mut region = Arena::new(config, 1).unwrap().split().remove(0);
    let mut descriptors = Vec::new();
    for frame in frames {
        let descriptor = region.allocate(frame.len()).unwrap();
        region.frame_mut(&descriptor).copy_from_slice(frame);
        descriptors.push(descriptor);
    }
    let mut work = Vec::new();
    sender.host_half(0, 1).unwrap().preparing().unwrap().prepare(&region, &descriptors, &mut work);
    let mut encapsulated = Vec::new();
    for (mut descriptor, work) in descriptors.into_iter().zip(work) {
        let Work::Run { variant, parameter } = work else { panic!("{work:?}: not protected") };
        let outcome = sender.run_ref(region.buffer_mut(&descriptor), &mut descriptor, variant, parameter);
        assert_eq!(outcome.verdict, 0, "{outcome:?}: not protected");
        encapsulated.push(region.frame(&descriptor).to_vec());
    }
    encapsulated
}

/// Damages one in `ratio` frames: changes a bit or a byte, mostly of the headers, or truncates.
fn damage(random: &mut Random, frames: &mut [Vec<u8>], ratio: usize) {
    for frame in frames {
        if random.below(ratio) != 0 || frame.len() < 34 {
            continue;
        }
        let range = if random.below(3) == 0 { frame.len() } else { frame.len().min(100) };
        let at = 14 + random.below(range - 14);
        match random.below(4) {
            0 => frame[at] = random.next_u8(),
            1 => frame.truncate(at),
            _ => frame[at] ^= 1 << random.below(8),
        }
    }
}

/// Returns SAs and packets of other implementations, each unchanged and in 24 damaged copies.
fn others(random: &mut Random) -> Case {
    let mut stanza = String::new();
    let mut frames = Vec::new();
    let mut sas = HashMap::new();
    for vector in vectors::all() {
        let sa = vector.association.inbound();
        match sas.entry(vector.association.spi) {
            Entry::Vacant(entry) => stanza += entry.insert(sa),
            Entry::Occupied(entry) if *entry.get() == sa => {}
            // Two vectors give the same packet to different SAs.
            Entry::Occupied(_) => continue,
        }
        for packet in vector.packets {
            let mut copies = vec![packet.frame.clone(); 24];
            damage(random, &mut copies, 1);
            frames.push(packet.frame);
            frames.extend(copies);
        }
    }
    let function: Arc<dyn Function> = build("ipsec", &stanza, 1);
    Case { name: "ipsec, packets of others", function, frames }
}
