//! What is decided per packet before the kernel and behind it: which SA, which sequence number, whether it was there.

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{BUCKETS, Region, verdict_of_all};

use super::arrange::Arranger;
use super::burst::Burst;
use super::database::{Database, Decided, Decision};
use super::state::States;
use super::{DROP_WRONG_WORKER, parameter, sa_and_sequence};
use crate::columns::{Slots, WorkColumns};
use crate::{Arrangement, HostHalf, Work};

/// What `godwit_abi` calls a drop.
const VERDICT_DROP: u8 = godwit_abi::VERDICT_DROP;

/// The host half of one worker. Those of all workers are made one after the other, and processors fetch cache lines in pairs.
#[repr(align(128))]
pub(super) struct IpsecHost {
    pub(super) database: Arc<Database>,
    /// Per bucket: whether its SAs' packets are steered to this worker.
    owned: [bool; BUCKETS],
    /// The one at hand.
    burst: Burst,
    /// Where rows are asked for.
    columns: WorkColumns,
    /// Where packets are taken apart, joined or made.
    arranger: Option<Box<Arranger>>,
}

impl IpsecHost {
    pub(super) fn new(database: Arc<Database>, worker: usize, workers: usize, arranges: bool) -> Self {
        // As `Steering::worker` computes it.
        let owned = std::array::from_fn(|bucket| bucket % workers.max(1) == worker);
        Self {
            database,
            owned,
            burst: Burst::default(),
            columns: WorkColumns::default(),
            arranger: arranges.then(Box::default),
        }
    }

    /// What is to be done with one packet.
    #[inline(always)]
    pub(super) fn work(&self, decision: Decision, frame_bytes: u16) -> Work {
        match self.numbered(decision, frame_bytes) {
            Ok((variant, parameter)) => Work::Run { variant, parameter },
            Err(outcome) => Work::Done(outcome),
        }
    }

    /// Variant and parameter of a packet that the kernel is to run.
    #[inline(always)]
    fn numbered(&self, decision: Decision, frame_bytes: u16) -> Result<(u8, u64), Outcome> {
        let states = &self.database.states;
        let (sa, numbered) = match decision.decided() {
            Decided::Pass(verdict) => return Err(Outcome::verdict(verdict)),
            Decided::Drop(reason) => return Err(Outcome::drop(reason)),
            Decided::Encrypt(sa) | Decided::Decrypt(sa, _) if !self.owned[Database::bucket(sa)] => {
                return Err(Outcome::drop(DROP_WRONG_WORKER));
            }
            Decided::Encrypt(sa) => (sa, states.next(sa, frame_bytes.into())),
            Decided::Decrypt(sa, sequence_low) => (sa, states.check(sa, sequence_low)),
        };
        match numbered {
            Ok((variant, sequence)) => Ok((variant, parameter(sa, sequence))),
            Err(reason) => Err(Outcome::drop(reason)),
        }
    }
}

impl IpsecHost {
    /// The SA of this worker that is to encrypt the packet, where one is.
    #[inline(always)]
    fn encrypts(&self, decision: Decision) -> Option<u32> {
        decision.to_encrypt().filter(|&sa| self.owned[Database::bucket(sa)])
    }

    /// Numbers packets up to one that no SA of this worker encrypts: how many. Most are such, so they have a loop of their
    /// own, which fits into registers.
    #[inline(never)]
    fn number_encrypted(&self, decisions: &[Decision], descriptors: &[Descriptor], mut work: Slots<'_>) -> usize {
        let states = &self.database.states;
        for (place, ((&decision, descriptor), slot)) in
            decisions.iter().zip(descriptors).zip(work.iter_mut()).enumerate()
        {
            let Some(sa) = self.encrypts(decision) else { return place };
            match states.next(sa, descriptor.length.into()) {
                Ok((variant, sequence)) => slot.run(variant, parameter(sa, sequence)),
                Err(reason) => slot.settle(Outcome::drop(reason)),
            }
        }
        decisions.len()
    }

    /// The inbound SA of this worker that is to decrypt the packet, where one is, and the sequence number that it shows.
    #[inline(always)]
    fn decrypts(&self, decision: Decision) -> Option<(u32, u32)> {
        decision.to_decrypt().filter(|&(sa, _)| self.owned[Database::bucket(sa)])
    }

