//! What is to be done with the frames of a burst, in passes: one reads headers, one asks the table of policies. Each is
//! short, so what packets wait for overlaps, and what all have in common stays in registers.

use godwit_packet::simd::{self, Isa, Vectorized};
use godwit_wire::{ethertype, protocol};

use super::database::{Database, Decision};
use super::frame::{IPV4_BYTES, Plain, PlainEsp};
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
        match policies.ipv4().table() {
            Some(table) => simd::run(ByTable { database: self, policies, table, frames, burst }),
            None => simd::run(ByFrame { database: self, policies, frames, decisions: &mut burst.decisions }),
        }
    }
}

/// Decides what is to be done with frames, one by one.
struct ByFrame<'b, F> {
    database: &'b Database,
    policies: &'b Policies,
    frames: F,
    decisions: &'b mut Vec<Decision>,
}

impl<'a, F: ExactSizeIterator<Item = &'a [u8]>> Vectorized for ByFrame<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, form: impl Isa) {
        let Self { database, policies, frames, decisions } = self;
        // What bursts before left in these places is written over.
        decisions.resize(frames.len(), Decision::encrypt(0));
        for (decision, frame) in decisions.iter_mut().zip(frames) {
            *decision = match PlainEsp::parse(frame).and_then(|esp| database.decide_named(esp, form)) {
                Some(named) => named,
                None => database.decide_apart(policies, frame),
            };
        }
    }
}

/// Decides what is to be done with frames where one table has all policies for IPv4.
struct ByTable<'b, F> {
    database: &'b Database,
    policies: &'b Policies,
    table: Table<'b>,
    frames: F,
    burst: &'b mut Burst,
}

impl<'a, F: ExactSizeIterator<Item = &'a [u8]>> Vectorized for ByTable<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, form: impl Isa) {
        let Self { database, policies, table, frames, burst } = self;
        let Burst { pairs, others, decisions } = burst;
        others.clear();
        // What bursts before left in these places is written over, or not looked at.
        pairs.resize(frames.len(), 0);
        decisions.resize(frames.len(), Decision::encrypt(0));
        let ends_udp = database.ends_udp();
        // A protocol that no packet has.
        let ended = if ends_udp { u32::from(protocol::UDP) } else { u32::MAX };
        let mut packets = frames.zip(&mut pairs[..]).enumerate();
        loop {
            let mut other = None;
            for (place, (frame, pair)) in &mut packets {
                match plain_pair(frame, ended) {
                    Some(plain) => *pair = plain,
                    None => {
                        other = Some((place, (frame, pair)));
                        break;
                    }
                }
            }
            let Some(other) = other else { break };
            // Packets of one direction stand together, mostly.
            let mut unnamed = None;
            for (place, (frame, pair)) in std::iter::once(other).chain(&mut packets) {
                match PlainEsp::parse(frame).and_then(|esp| database.decide_named(esp, form)) {
                    Some(decision) => others.push((place as u32, decision)),
                    None => {
                        unnamed = Some((place, (frame, pair)));
                        break;
                    }
                }
            }
            let Some((place, (frame, pair))) = unnamed else { break };
            if let Some(plain) = plain_pair(frame, ended) {
                *pair = plain;
                continue;
            }
            let decide = |plain, frame| database.decide_parsed(policies, plain, frame);
            look_closer(std::iter::once((place, (frame, pair))).chain(&mut packets), ends_udp, others, decide);
        }
        if others.len() < pairs.len() {
            for (decision, &pair) in decisions.iter_mut().zip(&*pairs) {
                *decision = match table.first_look(pair, form) {
                    Some(sa) => Decision::encrypt(sa),
                    None => look_again(table, pair),
                };
            }
        }
        for &(place, decision) in &*others {
            decisions[place as usize] = decision;
        }
    }
}

/// Decides about packets that a glance is not enough for, up to one for which it is: they stand together, mostly.
#[inline(never)]
fn look_closer<'f, 'p>(
    packets: impl Iterator<Item = (usize, (&'f [u8], &'p mut u64))>,
    ends_udp: bool,
    others: &mut Vec<(u32, Decision)>,
    decide: impl Fn(Option<Plain>, &'f [u8]) -> Decision,
) {
    for (place, (frame, pair)) in packets {
        match Plain::parse(frame) {
            Some(plain) if !may_be_inbound(plain.protocol, ends_udp) => {
                *pair = plain.pair();
                return;
            }
            plain => others.push((place as u32, decide(plain, frame))),
        }
    }
}

/// Whether the SAD is to be asked first about a packet of this protocol.
#[inline(always)]
fn may_be_inbound(protocol: u8, ends_udp: bool) -> bool {
    matches!(protocol, protocol::ESP | protocol::AH) || (protocol == protocol::UDP && ends_udp)
}

/// Source and destination of a frame that [`Plain::parse`] takes and that is no packet of an SA's other end: neither ESP nor AH, nor of
/// the protocol `ended`. For most frames a glance.
#[inline(always)]
fn plain_pair(frame: &[u8], ended: u32) -> Option<u64> {
    let header = frame.first_chunk::<{ Plain::BYTES }>()?;
    let eight = |at: usize| u64::from_be_bytes(*header[at..].first_chunk().unwrap_or(&[0; 8]));
    // EtherType, version and length of the header; its type of service; the packet's length; and two bytes more.
    let start = eight(12);
    // Behind the header; of a packet that is shorter than it, more than there can be.
    let payload_bytes = (start >> 16 & 0xffff).wrapping_sub(IPV4_BYTES as u64);
    let is_plain = start >> 40 == (u64::from(ethertype::IPV4) << 8 | 0x45);
    let is_whole = payload_bytes <= (frame.len() - Plain::BYTES) as u64;
    let number = u32::from(header[23]);
    // ESP and AH differ in the lowest bit.
    let is_inbound = number & !1 == u32::from(protocol::ESP) || number == ended;
    (is_plain && is_whole && !is_inbound).then(|| eight(26))
}

const _: () = assert!(protocol::ESP & 1 == 0 && protocol::AH == protocol::ESP + 1);

/// Where the first look finds no SA.
#[cold]
#[inline(never)]
fn look_again(table: Table<'_>, pair: u64) -> Decision {
    Database::protect(Answer::action(table.answer(pair)))
}
