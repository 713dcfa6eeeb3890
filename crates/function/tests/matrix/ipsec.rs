//! The rows of `ipsec`: every suite in every mode, between every pair of families, with sequence numbers of both kinds,
//! with and without UDP; and packets of others.
#![allow(dead_code, reason = "what is shared with the tests of ipsec alone has more in it")]

#[path = "../ipsec_common/association.rs"]
mod association;
#[path = "../ipsec_common/bytes.rs"]
mod bytes;
#[path = "../ipsec_common/vectors.rs"]
mod vectors;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use godwit_function::{Function, Work};
use godwit_packet::{Arena, ArenaConfig};

use super::{Case, build, frames};
use association::{Association, Headers, every};
use bytes::Random;

/// Packets of each SA.
const PACKETS: usize = 8;

pub(crate) fn cases() -> Vec<Case> {
    let all = every();
    let outbound: String = all.iter().map(Association::outbound).collect();
    let inbound: String = all.iter().map(Association::inbound).collect();
    let (west, east) = (build("ipsec", &outbound, 1), build("ipsec", &inbound, 1));
    let mut random = Random(3);
    let mut plain: Vec<Vec<u8>> = all.iter().flat_map(|association| packets(association, &mut random)).collect();
    let sealed = sealed(&*west, &plain);
    // The host half settles most of these.
    plain.extend(frames::frames(3, 1000, &frames::any_address, &frames::any_payload));
    damage(&mut random, &mut plain, 6);
    let mut arriving = sealed;
    damage(&mut random, &mut arriving, 3);
    vec![
        Case { name: "ipsec, encrypt", function: west, frames: plain },
        Case { name: "ipsec, decrypt", function: east, frames: arriving },
        others(&mut random),
    ]
}

/// Frames with packets of any length for an SA: the shortest, a block and around, and what fits.
fn packets(association: &Association, random: &mut Random) -> Vec<Vec<u8>> {
    let lengths = [0, 16 + random.below(17), random.below(100), random.below(300)];
    let more = std::iter::repeat_with(|| usize::MAX).take(PACKETS - lengths.len());
    let mut frames = Vec::new();
    for length in lengths.into_iter().chain(more) {
        let length = if length == usize::MAX { random.below(1300) } else { length };
        let packet = association.plain(random, length, Headers::Any);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if random.below(3) == 0 {
            frame.extend([0x81, 0x00, 0x60, 0x07]);
        }
        frame.extend(if association.inner_ipv6() { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(packet);
        // As Ethernet pads.
        let padding = random.below(2) * 60usize.saturating_sub(frame.len());
        frame.extend(random.bytes(padding));
        frames.push(frame);
    }
    frames
}

/// What an end makes of frames.
fn sealed(west: &dyn Function, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let config = ArenaConfig { packets: frames.len(), ..Default::default() };
    let mut region = Arena::new(config, 1).unwrap().split().remove(0);
    let mut descriptors = Vec::new();
    for frame in frames {
        let descriptor = region.allocate(frame.len()).unwrap();
        region.frame_mut(&descriptor).copy_from_slice(frame);
        descriptors.push(descriptor);
    }
    let mut work = Vec::new();
    west.host_half(0, 1).unwrap().prepare(&region, &descriptors, &mut work);
    let mut sealed = Vec::new();
    for (mut descriptor, work) in descriptors.into_iter().zip(work) {
        let Work::Run { variant, parameter } = work else { panic!("{work:?}: not protected") };
        let said = west.run_ref(region.buffer_mut(&descriptor), &mut descriptor, variant, parameter);
        assert_eq!(said.verdict, 0, "{said:?}: not protected");
        sealed.push(region.frame(&descriptor).to_vec());
    }
    sealed
}

/// Changes one of so many frames: a bit or a byte, mostly of the headers, or the length.
fn damage(random: &mut Random, frames: &mut [Vec<u8>], of: usize) {
    for frame in frames {
        if random.below(of) != 0 || frame.len() < 34 {
            continue;
        }
        let within = if random.below(3) == 0 { frame.len() } else { frame.len().min(100) };
        let at = 14 + random.below(within - 14);
        match random.below(4) {
            0 => frame[at] = random.next() as u8,
            1 => frame.truncate(at),
            _ => frame[at] ^= 1 << random.below(8),
        }
    }
}

/// SAs and packets of others, each as it is, and many times damaged.
fn others(random: &mut Random) -> Case {
    let mut stanza = String::new();
    let mut frames = Vec::new();
    let mut sas = HashMap::new();
    for vector in vectors::all() {
        let sa = vector.association.inbound();
        match sas.entry(vector.association.spi) {
            Entry::Vacant(place) => stanza += place.insert(sa),
            Entry::Occupied(same) if *same.get() == sa => {}
            // One packet, two SAs that take it differently.
            Entry::Occupied(_) => continue,
        }
        for packet in vector.packets {
            let mut again = vec![packet.frame.clone(); 24];
            damage(random, &mut again, 1);
            frames.push(packet.frame);
            frames.extend(again);
        }
    }
    let function: Arc<dyn Function> = build("ipsec", &stanza, 1);
    Case { name: "ipsec, packets of others", function, frames }
}
