//! Plans the copies between the arena and its shadow on an OpenCL device with its own memory.
//!
//! The shadow has the same bytes at the same offsets as the arena. A plan copies *ranges* before
//! and after a chunk runs. It uses few ranges, because a copy call costs as much as many thousand
//! bytes:
//!
//! ```text
//! buffers     | head~~frame~~~~~~~tail | head~~frame~~tail |  other  | head~~frame~~~~~~tail |
//! to device        [--------------------------------]                     [--------]
//! to host     [--------------------------------------------]         [----------------------]
//! ```
//!
//! The ranges to the device contain the bytes that functions read. The ranges to the host contain
//! the bytes that functions may write.
//!
//! * A range extends over several buffers only if they are adjacent. The bytes between other
//!   buffers belong to other packets, which ports and other chunks write at the same time.
//! * A range to the host may include bytes that the device did not write, if these bytes were
//!   copied to the device before, or if they lie outside the frame, where no data is in use. So a
//!   range to the host joins buffers only where a range to the device covered them.

use godwit_packet::Descriptor;
use godwit_sched::Chunk;

use crate::Program;
use crate::check::packets_of;

/// Contiguous bytes of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// Offset from the start of the arena.
    pub offset: usize,
    /// Length of the range.
    pub bytes: usize,
}

impl CopyRange {
    fn end(self) -> usize {
        self.offset + self.bytes
    }
}

/// The bytes of a packet that a function accesses: [`Program::reads_bytes`] and
/// [`Program::writes_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessedBytes {
    /// Number of bytes read from the start of the frame; `u16::MAX` means the whole frame.
    pub reads_bytes: u16,
    /// Number of bytes written from the start of the frame; `u16::MAX` means anywhere in the
    /// buffer.
    pub writes_bytes: u16,
}

impl AccessedBytes {
    /// Returns the bytes that `program` accesses.
    pub fn of(program: &dyn Program) -> Self {
        Self { reads_bytes: program.reads_bytes(), writes_bytes: program.writes_bytes() }
    }
}

/// Costs by which a plan decides whether to join two ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Maximum number of unneeded bytes between two joined ranges, about the cost of a copy call.
    pub gap_bytes_max: usize,
    /// Number of unused bytes between two adjacent buffers: `ArenaHandle::padding_bytes`.
    pub padding_bytes: usize,
}

/// The ranges to copy for one chunk. Reused for the next chunk, so that planning allocates nothing.
#[derive(Debug, Default)]
pub struct CopyPlan {
    /// Ranges to copy to the device, in ascending order, neither adjacent nor overlapping.
    pub to_device: Vec<CopyRange>,
    /// Ranges to copy to the host, in ascending order, neither adjacent nor overlapping.
    pub to_host: Vec<CopyRange>,
    packets: Vec<PacketBytes>,
}

/// The needed bytes of one packet, as offsets from the start of the arena.
#[derive(Clone, Copy, Debug)]
struct PacketBytes {
    buffer: usize,
    buffer_end: usize,
    /// Bytes that the device needs: the bytes that it reads, and all frame bytes that are copied
    /// back.
    to_device: (usize, usize),
    /// Bytes that the device may write.
    to_host: (usize, usize),
}

impl PacketBytes {
    fn of(descriptor: &Descriptor, accessed: AccessedBytes) -> Self {
        let buffer = descriptor.buffer_offset();
        let buffer_end = buffer + descriptor.room_bytes();
        let frame = descriptor.frame_offset();
        let frame_end = frame + usize::from(descriptor.length);
        let within = |bytes: u16, end: usize| if bytes == u16::MAX { end } else { end.min(frame + usize::from(bytes)) };
        let to_host = match accessed.writes_bytes {
            0 => (frame, frame),
            u16::MAX => (buffer, buffer_end),
            bytes => (frame, within(bytes, buffer_end)),
        };
        let to_device_end = within(accessed.reads_bytes, frame_end).max(to_host.1.min(frame_end));
        Self { buffer, buffer_end, to_device: (frame, to_device_end), to_host }
    }

    fn writes(&self) -> bool {
        self.to_host.1 > self.to_host.0
    }
}

