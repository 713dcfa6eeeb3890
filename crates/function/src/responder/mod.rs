//! `responder`: speaks for this machine. Answers ARP, neighbour solicitations and echo requests for its addresses, tells senders by
//! ICMP why their packets were not forwarded, and fragments what is too long for a link. Asks for stations that nobody else asks for, and
//! keeps packets until they have answered.
//!
//! | file | holds |
//! |---|---|
//! | `answers.rs` | frames that answer |
//! | `questions.rs` | frames that ask, and what neighbours say of themselves |
//! | `waiting.rs` | packets that wait for a station |
//! | `host.rs` | what becomes of each packet |
//!
//! All of it is done by the host half, before any kernel: such packets are few, and none is to be waited for.

mod answers;
mod config;
mod host;
mod questions;
mod waiting;

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::ImageRef;
use toml::Spanned;
use toml::de::DeTable;

use crate::neighbours::Neighbours;
use crate::{BuildContext, Contract, Counter, Drop, Error, Function, HostHalf, Kind, Verdict};

pub use config::Config;
use config::Settings;

/// The frame has become the answer to itself, or a message to its sender, and goes back where it came from.
pub const VERDICT_REPLY: u8 = 0;
/// A fragment, or a packet that waited for its station, goes on to the port that the function before chose; or a question for a station's
/// address goes to its port.
pub const VERDICT_FORWARD: u8 = 1;
/// Nothing that is answered here.
pub const VERDICT_OTHER: u8 = 2;

/// A message was due, but none must be sent to such a packet, or too many were sent in this second.
pub const DROP_UNTOLD: u8 = 0;
/// The next station's address is not known, and it has not been asked for long.
pub const DROP_UNRESOLVED: u8 = 1;
/// There is no room for fragments, or for a message.
pub const DROP_NO_ROOM: u8 = 2;

/// What it says of itself.
pub const CONTRACT: Contract = Contract {
    kind: "responder",
    summary: "Speaks for this machine: ARP, neighbour discovery, echo, ICMP errors, fragments.",
    // It has none: its host half settles every packet. The number is that of one which does next to nothing.
    kernel: godwit_kernels::TEMPLATE,
    verdicts: &[
        Verdict {
            name: "reply",
            sentence: "The frame has become an answer or a message to its sender, and goes back by the port it came by.",
            chooses_port: true,
        },
        Verdict {
            name: "forward",
            sentence: "For the port that the function before chose: a fragment, a packet that waited for its station's address, or a question for that.",
            chooses_port: true,
        },
        Verdict {
            name: "other",
            sentence: "Nothing that is answered here; the frame is unchanged.",
            chooses_port: false,
        },
    ],
    drops: &[
        Drop {
            name: "untold",
            sentence: "A message was due, but none must be sent about such a packet, or too many were sent in this second.",
        },
        Drop {
            name: "unresolved",
            sentence: "The next station's address is being asked for, and no more packets wait for it.",
        },
        Drop { name: "no_room", sentence: "The arena has no room for fragments or for a message." },
    ],
    variants: &["settled"],
    in_order: false,
    reads_bytes: 0,
    writes_bytes: 0,
    headroom_bytes: 0,
    tailroom_bytes: host::GROWTH_BYTES_MAX,
    tailroom_saved: [0; 16],
    counters: &[
        Counter {
            name: "asked",
            unit: "frames",
            sentence: "Questions for the address of a station (ARP requests, neighbour solicitations).",
        },
        Counter {
            name: "learned",
            unit: "addresses",
            sentence: "Addresses of stations that were asked for, and new ones of these.",
        },
        Counter { name: "silent", unit: "stations", sentence: "Stations that did not answer." },
    ],
    spec: "RFC 826, RFC 792, RFC 1812 section 4.3, RFC 4443, RFC 4861 sections 7.2 and 7.3",
};

/// The registration.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// The configured function.
#[derive(Debug)]
pub struct Responder {
    settings: Arc<Settings>,
}

fn build(stanza: Spanned<DeTable<'_>>, site: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    Ok(Arc::new(Responder { settings: Arc::new(config.resolve(site)?) }))
}

impl Function for Responder {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&[][..]).into()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<Box<dyn HostHalf>> {
        Some(Box::new(host::ResponderHost::new(Arc::clone(&self.settings))))
    }

    fn neighbours(&self) -> Option<&Arc<Neighbours>> {
        Some(&self.settings.neighbours)
    }

    fn counts(&self) -> Vec<u64> {
        self.settings.neighbours.counts().to_vec()
    }

    /// What the host half does with a packet of which nobody has said anything.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        let frame = crate::frame_mut(buffer, descriptor);
        match answers::answer(&self.settings, descriptor.port.into(), frame) {
            Some(answer) if answer.len() == frame.len() => {
                frame.copy_from_slice(&answer);
                Outcome { port: descriptor.port.into(), ..Outcome::verdict(VERDICT_REPLY) }
            }
            _ => Outcome::verdict(VERDICT_OTHER),
        }
    }
}

#[cfg(test)]
mod tests;
