//! `responder`: speaks for this machine. Answers ARP, neighbour solicitations and echo requests for its addresses, tells senders by
//! ICMP why their packets were not forwarded, and fragments what is too long for a link.
//!
//! All of it is done by the host half, before any kernel: such packets are few, and none is to be waited for.

mod answers;
mod config;
mod host;

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::ImageRef;
use toml::Spanned;
use toml::de::DeTable;

use crate::{Contract, Drop, Error, Function, HostHalf, Kind, Site, Verdict};

pub use config::Config;
use config::Settings;

/// The frame has become the answer to itself, or a message to its sender, and goes back where it came from.
pub const VERDICT_REPLY: u8 = 0;
/// A fragment of a packet that goes on to the port that the function before chose.
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
            sentence: "A fragment of a packet that was too long, for the port that the function before chose.",
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
        Drop { name: "unresolved", sentence: "The next station's address is being asked for." },
        Drop { name: "no_room", sentence: "The arena has no room for fragments or for a message." },
    ],
    variants: &["settled"],
    in_order: false,
    reads_bytes: 0,
    writes_bytes: 0,
    headroom_bytes: 0,
    tailroom_bytes: host::GROWTH_BYTES_MAX,
    tailroom_saved: [0; 16],
    counters: &[],
    spec: "RFC 826, RFC 792, RFC 1812 section 4.3, RFC 4443, RFC 4861 section 7.2",
};

/// The registration.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// The configured function.
#[derive(Debug)]
pub struct Responder {
    settings: Arc<Settings>,
}

fn build(stanza: Spanned<DeTable<'_>>, site: &Site<'_>) -> Result<Arc<dyn Function>, Error> {
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

    /// What the host half does with a packet of which nobody has said anything.
    fn run_ref(&self, window: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        let frame = crate::frame_mut(window, descriptor);
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