impl CopyPlan {
    /// Plans the copies of a checked chunk. `accessed` returns the bytes that the program with a
    /// given index accesses.
    pub fn plan(&mut self, chunk: &Chunk, accessed: impl Fn(u16) -> AccessedBytes, costs: Costs) {
        self.to_device.clear();
        self.to_host.clear();
        self.packets.clear();
        for bin in &chunk.bins {
            let accessed = accessed(bin.instance);
            let packets = chunk.descriptors[packets_of(bin)].iter();
            self.packets.extend(packets.map(|packet| PacketBytes::of(packet, accessed)));
        }
        if !self.plan_single_range(costs) {
            self.packets.sort_unstable_by_key(|packet| packet.buffer);
            self.plan_sorted(costs);
        }
    }

    /// Returns the number of bytes copied to the device.
    pub fn to_device_bytes(&self) -> usize {
        self.to_device.iter().map(|range| range.bytes).sum()
    }

    /// Returns the number of bytes copied to the host.
    pub fn to_host_bytes(&self) -> usize {
        self.to_host.iter().map(|range| range.bytes).sum()
    }

    /// Plans one range per direction, without sorting, if all buffers together are contiguous. They
    /// are contiguous if the packets of a dense layout are processed in arrival order. Returns
    /// whether this was possible.
    fn plan_single_range(&mut self, costs: Costs) -> bool {
        let (Some(&(mut first)), Some(&(mut last))) = (self.packets.first(), self.packets.first()) else { return true };
        let (mut bytes, mut writers) = (0, 0);
        // Maximum numbers of unneeded bytes before and after the needed bytes of a buffer.
        let (mut unneeded_before, mut unneeded_after) = (0, 0);
        for packet in &self.packets {
            if packet.buffer < first.buffer {
                first = *packet;
            }
            if packet.buffer > last.buffer {
                last = *packet;
            }
            bytes += packet.buffer_end - packet.buffer + costs.padding_bytes;
            writers += usize::from(packet.writes());
            unneeded_before = unneeded_before.max(packet.to_device.0 - packet.buffer);
            unneeded_after = unneeded_after.max(packet.buffer_end - packet.to_device.1);
        }
        let is_contiguous = bytes == last.buffer_end + costs.padding_bytes - first.buffer
            && unneeded_before + unneeded_after + costs.padding_bytes <= costs.gap_bytes_max;
        if !is_contiguous || (writers != 0 && writers != self.packets.len()) {
            return false;
        }
        let range = |(offset, _): (usize, usize), (_, end): (usize, usize)| CopyRange { offset, bytes: end - offset };
        self.to_device.push(range(first.to_device, last.to_device));
        if writers != 0 {
            self.to_host.push(range(first.to_host, last.to_host));
        }
        self.to_device.retain(|range| range.bytes > 0);
        true
    }

    /// Plans ranges for packets sorted by buffer.
    fn plan_sorted(&mut self, costs: Costs) {
        let mut previous: Option<PacketBytes> = None;
        // Whether one range to the device covers everything between the last range to the host and
        // this packet.
        let mut is_covered = false;
        for packet in &self.packets {
            let is_adjacent =
                previous.is_some_and(|previous| packet.buffer <= previous.buffer_end + costs.padding_bytes);
            is_covered &= extend_or_push(&mut self.to_device, packet.to_device, is_adjacent, costs);
            if packet.writes() {
                extend_or_push(&mut self.to_host, packet.to_host, is_covered, costs);
                is_covered = true;
            }
            previous = Some(*packet);
        }
        // A packet without needed bytes adds an empty range. The packets before and after it are
        // then not joined.
        self.to_device.retain(|range| range.bytes > 0);
    }
}

/// Extends the last range to `end` if they overlap, or if `may_join` is set and the gap is small.
/// Otherwise adds a new range. Returns whether the last range was extended.
fn extend_or_push(ranges: &mut Vec<CopyRange>, (offset, end): (usize, usize), may_join: bool, costs: Costs) -> bool {
    if let Some(last) = ranges.last_mut()
        && (offset <= last.end() || (may_join && offset - last.end() <= costs.gap_bytes_max))
    {
        last.bytes = last.bytes.max(end - last.offset);
        return true;
    }
    ranges.push(CopyRange { offset, bytes: end - offset });
    false
}

