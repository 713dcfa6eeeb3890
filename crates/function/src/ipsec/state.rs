//! Per-packet state of SAs: sequence numbers, replay windows and counters. Only the worker that
//! owns an SA writes the state of the SA.
//!
//! The index of an SA also determines its steering bucket (the index modulo the number of buckets)
//! and thereby its worker. The state that changes with every packet is stored per bucket, in pages.
//! Hardware prefetchers read ahead up to the end of a page. A page shared by two workers would
//! therefore cause false sharing.
//!
//! ```text
//!         +------+----------+----------+-- ... --+
//! pages   | SA i | SA i+128 | SA i+256 |         |   bucket i modulo 128
//!         +------+----------+----------+-- ... --+   (rotated within the page by i lines)
//! ```
//!
//! The state belongs to the function and not to its workers. Restarting the workers therefore
//! repeats no sequence number and no IV.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};

use godwit_packet::BUCKETS;

use super::grants::Grants;
use super::replay::{self, Ring, RotatedRing};
use super::sa::{Lifetime, Sa};
use super::suite::variant;
use super::{
    DROP_AUTHENTICATION, DROP_CONGESTION, DROP_DUMMY, DROP_LIFETIME, DROP_NOT_DURABLE, DROP_PADDING,
    DROP_POLICY_MISMATCH, DROP_REPLAYED, DROP_SEQUENCE_EXHAUSTED, SEQUENCE_BITS,
};

/// Part of an SA's state that every packet needs.
#[derive(Default)]
pub(super) struct Hot {
    /// Encoded [`SaFacts`].
    facts: AtomicU64,
    /// For an outbound SA, the last assigned sequence number. For an inbound SA, the lower
    /// [`SEQUENCE_BITS`] bits hold the largest authentic sequence number. The upper bits hold how
    /// far this number may advance before [`Grants::limit`] is called.
    sequence: AtomicU64,
    /// For an outbound SA, the last sequence number before the next check of the limits. For an
    /// inbound SA, the number of authentic packets.
    stop_or_packets: AtomicU64,
    bytes: AtomicU64,
}

/// Bits of [`Hot::sequence`] that hold the sequence number.
const SEQUENCE: u64 = (1 << SEQUENCE_BITS) - 1;

/// Maximum frame length that a descriptor can represent, in bytes.
const FRAME_BYTES_MAX: u64 = u16::MAX as u64;

/// Number of SAs per page.
const PAGE_SAS: usize = 4096 / size_of::<Hot>();

/// Number of SAs per cache line.
const LINE_SAS: usize = 64 / size_of::<Hot>();

#[repr(align(4096))]
struct Page([Hot; PAGE_SAS]);

/// Part of an SA's state that few packets need.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Cold {
    /// Packets dropped because the SA has ended.
    pub(super) ended: AtomicU64,
    pub(super) replayed: AtomicU64,
    pub(super) not_authentic: AtomicU64,
    /// Packets that the kernel dropped for other reasons.
    pub(super) other_drops: AtomicU64,
    soft_bytes: AtomicU64,
    hard_bytes: AtomicU64,
    soft_packets: AtomicU64,
    hard_packets: AtomicU64,
}

/// Properties and events of an SA, packed into one word. An expired lifetime is an example of an
/// event.
///
/// ```text
/// | events | window | flags | variant |
///  32       16       8       0
/// ```
#[derive(Clone, Copy)]
pub(super) struct SaFacts(u64);

impl SaFacts {
    const ESN: u64 = 1 << 8;
    /// Flag of an inbound SA whose lifetime must be checked for each packet.
    const LIMITED: u64 = 1 << 9;
    const WINDOW: u32 = 16;

    /// Event that three quarters of the sequence numbers are used.
    pub(super) const WARNED: u64 = 1 << 32;
    /// Event that the soft lifetime has expired.
    pub(super) const SOFT: u64 = 1 << 33;
    /// Event that the hard lifetime has expired or the sequence numbers are used up.
    pub(super) const ENDED: u64 = 1 << 34;

