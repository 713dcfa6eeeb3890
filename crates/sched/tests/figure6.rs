//! Follows the example of PIPSEA (CCS 2016, figure 6) with different numbers. Checks the contents
//! of each batch after each step.

use godwit_sched::{Bin, Chunk, Descriptor, Grouping, Insert, PART_MORE, PART_REST, Packer, PackerConfig};

const AES: u8 = 0;
const SHA1: u8 = 1;
const BOTH: u8 = 2;

/// Returns the kind of processing, the length class and the packet numbers of each batch. The
/// parameter of a packet is its number.
fn contents(chunk: &Chunk) -> Vec<(u8, u16, Vec<u64>)> {
    chunk.bins.iter().map(|bin| (bin.variant, bin.length_class, chunk.parameters[chunk.range(bin)].to_vec())).collect()
}

struct Receiver {
    packer: Packer,
    received: u64,
}

impl Receiver {
    /// Inserts a packet whose parameter is its number.
    fn receive(&mut self, variant: u8, length: u16) -> Insert {
        let packet = Descriptor { length, ..Descriptor::default() };
        let insert = self.packer.insert(self.received, 0, variant, packet, self.received);
        self.received += u64::from(insert != Insert::Refused);
        insert
    }
}

/// Returns a packer with four batches of four packets and length classes of 256 bytes.
fn receiver() -> Receiver {
    let config = PackerConfig {
        chunk_packets: 16,
        chunk_bytes: None,
        bins: 4,
        bin_packets: 4,
        length_granularity_bytes: 256,
        deadline_ns: 1_000_000,
        sort: true,
        grouping: Grouping::VariantLength,
        leftover_packets: 8,
    };
    Receiver { packer: Packer::new(config, &[9], 2).expect("valid"), received: 0 }
}

#[test]
fn packs_leftovers_then_new_packets_and_sorts_longest_first() {
    let mut receiver = receiver();

    // First round: packets with four labels take all batches. Packets with other labels go to the
    // leftover queue.
    for (variant, length) in [(AES, 100), (AES, 300), (SHA1, 100), (SHA1, 1300)] {
        assert_eq!(receiver.receive(variant, length), Insert::Binned);
    }
    assert_eq!(receiver.receive(BOTH, 700), Insert::Leftover); // number 4
    assert_eq!(receiver.receive(AES, 600), Insert::Leftover); // number 5
    assert_eq!(receiver.receive(AES, 255), Insert::Binned); // class of 100
    assert_eq!(receiver.receive(AES, 256), Insert::Binned); // class of 300
    assert_eq!(receiver.receive(BOTH, 750), Insert::Leftover); // number 8
    assert_eq!(receiver.packer.waiting(), 9);

    let first = receiver.packer.take(9).expect("ready");
    assert_eq!(
        contents(&first),
        [(SHA1, 5, vec![3]), (AES, 1, vec![1, 7]), (AES, 0, vec![0, 6]), (SHA1, 0, vec![2])],
        "sorted by bytes times packets, before any observation"
    );
    assert_eq!((first.packets, first.opened_ns, first.closed_ns), (6, 0, 9));

    // Step 1: packets from the leftover queue get two of the empty batches before any new packet.
    assert_eq!(receiver.packer.waiting(), 3);
    // Step 2: new packets join these batches, open the two empty batches, or go to the leftover
    // queue.
    for (variant, length, expected) in [
        (AES, 700, Insert::Binned),    // 9, bin of packet 5
        (SHA1, 1400, Insert::Binned),  // 10, third bin
        (AES, 64, Insert::Binned),     // 11, fourth bin
        (SHA1, 64, Insert::Leftover),  // 12
        (BOTH, 767, Insert::Binned),   // 13, bin of packets 4 and 8
        (AES, 65, Insert::Binned),     // 14
        (BOTH, 512, Insert::Binned),   // 15, fills the first bin
        (BOTH, 513, Insert::Leftover), // 16, no bin is empty
    ] {
        assert_eq!(receiver.receive(variant, length), expected, "number {}", receiver.received);
    }

    // Step 3: observations of the device show that SHA-1 alone costs a tenth of the others.
    let bin = |variant, count, length_bytes| Bin { variant, count, length_bytes, ..Bin::default() };
    for count in 1..=4 {
        for length in [100, 600, 1400] {
            let bytes = u64::from(count) * u64::from(length);
            receiver.packer.observe(&bin(AES, count, length), bytes);
            receiver.packer.observe(&bin(BOTH, count, length), bytes * 11 / 10);
            receiver.packer.observe(&bin(SHA1, count, length), bytes / 10);
        }
    }
    receiver.packer.give_back(first);
    let second = receiver.packer.take(20).expect("ready");
    assert_eq!(
        contents(&second),
        [(BOTH, 2, vec![4, 8, 13, 15]), (AES, 2, vec![5, 9]), (SHA1, 5, vec![10]), (AES, 0, vec![11, 14])],
    );
    assert_eq!(
        second.bins[0],
        Bin {
            first: 0,
            count: 4,
            kernel: 9,
            variant: BOTH,
            instance: 0,
            length_bytes: 767,
            length_class: 2,
            row: 0,
            part: 0
        }
    );
    assert_eq!(second.opened_ns, 4, "the oldest packet is a leftover of the first round");

    receiver.packer.give_back(second);
    let third = receiver.packer.take(30).expect("two packets were left over");
    assert_eq!(contents(&third), [(BOTH, 2, vec![16]), (SHA1, 0, vec![12])]);
}

