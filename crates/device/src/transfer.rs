//! Which bytes of the arena go to a device with memory of its own before a chunk runs, and which come back after.
//!
//! The device has a shadow of the arena: the same bytes at the same offsets. What is copied is *runs*, as few as can be,
//! for a copy call costs as much as many thousand bytes:
//!
//! ```text
//! buffers     | head~~frame~~~~~~~tail | head~~frame~~tail |  foreign  | head~~frame~~~~~~tail |
//! in               [--------------------------------]                       [--------]              what is read
//! out         [--------------------------------------------]           [------------------------]   what may be written
//! ```
//!
//! * A run reaches from one buffer into the next only where the two lie side by side: what is between belongs to other
//!   packets, which ports and other chunks write meanwhile.
//! * What comes back without having been written by the device went there before, or lies outside of the frame, where
//!   nobody has anything. So a run on the way out bridges only what a run on the way in has covered.

use godwit_packet::Descriptor;
use godwit_sched::Chunk;

use crate::Program;
use crate::check::packets_of;

/// Bytes side by side in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// From the arena's base.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
}

impl Run {
    fn end(self) -> usize {
        self.offset + self.bytes
    }
}

/// How far a function reaches into a packet: [`Program::reads_bytes`] and [`Program::writes_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// From the first byte of the frame; `u16::MAX`: to its end.
    pub reads_bytes: u16,
    /// From the first byte of the frame; `u16::MAX`: anywhere in the buffer; 0: nowhere.
    pub writes_bytes: u16,
}

impl Reach {
    /// Of a program.
    pub fn of(program: &dyn Program) -> Self {
        Self { reads_bytes: program.reads_bytes(), writes_bytes: program.writes_bytes() }
    }
}

/// What is worth a copy of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// So many bytes that nobody needs are copied along rather than beginning a new run: about what a copy call costs.
    pub gap_bytes_max: usize,
    /// Bytes between two buffers side by side that belong to nobody: `ArenaHandle::padding_bytes`.
    pub padding_bytes: usize,
}

/// What is copied for one chunk. Kept from chunk to chunk, so that nothing is allocated.
#[derive(Debug, Default)]
pub struct Plan {
    /// To the device, in ascending order, none touching another.
    pub inward: Vec<Run>,
    /// To the host, likewise.
    pub outward: Vec<Run>,
    packets: Vec<Span>,
}

/// What is needed of one packet. Bytes from the arena's base.
#[derive(Clone, Copy, Debug)]
struct Span {
    buffer: usize,
    buffer_end: usize,
    /// What the device must have: what is read, and what else comes back of the frame.
    inward: (usize, usize),
    /// What it may write; empty: nothing.
    outward: (usize, usize),
}

impl Span {
    fn of(descriptor: &Descriptor, reach: Reach) -> Self {
        let buffer = descriptor.buffer_offset();
        let buffer_end = buffer + descriptor.room_bytes();
        let frame = descriptor.frame_offset();
        let frame_end = frame + usize::from(descriptor.length);
        let within = |bytes: u16, end: usize| if bytes == u16::MAX { end } else { end.min(frame + usize::from(bytes)) };
        let outward = match reach.writes_bytes {
            0 => (frame, frame),
            u16::MAX => (buffer, buffer_end),
            bytes => (frame, within(bytes, buffer_end)),
        };
        let inward_end = within(reach.reads_bytes, frame_end).max(outward.1.min(frame_end));
        Self { buffer, buffer_end, inward: (frame, inward_end), outward }
    }

    fn writes(&self) -> bool {
        self.outward.1 > self.outward.0
    }
}

impl Plan {
    /// Plans for a chunk that was checked. `reach` is that of the program with a given index.
    pub fn make(&mut self, chunk: &Chunk, reach: impl Fn(u16) -> Reach, costs: Costs) {
        self.inward.clear();
        self.outward.clear();
        self.packets.clear();
        for bin in &chunk.bins {
            let reach = reach(bin.instance);
            self.packets.extend(chunk.descriptors[packets_of(bin)].iter().map(|packet| Span::of(packet, reach)));
        }
        if !self.one_run(costs) {
            self.packets.sort_unstable_by_key(|span| span.buffer);
            self.merge(costs);
        }
    }

    /// Bytes to the device.
    pub fn inward_bytes(&self) -> usize {
        self.inward.iter().map(|run| run.bytes).sum()
    }

    /// Bytes to the host.
    pub fn outward_bytes(&self) -> usize {
        self.outward.iter().map(|run| run.bytes).sum()
    }

