//! Look-ups run while addresses come, go and make others move: who is in the table all the time is found all the time.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use godwit_function::{BuildContext, Error, Function, Running, l2};
use godwit_kernels::{Level, levels};
use serde_json::json;
use toml::de::DeTable;

/// Look-ups at once.
const BULK: usize = 64;
/// Addresses that stay, at port 7.
const STAY: u64 = 60_000;
/// What comes and goes, at most at a time.
const COME: u64 = 2_000;
const ROUNDS: u64 = 8;

/// Each reader says which batches of look-ups it has begun.
struct Readers(Vec<AtomicU64>);

/// Waits for readers as an engine waits for packets: until each has begun another batch.
impl Running for Readers {
    fn image_changed(&self, _range: Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        fence(Ordering::SeqCst);
        let begun: Vec<u64> = self.0.iter().map(|begun| begun.load(Ordering::SeqCst)).collect();
        for (reader, begun) in self.0.iter().zip(begun) {
            while reader.load(Ordering::SeqCst) == begun {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

/// An address: spread over the table by its secret, whatever it looks like.
fn address(number: u64) -> u64 {
    1 << 48 | 0x0200_0000_0000 | number
}

fn look_up(level: &Level, function: &l2::L2, keys: &[u64], ports: &mut [u32]) {
    // SAFETY: the level is supported, and the image is that of a switch; it is changed only as `Image::store_u64` does.
    unsafe { level.l2_lookup_bulk(function.image().as_ptr(), keys, ports) };
}

#[test]
fn nobody_is_lost_while_others_move() {
    let ports: Vec<String> = (0..8).map(|port| format!("p{port}")).collect();
    let site = BuildContext { name: "under test", ports: &ports, directory: Path::new(".") };
    // All places but one of twenty.
    let stanza = format!("capacity = {}\nageing_s = 0", STAY + COME);
    let function = Arc::new(l2::build_switch(DeTable::parse(&stanza).unwrap(), &site).unwrap());
    let stay: Vec<(u64, u8)> = (0..STAY).map(|number| (address(number), 7)).collect();
    function.learn_all(&stay).unwrap();
    let supported: Vec<&Level> = levels().iter().filter(|level| level.supported()).collect();
    let readers = Readers(supported.iter().map(|_| AtomicU64::new(0)).collect());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (level, begun) in supported.iter().zip(&readers.0) {
            let (function, stop) = (&function, &stop);
            scope.spawn(move || {
                let _done = Done(begun);
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let keys: [u64; BULK] = std::array::from_fn(|at| address((number + at as u64 * 977) % STAY));
                    number += 1;
                    let mut found = [0; BULK];
                    look_up(level, function, &keys, &mut found);
                    assert_eq!(found, [7; BULK], "{}", level.name);
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        for round in 0..ROUNDS {
            let come: Vec<_> = (0..COME).map(|number| STAY + round * COME + number).collect();
            let mac = |number: &u64| l2::vid_and_mac(address(*number)).1.to_string();
            let macs: Vec<_> = come.iter().map(|number| json!({ "mac": mac(number), "port": "p3" })).collect();
            function.command(&json!({ "command": "add", "mac": macs }), &readers).unwrap();
            let keys: Vec<u64> = come.iter().map(|number| address(*number)).collect();
            let mut found = vec![0; keys.len()];
            look_up(supported[0], &function, &keys, &mut found);
            assert!(found.iter().all(|port| *port == 3));
            function.command(&json!({ "command": "delete", "mac": macs }), &readers).unwrap();
            look_up(supported[0], &function, &keys, &mut found);
            assert!(found.iter().all(|port| *port == u32::MAX));
        }
    });
    let displaced = l2::CONTRACT.counters.iter().position(|counter| counter.name == "displaced").unwrap();
    assert!(function.counts()[displaced] > 1000, "{} moved", function.counts()[displaced]);
}

/// A reader that is gone, also by a failed assertion, keeps nobody waiting.
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
