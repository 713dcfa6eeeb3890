//! One pass over descriptors: all that must be known of them before anybody reaches their packets. A core that feeds
//! a GPU has three nanoseconds for a packet, so eight go through at once where the core can do that.

use godwit_abi::{BUFFER_UNIT_BYTES, Descriptor};

#[cfg(target_arch = "x86_64")]
mod eights;
mod together;

pub(crate) use together::side_by_side;
pub use together::{Extents, are_in_order, extents, verdict_of_all};

/// What descriptors have in common. Buffers and rooms are in units of buffers, heads and lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Where the first buffer begins.
    pub first: u32,
    /// Where the last begins.
    pub last: u32,
    /// Where the last ends; wide enough for any descriptor, however wrong.
    pub end: u64,
    /// All rooms.
    pub units: u64,
    /// The largest.
    pub room: u32,
    /// The least head.
    pub head: u32,
    /// Where the frame ends that reaches furthest into its buffer.
    pub frame_end: u32,
    /// All lengths, none counted beyond what is read.
    pub read_bytes: u64,
    /// Whether a frame reaches beyond its buffer.
    pub beyond: bool,
}

impl Scan {
    const NONE: Self = Self {
        first: u32::MAX,
        last: 0,
        end: 0,
        units: 0,
        room: 0,
        head: u32::MAX,
        frame_end: 0,
        read_bytes: 0,
        beyond: false,
    };

    /// Of these and of others.
    #[cfg(target_arch = "x86_64")]
    fn join(&mut self, other: &Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.end = self.end.max(other.end);
        self.units += other.units;
        self.room = self.room.max(other.room);
        self.head = self.head.min(other.head);
        self.frame_end = self.frame_end.max(other.frame_end);
        self.read_bytes += other.read_bytes;
        self.beyond |= other.beyond;
    }

    #[inline(always)]
    fn add(&mut self, descriptor: &Descriptor, reads_bytes: u16) {
        let (head, length) = (u32::from(descriptor.head), u32::from(descriptor.length));
        self.first = self.first.min(descriptor.buffer);
        self.last = self.last.max(descriptor.buffer);
        self.end = self.end.max(u64::from(descriptor.buffer) + u64::from(descriptor.room));
        self.units += u64::from(descriptor.room);
        self.room = self.room.max(descriptor.room.into());
        self.head = self.head.min(head);
        self.frame_end = self.frame_end.max(head + length);
        self.read_bytes += u64::from(descriptor.length.min(reads_bytes));
        self.beyond |= head + length > u32::from(descriptor.room) * BUFFER_UNIT_BYTES as u32;
    }
}

/// Fewer are scanned faster one by one.
const EIGHTS_PACKETS_MIN: usize = 6;

/// Scans descriptors of a function that reads so many bytes of a frame.
#[inline]
pub fn scan(descriptors: &[Descriptor], reads_bytes: u16) -> Scan {
    if descriptors.len() < EIGHTS_PACKETS_MIN {
        return scan_each(std::iter::once(descriptors), reads_bytes);
    }
    scan_all(std::iter::once(descriptors), reads_bytes)
}

/// The same of descriptors that lie in several places, all taken together.
#[inline]
pub fn scan_all<'a>(places: impl Iterator<Item = &'a [Descriptor]>, reads_bytes: u16) -> Scan {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { eights::scan(places, reads_bytes) };
    }
    scan_each(places, reads_bytes)
}

fn scan_each<'a>(places: impl Iterator<Item = &'a [Descriptor]>, reads_bytes: u16) -> Scan {
    let mut scan = Scan::NONE;
    places.flatten().for_each(|descriptor| scan.add(descriptor, reads_bytes));
    scan
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn descriptor() -> impl Strategy<Value = Descriptor> {
        let buffer = prop_oneof![0..1_u32 << 20, Just(u32::MAX - 300), any::<u32>()];
        (buffer, any::<[u16; 2]>(), any::<u8>(), any::<u8>(), any::<u32>()).prop_map(
            |(buffer, [head, length], room, port, flow_hash)| Descriptor {
                buffer,
                head: head % 300,
                length: if port < 250 { length % 2000 } else { length },
                room,
                port,
                order: length,
                flow_hash,
            },
        )
    }

    proptest! {
        #[test]
        fn eight_at_once_are_as_one_by_one(
            descriptors in prop::collection::vec(descriptor(), 0..70),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
            reads_bytes in prop_oneof![Just(u16::MAX), 0..200_u16],
        ) {
            // In places of any length, of none too.
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(descriptors.len() + 1)).collect();
            cuts.extend([0, descriptors.len()]);
            cuts.sort_unstable();
            let places = || cuts.windows(2).map(|cut| &descriptors[cut[0]..cut[1]]);
            let slow = scan_each(places(), reads_bytes);
            // Far out, it is only known that it is.
            let known = |scan: Scan| if scan.last > u32::MAX - 0xff { Scan { end: 0, ..scan } } else { scan };
            let mut forms = vec![scan(&descriptors, reads_bytes), scan_all(places(), reads_bytes)];
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                forms.push(unsafe { eights::scan(places(), reads_bytes) });
            }
            for fast in forms {
                prop_assert_eq!(known(fast), known(slow));
                prop_assert!(fast.end >= slow.end);
            }
        }
    }

    #[test]
    fn no_sum_wraps() {
        let one = Descriptor { length: u16::MAX, room: u8::MAX, ..Descriptor::default() };
        let all = vec![one; 300_001];
        for parts in [1, 7, 30_000, 32_769, 65_537, all.len()] {
            let found = scan_all(all.chunks(parts), u16::MAX);
            let sum = |value: u64| all.len() as u64 * value;
            assert_eq!((found.read_bytes, found.units), (sum(u16::MAX.into()), sum(u8::MAX.into())), "{parts}");
        }
    }
}
