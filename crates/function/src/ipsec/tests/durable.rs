//! Tests that sequence numbers survive a restart in the state folder.

use std::path::Path;
use std::sync::Arc;

use godwit_state::{Entry, Source, State};

use super::*;
use crate::Durable;

/// Returns the stanza of an outbound SA. `key` and the process number make its encryption key
/// unique, because only one function at a time can claim a key.
fn out(key: u16) -> String {
    let process = std::process::id();
    format!(
        "[[sa]]\nname = \"west\"\nspi = 0x1001\ndirection = \"out\"\nsource = \"192.0.2.1\"\n\
         destination = \"192.0.2.2\"\nencryption = \"aes-128-gcm\"\n\
         encryption_key = \"{key:04x}{process:08x}2c3d4e5f60718293a4b5c6d7e8f9\"\n"
    )
}

fn inbound(key: u16) -> String {
    out(key).replace("\"out\"", "\"in\"").replace("west", "east")
}

/// Starts the function as in a new process.
fn start(folder: &Path, text: &str) -> (Ipsec, Arc<State>) {
    let function = ipsec(text);
    let state = Arc::new(State::open(Some(folder)).unwrap());
    Durable::start(&function, "tunnel", &state).unwrap();
    (function, state)
}

/// Writes the reservations that are due, as the thread of the state folder does.
fn keep(function: &Ipsec, state: &State) {
    let due = function.database.due();
    state.reserve(&due).unwrap();
    function.database.grant(&due);
}

fn next(function: &Ipsec) -> Result<u64, u8> {
    function.database.states.next(0, 100).map(|(_, sequence)| sequence)
}

/// Returns the reserved sequence number of the only SA.
fn durable(function: &Ipsec, state: &State) -> u64 {
    state.number(&function.database.sa(0).unwrap().durable_name().unwrap())
}

#[test]
fn no_number_is_used_before_it_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut last = 0;
    for _ in 0..3 {
        let (function, state) = start(&path, &out(1));
        let before = last;
        for turn in 0..700_000u64 {
            match next(&function) {
                Ok(number) => {
                    assert!(number > last, "{number} after {last}");
                    if turn % 1000 == 0 {
                        assert!(number <= durable(&function, &state), "{number} is not durable");
                    }
                    last = number;
                }
                Err(reason) => {
                    assert_eq!(reason, DROP_NOT_DURABLE);
                    assert_eq!(last, durable(&function, &state), "all durable numbers are used");
                    keep(&function, &state);
                }
            }
        }
        assert!(last - before > 600_000);
    }
}

#[test]
fn a_clean_end_skips_no_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let (function, state) = start(&path, &out(2));
    assert_eq!([next(&function), next(&function)], [Ok(1), Ok(2)]);
    let keeper = state.start().unwrap();
    keeper.finish().unwrap();
    std::mem::drop((function, state));
    let (function, _state) = start(&path, &out(2));
    assert_eq!(next(&function), Ok(3));
    let listed = function.control().database.states.hot(0).packets(false, function.database.states.grants.first(0));
    assert_eq!(listed, 1, "packets of this process");
}

#[test]
fn an_accepted_packet_is_replayed_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let accept = |function: &Ipsec, sequence: u64| {
        let states = &function.database.states;
        states.check(0, sequence as u32).and_then(|(_, sequence)| states.accept(0, sequence, 100).map(|()| sequence))
    };
    let (function, state) = start(&path, &inbound(3));
    for sequence in 1..=64 {
        assert_eq!(accept(&function, sequence), Ok(sequence));
    }
    assert_eq!(accept(&function, 65), Err(DROP_NOT_DURABLE));
    assert_eq!(accept(&function, 60), Err(DROP_REPLAYED));
    keep(&function, &state);
    assert_eq!([accept(&function, 65), accept(&function, 67)], [Ok(65), Ok(67)]);
    assert_eq!(accept(&function, 65), Err(DROP_REPLAYED));
    let ceiling = durable(&function, &state);
    assert!(ceiling >= 67 + 64, "{ceiling}");
    std::mem::drop((function, state));

    let (function, state) = start(&path, &inbound(3));
    for sequence in [1, 64, 65, 66, 67, ceiling] {
        assert_eq!(accept(&function, sequence), Err(DROP_REPLAYED), "{sequence}");
    }
    assert_eq!([accept(&function, ceiling + 1), accept(&function, ceiling + 1)], [Ok(ceiling + 1), Err(DROP_REPLAYED)]);
    // If a peer skips many sequence numbers, its packets are accepted again after one write to the
    // state folder.
    assert_eq!(accept(&function, 3_000_000), Err(DROP_NOT_DURABLE));
    keep(&function, &state);
    assert_eq!([accept(&function, 3_000_000), accept(&function, 3_000_001)], [Ok(3_000_000), Ok(3_000_001)]);
}

#[test]
fn a_reservation_for_an_old_sa_of_a_slot_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (function, _state) = start(&folder.path().join("state"), &out(4));
    let grants = &function.database.states.grants;
    let entry = Entry { name: [9; 32], number: 1 << 40 };
    assert!(grants.limit(0, 1 << 18).is_some(), "the worker asks for more");
    function.database.grant(&[entry]);
    assert_eq!(grants.limit(0, (1 << 18) + 1), None);
    assert_eq!(function.database.due().len(), 1, "the request remains");
}

#[test]
fn the_last_number_is_not_exceeded() {
    let folder = tempfile::tempdir().unwrap();
    let (function, state) = start(&folder.path().join("state"), &out(5));
    function.database.states.set_last(0, u64::from(u32::MAX) - 2);
    assert_eq!(next(&function), Err(DROP_NOT_DURABLE));
    keep(&function, &state);
    assert_eq!(durable(&function, &state), u64::from(u32::MAX));
    assert_eq!([next(&function), next(&function)], [Ok(u64::from(u32::MAX) - 1), Ok(u32::MAX.into())]);
    assert_eq!(next(&function), Err(DROP_SEQUENCE_EXHAUSTED));
    assert!(function.database.due().is_empty(), "nothing more can be reserved");
}

#[test]
fn a_key_has_one_sending_function() {
    let state = Arc::new(State::open(None).unwrap());
    let key = out(6);
    let (one, other) = (ipsec(&key), ipsec(&key.replace("west", "north")));
    Durable::start(&one, "a", &state).unwrap();
    let refused = Durable::start(&other, "b", &state).unwrap_err().to_string();
    assert!(refused.starts_with("SA \"north\" uses a key that function `a` uses too"), "{refused}");
    assert_eq!(one.keys()[0].name, other.keys()[0].name);
    assert!(one.keys()[0].needs_folder);
    assert!(!ipsec(&format!("{key}key_is_new = true\n")).keys()[0].needs_folder);
}
