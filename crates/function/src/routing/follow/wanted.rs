//! Stations that are wanted: those of packets that the kernel found no address for. Workers note them, housekeeping asks.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::Region;

use crate::{HostHalf, Work};

/// Most addresses that wait to be asked for: what comes beyond has not been asked for and may come again.
const WANTED_MAX: usize = 256;

/// Addresses that workers met packets for, and that no station is known of, each with the port where it is looked for.
#[derive(Debug, Default)]
pub(super) struct Wanted(Mutex<Vec<(u16, IpAddr)>>);

impl Wanted {
    /// On a worker; does not wait.
    fn note(&self, port: u16, address: IpAddr) {
        let mut wanted = match self.0.try_lock() {
            Ok(wanted) => wanted,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if wanted.len() < WANTED_MAX && wanted.last() != Some(&(port, address)) {
            wanted.push((port, address));
        }
    }

    pub(super) fn take(&self) -> Vec<(u16, IpAddr)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A worker's host half of a function whose table follows: it has nothing to do with packets but to see which went nowhere.
pub(super) struct WantedHost {
    pub(super) wanted: Arc<Wanted>,
    /// The verdict that says it, with the port in the outcome.
    pub(super) unresolved: u8,
}

impl HostHalf for WantedHost {
    fn prepare(&mut self, _region: &Region, _descriptors: &[Descriptor], _work: &mut Vec<Work>) {}

    fn prepares(&self) -> bool {
        false
    }

    fn finish(&mut self, region: &mut Region, descriptors: &mut [Descriptor], outcomes: &mut [Outcome]) {
        for (descriptor, outcome) in descriptors.iter().zip(outcomes) {
            if outcome.verdict == self.unresolved
                && let Some(tuple) = godwit_wire::parse(region.frame(descriptor)).five_tuple
            {
                self.wanted.note(outcome.port, tuple.destination.into());
            }
        }
    }
}
