//! Tests the packer with random traffic in virtual time. The seed of a run determines the run
//! completely.

use std::collections::{BTreeMap, VecDeque};

use godwit_sched::{
    Bin, Chunk, Descriptor, Grouping, Insert, Outcome, PART_MORE, PART_REST, Packer, PackerConfig, Parameters,
};
use godwit_test_support::Random;

const SEEDS: u64 = 3_000;

fn random_config(random: &mut Random) -> PackerConfig {
    PackerConfig {
        chunk_packets: random.pick(&[1, 2, 7, 31, 32, 33, 100, 100_000]),
        chunk_bytes: random.pick(&[None, None, Some(1), Some(1000), Some(20_000)]),
        bins: random.pick(&[1, 1, 2, 3, 5, 16, 40]),
        bin_packets: random.pick(&[1, 1, 2, 3, 8, 31, 32, 33, 64]),
        length_granularity_bytes: random.pick(&[16, 64, 255, 256, 1000, 65_535]),
        deadline_ns: random.pick(&[0, 1, 50, 500, 5_000]),
        sort: random.pick(&[true, false]),
        grouping: random.pick(&[Grouping::None, Grouping::Variant, Grouping::VariantLength]),
        leftover_packets: random.pick(&[1, 1, 2, 10, 300]),
    }
}

/// Expected state of a packet. The buffer field of its descriptor contains the number of the
/// packet.
#[derive(Clone, Copy)]
struct Packet {
    arrived_ns: u64,
    instance: u16,
    variant: u8,
    descriptor: Descriptor,
    parameter: u64,
    out: bool,
}

/// Returns the batches in the order in which they were filled. Each batch is a slice of its parts.
fn wholes(bins: &[Bin]) -> impl Iterator<Item = &[Bin]> {
    bins.chunk_by(|bin, _| bin.part & PART_MORE != 0)
}

/// A worker and its device, in virtual time.
struct World {
    seed: u64,
    now_ns: u64,
    config: PackerConfig,
    kernels: Vec<u8>,
    packer: Packer,
    packets: Vec<Packet>,
    on_device: VecDeque<Chunk>,
    /// Number of the packet that came out last, for each function, kind of processing and length
    /// class.
    newest_out: BTreeMap<(u16, u8, u16), u64>,
    out: usize,
}

impl World {
    fn new(seed: u64, random: &mut Random) -> Self {
        let config = random_config(random);
        let kernels: Vec<u8> = (0..1 + random.below(3)).map(|_| random.next_u8()).collect();
        let packer = Packer::new(config.clone(), &kernels, 2 + random.below(3)).expect("valid");
        Self {
            seed,
            now_ns: random.below(1_000_000),
            config,
            kernels,
            packer,
            packets: Vec::new(),
            on_device: VecDeque::new(),
            newest_out: BTreeMap::new(),
            out: 0,
        }
    }

    fn label(&self, packet: &Packet) -> (u16, u8, u16) {
        let class = match self.config.grouping {
            Grouping::VariantLength => packet.descriptor.length / self.config.length_granularity_bytes as u16,
            _ => 0,
        };
        (packet.instance, packet.variant, class)
    }

    /// Polls the packer as an idle worker does.
    fn take_all_ready(&mut self) {
        while self.packer.ready(self.now_ns) {
            if !self.packer.has_free_set() {
                self.complete();
            }
            self.take();
        }
    }

    fn take(&mut self) {
        let (waiting, free) = (self.packer.waiting(), self.packer.has_free_set());
        match self.packer.take(self.now_ns) {
            Some(chunk) => {
                assert!(free && waiting > 0, "seed {}", self.seed);
                assert_eq!(self.packer.waiting() + chunk.packets as usize, waiting, "seed {}", self.seed);
                self.check(&chunk);
                self.on_device.push_back(chunk);
            }
            None => assert!(!free || waiting == 0, "seed {}", self.seed),
        }
    }

    fn complete(&mut self) {
        let Some(mut chunk) = self.on_device.pop_front() else { return };
        for bin in &chunk.bins {
            // The simulated time depends on the kind of processing and the packet count, but not on
            // the bytes.
            let elapsed_ns = (u64::from(bin.variant) + 1) * (500 + 3 * u64::from(bin.count));
            self.packer.observe(bin, elapsed_ns);
        }
        chunk.outcomes.fill(Outcome::drop(3));
        self.packer.give_back(chunk);
    }

