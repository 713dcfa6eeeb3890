//! Tests of sequence numbers, replay windows, lifetimes and counters.

use std::collections::HashSet;

use super::*;

fn esp_frame(sequence: u32) -> Vec<u8> {
    frame([192, 0, 2, 2], [192, 0, 2, 1], 50, 0, &[[0, 0, 0x20, 1], sequence.to_be_bytes()].concat())
}

/// The CPU part of `ipsec` for one worker.
struct Worker {
    host: HostHalf,
}

impl Worker {
    fn new(function: &Ipsec) -> Self {
        Self { host: function.host_half(0, 1).unwrap() }
    }

    /// Prepares a packet. Returns the full sequence number of the packet or the drop reason.
    fn prepare(&mut self, sequence: u32) -> Result<u64, u8> {
        let (region, descriptors) = region(&[esp_frame(sequence)]);
        let mut work = Vec::new();
        self.host.preparing().unwrap().prepare(&region, &descriptors, &mut work);
        match work[0] {
            Work::Run { parameter, .. } => Ok(sa_and_sequence(parameter).1),
            Work::Done(outcome) => Err(outcome.reason),
        }
    }

    /// Completes a packet with the outcome of the kernel. Returns the drop reason if the packet is
    /// dropped.
    fn complete(&mut self, sequence: u64, outcome: Outcome) -> Result<(), u8> {
        let descriptor = Descriptor { length: 100, ..Descriptor::default() };
        let mut outcomes = [outcome];
        self.host.completing().complete(VARIANT_DECRYPT, &[descriptor], &[parameter(0, sequence)], &mut outcomes);
        if outcomes[0].verdict == godwit_abi::VERDICT_DROP { Err(outcomes[0].reason) } else { Ok(()) }
    }

    fn authentic(&mut self, sequence: u64) -> Result<(), u8> {
        self.complete(sequence, Outcome::verdict(VERDICT_DECRYPTED))
    }

    fn pass(&mut self, sequence: u32) -> Result<u64, u8> {
        let sequence = self.prepare(sequence)?;
        self.authentic(sequence).map(|()| sequence)
    }
}

#[test]
fn drops_repeated_and_late_packets() {
    let function = ipsec(&sa("east", 0x2001, "in", "replay_window = 32"));
    let mut worker = Worker::new(&function);
    assert_eq!(worker.pass(5), Ok(5));
    assert_eq!(worker.pass(5), Err(DROP_REPLAYED));
    assert_eq!(worker.pass(0), Err(DROP_REPLAYED));
    assert_eq!(worker.pass(4), Ok(4));
    assert_eq!(worker.pass(40), Ok(40));
    assert_eq!(worker.pass(9), Ok(9), "the window covers 32 numbers: 9 to 40");
    assert_eq!(worker.pass(8), Err(DROP_REPLAYED));
    // A sequence number far ahead moves the window past all earlier numbers.
    assert_eq!(worker.pass(3_000_000_000), Ok(3_000_000_000));
    assert_eq!(worker.pass(41), Err(DROP_REPLAYED));
    assert_eq!(worker.pass(2_999_999_999), Ok(2_999_999_999));
    assert_eq!(worker.pass(u32::MAX), Ok(u32::MAX.into()));
    assert_eq!(worker.pass(1), Err(DROP_REPLAYED), "without extended numbers, the last number is final");
    let listed = function.control().database.states.cold(0).replayed.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(listed, 5);
}