    /// The same of packets that an SA of this worker decrypts.
    #[inline(never)]
    fn number_decrypted(&self, decisions: &[Decision], mut work: Slots<'_>) -> usize {
        let states = &self.database.states;
        for (place, (&decision, slot)) in decisions.iter().zip(work.iter_mut()).enumerate() {
            let Some((sa, sequence_low)) = self.decrypts(decision) else { return place };
            match states.check(sa, sequence_low) {
                Ok((variant, sequence)) => slot.run(variant, parameter(sa, sequence)),
                Err(reason) => slot.settle(Outcome::drop(reason)),
            }
        }
        decisions.len()
    }

    /// The same of packets that pass or are dropped, up to one that does not.
    #[inline(never)]
    fn number_others(&self, decisions: &[Decision], descriptors: &[Descriptor], mut work: Slots<'_>) -> usize {
        for (place, ((&decision, descriptor), slot)) in
            decisions.iter().zip(descriptors).zip(work.iter_mut()).enumerate()
        {
            if self.encrypts(decision).is_some() || self.decrypts(decision).is_some() {
                return place;
            }
            match self.numbered(decision, descriptor.length) {
                Ok((variant, parameter)) => slot.run(variant, parameter),
                Err(outcome) => slot.settle(outcome),
            }
        }
        decisions.len()
    }

    /// See [`HostHalf::prepare_columns`].
    pub(super) fn prepare_all(&mut self, region: &Region, descriptors: &[Descriptor], work: &mut WorkColumns) {
        // In passes: each waits for one kind of memory only, and the waits of one pass overlap.
        let mut burst = std::mem::take(&mut self.burst);
        self.database.decide_all(&self.database.policies.load(), region.frames(descriptors), &mut burst);
        let mut slots = work.grow(descriptors.len());
        let mut done = 0;
        while done < descriptors.len() {
            done += self.number_encrypted(&burst.decisions[done..], &descriptors[done..], slots.from(done));
            done += self.number_decrypted(&burst.decisions[done..], slots.from(done));
            done += self.number_others(&burst.decisions[done..], &descriptors[done..], slots.from(done));
        }
        self.burst = burst;
    }
}

impl HostHalf for IpsecHost {
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

    fn arranges(&self) -> bool {
        self.arranger.is_some()
    }

    fn arrange(&mut self, packets: &mut Arrangement<'_>) -> u64 {
        let Some(mut arranger) = self.arranger.take() else { return u64::MAX };
        let wake_ns = arranger.arrange(self, packets);
        self.arranger = Some(arranger);
        wake_ns
    }

    fn may_continue_on_device(&self) -> bool {
        true
    }

    fn complete(&mut self, variant: u8, descriptors: &[Descriptor], parameters: &[u64], outcomes: &mut [Outcome]) {
        let states = &self.database.states;
        let is_inbound = variant & 1 == 1;
        if verdict_of_all(outcomes).is_some_and(|verdict| verdict != VERDICT_DROP) {
            // Nothing is to be done about packets that were encrypted.
            if is_inbound {
                all_authentic(states, descriptors, parameters, outcomes);
            }
            return;
        }
        for ((descriptor, &parameter), outcome) in descriptors.iter().zip(parameters).zip(outcomes) {
            if outcome.verdict == VERDICT_DROP {
                dropped(states, is_inbound, parameter, outcome.reason);
                continue;
            }
            let (sa, sequence) = sa_and_sequence(parameter);
            if is_inbound && let Err(reason) = states.authentic(sa, sequence, descriptor.length.into()) {
                *outcome = Outcome::drop(reason);
            }
        }
    }
}

/// All packets were authentic, as most bins' are: a loop of their own, which fits into registers.
#[inline(never)]
fn all_authentic(states: &States, descriptors: &[Descriptor], parameters: &[u64], outcomes: &mut [Outcome]) {
    for ((descriptor, &parameter), outcome) in descriptors.iter().zip(parameters).zip(outcomes) {
        let (sa, sequence) = sa_and_sequence(parameter);
        if let Err(reason) = states.authentic(sa, sequence, descriptor.length.into()) {
            *outcome = Outcome::drop(reason);
        }
    }
}

/// The kernel dropped a packet. Apart from those that go on, which are most.
#[cold]
#[inline(never)]
fn dropped(states: &States, is_inbound: bool, parameter: u64, reason: u8) {
    let (sa, sequence) = sa_and_sequence(parameter);
    states.dropped(sa, reason);
    if is_inbound && States::was_authentic(reason) {
        states.used(sa, sequence);
    }
}
