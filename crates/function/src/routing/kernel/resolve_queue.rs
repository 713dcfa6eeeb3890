//! Queue of IP addresses that the operating system must resolve. Workers add stations whose
//! Ethernet addresses are unknown. The housekeeping thread makes the kernel resolve them.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::Region;

use crate::Complete;

/// Maximum length of the queue. If an address does not fit, a later packet adds it again.
const QUEUE_MAX: usize = 256;

/// IP addresses of unresolved stations, each with the port of its link.
#[derive(Debug, Default)]
pub(super) struct ResolveQueue(Mutex<Vec<(u16, IpAddr)>>);

impl ResolveQueue {
    /// Adds an address to the queue, unless another thread holds the lock or the queue is full. The
    /// calling worker must not wait.
    fn push(&self, port: u16, address: IpAddr) {
        let mut queue = match self.0.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if queue.len() < QUEUE_MAX && queue.last() != Some(&(port, address)) {
            queue.push((port, address));
        }
    }

    pub(super) fn take(&self) -> Vec<(u16, IpAddr)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Host half of a function that follows the kernel's routes. It only collects the addresses of
/// stations whose Ethernet addresses are unknown.
pub(super) struct ResolveQueueHost {
    pub(super) queue: Arc<ResolveQueue>,
    /// Verdict of a packet to a station whose Ethernet address is unknown. The outcome of the
    /// packet names its egress port.
    pub(super) unresolved: u8,
}

impl Complete for ResolveQueueHost {
    fn finish(&mut self, region: &mut Region, descriptors: &mut [Descriptor], outcomes: &mut [Outcome]) {
        for (descriptor, outcome) in descriptors.iter().zip(outcomes) {
            if outcome.verdict == self.unresolved
                && let Some(tuple) = godwit_wire::parse(region.frame(descriptor)).five_tuple
            {
                self.queue.push(outcome.port, tuple.destination.into());
            }
        }
    }
}
