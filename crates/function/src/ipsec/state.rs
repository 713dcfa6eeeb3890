//! What changes per packet of an SA: sequence numbers, replay windows, counters. One worker writes an SA's, others read.
//!
//! An SA's place is its index in the table image, and its worker follows from the lower bits of the index, its bucket. What
//! changes with every packet of a bucket's SAs lies together, and begins a page: processors fetch lines ahead of those that
//! were asked for, up to the end of a page, and those of another worker would be taken from it again and again.
//!
//! ```text
//!         +------+----------+----------+-- ... --+
//! pages   | SA i | SA i+128 | SA i+256 |         |   i modulo 128 is the bucket that steers them all
//!         +------+----------+----------+-- ... --+   (turned round in the page by i lines)
//! ```
//!
//! All of it lives with the function and not with the host halves, so that no number, and so no IV, comes twice when
//! workers are started again.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};

use godwit_packet::BUCKETS;

use super::replay::{self, Ring, Turned};
use super::sa::{Lifetime, Sa};
use super::suite::variant;
use super::{
    DROP_AUTHENTICATION, DROP_CONGESTION, DROP_DUMMY, DROP_LIFETIME, DROP_PADDING, DROP_POLICY_MISMATCH, DROP_REPLAYED,
    DROP_SEQUENCE_EXHAUSTED,
};

/// What every packet of an SA needs.
#[derive(Default)]
pub(super) struct Hot {
    /// [`Plan`].
    plan: AtomicU64,
    /// The last number that was handed out; inbound the largest that was authentic.
    sequence: AtomicU64,
    /// Outbound: behind this number something may have to be done. Inbound: authentic packets.
    stop_or_packets: AtomicU64,
    bytes: AtomicU64,
}

/// What a descriptor can say.
const FRAME_BYTES_MAX: u64 = u16::MAX as u64;

/// SAs that share a page.
const PAGE_SAS: usize = 4096 / size_of::<Hot>();

/// SAs that share a line.
const LINE_SAS: usize = 64 / size_of::<Hot>();

#[repr(align(4096))]
struct Page([Hot; PAGE_SAS]);

/// What few packets of an SA need.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Cold {
    /// Dropped because the SA has come to its end.
    pub(super) ended: AtomicU64,
    pub(super) replayed: AtomicU64,
    pub(super) not_authentic: AtomicU64,
    /// Dropped for other reasons, by the kernel.
    pub(super) other_drops: AtomicU64,
    soft_bytes: AtomicU64,
    hard_bytes: AtomicU64,
    soft_packets: AtomicU64,
    hard_packets: AtomicU64,
}

/// What is to be done with packets of an SA, and what has happened to it:
///
/// ```text
/// | events | window | flags | variant |
///  32       16       8       0
/// ```
#[derive(Clone, Copy)]
pub(super) struct Plan(u64);

impl Plan {
    const ESN: u64 = 1 << 8;
    /// Inbound: it has a lifetime that is to be looked at with each packet.
    const LIMITED: u64 = 1 << 9;
    const WINDOW: u32 = 16;

    /// Most of its sequence numbers are used.
    pub(super) const WARNED: u64 = 1 << 32;
    /// Its soft lifetime is over.
    pub(super) const SOFT: u64 = 1 << 33;
    /// Its hard lifetime is over, or its sequence numbers are used up.
    pub(super) const ENDED: u64 = 1 << 34;

    fn new(sa: &Sa) -> Self {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let window = if sa.is_inbound() { sa.replay_window } else { 0 };
        let Lifetime { soft_bytes, hard_bytes, soft_packets, hard_packets } = sa.lifetime;
        let limits = [soft_bytes, hard_bytes, soft_packets, hard_packets];
        // Outbound, sequence numbers say when to look ([`States::at_stop`]).
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
        if self.is(Self::ESN) { (1 << super::SEQUENCE_BITS) - 1 } else { u32::MAX.into() }
    }

    /// Behind this number the operator is warned.
    fn sequence_warned(self) -> u64 {
        self.sequence_last() / 4 * 3
    }
}

