//! Host half of `ipsec`. Before the kernel runs, it looks up SAs and assigns sequence numbers.
//! After the kernel, it updates the replay windows.

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{BUCKETS, Region, verdict_of_all};

use super::arrange::Arranger;
use super::burst::Burst;
use super::database::{Database, Decided, Decision};
use super::in_flight::InFlight;
use super::state::States;
use super::{DROP_WRONG_WORKER, parameter, sa_and_sequence};
use crate::columns::{Slots, WorkColumns};
use crate::{Arrange, Arrangement, Complete, Prepare, Work};

const VERDICT_DROP: u8 = godwit_abi::VERDICT_DROP;

/// State of the `ipsec` host half on one worker. Processors prefetch cache lines in pairs, so the
/// state is aligned to two cache lines. Workers therefore never share a pair.
#[repr(align(128))]
pub(super) struct IpsecHost {
    pub(super) database: Arc<Database>,
    /// Whether this worker receives the packets of an SA, by steering bucket.
    owned: [bool; BUCKETS],
    /// Buffers for the packets that are prepared together.
    burst: Burst,
    columns: WorkColumns,
    /// Fragmentation, reassembly and keepalive state, if the configuration needs it.
    arranger: Option<Box<Arranger>>,
    /// Inbound packets in flight, if the run is a replay.
    in_flight: Option<Box<InFlight>>,
}

impl IpsecHost {
    pub(super) fn new(database: Arc<Database>, worker: usize, workers: usize, arranges: bool) -> Self {
        // The function `Steering::worker` uses the same formula.
        let owned = std::array::from_fn(|bucket| bucket % workers.max(1) == worker);
        Self {
            database,
            owned,
            burst: Burst::default(),
            columns: WorkColumns::default(),
            arranger: arranges.then(Box::default),
            in_flight: None,
        }
    }

    #[inline(always)]
    pub(super) fn work(&self, decision: Decision, frame_bytes: u16) -> Work {
        match self.assign_number(decision, frame_bytes) {
            Ok((variant, parameter)) => Work::Run { variant, parameter },
            Err(outcome) => Work::Done(outcome),
        }
    }

    /// Returns the variant and the parameter of a packet for the kernel. If the packet needs no
    /// kernel, returns the verdict or the drop reason.
    #[inline(always)]
    fn assign_number(&self, decision: Decision, frame_bytes: u16) -> Result<(u8, u64), Outcome> {
        let states = &self.database.states;
        let (sa, number) = match decision.decided() {
            Decided::Pass(verdict) => return Err(Outcome::verdict(verdict)),
            Decided::Drop(reason) => return Err(Outcome::drop(reason)),
            Decided::Encrypt(sa) | Decided::Decrypt(sa, _) if !self.owned[Database::bucket(sa)] => {
                return Err(Outcome::drop(DROP_WRONG_WORKER));
            }
            Decided::Encrypt(sa) => (sa, states.next(sa, frame_bytes.into())),
            Decided::Decrypt(sa, sequence_low) => (sa, states.check(sa, sequence_low)),
        };
        match number {
            Ok((variant, sequence)) => Ok((variant, parameter(sa, sequence))),
            Err(reason) => Err(Outcome::drop(reason)),
        }
    }
}

impl IpsecHost {
    /// Returns the outbound SA of a packet to encapsulate, or `None` if another worker owns the SA.
    #[inline(always)]
    fn owned_outbound(&self, decision: Decision) -> Option<u32> {
        decision.to_encrypt().filter(|&sa| self.owned[Database::bucket(sa)])
    }

    /// Assigns sequence numbers to consecutive packets to encapsulate. Returns the number of these
    /// packets.
    #[inline(never)]
    fn number_encrypted(&self, decisions: &[Decision], descriptors: &[Descriptor], mut work: Slots<'_>) -> usize {
        let states = &self.database.states;
        for (index, ((&decision, descriptor), slot)) in
            decisions.iter().zip(descriptors).zip(work.iter_mut()).enumerate()
        {
            let Some(sa) = self.owned_outbound(decision) else { return index };
            match states.next(sa, descriptor.length.into()) {
                Ok((variant, sequence)) => slot.run(variant, parameter(sa, sequence)),
                Err(reason) => slot.settle(Outcome::drop(reason)),
            }
        }
        decisions.len()
    }

    /// Returns the inbound SA and the received sequence number of a packet to decapsulate. Returns
    /// `None` if another worker owns the SA.
    #[inline(always)]
    fn owned_inbound(&self, decision: Decision) -> Option<(u32, u32)> {
        decision.to_decrypt().filter(|&(sa, _)| self.owned[Database::bucket(sa)])
    }

    /// Checks the sequence numbers of consecutive packets to decapsulate. Returns the number of
    /// these packets.
    #[inline(never)]
    fn number_decrypted(&self, decisions: &[Decision], mut work: Slots<'_>) -> usize {
        let states = &self.database.states;
        for (index, (&decision, slot)) in decisions.iter().zip(work.iter_mut()).enumerate() {
            let Some((sa, sequence_low)) = self.owned_inbound(decision) else { return index };
            match states.check(sa, sequence_low) {
                Ok((variant, sequence)) => slot.run(variant, parameter(sa, sequence)),
                Err(reason) => slot.settle(Outcome::drop(reason)),
            }
        }
        decisions.len()
    }

