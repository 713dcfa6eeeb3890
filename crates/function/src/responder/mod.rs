//! `responder`: the host side of a router.
//!
//! The responder answers ARP requests, neighbour solicitations and echo requests for the addresses
//! of this machine. It sends ICMP errors about packets that could not be forwarded, and fragments
//! packets that exceed the MTU of a link. Where no operating system resolves the addresses of
//! stations, the responder does, and holds packets until the station answers.
//!
//! | file | holds |
//! |---|---|
//! | `answers.rs` | replies to ARP requests, neighbour solicitations and echo requests |
//! | `questions.rs` | ARP requests and neighbour solicitations, and addresses learned from received ones |
//! | `waiting.rs` | packets that wait for the address of a station |
//! | `host.rs` | the handling of each packet |
//!
//! The host half does all of the work, before any kernel runs. These packets are few, so batching
//! them would only add latency.

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

/// The frame was replaced by a reply or an ICMP error and leaves by the port that it arrived on.
pub const VERDICT_REPLY: u8 = 0;
/// A fragment, a packet whose station has been resolved, or an address request. It leaves by
/// `Outcome::port`.
pub const VERDICT_FORWARD: u8 = 1;
/// The responder does not handle this frame.
pub const VERDICT_OTHER: u8 = 2;

/// An ICMP error was due, but the RFCs forbid it for this packet, or the rate limit was reached.
pub const DROP_UNTOLD: u8 = 0;
/// The address of the next station is not resolved yet, and the packet cannot wait for it.
pub const DROP_UNRESOLVED: u8 = 1;
/// No buffer space for a fragment, a reply or an ICMP error.
pub const DROP_NO_ROOM: u8 = 2;

/// Contract of the function.
pub const CONTRACT: Contract = Contract {
    kind: "responder",
    summary: "Implements the host side of a router: ARP, neighbour discovery, echo replies, ICMP errors, fragmentation.",
    // The host half settles every packet, so no kernel ever runs. The template's kernel is a
    // placeholder.
    kernel: godwit_kernels::TEMPLATE,
    verdicts: &[
        Verdict {
            name: "reply",
            sentence: "The frame was replaced by a reply or an ICMP error; it leaves by the port that it arrived on.",
            chooses_port: true,
        },
        Verdict {
            name: "forward",
            sentence: "A fragment, a packet whose station was resolved, or an address request; it leaves by the port of the next hop.",
            chooses_port: true,
        },
        Verdict {
            name: "other",
            sentence: "The responder does not handle this frame; it is unchanged.",
            chooses_port: false,
        },
    ],
    drops: &[
        Drop {
            name: "untold",
            sentence: "An ICMP error was due, but the RFCs forbid it for this packet, or the rate limit was reached.",
        },
        Drop {
            name: "unresolved",
            sentence: "The address of the next station is not resolved yet, and the packet cannot wait for it.",
        },
        Drop { name: "no_room", sentence: "There is no buffer space for a fragment, a reply or an ICMP error." },
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
            sentence: "Address requests sent (ARP requests and neighbour solicitations).",
        },
        Counter {
            name: "learned",
            unit: "addresses",
            sentence: "Station addresses learned, including changes of known ones.",
        },
        Counter { name: "silent", unit: "stations", sentence: "Stations that did not answer address requests." },
    ],
    spec: "RFC 826, RFC 792, RFC 1812 section 4.3, RFC 4443, RFC 4861 sections 7.2 and 7.3",
};

/// Registration of the function.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Configured responder.
#[derive(Debug)]
pub struct Responder {
    settings: Arc<Settings>,
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    Ok(Arc::new(Responder { settings: Arc::new(config.resolve(context)?) }))
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

    /// Does the work of the host half for a packet that arrives without an earlier verdict.
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