impl Hot {
    pub(super) fn plan(&self) -> Plan {
        Plan(self.plan.load(Relaxed))
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence.load(Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Packets that used the SA; of an outbound one its sequence number says it.
    pub(super) fn packets(&self, is_inbound: bool) -> u64 {
        if is_inbound { self.stop_or_packets.load(Relaxed) } else { self.sequence() }
    }
}

/// Rings of so many SAs of one bucket are allocated together, when the first of them wants one.
const RINGS: usize = 32;

/// Of all SAs.
pub(super) struct States {
    /// As many for each bucket, one bucket after the other.
    pages: Box<[Page]>,
    bucket_pages: usize,
    cold: Box<[Cold]>,
    /// As many for each bucket.
    rings: Box<[OnceLock<Box<[Ring; RINGS]>>]>,
    bucket_rings: usize,
    /// Something has happened to some SA that the operator is to hear of.
    has_events: AtomicBool,
}

impl States {
    /// `capacity`: a multiple of [`BUCKETS`].
    pub(super) fn new(capacity: usize) -> Self {
        let bucket_sas = capacity.div_ceil(BUCKETS);
        let (bucket_pages, bucket_rings) = (bucket_sas.div_ceil(PAGE_SAS), bucket_sas.div_ceil(RINGS));
        Self {
            pages: (0..BUCKETS * bucket_pages).map(|_| Page(std::array::from_fn(|_| Hot::default()))).collect(),
            bucket_pages,
            cold: (0..capacity).map(|_| Cold::default()).collect(),
            rings: (0..BUCKETS * bucket_rings).map(|_| OnceLock::new()).collect(),
            bucket_rings,
            has_events: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn hot(&self, index: u32) -> &Hot {
        let (bucket, number) = (index as usize % BUCKETS, index as usize / BUCKETS);
        // Each bucket begins elsewhere in its page: caches have few places for lines that lie alike in their pages.
        let place = number + bucket * LINE_SAS;
        &self.pages[bucket * self.bucket_pages + number / PAGE_SAS].0[place % PAGE_SAS]
    }

    pub(super) fn cold(&self, index: u32) -> &Cold {
        &self.cold[index as usize]
    }

    #[inline]
    fn ring(&self, index: u32) -> Turned<'_> {
        let (bucket, number) = (index as usize % BUCKETS, index as usize / BUCKETS);
        let rings = &self.rings[bucket * self.bucket_rings + number / RINGS];
        let rings = rings.get_or_init(Ring::several);
        // SAs of which all buckets have few, and that have come equally far, would have it in the same place of their pages.
        Turned { ring: &rings[(number + bucket / Ring::LINES) % RINGS], lines: bucket % Ring::LINES }
    }

    /// Begins an SA at a place that nobody can find yet.
    pub(super) fn begin(&self, index: u32, sa: &Sa) {
        let (hot, cold) = (self.hot(index), self.cold(index));
        hot.sequence.store(0, Relaxed);
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
            self.ring(index).ring.clear();
        }
        hot.plan.store(Plan::new(sa).0, Relaxed);
    }

    /// Outbound: variant and sequence number of the next packet, from 1 on (RFC 4303, section 2.2); or why there is none.
    #[inline]
    pub(super) fn next(&self, index: u32, frame_bytes: u64) -> Result<(u8, u64), u8> {
        // One worker owns the SA, so nobody writes in between, and nothing else is ordered by it.
        let hot = self.hot(index);
        debug_assert!(frame_bytes <= FRAME_BYTES_MAX);
        let (plan, last, bytes) = (hot.plan(), hot.sequence(), hot.bytes() + frame_bytes);
        if last >= hot.stop_or_packets.load(Relaxed) {
            self.at_stop(index, bytes)?;
        }
        hot.sequence.store(last + 1, Relaxed);
        hot.bytes.store(bytes, Relaxed);
        Ok((plan.variant(), last + 1))
    }

    /// Outbound: whether there is another packet, which makes it so many bytes.
    #[cold]
    #[inline(never)]
    fn at_stop(&self, index: u32, bytes: u64) -> Result<(), u8> {
        let (hot, cold) = (self.hot(index), self.cold(index));
        let (plan, next) = (hot.plan(), hot.sequence() + 1);
        let [soft_bytes, hard_bytes, soft_packets, hard_packets] = cold.limits();
        // The counter must not cycle (RFC 4303, section 3.3.3).
        let reason = if next > plan.sequence_last() {
            Some(DROP_SEQUENCE_EXHAUSTED)
        } else if next > hard_packets || bytes > hard_bytes || plan.is(Plan::ENDED) {
            // Also where a shorter packet would still go: the operator has heard that it is over.
            Some(DROP_LIFETIME)
        } else {
            None
        };
        if let Some(reason) = reason {
            add(&cold.ended, 1);
            self.happened(hot, Plan::ENDED);
            return Err(reason);
        }
        if next > plan.sequence_warned() {
            self.happened(hot, Plan::WARNED);
        }
        if next > soft_packets || bytes > soft_bytes {
            self.happened(hot, Plan::SOFT);
        }
        // No frame is longer than its length can say, so as many packets pass no lifetime in bytes.
        let bytes_left = [soft_bytes, hard_bytes].into_iter().filter_map(|limit| limit.checked_sub(bytes)).min();
        let looks_at_bytes = bytes_left.map_or(u64::MAX, |left| next.saturating_add(left / FRAME_BYTES_MAX));
        let stops = [plan.sequence_warned(), soft_packets, hard_packets, plan.sequence_last(), looks_at_bytes];
        let stop = stops.into_iter().filter(|&stop| stop >= next).min().unwrap_or(0);
        hot.stop_or_packets.store(stop, Relaxed);
        Ok(())
    }

    /// Inbound: variant and sequence number of a packet that shows these lower bits of it; or why it is dropped.
    #[inline(always)]
    pub(super) fn check(&self, index: u32, sequence_low: u32) -> Result<(u8, u64), u8> {
        let hot = self.hot(index);
        let plan = hot.plan();
        if plan.is(Plan::ENDED) {
            add(&self.cold(index).ended, 1);
            return Err(DROP_LIFETIME);
        }
        let window = plan.window();
        if window == 0 {
            return Ok((plan.variant(), sequence_low.into()));
        }
        let largest = hot.sequence();
        let sequence = if plan.is(Plan::ESN) {
            replay::infer(largest, sequence_low, window).filter(|&sequence| sequence <= plan.sequence_last())
        } else {
            Some(sequence_low.into())
        };
        // Number 0 is never sent.
        let sequence = sequence.filter(|&sequence| sequence > 0).ok_or_else(|| self.replayed(index))?;
        if sequence <= largest && (largest - sequence >= window || self.ring(index).has(sequence)) {
            return Err(self.replayed(index));
        }
        Ok((plan.variant(), sequence))
    }

    /// Inbound: the packet was authentic. Whether it is dropped in spite of that, and why.
    #[inline(always)]
    pub(super) fn authentic(&self, index: u32, sequence: u64, frame_bytes: u64) -> Result<(), u8> {
        let hot = self.hot(index);
        let (plan, largest) = (hot.plan(), hot.sequence());
        if plan.window() > 0 && !self.ring(index).commit(largest, sequence) {
            return Err(self.replayed(index));
        }
        if sequence > largest {
            hot.sequence.store(sequence, Relaxed);
        }
        let (packets, bytes) = (hot.stop_or_packets.load(Relaxed) + 1, hot.bytes() + frame_bytes);
        if plan.is(Plan::LIMITED) {
            self.has_lifetime(index, packets, bytes)?;
        }
        hot.stop_or_packets.store(packets, Relaxed);
        hot.bytes.store(bytes, Relaxed);
        Ok(())
    }

    /// A packet that was there, or is too old.
    #[cold]
    #[inline(never)]
    fn replayed(&self, index: u32) -> u8 {
        add(&self.cold(index).replayed, 1);
        DROP_REPLAYED
    }

    /// Inbound: whether the SA may have another packet, which makes it so many packets and bytes.
    #[inline(never)]
    fn has_lifetime(&self, index: u32, packets: u64, bytes: u64) -> Result<(), u8> {
        let (hot, cold) = (self.hot(index), self.cold(index));
        let [soft_bytes, hard_bytes, soft_packets, hard_packets] = cold.limits();
        if packets > soft_packets || bytes > soft_bytes {
            self.happened(hot, Plan::SOFT);
        }
        if packets >= hard_packets || bytes >= hard_bytes {
            self.happened(hot, Plan::ENDED);
        }
        if packets > hard_packets || bytes > hard_bytes {
            add(&cold.ended, 1);
            return Err(DROP_LIFETIME);
        }
        Ok(())
    }

    /// The kernel dropped a packet of an SA.
    #[cold]
    pub(super) fn dropped(&self, index: u32, reason: u8) {
        let cold = self.cold(index);
        add(if reason == DROP_AUTHENTICATION { &cold.not_authentic } else { &cold.other_drops }, 1);
    }

    /// Whether a packet that the kernel dropped was authentic: its number is used.
    pub(super) fn was_authentic(reason: u8) -> bool {
        matches!(reason, DROP_PADDING | DROP_POLICY_MISMATCH | DROP_DUMMY | DROP_CONGESTION)
    }

    /// The number of an authentic packet that is dropped all the same.
    pub(super) fn used(&self, index: u32, sequence: u64) {
        let hot = self.hot(index);
        let largest = hot.sequence();
        if hot.plan().window() > 0 && self.ring(index).commit(largest, sequence) && sequence > largest {
            hot.sequence.store(sequence, Relaxed);
        }
    }

    fn happened(&self, hot: &Hot, event: u64) {
        let plan = hot.plan();
        if !plan.is(event) {
            hot.plan.store(plan.0 | event, Relaxed);
            // Who sees it sees what has happened.
            self.has_events.store(true, Release);
        }
    }

    /// Whether something has happened since the last call.
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

/// Adds to what only this worker writes.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Relaxed) + more, Relaxed);
}