#[cfg(test)]
mod tests {
    use godwit_abi::Bin;
    use proptest::prelude::*;

    use super::*;

    const ACCESSED: [AccessedBytes; 5] = [
        AccessedBytes { reads_bytes: u16::MAX, writes_bytes: u16::MAX },
        AccessedBytes { reads_bytes: u16::MAX, writes_bytes: 0 },
        AccessedBytes { reads_bytes: 78, writes_bytes: 30 },
        AccessedBytes { reads_bytes: 12, writes_bytes: 300 },
        AccessedBytes { reads_bytes: 0, writes_bytes: 0 },
    ];

    /// A buffer of the arena.
    #[derive(Clone, Debug)]
    struct Buffer {
        room: u8,
        head: u16,
        length: u16,
        /// Index in [`ACCESSED`], or `None` if the buffer is not in the chunk.
        instance: Option<usize>,
        /// Sort key of the packet in its bin.
        rank: u32,
    }

    fn buffers() -> impl Strategy<Value = Vec<Buffer>> {
        let instances = prop_oneof![
            prop::option::weighted(0.8, 0..ACCESSED.len()).boxed(),
            // Chunks of a single function, which `plan_single_range` can plan.
            Just(Some(0)).boxed(),
            Just(Some(1)).boxed(),
        ];
        let buffer = instances.prop_flat_map(|instance| (1_u8..28, Just(instance), any::<(u16, u16, u32)>()));
        let all = prop_oneof![Just(None), (0..ACCESSED.len()).prop_map(Some)];
        (prop::collection::vec(buffer, 1..60), all).prop_map(|(buffers, all)| {
            let buffer = |(room, instance, (head, length, rank)): (u8, _, (u16, u16, u32))| {
                let room_bytes = u16::from(room) * 64;
                let head = head % (room_bytes + 1);
                let length = length % (room_bytes - head + 1);
                Buffer { room, head, length, instance: all.or(instance), rank }
            };
            buffers.into_iter().map(buffer).collect()
        })
    }

    /// Returns adjacent buffers, a chunk of those that have an instance, and the length of the
    /// arena.
    fn chunk(buffers: &[Buffer], padding_bytes: usize) -> (Vec<Descriptor>, Chunk, usize) {
        let mut end = 0;
        let allocate = |buffer: &Buffer| {
            let descriptor = Descriptor {
                buffer: (end / 64) as u32,
                head: buffer.head,
                length: buffer.length,
                room: buffer.room,
                ..Descriptor::default()
            };
            end += descriptor.room_bytes() + padding_bytes;
            descriptor
        };
        let descriptors: Vec<_> = buffers.iter().map(allocate).collect();
        let mut chunk = Chunk::new(ACCESSED.len(), buffers.len());
        let mut first = 0;
        for instance in 0..ACCESSED.len() {
            let mut bin: Vec<_> = (0..buffers.len()).filter(|&at| buffers[at].instance == Some(instance)).collect();
            bin.sort_by_key(|&at| buffers[at].rank);
            for (to, &at) in (first..).zip(&bin) {
                chunk.descriptors[to] = descriptors[at];
            }
            let count = bin.len() as u16;
            chunk.bins.push(Bin { first: first as u32, count, instance: instance as u16, ..Bin::default() });
            first += bin.len();
        }
        (descriptors, chunk, end)
    }

