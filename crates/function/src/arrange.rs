//! What a host half can do with packets besides preparing them one by one: take them apart, keep them until others come,
//! join them, make new ones.

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::Region;

use crate::{Contract, Work};

/// Packets that have arrived at a host half, and what is to become of them.
pub struct Arrangement<'a> {
    /// Where packets lie. Frames may be rewritten, and buffers allocated for [`Step::Split`], [`Step::Join`],
    /// [`Step::Resume`] and [`Step::Create`]; whoever allocates one that no step takes releases it. All others the engine releases.
    pub region: &'a mut Region,
    /// Nanoseconds on a clock that never goes back; in a replay the time of the packets.
    pub now_ns: u64,
    /// Not in a replay, whose outcome no clock decides: nothing is made that only time calls for.
    pub live: bool,
    /// Nothing will ever arrive: what is held is to be given up ([`Step::Expire`]).
    pub ending: bool,
    /// In the order of arrival, if there are any.
    pub arrived: &'a [Descriptor],
    /// For each of these what the function before said of it, where the host half [hears](crate::HostHalf::hears) it; else
    /// empty.
    pub said: &'a [Said],
    /// To be appended to: for each packet that arrived [`Step::Keep`], [`Step::Hold`], [`Step::Join`] or [`Step::Drop`],
    /// in the same order, and others between them.
    pub steps: &'a mut Vec<Step>,
}

/// What a function said of a packet before it came here.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// The function's contract; `None`: the packet comes from a port.
    pub by: Option<&'static Contract>,
    /// Its place in the configuration, where `by` is one.
    pub function: usize,
    /// What it said.
    pub outcome: Outcome,
}

impl Said {
    /// The name of the verdict.
    pub fn verdict(&self) -> Option<&'static str> {
        Some(self.by?.verdicts.get(usize::from(self.outcome.verdict))?.name)
    }
}

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It goes on; its frame may have become another one within its buffer.
    Keep {
        /// As it is now.
        packet: Descriptor,
        /// What is to be done with it.
        work: Work,
    },
    /// One packet more, made of the one that the last `Keep` or `Join` names, and behind it wherever order counts.
    Split {
        /// In a buffer that was allocated for it.
        packet: Descriptor,
        /// What is to be done with it.
        work: Work,
    },
    /// The host half has copied what it needs: the packet waits outside of the arena, and nobody waits for it.
    Hold {
        /// As it arrived.
        packet: Descriptor,
    },
    /// Held packets and this one have become one, which takes its place.
    Join {
        /// The one that was missing, as it arrived.
        packet: Descriptor,
        /// In a buffer that was allocated for it, or in that of `packet`; the engine fills in what is known of `packet`.
        whole: Descriptor,
        /// So many were held.
        held: u32,
        /// What is to be done with it.
        work: Work,
    },
    /// A packet that was held goes on, as if it had just arrived. Where no more can be in flight it is dropped.
    Resume {
        /// In a buffer that was allocated for it; port and flow hash as it had them.
        packet: Descriptor,
        /// What is to be done with it.
        work: Work,
        /// Why it is dropped then: of the contract.
        reason: u8,
    },
    /// A packet that came from nowhere. Where no more can be in flight there will be none.
    Create {
        /// In a buffer that was allocated for it; port and flow hash as others of its flow have them.
        packet: Descriptor,
        /// What is to be done with it.
        work: Work,
    },
    /// It is dropped.
    Drop {
        /// As it arrived.
        packet: Descriptor,
        /// Why: of the contract.
        reason: u8,
    },
    /// Held packets are dropped.
    Expire {
        /// How many.
        held: u32,
        /// Why: of the contract.
        reason: u8,
    },
}
