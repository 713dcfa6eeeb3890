//! Functions with which the tests receive and send packets through ports.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use godwit_io::{Departure, Error, Receive, Received};
use godwit_packet::{Arena, ArenaConfig, Batch, Region, Steering};
use godwit_test_support::skip;

/// A received packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrived {
    pub(super) sequence: u64,
    pub(super) port: u8,
    pub(super) time_ns: u64,
    pub(super) flow_hash: u32,
    pub(super) frame: Vec<u8>,
}

pub(super) fn regions(workers: usize) -> Vec<Region> {
    Arena::new(ArenaConfig { packets: 512, ..ArenaConfig::default() }, workers).unwrap().split()
}

pub(super) fn region() -> Region {
    regions(1).remove(0)
}

pub(super) fn steering(workers: usize) -> Arc<Steering> {
    Arc::new(Steering::new(workers, None))
}

/// Receives all packets of a port in batches of `batch_packets` packets. Returns the packets, and
/// the error that ended the port, if any. Asserts that sequence numbers are within the range that
/// the receive queue announced.
pub(super) fn drain(
    receiver: &mut dyn Receive,
    region: &mut Region,
    batch_packets: usize,
) -> (Vec<Arrived>, Option<Error>) {
    let mut all = Vec::new();
    let mut batch = Batch::default();
    loop {
        let sequence_min = receiver.sequence_next();
        let received = receiver.receive(region, &mut batch, batch_packets);
        assert!(batch.len() <= batch_packets);
        for (descriptor, stamp) in batch.descriptors.iter().zip(&batch.stamps) {
            assert!(stamp.sequence >= sequence_min && stamp.sequence < receiver.sequence_next());
            all.push(Arrived {
                sequence: stamp.sequence,
                port: descriptor.port,
                time_ns: stamp.time_ns,
                flow_hash: descriptor.flow_hash,
                frame: region.frame(descriptor).to_vec(),
            });
            region.release(descriptor);
        }
        let count = batch.len();
        batch.clear();
        match received {
            Ok(Received::Open) => {}
            Ok(Received::Ended) => {
                assert_eq!(receiver.sequence_next(), u64::MAX);
                return (all, None);
            }
            Err(error) => {
                assert_eq!(count, 0, "a failed call must append no packets");
                assert_eq!(receiver.sequence_next(), u64::MAX);
                return (all, Some(error));
            }
        }
    }
}

/// Copies a packet into a buffer of the region, so that it can be sent.
pub(super) fn departure(region: &mut Region, packet: &Arrived) -> Departure {
    let mut descriptor = region.allocate(packet.frame.len()).expect("tests send less than a region holds");
    region.frame_mut(&descriptor).copy_from_slice(&packet.frame);
    descriptor.port = packet.port;
    let stamp = godwit_packet::Stamp { sequence: packet.sequence, time_ns: packet.time_ns };
    Departure { descriptor, stamp }
}

/// Runs a program and returns its output. If the program or a Python module that it needs is not
/// installed, reports that a comparison is skipped and returns `None`.
pub(super) fn tool(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            skip(format_args!("cannot run {program} ({error})"));
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("ModuleNotFoundError") {
        skip(format_args!("{program} lacks a module: {}", errors.lines().last().unwrap_or_default()));
        return None;
    }
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the paths and contents of the capture files in `tests/captures`.
pub(super) fn captures() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end != "md")).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}
