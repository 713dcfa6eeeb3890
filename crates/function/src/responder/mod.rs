//! The function `responder` does the work of a host on a router.
//!
//! It answers ARP requests, neighbour solicitations and echo requests for the addresses of this
//! machine. It sends ICMP errors about packets that could not be forwarded, and fragments packets
//! that exceed the MTU of a link. It holds packets until the address of their station is known.
//! Where no operating system resolves the addresses of stations, the responder resolves them.
//!
//! | file | holds |
//! |---|---|
//! | `answers.rs` | replies to ARP requests, neighbour solicitations and echo requests |
//! | `questions.rs` | ARP requests and neighbour solicitations, and addresses learned from received ones |
//! | `waiting.rs` | packets that wait for the address of a station |
//! | `unreachable.rs` | stations that the operating system resolves, and that do not answer |
//! | `host.rs` | the handling of each packet |
//!
//! All of this work runs on the CPU before any kernel runs. The responder handles few packets, so
//! batches for a device would only add latency.

mod answers;
mod config;
mod host;
mod questions;
mod unreachable;
mod waiting;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::ImageRef;
use toml::Spanned;
use toml::de::DeTable;

use crate::neighbours::{Neighbours, STATIONS_MAX};
use crate::routing::OwnAddresses;
use crate::{BuildContext, Contract, Error, Function, HostHalf, Kind, Notice, Operate, Station};

pub use config::Config;

use config::Settings;
/// Properties, verdicts and drop reasons of the function, as declared in
/// `kernels/responder/responder.h`.
pub use godwit_kernels::declared::responder::*;

/// Registration of the function kind `responder`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Configured responder.
#[derive(Debug)]
pub struct Responder {
    settings: Arc<Settings>,
    /// Time of the last message about a full neighbour table.
    full_reported: Mutex<Option<Instant>>,
}

/// Minimum interval between two reports of a full neighbour table.
const FULL_INTERVAL: Duration = Duration::from_secs(60);

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    Ok(Arc::new(Responder { settings: Arc::new(config.resolve(context)?), full_reported: Mutex::default() }))
}

impl Function for Responder {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&[][..]).into()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<HostHalf> {
        Some(HostHalf::Arrange(Box::new(host::ResponderHost::new(Arc::clone(&self.settings)))))
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn station(&self) -> Option<&dyn Station> {
        Some(self)
    }

    /// Answers a packet that no other function has processed. A running engine does this work on
    /// the CPU, before the kernel runs.
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

impl Operate for Responder {
    fn counts(&self) -> Vec<u64> {
        self.settings.neighbours.counts().to_vec()
    }

    fn notices(&self) -> Vec<Notice> {
        if !self.settings.neighbours.take_full() {
            return Vec::new();
        }
        let mut reported = self.full_reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_some_and(|reported: Instant| reported.elapsed() < FULL_INTERVAL) {
            return Vec::new();
        }
        *reported = Some(Instant::now());
        let sentence = format!(
            "the neighbour table is full of {STATIONS_MAX} stations that have answered: packets to further ones are dropped"
        );
        vec![("neighbour_table_full", sentence)]
    }
}

impl Station for Responder {
    fn own_addresses(&self) -> &Arc<OwnAddresses> {
        &self.settings.own
    }

    fn neighbours(&self) -> Option<&Arc<Neighbours>> {
        Some(&self.settings.neighbours)
    }
}

#[cfg(test)]
mod tests;
