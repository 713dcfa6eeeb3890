//! Packet port for capture files. It reads packets from files and writes packets to files, in the
//! formats pcap and pcapng.
//!
//! The reader accepts both byte orders, every time resolution, and only Ethernet frames. A
//! truncated or malformed file ends the input with an error. The writer writes times in
//! nanoseconds, and its output does not depend on the number of workers.
//!
//! | file | contents |
//! |---|---|
//! | `input` | reads a file through a buffer of limited size |
//! | `reader` | reads the records of one file |
//! | `replay` | [`Replay`]: receive queue that merges files by time |
//! | `writer` | encodes records |
//! | `annotated` | [`Annotated`]: file in which packets have comments |
//! | `output` | file that appears under its name when it is complete |
//! | `sink` | [`Sink`]: merges the transmit queues of all workers into one file |

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

/// Configuration of a port with `kind = "pcap"`. At least one of the keys `file` and `write` must
/// be present.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Path of the capture file from which the port reads packets.
    pub file: Option<PathBuf>,
    /// Path of the capture file to which the port writes packets.
    pub write: Option<PathBuf>,
    /// Format of the written capture file. The default is pcap for a file name that ends with
    /// `.pcap`, and pcapng for any other name.
    pub format: Option<Format>,
    /// Maximum number of records to read from `file`. The value 0 means no limit.
    #[serde(default)]
    pub packets: u64,
}

/// Format of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The format pcap. A file has one interface without a name.
    Pcap,
    /// The format pcapng. A file can have several named interfaces.
    PcapNg,
}

impl Format {
    /// Returns the format for the extension of a file name.
    pub fn from_path(path: &Path) -> Self {
        match path.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("pcap") => Self::Pcap,
            _ => Self::PcapNg,
        }
    }
}

impl Config {
    /// Makes relative paths absolute. `directory` is the folder that contains the configuration
    /// file.
    pub fn resolve(&mut self, directory: &Path) {
        for path in [&mut self.file, &mut self.write].into_iter().flatten() {
            *path = directory.join(&*path);
        }
    }

    /// Checks the configuration without accessing a file.
    ///
    /// # Errors
    /// Returns [`Error::Missing`] if both `file` and `write` are absent, and [`Error::Config`] if
    /// they name the same file.
    pub fn validate(&self) -> Result<(), Error> {
        match (&self.file, &self.write) {
            (None, None) => Err(Error::Missing("a pcap port needs `file` to read or `write` to write")),
            (Some(file), Some(write)) if file == write => {
                Err(Error::config("write", write.display(), "is also the `file` that the port reads"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the format of the capture file that is written to `path`.
    pub fn format_of(&self, path: &Path) -> Format {
        self.format.unwrap_or_else(|| Format::from_path(path))
    }

    /// Creates the output file of the port with the name `name`. Returns `None` if the port does
    /// not write packets.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub fn sink(&self, name: &str, workers: usize) -> Result<Option<Sink>, Error> {
        let Some(path) = &self.write else { return Ok(None) };
        Sink::create(path, self.format_of(path), &[name.to_owned()], workers).map(Some)
    }
}

/// Creates the receive queue of one worker. Without `file` in the configuration, the queue ends
/// immediately.
///
/// # Errors
/// Returns an error if the file cannot be read, is not a capture file, or has a link type other
/// than Ethernet.
pub fn receiver(config: &Config, context: QueueContext) -> Result<Box<dyn Receive>, Error> {
    let input = config.file.as_ref().map(|path| ReplayInput { path: path.clone(), port: context.port });
    let replay = Replay::open(input.as_slice(), config.packets, context.worker, context.steering)?;
    Ok(Box::new(replay))
}

/// Returns all frames of a capture file, each with its time in nanoseconds. `frame_bytes_max` is
/// the maximum length of a frame, and longer frames are left out.
///
/// # Errors
/// Returns an error if the file cannot be read, is damaged, or has a link type other than Ethernet.
pub fn timed_frames(path: &Path, frame_bytes_max: usize) -> Result<Vec<(u64, Vec<u8>)>, Error> {
    let mut reader = reader::Reader::open(path)?;
    let mut frames = Vec::new();
    while let Some(record) = reader.next()? {
        if let reader::Content::Frame(range) = &record.content
            && range.len() <= frame_bytes_max
        {
            frames.push((record.time_ns, reader.frame(range).to_vec()));
        }
    }
    Ok(frames)
}

/// Reads a complete capture file from memory, for tests and fuzz targets. Returns the number of
/// packets, and the error that ended the reading.
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