#[test]
fn only_authentic_packets_move_the_window() {
    let function = ipsec(&sa("east", 0x2001, "in", "replay_window = 64"));
    let mut worker = Worker::new(&function);
    assert_eq!(worker.pass(1), Ok(1));
    // A forged packet has a sequence number far ahead.
    assert_eq!(worker.prepare(1_000_000), Ok(1_000_000));
    assert_eq!(worker.complete(1_000_000, Outcome::drop(DROP_AUTHENTICATION)), Err(DROP_AUTHENTICATION));
    assert_eq!(worker.pass(2), Ok(2));
    // The sequence number of an authentic packet counts as used even if the packet is dropped for
    // its contents.
    assert_eq!(worker.prepare(3), Ok(3));
    assert_eq!(worker.complete(3, Outcome::drop(DROP_DUMMY)), Err(DROP_DUMMY));
    assert_eq!(worker.prepare(3), Err(DROP_REPLAYED));
    let control = function.control();
    let (hot, cold) = (control.database.states.hot(0), control.database.states.cold(0));
    assert_eq!((hot.packets(true, 0), hot.bytes(), hot.sequence()), (2, 200, 3));
    let count = |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!([count(&cold.not_authentic), count(&cold.other_drops), count(&cold.replayed)], [1, 1, 1]);
}

#[test]
fn a_second_copy_in_flight_is_dropped_when_it_completes() {
    let function = ipsec(&sa("east", 0x2001, "in", ""));
    let mut worker = Worker::new(&function);
    assert_eq!([worker.prepare(7), worker.prepare(7), worker.prepare(7)], [Ok(7); 3]);
    // The first copy was forged. One of the other two copies is accepted.
    assert_eq!(worker.complete(7, Outcome::drop(DROP_AUTHENTICATION)), Err(DROP_AUTHENTICATION));
    assert_eq!([worker.authentic(7), worker.authentic(7)], [Ok(()), Err(DROP_REPLAYED)]);
}

#[test]
fn a_packet_of_a_replay_waits_if_packets_in_flight_could_change_its_check() {
    let ready = |worker: &mut Worker, numbers: &[u32]| {
        let frames: Vec<_> = numbers.iter().map(|number| esp_frame(*number)).collect();
        let (region, descriptors) = region(&frames);
        worker.host.preparing().unwrap().ready(&region, &descriptors)
    };
    let function = ipsec(&sa("east", 0x2001, "in", "replay_window = 32"));
    let mut worker = Worker::new(&function);
    assert_eq!(ready(&mut worker, &[5, 6, 5, 7]), 2, "the second copy waits for the first one");
    assert_eq!([5, 6].map(|number| worker.prepare(number)), [Ok(5), Ok(6)]);
    assert_eq!(ready(&mut worker, &[6]), 0, "a copy is in flight");
    assert_eq!(ready(&mut worker, &[37, 7, 5]), 2, "the window covers 6 to 37 if 37 is authentic");
    assert_eq!(ready(&mut worker, &[38, 7, 6, 39]), 2);
    assert_eq!(ready(&mut worker, &[0, 7]), 2, "no packet has the number 0");
    // The results are the same as with one packet at a time.
    assert_eq!(worker.complete(6, Outcome::drop(DROP_AUTHENTICATION)), Err(DROP_AUTHENTICATION));
    assert_eq!(worker.authentic(5), Ok(()));
    assert_eq!(ready(&mut worker, &[5, 6, 7]), 3, "5 is a replay in any case");
    assert_eq!([5, 6].map(|number| worker.prepare(number)), [Err(DROP_REPLAYED), Ok(6)]);
    // Packets in flight may end an SA with a lifetime.
    let function = ipsec(&sa("east", 0x2001, "in", "lifetime = { hard_packets = 2 }"));
    assert_eq!(ready(&mut Worker::new(&function), &[1, 2]), 1);
    let function = ipsec(&sa("east", 0x2001, "in", "replay_window = 0"));
    assert_eq!(ready(&mut Worker::new(&function), &[1, 1, 0]), 3);
}

#[test]
fn without_a_window_repeated_packets_pass() {
    let function = ipsec(&sa("east", 0x2001, "in", "replay_window = 0"));
    let mut worker = Worker::new(&function);
    assert_eq!([worker.pass(9), worker.pass(9), worker.pass(0), worker.pass(1)], [Ok(9), Ok(9), Ok(0), Ok(1)]);
}

