//! What the tests of this crate share.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use godwit_io::{Departure, Error, Receive, Received};
use godwit_packet::{Arena, ArenaConfig, Batch, Region, Steering};

/// One packet as it arrived.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrived {
    pub sequence: u64,
    pub port: u8,
    pub time_ns: u64,
    pub flow_hash: u32,
    pub frame: Vec<u8>,
}

pub fn regions(workers: usize) -> Vec<Region> {
    Arena::new(ArenaConfig { packets: 512, ..ArenaConfig::default() }, workers).unwrap().split()
}

pub fn region() -> Region {
    regions(1).remove(0)
}

pub fn steering(workers: usize) -> Arc<Steering> {
    Arc::new(Steering::new(workers, None))
}

/// Receives to the end with batches of `batch_packets`; the sequence must rise and stay at or above what was promised.
pub fn drain(receiver: &mut dyn Receive, region: &mut Region, batch_packets: usize) -> (Vec<Arrived>, Option<Error>) {
    let mut all = Vec::new();
    let mut batch = Batch::default();
    loop {
        let promised = receiver.sequence_next();
        let received = receiver.receive(region, &mut batch, batch_packets);
        assert!(batch.len() <= batch_packets);
        for (descriptor, stamp) in batch.descriptors.iter().zip(&batch.stamps) {
            assert!(stamp.sequence >= promised && stamp.sequence < receiver.sequence_next());
            all.push(Arrived {
                sequence: stamp.sequence,
                port: descriptor.port,
                time_ns: stamp.time_ns,
                flow_hash: descriptor.flow_hash,
                frame: region.frame(descriptor).to_vec(),
            });
            region.release(descriptor);
        }
        let got = batch.len();
        batch.clear();
        match received {
            Ok(Received::Open) => {}
            Ok(Received::Ended) => {
                assert_eq!(receiver.sequence_next(), u64::MAX);
                return (all, None);
            }
            Err(error) => {
                assert_eq!(got, 0, "a call that fails appends nothing");
                assert_eq!(receiver.sequence_next(), u64::MAX);
                return (all, Some(error));
            }
        }
    }
}

/// The packet, placed in a region to be sent.
pub fn departure(region: &mut Region, packet: &Arrived) -> Departure {
    let mut descriptor = region.allocate(packet.frame.len()).expect("tests send less than a region holds");
    region.frame_mut(&descriptor).copy_from_slice(&packet.frame);
    descriptor.port = packet.port;
    let stamp = godwit_packet::Stamp { sequence: packet.sequence, time_ns: packet.time_ns };
    Departure { descriptor, stamp }
}

/// A folder of this test's own, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("godwit-io-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a tool that may not be installed; `None`, and a sentence, when it is not.
pub fn tool(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: cannot run {program} ({error})");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("ModuleNotFoundError") {
        println!("skipped: a Python module is missing: {errors}");
        return None;
    }
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Numbers from a seed (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}

/// The captures in `tests/captures`, and what is in them.
pub fn captures() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end != "md")).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}