#[test]
fn opens_another_bin_of_the_same_label_after_a_full_one() {
    let mut receiver = receiver();
    for _ in 0..15 {
        assert_eq!(receiver.receive(AES, 64), Insert::Binned);
    }
    assert!(!receiver.packer.ready(15));
    assert_eq!(receiver.receive(AES, 64), Insert::ChunkFull);
    assert!(receiver.packer.ready(15));
    for _ in 0..8 {
        assert_eq!(receiver.receive(AES, 64), Insert::Leftover);
    }
    assert_eq!(receiver.receive(AES, 64), Insert::Refused);
    let chunk = receiver.packer.take(16).expect("full");
    let numbers: Vec<u64> = contents(&chunk).into_iter().flat_map(|(.., numbers)| numbers).collect();
    assert_eq!(numbers, (0..16).collect::<Vec<_>>());
    assert!(receiver.packer.take(17).is_none(), "the other set of bins is on the device");
    assert!(!receiver.packer.has_free_set());
}

#[test]
fn fills_bins_in_order_of_arrival_without_grouping() {
    let config =
        PackerConfig { grouping: Grouping::None, bins: 3, bin_packets: 4, sort: false, ..PackerConfig::default() };
    let mut receiver = Receiver { packer: Packer::new(config, &[0], 2).expect("valid"), received: 0 };
    let variants = [SHA1, AES, SHA1, AES, AES, AES, AES, AES, BOTH, SHA1, AES];
    for (number, variant) in variants.into_iter().enumerate() {
        assert_eq!(receiver.receive(variant, 64 + 100 * number as u16), Insert::Binned);
    }
    assert_eq!(receiver.receive(SHA1, 64), Insert::ChunkFull);
    let chunk = receiver.packer.take(12).expect("full");
    assert_eq!(
        contents(&chunk),
        [
            (AES, 0, vec![1, 3]),
            (SHA1, 0, vec![0, 2]),
            (AES, 0, vec![4, 5, 6, 7]),
            (AES, 0, vec![10]),
            (SHA1, 0, vec![9, 11]),
            (BOTH, 0, vec![8]),
        ]
    );
    let parts: Vec<(u8, u16)> = chunk.bins.iter().map(|bin| (bin.part, bin.length_bytes)).collect();
    let expected = [
        (PART_MORE, 364),
        (PART_REST, 264),
        (0, 764),
        (PART_MORE, 1064),
        (PART_MORE | PART_REST, 964),
        (PART_REST, 864),
    ];
    assert_eq!(parts, expected);
    assert_eq!(chunk.bin_bytes, [164 + 364, 64 + 264, 464 + 564 + 664 + 764, 1064, 964 + 64, 864]);
}

/// Checks that the estimated time of a batch with several kinds of processing is the sum of the
/// estimates of its parts.
#[test]
fn sorts_the_parts_of_a_bin_together() {
    let config = PackerConfig { grouping: Grouping::None, bins: 2, bin_packets: 3, ..PackerConfig::default() };
    let mut receiver = Receiver { packer: Packer::new(config, &[0], 2).expect("valid"), received: 0 };
    for (variant, length) in [(AES, 200), (AES, 200), (AES, 200), (BOTH, 400), (AES, 100), (SHA1, 300)] {
        receiver.receive(variant, length);
    }
    let chunk = receiver.packer.take(6).expect("full");
    assert_eq!(contents(&chunk), [(AES, 0, vec![4]), (SHA1, 0, vec![5]), (BOTH, 0, vec![3]), (AES, 0, vec![0, 1, 2])]);
}

#[test]
fn deadline_follows_the_oldest_packet() {
    let config = PackerConfig { deadline_ns: 100, ..PackerConfig::default() };
    let mut packer = Packer::new(config, &[0, 0], 2).expect("valid");
    assert_eq!((packer.next_deadline_ns(), packer.ready(u64::MAX)), (None, false));
    packer.insert(1_000, 0, 0, Descriptor::default(), 0);
    packer.insert(1_050, 1, 0, Descriptor::default(), 0);
    assert_eq!(packer.next_deadline_ns(), Some(1_100));
    assert!(!packer.ready(1_099));
    assert!(packer.ready(1_100));
    assert_eq!(packer.take(1_100).expect("two wait").opened_ns, 1_000);
    assert_eq!(packer.next_deadline_ns(), None);
}

#[test]
#[should_panic(expected = "packer that it came from")]
fn rejects_a_foreign_chunk() {
    let mut packer = Packer::new(PackerConfig::default(), &[0], 2).expect("valid");
    packer.give_back(Chunk::new(16, 16 * 256));
}