    fn check(&mut self, chunk: &Chunk) {
        let seed = self.seed;
        self.check_parts(chunk);
        assert!(chunk.packets <= self.config.chunk_packets, "seed {seed}");
        let room = self.config.bins as usize * self.config.bin_packets as usize;
        assert_eq!((chunk.descriptors.len(), chunk.parameters.len(), chunk.outcomes.len()), (room, room, room));
        assert_eq!(chunk.closed_ns, self.now_ns);
        assert_eq!(chunk.bins.iter().map(|bin| u32::from(bin.count)).sum::<u32>(), chunk.packets, "seed {seed}");

        let mut used = vec![false; room];
        let mut oldest_ns = u64::MAX;
        // The loop checks the batches of each label in the order in which they were opened.
        let mut bins = chunk.bins.clone();
        bins.sort_by_key(|bin| bin.first);
        for bin in &bins {
            assert!(bin.count > 0, "seed {seed}");
            assert_eq!(bin.kernel, self.kernels[usize::from(bin.instance)]);
            let mut longest = 0;
            for slot in chunk.range(bin) {
                assert!(!std::mem::replace(&mut used[slot], true), "seed {seed}: bins overlap");
                let number = u64::from(chunk.descriptors[slot].buffer);
                let packet = &mut self.packets[number as usize];
                assert!(!std::mem::replace(&mut packet.out, true), "seed {seed}: packet {number} twice");
                let packet = *packet;
                assert_eq!((chunk.descriptors[slot], chunk.parameters[slot]), (packet.descriptor, packet.parameter));
                longest = longest.max(packet.descriptor.length);
                oldest_ns = oldest_ns.min(packet.arrived_ns);
                let label = self.label(&packet);
                assert_eq!((bin.instance, bin.variant, bin.length_class), (label.0, label.1, label.2));
                let newest = self.newest_out.insert(label, number);
                assert!(newest.is_none_or(|newest| newest < number), "seed {seed}: {number} was overtaken");
                self.out += 1;
            }
            assert_eq!(bin.length_bytes, longest);
        }
        assert_eq!(chunk.opened_ns, oldest_ns, "seed {seed}");

        // Packets were inserted in order of their numbers. Before the last packet was inserted, the
        // submission was not full.
        let packets = || bins.iter().flat_map(|bin| &chunk.descriptors[chunk.range(bin)]);
        let last = packets().max_by_key(|packet| packet.buffer);
        let bytes: usize = packets().map(Descriptor::room_bytes).sum();
        let before = bytes - last.map_or(0, Descriptor::room_bytes);
        assert!(self.config.chunk_bytes.is_none_or(|limit| before < limit as usize), "seed {seed}: {bytes} bytes");

        let estimate = |parts: &[Bin]| parts.iter().map(|bin| self.packer.costs().estimate_ns(bin)).sum();
        let estimates: Vec<f64> = wholes(&chunk.bins).map(estimate).collect();
        if self.config.sort {
            assert!(estimates.is_sorted_by(|a, b| a >= b), "seed {seed}: {estimates:?}");
        } else {
            assert!(chunk.bins.is_sorted_by_key(|bin| bin.first), "seed {seed}");
        }
    }

    /// Checks that batches with several kinds of processing are split into one part per kind. Also
    /// checks that each batch was filled in order of arrival, and completely before the next batch.
    fn check_parts(&self, chunk: &Chunk) {
        let seed = self.seed;
        let (bins, bin_packets) = (self.config.bins as usize, self.config.bin_packets as usize);
        assert!(!chunk.bins.is_empty() && wholes(&chunk.bins).count() <= bins, "seed {seed}");
        assert!(chunk.bins.len() <= self.config.entries_max(), "seed {seed}");
        let mut newest = BTreeMap::new();
        let mut in_order: Vec<&[Bin]> = wholes(&chunk.bins).collect();
        in_order.sort_by_key(|parts| parts[0].first);
        for parts in in_order {
            let instance = parts[0].instance;
            let packets: usize = parts.iter().map(|bin| usize::from(bin.count)).sum();
            assert!(packets <= bin_packets && parts.iter().all(|bin| bin.instance == instance), "seed {seed}");
            assert!(parts.is_sorted_by(|one, next| one.variant < next.variant), "seed {seed}: {parts:?}");
            assert!(parts.len() == 1 || self.config.grouping == Grouping::None, "seed {seed}: {parts:?}");
            let (last, rest) = parts.split_last().unwrap();
            assert_eq!(parts[0].part & PART_REST, 0, "seed {seed}");
            assert_eq!(last.part & PART_MORE, 0, "seed {seed}");
            assert!(rest.iter().all(|bin| bin.part & PART_MORE != 0), "seed {seed}: {parts:?}");
            assert!(parts[1..].iter().all(|bin| bin.part & PART_REST != 0), "seed {seed}: {parts:?}");
            if self.config.grouping == Grouping::None {
                let numbers =
                    || parts.iter().flat_map(|bin| &chunk.descriptors[chunk.range(bin)]).map(|packet| packet.buffer);
                if let Some((number, packets)) = newest.insert(instance, (numbers().max(), packets)) {
                    assert!(number < numbers().min(), "seed {seed}: bins overlap in time");
                    assert_eq!(packets, bin_packets, "seed {seed}: a bin was opened before the previous one was full");
                }
            }
        }
    }