    /// Sets the results of consecutive packets that need no kernel. Returns the number of these
    /// packets.
    #[inline(never)]
    fn number_others(&self, decisions: &[Decision], descriptors: &[Descriptor], mut work: Slots<'_>) -> usize {
        for (index, ((&decision, descriptor), slot)) in
            decisions.iter().zip(descriptors).zip(work.iter_mut()).enumerate()
        {
            if self.owned_outbound(decision).is_some() || self.owned_inbound(decision).is_some() {
                return index;
            }
            match self.assign_number(decision, descriptor.length) {
                Ok((variant, parameter)) => slot.run(variant, parameter),
                Err(outcome) => slot.settle(outcome),
            }
        }
        decisions.len()
    }

    /// See [`Prepare::prepare_columns`].
    pub(super) fn prepare_all(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut WorkColumns) {
        // Each loop accesses one kind of memory, so the cache misses of different packets overlap.
        let mut burst = std::mem::take(&mut self.burst);
        self.database.decide_all(&self.database.policies.load(), region.frames(descriptors), &mut burst);
        if self.database.has_unprotected() {
            for (decision, descriptor) in burst.decisions.iter_mut().zip(descriptors) {
                *decision = self.database.apply_port(*decision, descriptor.port);
            }
        }
        let first = work.len();
        let mut slots = work.grow(descriptors.len());
        let mut done = 0;
        while done < descriptors.len() {
            done += self.number_encrypted(&burst.decisions[done..], &descriptors[done..], slots.from(done));
            done += self.number_decrypted(&burst.decisions[done..], slots.from(done));
            done += self.number_others(&burst.decisions[done..], &descriptors[done..], slots.from(done));
        }
        self.burst = burst;
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.prepared((first..work.len()).map(|packet| work.at(packet)));
        }
    }
}

impl Prepare for IpsecHost {
    fn prepare(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>) {
        let mut columns = std::mem::take(&mut self.columns);
        columns.clear();
        self.prepare_all(region, descriptors, &mut columns);
        work.extend(columns.iter());
        self.columns = columns;
    }

    fn prepare_columns(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut WorkColumns) {
        self.prepare_all(region, descriptors, work);
    }

    fn ready(&mut self, region: &Region, descriptors: &[Descriptor]) -> usize {
        self.in_flight.get_or_insert_default().ready(&self.database, region, descriptors)
    }
}

impl Arrange for IpsecHost {
    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        let Some(mut arranger) = self.arranger.take() else { return u64::MAX };
        let wake_ns = arranger.arrange(self, packets);
        self.arranger = Some(arranger);
        wake_ns
    }

    fn ready(&mut self, region: &Region, descriptors: &[Descriptor]) -> usize {
        Prepare::ready(self, region, descriptors)
    }
}

impl Complete for IpsecHost {
    fn complete(&mut self, variant: u8, descriptors: &[Descriptor], parameters: &[u64], outcomes: &mut [Outcome]) {
        let states = &self.database.states;
        let is_inbound = variant & 1 == 1;
        if let Some(in_flight) = self.in_flight.as_mut().filter(|_| is_inbound) {
            in_flight.completed(parameters);
        }
        if verdict_of_all(outcomes).is_some_and(|verdict| verdict != VERDICT_DROP) {
            // Encapsulated packets need no further work.
            if is_inbound {
                accept_all(states, descriptors, parameters, outcomes);
            }
            return;
        }
        for ((descriptor, &parameter), outcome) in descriptors.iter().zip(parameters).zip(outcomes) {
            if outcome.verdict == VERDICT_DROP {
                record_drop(states, is_inbound, parameter, outcome.reason);
                continue;
            }
            let (sa, sequence) = sa_and_sequence(parameter);
            if is_inbound && let Err(reason) = states.accept(sa, sequence, descriptor.length.into()) {
                *outcome = Outcome::drop(reason);
            }
        }
    }
}

/// Records all packets of a batch as authentic, for the usual case that the kernel drops none.
#[inline(never)]
fn accept_all(states: &States, descriptors: &[Descriptor], parameters: &[u64], outcomes: &mut [Outcome]) {
    for ((descriptor, &parameter), outcome) in descriptors.iter().zip(parameters).zip(outcomes) {
        let (sa, sequence) = sa_and_sequence(parameter);
        if let Err(reason) = states.accept(sa, sequence, descriptor.length.into()) {
            *outcome = Outcome::drop(reason);
        }
    }
}

/// Records that the kernel dropped a packet, which is rare.
#[cold]
#[inline(never)]
fn record_drop(states: &States, is_inbound: bool, parameter: u64, reason: u8) {
    let (sa, sequence) = sa_and_sequence(parameter);
    states.count_drop(sa, reason);
    if is_inbound && States::was_authentic(reason) {
        states.mark_used(sa, sequence);
    }
}
