//! Looks up addresses in a switch while other addresses are added, deleted and moved. An address
//! that stays in the table is always found.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use godwit_function::{BuildContext, Error, Function, Running, l2};
use godwit_kernels::{Level, levels};
use serde_json::json;
use toml::de::DeTable;

/// Number of lookups per call.
const BULK: usize = 64;
/// Number of addresses that stay in the table, at port 7.
const PERMANENT: u64 = 60_000;
/// Number of addresses that are added and deleted in each round.
const TEMPORARY: u64 = 2_000;
const ROUNDS: u64 = 8;

/// Replacement for an engine, in which each lookup is a packet in flight. It counts the batches
/// that each reader has started.
struct Readers(Vec<AtomicU64>);

impl Running for Readers {
    fn image_changed(&self, _range: Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    /// Waits until each reader has started another batch.
    fn quiesce(&self) -> Result<(), Error> {
        fence(Ordering::SeqCst);
        let started: Vec<u64> = self.0.iter().map(|started| started.load(Ordering::SeqCst)).collect();
        for (reader, started) in self.0.iter().zip(started) {
            while reader.load(Ordering::SeqCst) == started {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

fn address(number: u64) -> u64 {
    1 << 48 | 0x0200_0000_0000 | number
}

fn look_up(level: &Level, function: &l2::L2, keys: &[u64], ports: &mut [u32]) {
    // SAFETY: the CPU supports the level. The image belongs to a switch, which changes it only with
    // `Image::store_u64`.
    unsafe { level.l2_lookup_bulk(function.image().as_ptr(), keys, ports) };
}

#[test]
fn a_permanent_address_is_found_while_others_are_displaced() {
    let ports: Vec<String> = (0..8).map(|port| format!("p{port}")).collect();
    let context = BuildContext { name: "under test", ports: &ports, directory: Path::new(".") };
    // The table is 95 % full.
    let stanza = format!("capacity = {}\nageing_s = 0", PERMANENT + TEMPORARY);
    let function = Arc::new(l2::build_switch(DeTable::parse(&stanza).unwrap(), &context).unwrap());
    let permanent: Vec<(u64, u8)> = (0..PERMANENT).map(|number| (address(number), 7)).collect();
    function.learn_all(&permanent).unwrap();
    let supported: Vec<&Level> = levels().iter().filter(|level| level.supported()).collect();
    let readers = Readers(supported.iter().map(|_| AtomicU64::new(0)).collect());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (level, started) in supported.iter().zip(&readers.0) {
            let (function, stop) = (&function, &stop);
            scope.spawn(move || {
                let _done = Done(started);
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    started.fetch_add(1, Ordering::SeqCst);
                    let keys: [u64; BULK] = std::array::from_fn(|at| address((number + at as u64 * 977) % PERMANENT));
                    number += 1;
                    let mut found = [0; BULK];
                    look_up(level, function, &keys, &mut found);
                    assert_eq!(found, [7; BULK], "{}", level.name);
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        for round in 0..ROUNDS {
            let added: Vec<_> = (0..TEMPORARY).map(|number| PERMANENT + round * TEMPORARY + number).collect();
            let mac = |number: &u64| l2::vid_and_mac(address(*number)).1.to_string();
            let macs: Vec<_> = added.iter().map(|number| json!({ "mac": mac(number), "port": "p3" })).collect();
            function.operate().unwrap().command(&json!({ "command": "add", "mac": macs }), &readers).unwrap();
            let keys: Vec<u64> = added.iter().map(|number| address(*number)).collect();
            let mut found = vec![0; keys.len()];
            look_up(supported[0], &function, &keys, &mut found);
            assert!(found.iter().all(|port| *port == 3));
            function.operate().unwrap().command(&json!({ "command": "delete", "mac": macs }), &readers).unwrap();
            look_up(supported[0], &function, &keys, &mut found);
            assert!(found.iter().all(|port| *port == u32::MAX));
        }
    });
    let displaced = l2::CONTRACT.counters.iter().position(|counter| counter.name == "displaced").unwrap();
    assert!(
        function.operate().unwrap().counts()[displaced] > 1000,
        "{} displaced",
        function.operate().unwrap().counts()[displaced]
    );
}

/// Marks a reader as finished when this value is dropped, even after a failed assertion.
struct Done<'a>(&'a AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::SeqCst);
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