    /// Inserts packets one by one, or as a burst of packets for one function and one kind of
    /// processing.
    fn arrive(&mut self, random: &mut Random) {
        let instance = random.below(self.kernels.len()) as u16;
        let variant = random.pick(&[0, 0, 0, 1, 5, 255]);
        let length_bound = random.pick(&[1, 100, 1514, 65_536]);
        let burst = random.pick(&[1, 1, 2, 3, 32, 70]);
        let parameter = random.next_u64();
        let first = self.packets.len();
        for number in first..first + burst {
            let length = random.below(length_bound) as u16;
            let room = random.below(20);
            let descriptor = Descriptor { length, buffer: number as u32, room, ..Descriptor::default() };
            self.packets.push(Packet { arrived_ns: self.now_ns, instance, variant, descriptor, parameter, out: false });
        }
        let descriptors: Vec<Descriptor> = self.packets[first..].iter().map(|packet| packet.descriptor).collect();
        let in_bulk = random.below(2) == 0;
        let take_when_full = random.below(2) == 0;
        let mut done = 0;
        while done < burst {
            let waiting = self.packer.waiting();
            let (taken, last) = if in_bulk {
                self.packer.insert_all(
                    self.now_ns,
                    instance,
                    variant,
                    &descriptors[done..],
                    Parameters::Alike(parameter),
                )
            } else {
                let last = self.packer.insert(self.now_ns, instance, variant, descriptors[done], parameter);
                (usize::from(last != Insert::Refused), last)
            };
            done += taken;
            assert_eq!(self.packer.waiting(), waiting + taken, "seed {}", self.seed);
            match last {
                Insert::Refused => {
                    assert!(done < burst && self.packer.ready(self.now_ns), "seed {}", self.seed);
                    if !self.packer.has_free_set() {
                        self.complete();
                    }
                    self.take();
                }
                Insert::ChunkFull => {
                    assert!(self.packer.ready(self.now_ns), "seed {}", self.seed);
                    if take_when_full {
                        self.take();
                    }
                }
                Insert::Binned | Insert::Leftover => assert!(!in_bulk || done == burst, "seed {}", self.seed),
            }
        }
    }
}

#[test]
fn every_packet_leaves_once_in_a_bin_of_its_label() {
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let mut world = World::new(seed, &mut random);
        for _ in 0..40 {
            world.now_ns += random.below(400);
            match random.below(8) {
                0 => world.take(),
                1 => world.complete(),
                2 => world.take_all_ready(),
                _ => world.arrive(&mut random),
            }
        }
        while world.packer.waiting() > 0 {
            world.complete();
            world.take();
        }
        assert_eq!(world.out, world.packets.len(), "seed {seed}");
        assert_eq!(world.packer.next_deadline_ns(), None);
    }
}

#[test]
fn no_packet_exceeds_its_deadline_with_timely_polls() {
    for seed in 0..SEEDS / 2 {
        let mut random = Random::new(seed ^ 0xDEAD_0000);
        let mut world = World::new(seed, &mut random);
        for _ in 0..30 {
            let arrival_ns = world.now_ns + random.below(3_000);
            while let Some(deadline_ns) = world.packer.next_deadline_ns().filter(|&at_ns| at_ns <= arrival_ns) {
                world.now_ns = world.now_ns.max(deadline_ns);
                world.take_all_ready();
            }
            world.now_ns = arrival_ns;
            world.arrive(&mut random);
            world.take_all_ready();
            for packet in world.packets.iter().filter(|packet| !packet.out) {
                assert!(world.now_ns - packet.arrived_ns < world.config.deadline_ns, "seed {seed}");
            }
        }
    }
}

#[test]
fn bursts_and_single_packets_give_equal_chunks() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let config = random_config(&mut random);
        let mut packers = [0, 1].map(|_| Packer::new(config.clone(), &[4, 5], 2).expect("valid"));
        for _ in 0..20 {
            let bound = random.pick(&[1, 90, 1500]);
            let packets: Vec<Descriptor> = (0..random.below(80))
                .map(|_| Descriptor {
                    length: random.below(bound) as u16,
                    room: random.below(20),
                    ..Descriptor::default()
                })
                .collect();
            let (instance, variant, parameter) = (random.below(2), random.below(3), random.next_u64());
            let parameters: Vec<u64> = (0..packets.len() as u64).map(|packet| parameter ^ packet).collect();
            let bulk = packers[0].insert_all(7, instance, variant, &packets, Parameters::Each(&parameters));
            let mut single = (0, Insert::Binned);
            for (number, packet) in (0..).zip(&packets) {
                single.1 = packers[1].insert(7, instance, variant, packet, parameter ^ number);
                single.0 += usize::from(single.1 != Insert::Refused);
                if matches!(single.1, Insert::ChunkFull | Insert::Refused) {
                    break;
                }
            }
            assert_eq!(bulk, single, "seed {seed}");
            if packers[0].ready(7) || random.below(4) == 0 {
                let chunks = packers.each_mut().map(|packer| packer.take(7));
                let seen = chunks.each_ref().map(|chunk| {
                    chunk
                        .as_ref()
                        .map(|chunk| (chunk.bins.clone(), chunk.descriptors.clone(), chunk.parameters.clone()))
                });
                assert_eq!(seen[0], seen[1], "seed {seed}");
                for (packer, chunk) in packers.iter_mut().zip(chunks) {
                    chunk.into_iter().for_each(|chunk| packer.give_back(chunk));
                }
            }
        }
    }
}
