//! Tests of limits that change while packets wait.

use super::*;

fn insert(packer: &mut Packer, packets: u32) -> Vec<Insert> {
    let packet = Descriptor { length: 60, ..Descriptor::default() };
    (0..packets).map(|number| packer.insert(0, 0, 0, packet, number.into())).collect()
}

#[test]
fn limits_change_while_a_submission_fills() {
    let config = PackerConfig { chunk_packets: 8, bins: 2, bin_packets: 8, ..PackerConfig::default() };
    let mut packer = Packer::new(config, &[0], 2).expect("valid");
    insert(&mut packer, 3);
    // The submission already contains more packets than the new limit, so it is full.
    packer.set_limits(2, 500);
    assert!(packer.is_full() && packer.ready(0));
    assert_eq!(insert(&mut packer, 1), [Insert::Leftover]);
    let chunk = packer.take(0).expect("three packets wait");
    assert_eq!((chunk.packets, packer.waiting()), (3, 1));
    packer.give_back(chunk);
    assert_eq!((packer.next_deadline_ns(), insert(&mut packer, 1)), (Some(500), vec![Insert::ChunkFull]));
    let chunk = packer.take(0).expect("two packets wait");
    assert_eq!(chunk.packets, 2);
    packer.give_back(chunk);
    insert(&mut packer, 1);
    // The limit at the start is the largest one, because memory is allocated for it.
    packer.set_limits(100, 500);
    assert_eq!(packer.config().chunk_packets, 8);
    let inserted = insert(&mut packer, 7);
    assert_eq!((&inserted[..6], inserted[6]), (&[Insert::Binned; 6][..], Insert::ChunkFull));
    let chunk = packer.take(0).expect("eight packets wait");
    assert_eq!((chunk.packets, &chunk.parameters[..8]), (8, &[0, 0, 1, 2, 3, 4, 5, 6][..]));
}
