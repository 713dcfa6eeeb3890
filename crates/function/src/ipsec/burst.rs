//! What is to be done with the frames of a burst, in passes: one reads headers, one asks the table of policies. Each is
//! short, so what packets wait for overlaps, and what all have in common stays in registers.

use godwit_wire::protocol;

use super::database::{Database, Decision};
use super::frame::Plain;
use super::policies::{Answer, Policies, Table};

/// Of one burst at a time.
#[derive(Default)]
pub(super) struct Burst {
    /// Source and destination of each packet, as the table of policies knows them; 0 where it is not asked.
    pairs: Vec<u64>,
    /// Packets that the table is not asked about: their places, and what is to be done with them.
    others: Vec<(u32, Decision)>,
    /// What is to be done with each packet.
    pub(super) decisions: Vec<Decision>,
}

impl Database {
    /// [`Database::decide`] for each of these frames, into `burst.decisions`.
    #[inline]
    pub(super) fn decide_all<'a>(
        &self,
        policies: &Policies,
        frames: impl ExactSizeIterator<Item = &'a [u8]>,
        burst: &mut Burst,
    ) {
        burst.decisions.clear();
        match policies.ipv4().table() {
            Some(table) => self.decide_by_table(policies, table, frames, burst),
            None => burst.decisions.extend(frames.map(|frame| self.decide(policies, frame))),
        }
    }

    #[inline(always)]
    fn decide_by_table<'a>(
        &self,
        policies: &Policies,
        table: Table<'_>,
        frames: impl ExactSizeIterator<Item = &'a [u8]>,
        burst: &mut Burst,
    ) {
        let Burst { pairs, others, decisions } = burst;
        others.clear();
        pairs.clear();
        pairs.resize(frames.len(), 0);
        let ends_udp = self.ends_udp();
        for (place, (frame, pair)) in (0..).zip(frames.zip(&mut pairs[..])) {
            match Plain::parse(frame) {
                Some(plain) if !may_be_inbound(plain.protocol, ends_udp) => *pair = plain.pair(),
                plain => others.push((place, self.decide_parsed(policies, plain, frame))),
            }
        }
        if others.len() < pairs.len() {
            decisions.extend(pairs.iter().map(|&pair| match table.first_look(pair) {
                Some(sa) => Decision::encrypt(sa),
                None => look_again(table, pair),
            }));
        } else {
            decisions.resize(others.len(), Decision::encrypt(0));
        }
        for &(place, decision) in &*others {
            decisions[place as usize] = decision;
        }
    }
}

/// Whether the SAD is to be asked first about a packet of this protocol.
#[inline(always)]
fn may_be_inbound(protocol: u8, ends_udp: bool) -> bool {
    matches!(protocol, protocol::ESP | protocol::AH) || (protocol == protocol::UDP && ends_udp)
}

/// Where the first look finds no SA.
#[cold]
#[inline(never)]
fn look_again(table: Table<'_>, pair: u64) -> Decision {
    Database::protect(Answer::action(table.answer(pair)))
}
