//! Makes the IPsec decisions for a batch of packets. One loop reads all headers, and another loop
//! searches the policies for all packets. The memory accesses of different packets thus overlap.

use godwit_packet::simd::{self, Isa, Vectorized};
use godwit_wire::{ethertype, protocol};

use super::database::{Database, Decision};
use super::frame::{IPV4_BYTES, Plain, PlainEsp};
use super::policies::{Answer, Policies, Table};

/// Buffers for the decisions about a batch of packets.
#[derive(Default)]
pub(super) struct Burst {
    /// Policy lookup key of each packet. Packets in `others` have no valid key.
    pairs: Vec<u64>,
    /// Index and decision of each packet that needs no policy lookup.
    others: Vec<(u32, Decision)>,
    /// Decision for each packet.
    pub(super) decisions: Vec<Decision>,
}

impl Database {
    /// Calls [`Database::decide`] for each frame and stores the results in `burst.decisions`.
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

/// Decides frames one by one.
struct ByFrame<'b, F> {
    database: &'b Database,
    policies: &'b Policies,
    frames: F,
    decisions: &'b mut Vec<Decision>,
}

impl<'a, F: ExactSizeIterator<Item = &'a [u8]>> Vectorized for ByFrame<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: impl Isa) {
        let Self { database, policies, frames, decisions } = self;
        decisions.resize(frames.len(), Decision::encrypt(0));
        for (decision, frame) in decisions.iter_mut().zip(frames) {
            *decision = match PlainEsp::parse(frame).and_then(|esp| database.decide_esp(esp, isa)) {
                Some(found) => found,
                None => database.decide_out_of_line(policies, frame),
            };
        }
    }
}

/// Decides frames when one table holds all policies for IPv4.
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
    fn run(self, isa: impl Isa) {
        let Self { database, policies, table, frames, burst } = self;
        let Burst { pairs, others, decisions } = burst;
        others.clear();
        pairs.resize(frames.len(), 0);
        decisions.resize(frames.len(), Decision::encrypt(0));
        let accepts_udp = database.accepts_udp();
        // The value u32::MAX matches no protocol number.
        let inbound_protocol = if accepts_udp { u32::from(protocol::UDP) } else { u32::MAX };
        let mut packets = frames.zip(&mut pairs[..]).enumerate();
        loop {
            let mut other = None;
            for (index, (frame, pair)) in &mut packets {
                match plain_pair(frame, inbound_protocol) {
                    Some(plain) => *pair = plain,
                    None => {
                        other = Some((index, (frame, pair)));
                        break;
                    }
                }
            }
            let Some(other) = other else { break };
            // Inbound packets usually arrive together, so this loop over ESP packets rarely ends
            // early.
            let mut not_esp = None;
            for (index, (frame, pair)) in std::iter::once(other).chain(&mut packets) {
                match PlainEsp::parse(frame).and_then(|esp| database.decide_esp(esp, isa)) {
                    Some(decision) => others.push((index as u32, decision)),
                    None => {
                        not_esp = Some((index, (frame, pair)));
                        break;
                    }
                }
            }
            let Some((index, (frame, pair))) = not_esp else { break };
            if let Some(plain) = plain_pair(frame, inbound_protocol) {
                *pair = plain;
                continue;
            }
            let decide = |plain, frame| database.decide_parsed(policies, plain, frame);
            decide_others(std::iter::once((index, (frame, pair))).chain(&mut packets), accepts_udp, others, decide);
        }
        if others.len() < pairs.len() {
            for (decision, &pair) in decisions.iter_mut().zip(&*pairs) {
                *decision = match table.first_bucket_sa(pair, isa) {
                    Some(sa) => Decision::encrypt(sa),
                    None => decide_by_table(table, pair),
                };
            }
        }
        for &(index, decision) in &*others {
            decisions[index as usize] = decision;
        }
    }
}

/// Decides consecutive packets that need full parsing. Stops at the first packet that needs only a
/// policy lookup.
#[inline(never)]
fn decide_others<'f, 'p>(
    packets: impl Iterator<Item = (usize, (&'f [u8], &'p mut u64))>,
    accepts_udp: bool,
    others: &mut Vec<(u32, Decision)>,
    decide: impl Fn(Option<Plain>, &'f [u8]) -> Decision,
) {
    for (index, (frame, pair)) in packets {
        match Plain::parse(frame) {
            Some(plain) if !may_be_inbound(plain.protocol, accepts_udp) => {
                *pair = plain.pair();
                return;
            }
            plain => others.push((index as u32, decide(plain, frame))),
        }
    }
}

#[inline(always)]
fn may_be_inbound(protocol: u8, accepts_udp: bool) -> bool {
    matches!(protocol, protocol::ESP | protocol::AH) || (protocol == protocol::UDP && accepts_udp)
}

/// Returns the address pair of an IPv4 packet without VLAN tag and options. Returns `None` if the
/// packet may belong to an inbound SA, or needs full parsing.
#[inline(always)]
fn plain_pair(frame: &[u8], inbound_protocol: u32) -> Option<u64> {
    let header = frame.first_chunk::<{ Plain::BYTES }>()?;
    let eight = |at: usize| u64::from_be_bytes(*header[at..].first_chunk().unwrap_or(&[0; 8]));
    // Bytes 12 to 19 contain the EtherType and the first six bytes of the IPv4 header, up to the
    // identification.
    let start = eight(12);
    // The subtraction wraps to a very large length if the total length is less than the header
    // length.
    let payload_bytes = (start >> 16 & 0xffff).wrapping_sub(IPV4_BYTES as u64);
    let is_plain = start >> 40 == (u64::from(ethertype::IPV4) << 8 | 0x45);
    let is_whole = payload_bytes <= (frame.len() - Plain::BYTES) as u64;
    let number = u32::from(header[23]);
    // The numbers of ESP and AH differ only in the lowest bit.
    let is_inbound = number & !1 == u32::from(protocol::ESP) || number == inbound_protocol;
    (is_plain && is_whole && !is_inbound).then(|| eight(26))
}

const _: () = assert!(protocol::ESP & 1 == 0 && protocol::AH == protocol::ESP + 1);

/// Decides a packet with a lookup in both hash buckets of the policy table.
#[cold]
#[inline(never)]
fn decide_by_table(table: Table<'_>, pair: u64) -> Decision {
    Database::policy_decision(Answer::action(table.answer(pair)))
}