    /// Plans without sorting where all buffers together are one piece of the arena, which they are when packets
    /// are taken as they came out of a dense layout.
    fn one_run(&mut self, costs: Costs) -> bool {
        let (Some(&(mut first)), Some(&(mut last))) = (self.packets.first(), self.packets.first()) else { return true };
        let (mut bytes, mut writers) = (0, 0);
        // Largest parts of a buffer before and behind what is needed of it.
        let (mut before, mut behind) = (0, 0);
        for span in &self.packets {
            if span.buffer < first.buffer {
                first = *span;
            }
            if span.buffer > last.buffer {
                last = *span;
            }
            bytes += span.buffer_end - span.buffer + costs.padding_bytes;
            writers += usize::from(span.writes());
            before = before.max(span.inward.0 - span.buffer);
            behind = behind.max(span.buffer_end - span.inward.1);
        }
        let is_one = bytes == last.buffer_end + costs.padding_bytes - first.buffer
            && before + behind + costs.padding_bytes <= costs.gap_bytes_max;
        if !is_one || (writers != 0 && writers != self.packets.len()) {
            return false;
        }
        let run = |(offset, _): (usize, usize), (_, end): (usize, usize)| Run { offset, bytes: end - offset };
        self.inward.push(run(first.inward, last.inward));
        if writers != 0 {
            self.outward.push(run(first.outward, last.outward));
        }
        self.inward.retain(|run| run.bytes > 0);
        true
    }

    /// Plans for buffers in ascending order.
    fn merge(&mut self, costs: Costs) {
        let mut before: Option<Span> = None;
        // Whether everything between the last run outward and here lies side by side and went inward in one run.
        let mut covered = false;
        for span in &self.packets {
            let beside = before.is_some_and(|before| span.buffer <= before.buffer_end + costs.padding_bytes);
            let inward = join(&mut self.inward, span.inward, beside, costs);
            covered &= inward;
            if span.writes() {
                join(&mut self.outward, span.outward, covered, costs);
                covered = true;
            }
            before = Some(*span);
        }
        // A packet of which nothing is needed has begun an empty one, so that no run reaches over what lies before it.
        self.inward.retain(|run| run.bytes > 0);
    }
}

/// Adds bytes to the last run where `may` says so and the gap is small, or begins a new one. Whether they joined.
fn join(runs: &mut Vec<Run>, (offset, end): (usize, usize), may: bool, costs: Costs) -> bool {
    if let Some(last) = runs.last_mut()
        && (offset <= last.end() || (may && offset - last.end() <= costs.gap_bytes_max))
    {
        last.bytes = last.bytes.max(end - last.offset);
        return true;
    }
    runs.push(Run { offset, bytes: end - offset });
    false
}

#[cfg(test)]
mod tests {
    use godwit_abi::Bin;
    use proptest::prelude::*;

    use super::*;

    const REACHES: [Reach; 5] = [
        Reach { reads_bytes: u16::MAX, writes_bytes: u16::MAX },
        Reach { reads_bytes: u16::MAX, writes_bytes: 0 },
        Reach { reads_bytes: 78, writes_bytes: 30 },
        Reach { reads_bytes: 12, writes_bytes: 300 },
        Reach { reads_bytes: 0, writes_bytes: 0 },
    ];

    /// A buffer of the arena, and what to do with it.
    #[derive(Clone, Debug)]
    struct Buffer {
        room: u8,
        head: u16,
        length: u16,
        /// Which of [`REACHES`]; none: it is not in the chunk.
        instance: Option<usize>,
        /// Where it comes in its bin.
        rank: u32,
    }