    fn new(sa: &Sa) -> Self {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let window = if sa.is_inbound() { sa.replay_window } else { 0 };
        let Lifetime { soft_bytes, hard_bytes, soft_packets, hard_packets } = sa.lifetime;
        let limits = [soft_bytes, hard_bytes, soft_packets, hard_packets];
        // Only inbound SAs need the flag. Outbound SAs check their limits at certain sequence
        // numbers, in [`States::check_limits`].
        let is_limited = sa.is_inbound() && limits.into_iter().any(|limit| limit < u64::MAX);
        Self(
            u64::from(variant(sa.suite, sa.is_inbound()))
                | flag(sa.esn, Self::ESN)
                | flag(is_limited, Self::LIMITED)
                | u64::from(window) << Self::WINDOW,
        )
    }

    fn variant(self) -> u8 {
        self.0 as u8
    }

    pub(super) fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    fn window(self) -> u64 {
        self.0 >> Self::WINDOW & 0xffff
    }

    fn sequence_last(self) -> u64 {
        if self.is(Self::ESN) { SEQUENCE } else { u32::MAX.into() }
    }

    /// Returns the last sequence number that causes no warning.
    fn sequence_warned(self) -> u64 {
        self.sequence_last() / 4 * 3
    }
}

impl Hot {
    pub(super) fn facts(&self) -> SaFacts {
        SaFacts(self.facts.load(Relaxed))
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence.load(Relaxed) & SEQUENCE
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the number of packets that have used the SA. The first packet of an outbound SA has
    /// the sequence number `first` + 1.
    pub(super) fn packets(&self, is_inbound: bool, first: u64) -> u64 {
        if is_inbound { self.stop_or_packets.load(Relaxed) } else { self.sequence().saturating_sub(first) }
    }
}

/// How the check of an inbound packet depends on earlier packets in flight ([`States::forecast`]).
pub(super) enum Forecast {
    /// The result is already certain. Either the packet does not reach the kernel, or it is not
    /// checked for replays.
    Settled,
    /// The check finds this sequence number, unless a packet in flight has the same one.
    Number(u64),
    /// The result depends on the packets in flight.
    Open,
}

/// Number of replay rings that are allocated together when one of their SAs is first used. The
/// rings belong to SAs in the same steering bucket.
const RINGS: usize = 32;

/// Per-packet state of all SAs.
pub(super) struct States {
    /// Pages of all steering buckets, in bucket order. Each bucket has `bucket_pages` pages.
    pages: Box<[Page]>,
    bucket_pages: usize,
    cold: Box<[Cold]>,
    /// Replay rings of all steering buckets, in bucket order. Each bucket has `bucket_rings` blocks
    /// of [`RINGS`] rings.
    rings: Box<[OnceLock<Box<[Ring; RINGS]>>]>,
    bucket_rings: usize,
    /// Sequence numbers that the state folder on disk permits.
    pub(super) grants: Grants,
    /// Whether an SA event has not been reported to the operator yet.
    has_events: AtomicBool,
}

impl States {
    /// Creates the state of `capacity` SAs. The capacity must be a multiple of [`BUCKETS`].
    pub(super) fn new(capacity: usize) -> Self {
        let bucket_sas = capacity.div_ceil(BUCKETS);
        let (bucket_pages, bucket_rings) = (bucket_sas.div_ceil(PAGE_SAS), bucket_sas.div_ceil(RINGS));
        Self {
            pages: (0..BUCKETS * bucket_pages).map(|_| Page(std::array::from_fn(|_| Hot::default()))).collect(),
            bucket_pages,
            cold: (0..capacity).map(|_| Cold::default()).collect(),
            rings: (0..BUCKETS * bucket_rings).map(|_| OnceLock::new()).collect(),
            bucket_rings,
            grants: Grants::default(),
            has_events: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn hot(&self, index: u32) -> &Hot {
        let (bucket, number) = (index as usize % BUCKETS, index as usize / BUCKETS);
        // Each bucket stores its first SA at a different offset in the page. With equal offsets,
        // the SAs would compete for few cache sets.
        let rotated = number + bucket * LINE_SAS;
        &self.pages[bucket * self.bucket_pages + number / PAGE_SAS].0[rotated % PAGE_SAS]
    }

    pub(super) fn cold(&self, index: u32) -> &Cold {
        &self.cold[index as usize]
    }

    #[inline]
    fn ring(&self, index: u32) -> RotatedRing<'_> {
        let (bucket, number) = (index as usize % BUCKETS, index as usize / BUCKETS);
        let rings = &self.rings[bucket * self.bucket_rings + number / RINGS];
        let rings = rings.get_or_init(Ring::array);
        // The ring of each SA starts at a different cache line. Otherwise, SAs with similar
        // sequence numbers would compete for few cache sets.
        RotatedRing { ring: &rings[(number + bucket / Ring::LINES) % RINGS], lines: bucket % Ring::LINES }
    }

    /// Resets the state of an SA that no packet can find yet. Its sequence numbers continue after
    /// `first`.
    pub(super) fn begin(&self, index: u32, sa: &Sa, first: u64) {
        let (hot, cold) = (self.hot(index), self.cold(index));
        hot.sequence.store(first, Relaxed);
        hot.stop_or_packets.store(0, Relaxed);
        hot.bytes.store(0, Relaxed);
        for count in [&cold.ended, &cold.replayed, &cold.not_authentic, &cold.other_drops] {
            count.store(0, Relaxed);
        }
        cold.soft_bytes.store(sa.lifetime.soft_bytes, Relaxed);
        cold.hard_bytes.store(sa.lifetime.hard_bytes, Relaxed);
        cold.soft_packets.store(sa.lifetime.soft_packets, Relaxed);
        cold.hard_packets.store(sa.lifetime.hard_packets, Relaxed);
        if sa.is_inbound() && sa.replay_window > 0 {
            match first {
                0 => self.ring(index).ring.clear(),
                _ => self.ring(index).fill(first),
            }
        }
        hot.facts.store(SaFacts::new(sa).0, Relaxed);
    }

    /// Returns the variant and the sequence number for the next packet of an outbound SA, or the
    /// drop reason. Sequence numbers start at 1 (RFC 4303, section 2.2).
    #[inline]
    pub(super) fn next(&self, index: u32, frame_bytes: u64) -> Result<(u8, u64), u8> {
        // Only the worker that owns the SA writes these fields, so the accesses need no ordering.
        let hot = self.hot(index);
        debug_assert!(frame_bytes <= FRAME_BYTES_MAX);
        let (facts, last, bytes) = (hot.facts(), hot.sequence.load(Relaxed), hot.bytes() + frame_bytes);
        if last >= hot.stop_or_packets.load(Relaxed) {
            self.check_limits(index, bytes)?;
        }
        hot.sequence.store(last + 1, Relaxed);
        hot.bytes.store(bytes, Relaxed);
        Ok((facts.variant(), last + 1))
    }

    /// Checks all limits of an outbound SA for the next packet, and chooses the sequence number of
    /// the next check. `bytes` is the number of bytes that the SA has processed, including this
    /// packet.
    #[cold]
    #[inline(never)]
    fn check_limits(&self, index: u32, bytes: u64) -> Result<(), u8> {
        let (hot, cold) = (self.hot(index), self.cold(index));
        let (facts, next) = (hot.facts(), hot.sequence() + 1);
        let [soft_bytes, hard_bytes, soft_packets, hard_packets] = cold.limits();
        // The sequence number must not cycle (RFC 4303, section 3.3.3).
        let reason = if next > facts.sequence_last() {
            Some(DROP_SEQUENCE_EXHAUSTED)
        } else if next > hard_packets || bytes > hard_bytes || facts.is(SaFacts::ENDED) {
            // A shorter packet may still fit within the byte limit. It is also dropped, because the
            // operator has been told that the SA has ended.
            Some(DROP_LIFETIME)
        } else {
            None
        };
        if let Some(reason) = reason {
            add(&cold.ended, 1);
            self.record_event(hot, SaFacts::ENDED);
            return Err(reason);
        }
        let Some(granted) = self.grants.limit(index, next) else {
            add(&cold.other_drops, 1);
            return Err(DROP_NOT_DURABLE);
        };
        if next > facts.sequence_warned() {
            self.record_event(hot, SaFacts::WARNED);
        }
        if next > soft_packets || bytes > soft_bytes {
            self.record_event(hot, SaFacts::SOFT);
        }
        // No frame is longer than FRAME_BYTES_MAX, so the byte limit cannot be exceeded before this
        // sequence number.
        let bytes_left = [soft_bytes, hard_bytes].into_iter().filter_map(|limit| limit.checked_sub(bytes)).min();
        let byte_check = bytes_left.map_or(u64::MAX, |left| next.saturating_add(left / FRAME_BYTES_MAX));
        let stops = [facts.sequence_warned(), soft_packets, hard_packets, facts.sequence_last(), byte_check, granted];
        let stop = stops.into_iter().filter(|&stop| stop >= next).min().unwrap_or(0);
        hot.stop_or_packets.store(stop, Relaxed);
        Ok(())
    }

    /// Returns the variant and the full sequence number of an inbound packet, or the drop reason.
    /// `sequence_low` is the lower half of the sequence number.
    #[inline(always)]
    pub(super) fn check(&self, index: u32, sequence_low: u32) -> Result<(u8, u64), u8> {
        let hot = self.hot(index);
        let facts = hot.facts();
        if facts.is(SaFacts::ENDED) {
            add(&self.cold(index).ended, 1);
            return Err(DROP_LIFETIME);
        }
        let window = facts.window();
        if window == 0 {
            return Ok((facts.variant(), sequence_low.into()));
        }
        let largest = hot.sequence();
        let sequence = if facts.is(SaFacts::ESN) {
            replay::infer(largest, sequence_low, window).filter(|&sequence| sequence <= facts.sequence_last())
        } else {
            Some(sequence_low.into())
        };
        // Senders never use the sequence number 0.
        let sequence = sequence.filter(|&sequence| sequence > 0).ok_or_else(|| self.replayed(index))?;
        if sequence <= largest && (largest - sequence >= window || self.ring(index).has(sequence)) {
            return Err(self.replayed(index));
        }
        Ok((facts.variant(), sequence))
    }

    /// Predicts the result of [`States::check`] for any outcome of the packets in flight.
    /// `in_flight` is their largest sequence number, or `None` if there are no packets in flight.
    pub(super) fn forecast(&self, index: u32, sequence_low: u32, in_flight: Option<u64>) -> Forecast {
        let facts = self.hot(index).facts();
        let window = facts.window();
        if facts.is(SaFacts::ENDED) {
            return Forecast::Settled;
        }
        if facts.is(SaFacts::LIMITED) {
            // Packets in flight may end the SA.
            return if in_flight.is_some() { Forecast::Open } else { Forecast::Number(sequence_low.into()) };
        }
        if window == 0 {
            return Forecast::Settled;
        }
        let largest = self.hot(index).sequence();
        let later = in_flight.map_or(largest, |in_flight| in_flight.max(largest));
        let number = |largest| match facts.is(SaFacts::ESN) {
            true => replay::infer(largest, sequence_low, window),
            false => Some(sequence_low.into()),
        };
        let found = number(largest);
        if found != number(later) {
            return Forecast::Open;
        }
        let Some(sequence) = found.filter(|&sequence| sequence > 0) else { return Forecast::Settled };
        let is_old = |largest: u64| sequence <= largest && largest - sequence >= window;
        if is_old(largest) || sequence <= largest && self.ring(index).has(sequence) {
            return Forecast::Settled;
        }
        if is_old(later) { Forecast::Open } else { Forecast::Number(sequence) }
    }

    /// Records an authentic packet of an inbound SA. Returns a drop reason if the packet is a
    /// replay, exceeds the lifetime, or has a sequence number that is not yet permitted.
    #[inline(always)]
    pub(super) fn accept(&self, index: u32, sequence: u64, frame_bytes: u64) -> Result<(), u8> {
        let hot = self.hot(index);
        let (facts, old) = (hot.facts(), hot.sequence.load(Relaxed));
        let new = self.advance(index, old, sequence)?;
        if facts.window() > 0 && !self.ring(index).commit(old & SEQUENCE, sequence) {
            return Err(self.replayed(index));
        }
        hot.sequence.store(new, Relaxed);
        let (packets, bytes) = (hot.stop_or_packets.load(Relaxed) + 1, hot.bytes() + frame_bytes);
        if facts.is(SaFacts::LIMITED) {
            self.check_lifetime(index, packets, bytes)?;
        }
        hot.stop_or_packets.store(packets, Relaxed);
        hot.bytes.store(bytes, Relaxed);
        Ok(())
    }

    /// Returns the new [`Hot::sequence`] after an authentic packet of an inbound SA.
    #[inline(always)]
    fn advance(&self, index: u32, old: u64, sequence: u64) -> Result<u64, u8> {
        let step = sequence.saturating_sub(old & SEQUENCE);
        if step <= old >> SEQUENCE_BITS {
            return Ok(old + step - (step << SEQUENCE_BITS));
        }
        self.extend(index, sequence)
    }

    /// Returns the new [`Hot::sequence`] for a sequence number above the permitted maximum. If the
    /// state folder on disk does not permit this number yet, returns the drop reason.
    #[cold]
    #[inline(never)]
    fn extend(&self, index: u32, sequence: u64) -> Result<u64, u8> {
        const FURTHER_MAX: u64 = (1 << (u64::BITS - SEQUENCE_BITS)) - 1;
        self.grants.want(index, sequence);
        match self.grants.limit(index, sequence) {
            Some(limit) => Ok((limit - sequence).min(FURTHER_MAX) << SEQUENCE_BITS | sequence),
            None => {
                add(&self.cold(index).other_drops, 1);
                Err(DROP_NOT_DURABLE)
            }
        }
    }

    /// Counts a packet that is a replay or too old, and returns the drop reason.
    #[cold]
    #[inline(never)]
    fn replayed(&self, index: u32) -> u8 {
        add(&self.cold(index).replayed, 1);
        DROP_REPLAYED
    }

    /// Checks the lifetime of an inbound SA. `packets` and `bytes` include the current packet.
    #[inline(never)]
    fn check_lifetime(&self, index: u32, packets: u64, bytes: u64) -> Result<(), u8> {
        let (hot, cold) = (self.hot(index), self.cold(index));
        let [soft_bytes, hard_bytes, soft_packets, hard_packets] = cold.limits();
        if packets > soft_packets || bytes > soft_bytes {
            self.record_event(hot, SaFacts::SOFT);
        }
        if packets >= hard_packets || bytes >= hard_bytes {
            self.record_event(hot, SaFacts::ENDED);
        }
        if packets > hard_packets || bytes > hard_bytes {
            add(&cold.ended, 1);
            return Err(DROP_LIFETIME);
        }
        Ok(())
    }

    /// Counts a packet of the SA that the kernel dropped.
    #[cold]
    pub(super) fn count_drop(&self, index: u32, reason: u8) {
        let cold = self.cold(index);
        add(if reason == DROP_AUTHENTICATION { &cold.not_authentic } else { &cold.other_drops }, 1);
    }

    /// Returns whether packets that the kernel drops for `reason` are authentic. The replay window
    /// must record these packets.
    pub(super) fn was_authentic(reason: u8) -> bool {
        matches!(reason, DROP_PADDING | DROP_POLICY_MISMATCH | DROP_DUMMY | DROP_CONGESTION)
    }

    /// Marks the sequence number of an authentic dropped packet as used.
    pub(super) fn mark_used(&self, index: u32, sequence: u64) {
        let hot = self.hot(index);
        let old = hot.sequence.load(Relaxed);
        if hot.facts().window() > 0
            && let Ok(new) = self.advance(index, old, sequence)
            && self.ring(index).commit(old & SEQUENCE, sequence)
        {
            hot.sequence.store(new, Relaxed);
        }
    }

    fn record_event(&self, hot: &Hot, event: u64) {
        let facts = hot.facts();
        if !facts.is(event) {
            hot.facts.store(facts.0 | event, Relaxed);
            // The store has release order, so a thread that reads the flag also reads the event.
            self.has_events.store(true, Release);
        }
    }

    /// Records that an event must be reported to the operator.
    pub(super) fn note_event(&self) {
        self.has_events.store(true, Release);
    }

    /// Returns whether an event has occurred since the last call.
    pub(super) fn take_events(&self) -> bool {
        self.has_events.swap(false, AcqRel)
    }

    #[cfg(test)]
    pub(super) fn set_last(&self, index: u32, last: u64) {
        self.hot(index).sequence.store(last, Relaxed);
        self.hot(index).stop_or_packets.store(0, Relaxed);
    }
}

impl Cold {
    fn limits(&self) -> [u64; 4] {
        [&self.soft_bytes, &self.hard_bytes, &self.soft_packets, &self.hard_packets].map(|limit| limit.load(Relaxed))
    }
}

/// Adds to a counter that only the current worker writes.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Relaxed) + more, Relaxed);
}
