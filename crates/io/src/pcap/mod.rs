//! The `pcap` port: packets from and to capture files, pcap and pcapng.
//!
//! Read: any byte order, any time resolution, Ethernet only, cut-off and malformed files without harm. Written: nanoseconds,
//! the same bytes for any number of workers.
//!
//! | file | holds |
//! |---|---|
//! | `input` | a file read through a buffer of bounded size |
//! | `reader` | records of one file |
//! | `replay` | [`Replay`]: files merged by time into a receive queue |
//! | `writer` | records as bytes |
//! | `annotated` | [`Annotated`]: a file in which packets have comments |
//! | `output` | a file that appears when complete |
//! | `sink` | [`Sink`]: transmit queues of all workers joined into one file |

mod annotated;
mod input;
mod link_type;
mod output;
mod reader;
mod replay;
mod sink;
mod writer;

use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use annotated::{Annotated, Annotation};
pub use replay::{Replay, ReplayInput};
pub use sink::{Sink, SinkReport};

use crate::{Error, QueueContext, Receive};

/// A port of `kind = "pcap"`. At least one of `file` and `write` is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Capture to read packets from.
    pub file: Option<PathBuf>,
    /// Capture to write packets to.
    pub write: Option<PathBuf>,
    /// Format of the capture written; without it by the file's ending, `.pcap` is pcap, all else pcapng.
    pub format: Option<Format>,
    /// Stop after this many records of `file`; 0 for all.
    #[serde(default)]
    pub packets: u64,
}

/// Format of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The old one: one interface, no names.
    Pcap,
    /// The new one: interfaces with names.
    PcapNg,
}

impl Format {
    /// The format that a file's ending stands for.
    pub fn of_path(path: &Path) -> Self {
        match path.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("pcap") => Self::Pcap,
            _ => Self::PcapNg,
        }
    }
}

impl Config {
    /// Makes relative paths relative to `directory`, that of the configuration file.
    pub fn resolve(&mut self, directory: &Path) {
        for path in [&mut self.file, &mut self.write].into_iter().flatten() {
            *path = directory.join(&*path);
        }
    }

    /// Checks what can be checked without touching a file.
    ///
    /// # Errors
    /// [`Error::Missing`]: neither `file` nor `write`. [`Error::Config`]: both name one file.
    pub fn validate(&self) -> Result<(), Error> {
        match (&self.file, &self.write) {
            (None, None) => Err(Error::Missing("a pcap port needs `file` to read or `write` to write")),
            (Some(file), Some(write)) if file == write => {
                Err(Error::config("write", write.display(), "is also the `file` that is read"))
            }
            _ => Ok(()),
        }
    }

    /// Format of the capture written to `path`.
    pub fn format_of(&self, path: &Path) -> Format {
        self.format.unwrap_or_else(|| Format::of_path(path))
    }

    /// The sink of this port, where it writes. `name` is the port's.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn sink(&self, name: &str, workers: usize) -> Result<Option<Sink>, Error> {
        let Some(path) = &self.write else { return Ok(None) };
        Sink::create(path, self.format_of(path), &[name.to_owned()], workers).map(Some)
    }
}

/// One worker's receive queue. Without a `file` it ends at once.
///
/// # Errors
/// The file cannot be read, is no capture, or holds another link type than Ethernet.
pub fn receiver(config: &Config, context: QueueContext) -> Result<Box<dyn Receive>, Error> {
    let input = config.file.as_ref().map(|path| ReplayInput { path: path.clone(), port: context.port });
    let replay = Replay::open(input.as_slice(), config.packets, context.worker, context.steering)?;
    Ok(Box::new(replay))
}

/// Reads a capture from memory to the end, for tests and fuzzing: the packets, and what it ended with.
#[doc(hidden)]
pub fn read_bytes(bytes: Vec<u8>, region: &mut godwit_packet::Region) -> (u64, Option<Error>) {
    use std::sync::Arc;

    use godwit_packet::{Batch, Steering};

    let reader = reader::Reader::new(Path::new("memory"), Box::new(std::io::Cursor::new(bytes)));
    let steering = Arc::new(Steering::new(1, None));
    let mut replay = match reader.and_then(|reader| Replay::new(vec![(reader, 0)], 0, 0, steering)) {
        Ok(replay) => replay,
        Err(error) => return (0, Some(error)),
    };
    let mut batch = Batch::default();
    loop {
        let received = replay.receive(region, &mut batch, 32);
        batch.descriptors.iter().for_each(|descriptor| region.release(descriptor));
        batch.clear();
        match received {
            Ok(crate::Received::Open) => {}
            Ok(crate::Received::Ended) => return (replay.counters().received_packets, None),
            Err(error) => return (replay.counters().received_packets, Some(error)),
        }
    }
}