    fn buffers() -> impl Strategy<Value = Vec<Buffer>> {
        let instances = prop_oneof![
            prop::option::weighted(0.8, 0..REACHES.len()).boxed(),
            // Such chunks as take the short way.
            Just(Some(0)).boxed(),
            Just(Some(1)).boxed(),
        ];
        let buffer = instances.prop_flat_map(|instance| (1_u8..28, Just(instance), any::<(u16, u16, u32)>()));
        let all = prop_oneof![Just(None), (0..REACHES.len()).prop_map(Some)];
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

    /// The buffers side by side, and a chunk with those that belong into it.
    fn chunk(buffers: &[Buffer], padding_bytes: usize) -> (Vec<Descriptor>, Chunk, usize) {
        let mut end = 0;
        let place = |buffer: &Buffer| {
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
        let places: Vec<_> = buffers.iter().map(place).collect();
        let mut chunk = Chunk::new(REACHES.len(), buffers.len());
        let mut first = 0;
        for instance in 0..REACHES.len() {
            let mut bin: Vec<_> = (0..buffers.len()).filter(|&at| buffers[at].instance == Some(instance)).collect();
            bin.sort_by_key(|&at| buffers[at].rank);
            for (to, &at) in (first..).zip(&bin) {
                chunk.descriptors[to] = places[at];
            }
            let count = bin.len() as u16;
            chunk.bins.push(Bin { first: first as u32, count, instance: instance as u16, ..Bin::default() });
            first += bin.len();
        }
        (places, chunk, end)
    }

    fn demand_apart(runs: &[Run]) {
        assert!(runs.iter().all(|run| run.bytes > 0), "{runs:?}");
        assert!(runs.windows(2).all(|pair| pair[0].end() < pair[1].offset), "{runs:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// Copy in, run a function that writes wherever it may, copy out: every frame is what the function made of it,
        /// and no byte of another packet has changed on either side.
        #[test]
        fn a_shadow_does_what_the_arena_itself_would(
            buffers in buffers(),
            padding_bytes in prop_oneof![Just(0_usize), Just(128)],
            gap_bytes_max in prop_oneof![Just(0_usize), Just(64), Just(700), Just(1 << 20)],
        ) {
            let (places, chunk, bytes) = chunk(&buffers, padding_bytes);
            let mut plan = Plan::default();
            plan.make(&chunk, |instance| REACHES[usize::from(instance)], Costs { gap_bytes_max, padding_bytes });
            demand_apart(&plan.inward);
            demand_apart(&plan.outward);

            // The host's bytes are below 64; what the shadow held before is 200.
            let before: Vec<u8> = (0..bytes).map(|at| (at % 61) as u8).collect();
            let mut host = before.clone();
            let mut shadow = vec![200_u8; bytes];
            for run in &plan.inward {
                shadow[run.offset..run.end()].copy_from_slice(&host[run.offset..run.end()]);
            }
            let mut expected = before.clone();
            for (buffer, place) in buffers.iter().zip(&places) {
                let (start, end) = (place.buffer_offset(), place.buffer_offset() + place.room_bytes());
                let Some(instance) = buffer.instance else {
                    prop_assert!(shadow[start..end].iter().all(|&byte| byte == 200), "copied in over {place:?}");
                    continue;
                };
                let Reach { reads_bytes, writes_bytes } = REACHES[instance];
                let frame = place.frame_offset();
                let read = frame..frame + usize::from(buffer.length.min(reads_bytes));
                prop_assert_eq!(&shadow[read.clone()], &before[read], "not copied in: {:?}", place);
                let writes = match writes_bytes {
                    u16::MAX => start..end,
                    bytes => frame..end.min(frame + usize::from(bytes)),
                };
                // It need not write all that it may.
                for at in writes.filter(|at| at % 3 != 0) {
                    shadow[at] = 100;
                    expected[at] = 100;
                }
            }
            for run in &plan.outward {
                host[run.offset..run.end()].copy_from_slice(&shadow[run.offset..run.end()]);
            }
            for (buffer, place) in buffers.iter().zip(&places) {
                let frame = place.frame_offset();
                let bytes = match buffer.instance {
                    // All of the buffer is somebody else's; in the chunk's own only the frame is anybody's.
                    None => place.buffer_offset()..place.buffer_offset() + place.room_bytes(),
                    Some(_) => frame..frame + usize::from(buffer.length),
                };
                prop_assert_eq!(&host[bytes.clone()], &expected[bytes.clone()], "{:?} of {:?}", bytes, buffer);
                // What was written outside of the frame comes back too.
                if buffer.instance.is_some() {
                    let all = place.buffer_offset()..place.buffer_offset() + place.room_bytes();
                    prop_assert!(all.clone().all(|at| expected[at] != 100 || host[at] == 100));
                }
            }
        }
    }

    #[test]
    fn buffers_side_by_side_are_one_run_each_way() {
        let buffer = |instance| Buffer { room: 4, head: 64, length: 100, instance: Some(instance), rank: 0 };
        let costs = Costs { gap_bytes_max: 256, padding_bytes: 0 };
        let mut plan = Plan::default();
        let all = |buffers: &[Buffer], plan: &mut Plan| {
            plan.make(&chunk(buffers, 0).1, |instance| REACHES[usize::from(instance)], costs);
        };
        all(&vec![buffer(0); 32], &mut plan);
        let (first, last) = (64, 31 * 256 + 164);
        assert_eq!(plan.inward, [Run { offset: first, bytes: last - first }]);
        assert_eq!(plan.outward, [Run { offset: 0, bytes: 32 * 256 }]);
        assert_eq!((plan.inward_bytes(), plan.outward_bytes()), (last - first, 32 * 256));
        // A function that only looks brings nothing back.
        all(&vec![buffer(1); 32], &mut plan);
        assert_eq!((plan.inward.len(), plan.outward.len()), (1, 0));
        // Among such that write it is bridged, for it went there.
        all(&[buffer(0), buffer(1), buffer(0)], &mut plan);
        assert_eq!(plan.outward, [Run { offset: 0, bytes: 3 * 256 }]);
        all(&[], &mut plan);
        assert_eq!((plan.inward.len(), plan.outward.len()), (0, 0));
    }
}