    fn assert_disjoint(ranges: &[CopyRange]) {
        assert!(ranges.iter().all(|range| range.bytes > 0), "{ranges:?}");
        assert!(ranges.windows(2).all(|pair| pair[0].end() < pair[1].offset), "{ranges:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// Copies a chunk to the device, lets the functions write to some bytes, and copies it
        /// back. Every frame has the written bytes, and no byte of another packet changes on either
        /// side.
        #[test]
        fn copies_have_the_same_effect_as_work_in_place(
            buffers in buffers(),
            padding_bytes in prop_oneof![Just(0_usize), Just(128)],
            gap_bytes_max in prop_oneof![Just(0_usize), Just(64), Just(700), Just(1 << 20)],
        ) {
            let (descriptors, chunk, bytes) = chunk(&buffers, padding_bytes);
            let mut plan = CopyPlan::default();
            plan.plan(&chunk, |instance| ACCESSED[usize::from(instance)], Costs { gap_bytes_max, padding_bytes });
            assert_disjoint(&plan.to_device);
            assert_disjoint(&plan.to_host);

            // Bytes of the host are below 64. The old content of the shadow is 200.
            let before: Vec<u8> = (0..bytes).map(|at| (at % 61) as u8).collect();
            let mut host = before.clone();
            let mut shadow = vec![200_u8; bytes];
            for range in &plan.to_device {
                shadow[range.offset..range.end()].copy_from_slice(&host[range.offset..range.end()]);
            }
            let mut expected = before.clone();
            for (buffer, descriptor) in buffers.iter().zip(&descriptors) {
                let (start, end) = (descriptor.buffer_offset(), descriptor.buffer_offset() + descriptor.room_bytes());
                let Some(instance) = buffer.instance else {
                    prop_assert!(shadow[start..end].iter().all(|&byte| byte == 200), "copied over {descriptor:?}");
                    continue;
                };
                let AccessedBytes { reads_bytes, writes_bytes } = ACCESSED[instance];
                let frame = descriptor.frame_offset();
                let read = frame..frame + usize::from(buffer.length.min(reads_bytes));
                prop_assert_eq!(&shadow[read.clone()], &before[read], "not copied: {:?}", descriptor);
                let writes = match writes_bytes {
                    u16::MAX => start..end,
                    bytes => frame..end.min(frame + usize::from(bytes)),
                };
                // A function need not write all the bytes that it may write.
                for at in writes.filter(|at| at % 3 != 0) {
                    shadow[at] = 100;
                    expected[at] = 100;
                }
            }
            for range in &plan.to_host {
                host[range.offset..range.end()].copy_from_slice(&shadow[range.offset..range.end()]);
            }
            for (buffer, descriptor) in buffers.iter().zip(&descriptors) {
                let frame = descriptor.frame_offset();
                let bytes = match buffer.instance {
                    // Other packets own all bytes of this buffer. Packets of the chunk need only
                    // their frame.
                    None => descriptor.buffer_offset()..descriptor.buffer_offset() + descriptor.room_bytes(),
                    Some(_) => frame..frame + usize::from(buffer.length),
                };
                prop_assert_eq!(&host[bytes.clone()], &expected[bytes.clone()], "{:?} of {:?}", bytes, buffer);
                // Bytes written outside the frame are copied back too.
                if buffer.instance.is_some() {
                    let all = descriptor.buffer_offset()..descriptor.buffer_offset() + descriptor.room_bytes();
                    prop_assert!(all.clone().all(|at| expected[at] != 100 || host[at] == 100));
                }
            }
        }
    }

    #[test]
    fn copies_adjacent_buffers_as_one_range_per_direction() {
        let buffer = |instance| Buffer { room: 4, head: 64, length: 100, instance: Some(instance), rank: 0 };
        let costs = Costs { gap_bytes_max: 256, padding_bytes: 0 };
        let mut plan = CopyPlan::default();
        let plan_all = |buffers: &[Buffer], plan: &mut CopyPlan| {
            plan.plan(&chunk(buffers, 0).1, |instance| ACCESSED[usize::from(instance)], costs);
        };
        plan_all(&vec![buffer(0); 32], &mut plan);
        let (first, last) = (64, 31 * 256 + 164);
        assert_eq!(plan.to_device, [CopyRange { offset: first, bytes: last - first }]);
        assert_eq!(plan.to_host, [CopyRange { offset: 0, bytes: 32 * 256 }]);
        assert_eq!((plan.to_device_bytes(), plan.to_host_bytes()), (last - first, 32 * 256));
        // Packets of a function that writes nothing are not copied back.
        plan_all(&vec![buffer(1); 32], &mut plan);
        assert_eq!((plan.to_device.len(), plan.to_host.len()), (1, 0));
        // The range to the host covers the packet in the middle, because it was copied to the
        // device.
        plan_all(&[buffer(0), buffer(1), buffer(0)], &mut plan);
        assert_eq!(plan.to_host, [CopyRange { offset: 0, bytes: 3 * 256 }]);
        plan_all(&[], &mut plan);
        assert_eq!((plan.to_device.len(), plan.to_host.len()), (0, 0));
    }
}