#[test]
fn extended_numbers_continue_after_32_bits() {
    let function = ipsec(&sa("east", 0x2001, "in", "esn = true\nreplay_window = 64"));
    let mut worker = Worker::new(&function);
    assert_eq!(worker.prepare(u32::MAX), Err(DROP_REPLAYED), "the full number would be -1");
    function.database.states.set_last(0, u64::from(u32::MAX) - 20);
    assert_eq!(worker.pass(u32::MAX - 5), Ok(u64::from(u32::MAX) - 5));
    assert_eq!(worker.pass(2), Ok((1 << 32) + 2));
    assert_eq!(worker.pass(u32::MAX), Ok(u32::MAX.into()), "still within the window");
    assert_eq!(worker.pass(u32::MAX), Err(DROP_REPLAYED));
    assert_eq!(worker.pass(0), Ok(1 << 32), "a lower half of 0 is valid if the upper half is not 0");
    assert_eq!(worker.pass(2), Err(DROP_REPLAYED));
    // Largest sequence number that fits into the kernel's parameter.
    function.database.states.set_last(0, (1 << 44) - 1);
    assert_eq!(worker.pass(5), Err(DROP_REPLAYED), "the full number would be 2^44 + 5");
}

#[test]
fn outbound_extended_numbers_end_at_44_bits() {
    let stanza = sa("west", 0x1001, "out", "esn = true") + "[[policy]]\naction = \"protect\"\nsa = \"west\"\n";
    let function = ipsec(&stanza);
    let frames = vec![frame([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[]); 2];
    function.database.states.set_last(0, u32::MAX.into());
    assert_eq!(prepare(&function, 0, 1, &frames), [encrypt(0, 1 << 32), encrypt(0, (1 << 32) + 1)]);
    assert!(function.operate().unwrap().notices().is_empty());
    let warned = (1u64 << 44) / 4 * 3;
    function.database.states.set_last(0, warned);
    assert_eq!(prepare(&function, 0, 1, &frames), [encrypt(0, warned + 1), encrypt(0, warned + 2)]);
    let sentence = "SA \"west\" has used three quarters of its sequence numbers: replace it";
    assert_eq!(function.operate().unwrap().notices(), [("sa_to_replace", sentence.to_owned())]);
    assert!(function.operate().unwrap().notices().is_empty(), "a notice is reported once");
    function.database.states.set_last(0, (1 << 44) - 2);
    let exhausted = drop(DROP_SEQUENCE_EXHAUSTED);
    assert_eq!(prepare(&function, 0, 1, &frames), [encrypt(0, (1 << 44) - 1), exhausted]);
    let sentence = "SA \"west\" has ended and its packets are dropped: replace it";
    assert_eq!(function.operate().unwrap().notices(), [("sa_ended", sentence.to_owned())]);
}

#[test]
fn lifetimes_end_outbound_sas() {
    let frames = vec![frame([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[]); 5];
    let policy = "[[policy]]\naction = \"protect\"\nsa = \"west\"\n";
    let over = drop(DROP_LIFETIME);
    let soft = "SA \"west\" has reached its soft lifetime: replace it";
    let hard = "SA \"west\" has ended and its packets are dropped: replace it";
    // Each frame has 34 bytes.
    for (lifetime, passes, notices) in [
        ("soft_packets = 2, hard_packets = 4", 4, vec![hard, soft]),
        ("hard_packets = 3", 3, vec![hard]),
        ("soft_packets = 4", 5, vec![soft]),
        ("soft_packets = 5", 5, vec![]),
        ("soft_bytes = 68, hard_bytes = 103", 3, vec![hard, soft]),
        ("hard_bytes = 101", 2, vec![hard]),
        ("soft_bytes = 170", 5, vec![]),
        ("soft_bytes = 169", 5, vec![soft]),
    ] {
        let function = ipsec(&(sa("west", 0x1001, "out", &format!("lifetime = {{ {lifetime} }}")) + policy));
        let expected: Vec<Work> =
            (1..=5).map(|number| if number <= passes { encrypt(0, number) } else { over }).collect();
        assert_eq!(prepare(&function, 0, 1, &frames), expected, "{lifetime}");
        let sentences: Vec<String> =
            function.operate().unwrap().notices().into_iter().map(|(_, sentence)| sentence).collect();
        assert_eq!(sentences, notices, "{lifetime}");
        assert_eq!(function.database.states.hot(0).bytes(), 34 * passes, "{lifetime}");
    }
}

#[test]
fn an_ended_outbound_sa_drops_shorter_packets_too() {
    let short = frame([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[]);
    let long = frame([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[0; 40]);
    let policy = "[[policy]]\naction = \"protect\"\nsa = \"west\"\n";
    let function = ipsec(&(sa("west", 0x1001, "out", "lifetime = { hard_bytes = 80 }") + policy));
    let over = drop(DROP_LIFETIME);
    assert_eq!(prepare(&function, 0, 1, &[short.clone(), long, short]), [encrypt(0, 1), over, over]);
}

#[test]
fn lifetimes_end_inbound_sas() {
    // Each decapsulated packet has 100 bytes.
    for lifetime in ["soft_packets = 1, hard_packets = 2", "soft_bytes = 199, hard_bytes = 299"] {
        let function = ipsec(&sa("east", 0x2001, "in", &format!("lifetime = {{ {lifetime} }}")));
        let mut worker = Worker::new(&function);
        assert_eq!([worker.pass(1), worker.pass(2)], [Ok(1), Ok(2)]);
        assert!(function.operate().unwrap().notices().iter().any(|(event, _)| *event == "sa_to_replace"));
        // The worker prepares this packet before the lifetime has expired.
        let _ = worker.prepare(3);
        assert_eq!(worker.authentic(3), Err(DROP_LIFETIME));
        assert_eq!(worker.prepare(4), Err(DROP_LIFETIME), "{lifetime}");
    }
}

#[test]
fn drops_packets_of_another_worker_in_both_directions() {
    let function = ipsec(&sa("east", 0x2001, "in", ""));
    let frames = [esp_frame(1)];
    assert_eq!(prepare(&function, 1, 2, &frames), [drop(DROP_WRONG_WORKER)]);
    assert_eq!(prepare(&function, 0, 2, &frames), [decrypt(0, 1)]);
}

/// All SAs whose state shares a cache line belong to one worker.
#[test]
fn workers_share_no_cache_line() {
    let states = state::States::new(4 * BUCKETS);
    let line = |index: u32| std::ptr::from_ref(states.hot(index)).addr() / 64;
    for one in 0..4 * BUCKETS as u32 {
        for other in 0..one {
            assert!(line(one) != line(other) || Database::bucket(one) == Database::bucket(other), "{one} {other}");
        }
    }
    assert_eq!(line(0), line(128), "a line holds two SAs");
}

/// Draws the soft and hard limit of a lifetime, with their configuration. `u64::MAX` means no
/// limit.
fn limits(unit: &'static str, max: u64) -> impl Strategy<Value = ([u64; 2], String)> {
    let limit = || prop_oneof![1 => Just(u64::MAX), 3 => 1..max];
    (limit(), limit()).prop_map(move |(one, other)| {
        let limits = [one.min(other), one.max(other)];
        let given = ["soft", "hard"].into_iter().zip(limits).filter(|(_, limit)| *limit < u64::MAX);
        (limits, given.map(|(name, limit)| format!("lifetime.{name}_{unit} = {limit}\n")).collect())
    })
}

proptest! {
    /// Outbound SAs do not check their limits for every packet. The result must be the same as if
    /// they checked them for every packet.
    #[test]
    fn lifetimes_end_as_if_every_packet_were_checked(
        ([soft_bytes, hard_bytes], bytes_text) in limits("bytes", 3_000_000),
        ([soft_packets, hard_packets], packets_text) in limits("packets", 250),
        frames in prop::collection::vec(prop_oneof![3 => 34..1600u64, 1 => 0..=u64::from(u16::MAX)], 300),
    ) {
        let function = ipsec(&sa("west", 0x1001, "out", &(bytes_text + &packets_text)));
        let states = &function.database.states;
        let (mut sequence, mut bytes, mut has_ended, mut is_soft) = (0, 0, false, false);
        for frame_bytes in frames {
            has_ended |= sequence + 1 > hard_packets || bytes + frame_bytes > hard_bytes;
            let expected = if has_ended {
                Err(DROP_LIFETIME)
            } else {
                sequence += 1;
                bytes += frame_bytes;
                is_soft |= sequence > soft_packets || bytes > soft_bytes;
                Ok((VARIANT_ENCRYPT, sequence))
            };
            prop_assert_eq!(states.next(0, frame_bytes), expected);
            let (hot, [soft, ended]) = (states.hot(0), [state::SaFacts::SOFT, state::SaFacts::ENDED]);
            prop_assert_eq!((hot.bytes(), hot.sequence()), (bytes, sequence));
            prop_assert_eq!((hot.facts().is(soft), hot.facts().is(ended)), (is_soft, has_ended));
        }
    }

    /// Packets are reordered, duplicated and forged, and complete in any order. Every sequence
    /// number passes at most once. It passes exactly once if its packet arrived within the window.
    #[test]
    fn replay_window_behaves_as_a_set(
        window in prop_oneof![Just(32u64), Just(64), Just(1000), Just(4096)],
        esn: bool,
        begin in prop_oneof![Just(0u64), Just((1 << 32) - 40)],
        steps in prop::collection::vec((0..12u8, -80..80i64, any::<prop::sample::Index>()), 1..300),
    ) {
        let begin = if esn { begin } else { 0 };
        let text = format!("esn = {esn}\nreplay_window = {window}");
        let function = ipsec(&sa("east", 0x2001, "in", &text));
        function.database.states.set_last(0, begin);
        let mut worker = Worker::new(&function);
        let (mut sent, mut largest) = (begin, begin);
        let (mut passed, mut in_flight) = (HashSet::new(), Vec::new());
        for (event, step, which) in steps {
            match event {
                // The packet's sequence number is new, late or repeated.
                0..=6 => {
                    let number = sent.saturating_add_signed(step).max(begin + 1);
                    sent = sent.max(number);
                    let is_late = number <= largest && largest - number >= window;
                    let expected = match (is_late, passed.contains(&number)) {
                        // The receiver infers a sequence number far ahead (RFC 4304, appendix
                        // A2.2). With that number, the packet is not authentic.
                        (true, _) if esn => Ok(number + (1 << 32)),
                        (true, _) | (false, true) => Err(DROP_REPLAYED),
                        (false, false) => Ok(number),
                    };
                    prop_assert_eq!(worker.prepare(number as u32), expected);
                    if expected == Ok(number) {
                        in_flight.push(number);
                    }
                }
                // The kernel finds that a packet in flight is authentic.
                7..=10 if !in_flight.is_empty() => {
                    let number = in_flight.swap_remove(which.index(in_flight.len()));
                    let is_new = passed.insert(number);
                    prop_assert_eq!(worker.authentic(number), if is_new { Ok(()) } else { Err(DROP_REPLAYED) });
                    largest = largest.max(number);
                }
                11 if !in_flight.is_empty() => {
                    let number = in_flight.swap_remove(which.index(in_flight.len()));
                    prop_assert!(worker.complete(number, Outcome::drop(DROP_AUTHENTICATION)).is_err());
                }
                _ => {}
            }
        }
    }
}
