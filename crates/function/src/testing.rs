//! Helpers for the tests of all functions.

use std::path::Path;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Arena, ArenaConfig};
use toml::de::DeTable;

use crate::{BuildContext, Error, Function, Kind, Work};

pub(crate) fn build(kind: &Kind, stanza: &str, ports: &[&str], directory: &Path) -> Result<Arc<dyn Function>, Error> {
    let ports: Vec<String> = ports.iter().map(|port| (*port).to_owned()).collect();
    let stanza = DeTable::parse(stanza).unwrap();
    (kind.build)(stanza, &BuildContext { name: "under test", ports: &ports, directory })
}

pub(crate) fn build_ok(kind: &Kind, stanza: &str, ports: &[&str]) -> Arc<dyn Function> {
    build(kind, stanza, ports, Path::new(".")).unwrap()
}

pub(crate) fn build_error(kind: &Kind, stanza: &str, ports: &[&str]) -> Error {
    match build(kind, stanza, ports, Path::new(".")) {
        Ok(_) => panic!("accepted: {stanza}"),
        Err(error) => error,
    }
}

/// Processes a frame with the reference implementation of a function.
pub(crate) fn run(function: &dyn Function, frame: &mut Vec<u8>) -> Outcome {
    let room = frame.len() / 64 + 1;
    let mut buffer = frame.clone();
    buffer.resize(room * 64, 0xa5);
    let mut descriptor = Descriptor { length: frame.len() as u16, room: room as u8, ..Descriptor::default() };
    let outcome = function.run_ref(&mut buffer, &mut descriptor, function.properties().variant, 0);
    frame.clear();
    frame.extend(&buffer[usize::from(descriptor.head)..][..usize::from(descriptor.length)]);
    outcome
}

/// Runs the host half of a function on a frame that arrived at `port`. Returns `Ok` if the frame
/// goes on to the kernel, or the drop reason otherwise.
pub(crate) fn prepare_one(function: &dyn Function, port: u8, frame: &[u8]) -> Result<(), u8> {
    let mut region = Arena::new(ArenaConfig { packets: 1, ..ArenaConfig::default() }, 1).unwrap().split().remove(0);
    let packet = Descriptor { port, ..region.allocate(frame.len()).unwrap() };
    region.frame_mut(&packet).copy_from_slice(frame);
    let mut work = Vec::new();
    function.host_half(0, 1).unwrap().preparing().unwrap().prepare(&region, &[packet], &mut work);
    match work[..] {
        [Work::Run { variant, parameter: 0 }] if variant == function.properties().variant => Ok(()),
        [Work::Done(outcome)] => Err(outcome.reason),
        _ => panic!("{work:?}"),
    }
}

/// Empty directory that is removed at the end of a test.
pub(crate) struct Directory(pub(crate) std::path::PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("godwit-function-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
