//! Tests the journal on a simulated disk that loses power, fails, and loses unsynchronised writes.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use godwit_state::disk::Disk;
use godwit_state::{Entry, Journal, KeyName};
use proptest::prelude::*;

/// Bytes that a disk writes at once.
const SECTOR: usize = 64;

/// File on the simulated disk. Some of its bytes survive a power loss, and others may not.
#[derive(Clone, Default)]
struct File {
    durable: Vec<u8>,
    pending: Vec<u8>,
}

/// Disk that loses power at a chosen operation.
#[derive(Default)]
struct Model {
    journal: Option<File>,
    next: Option<File>,
    /// Previous journal, if `next` was renamed over it and the folder is not synchronised yet.
    renamed_over: Option<Option<File>>,
    operations: usize,
    /// Operation that fails. After it, all other operations fail too.
    lost_at: Option<usize>,
    is_lost: bool,
}

impl Model {
    fn step(&mut self) -> io::Result<()> {
        self.is_lost |= Some(self.operations) == self.lost_at;
        self.operations += 1;
        if self.is_lost { Err(io::Error::other("power loss")) } else { Ok(()) }
    }

    fn open(&mut self) -> &mut File {
        match (&mut self.next, &mut self.journal) {
            (Some(next), _) => next,
            (None, Some(journal)) => journal,
            (None, None) => unreachable!("a file was created"),
        }
    }

    /// Returns the disk in the state after power returns. `kept` decides which unsynchronised
    /// sectors survive, and whether an unsynchronised rename survives.
    fn restart(self, mut kept: impl FnMut() -> bool) -> Self {
        let journal = match self.renamed_over {
            Some(before) if !kept() => before,
            _ => self.journal,
        };
        let mut recover = |mut file: File| {
            for sector in file.pending.chunks(SECTOR) {
                let lost = vec![0; sector.len()];
                file.durable.extend(if kept() { sector } else { &lost });
            }
            File { durable: file.durable, pending: Vec::new() }
        };
        Self { journal: journal.map(&mut recover), ..Self::default() }
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Model>>);

impl Disk for Shared {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let model = self.0.lock().unwrap();
        Ok(model.journal.as_ref().map(|file| [&file.durable[..], &file.pending].concat()))
    }

    fn create_next(&mut self) -> io::Result<()> {
        let mut model = self.0.lock().unwrap();
        model.step()?;
        model.next = Some(File::default());
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut model = self.0.lock().unwrap();
        let done = model.step();
        // A power loss during the write leaves any part of it.
        model.open().pending.extend(bytes);
        done
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut model = self.0.lock().unwrap();
        model.step()?;
        let file = model.open();
        let pending = std::mem::take(&mut file.pending);
        file.durable.extend(pending);
        Ok(())
    }

    fn rename_next(&mut self) -> io::Result<()> {
        let mut model = self.0.lock().unwrap();
        let done = model.step();
        let next = model.next.take();
        let before = std::mem::replace(&mut model.journal, next);
        model.renamed_over = Some(before);
        done
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        let mut model = self.0.lock().unwrap();
        model.step()?;
        model.renamed_over = None;
        Ok(())
    }
}

fn name(key: u8) -> KeyName {
    [key; 32]
}

/// Restarts the process until `lives` processes have lost power, each at a chosen operation.
/// Returns whether the last process lost power.
fn live(lives: &[(usize, Vec<Vec<u8>>)], seed: u64) -> bool {
    let mut random = seed;
    let mut kept = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 63 == 1
    };
    let mut disk = Model::default();
    // Largest number that any process may have used.
    let mut used: HashMap<u8, u64> = HashMap::new();
    let mut lost = false;
    for (lost_at, writes) in lives {
        disk.lost_at = Some(*lost_at);
        let shared = Shared(Arc::new(Mutex::new(disk)));
        if let Ok(mut journal) = Journal::open(Box::new(shared.clone())) {
            for (&key, &number) in &used {
                let known = journal.number(&name(key)).unwrap_or(0);
                assert!(known >= number, "key {key}: {number} was used, and the journal knows {known}");
            }
            for keys in writes {
                let next = |key: u8| journal.number(&name(key)).unwrap_or(0) + 10;
                let entries: Vec<Entry> =
                    keys.iter().map(|&key| Entry { name: name(key), number: next(key) }).collect();
                if journal.write(&entries).is_ok() {
                    used.extend(keys.iter().zip(&entries).map(|(&key, entry)| (key, entry.number)));
                }
            }
        }
        lost = shared.0.lock().unwrap().is_lost;
        disk = std::mem::take(&mut *shared.0.lock().unwrap()).restart(&mut kept);
    }
    // Power is stable now.
    let journal = Journal::open(Box::new(Shared(Arc::new(Mutex::new(disk))))).expect("the journal is readable");
    used.iter().for_each(|(&key, &number)| assert!(journal.number(&name(key)).unwrap_or(0) >= number, "key {key}"));
    lost
}

/// Loses power at every operation of a process, and again at every operation of the next process.
#[test]
fn no_used_number_is_forgotten_at_any_operation() {
    let writes = vec![vec![1, 2, 3], vec![2], vec![1, 4], vec![5, 3]];
    let mut lives = 0;
    for first in 0.. {
        for second in 0..12 {
            for seed in 0..8 {
                let steps = [(first, writes.clone()), (second, vec![vec![1, 2]]), (usize::MAX, writes.clone())];
                live(&steps, seed * 977 + 5);
                lives += 1;
            }
        }
        if !live(&[(first, writes.clone())], 1) {
            break;
        }
    }
    assert!(lives > 500, "{lives}");
}

proptest! {
    #[test]
    fn no_used_number_is_forgotten(
        lives in prop::collection::vec(
            (0..40usize, prop::collection::vec(prop::collection::vec(0..6u8, 1..5), 0..12)), 1..8),
        seed in any::<u64>(),
    ) {
        let unique = |writes: &Vec<Vec<u8>>| writes.iter().map(|keys| {
            let mut keys = keys.clone();
            keys.sort_unstable();
            keys.dedup();
            keys
        }).collect();
        let lives: Vec<(usize, Vec<Vec<u8>>)> = lives.iter().map(|(at, writes)| (*at, unique(writes))).collect();
        live(&lives, seed);
    }
}

/// One operation fails without a power loss. Later writes succeed.
#[test]
fn a_write_after_an_error_writes_a_new_file() {
    #[derive(Clone)]
    struct FailsOnce(Shared, Arc<Mutex<Option<u32>>>);
    impl FailsOnce {
        fn fails(&self) -> io::Result<()> {
            let mut left = self.1.lock().unwrap();
            match left.take() {
                Some(0) => Err(io::Error::from(io::ErrorKind::StorageFull)),
                Some(count) => {
                    *left = Some(count - 1);
                    Ok(())
                }
                None => Ok(()),
            }
        }
    }
    impl Disk for FailsOnce {
        fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
            self.0.read()
        }
        fn create_next(&mut self) -> io::Result<()> {
            self.fails().and_then(|()| self.0.create_next())
        }
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.fails().and_then(|()| self.0.append(bytes))
        }
        fn sync(&mut self) -> io::Result<()> {
            self.fails().and_then(|()| self.0.sync())
        }
        fn rename_next(&mut self) -> io::Result<()> {
            self.fails().and_then(|()| self.0.rename_next())
        }
        fn sync_folder(&mut self) -> io::Result<()> {
            self.fails().and_then(|()| self.0.sync_folder())
        }
    }
    for failing in 0..2 {
        let disk = FailsOnce(Shared::default(), Arc::default());
        let mut journal = Journal::open(Box::new(disk.clone())).unwrap();
        let entry = |number| [Entry { name: name(1), number }];
        journal.write(&entry(10)).unwrap();
        *disk.1.lock().unwrap() = Some(failing);
        assert!(journal.write(&entry(20)).is_err());
        assert_eq!(journal.number(&name(1)), Some(10));
        journal.write(&entry(30)).unwrap();
        let again = Journal::open(Box::new(disk)).unwrap();
        assert_eq!(again.number(&name(1)), Some(30));
    }
}

/// Writes far more records than there are keys, so that the journal is rewritten several times.
#[test]
fn outdated_records_are_removed() {
    let disk = Shared::default();
    let open = || Journal::open(Box::new(disk.clone())).unwrap();
    let file_bytes = || disk.clone().read().unwrap().unwrap().len();
    let mut journal = open();
    let mut largest = 0;
    for number in 0..10_000 {
        journal.write(&[Entry { name: name((number % 7) as u8), number }]).unwrap();
        largest = largest.max(file_bytes());
    }
    assert!(largest <= 64 * 4097, "{largest} bytes");
    drop(journal);
    let journal = open();
    (0..7).for_each(|key| assert!(journal.number(&name(key)).unwrap() >= 9993));
    assert_eq!(file_bytes(), 64 * 8);
}
