//! Functions that process whole packets, `hash` and `aes`, with each of their algorithms. The peer
//! is OpenSSL.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use godwit_abi::Descriptor;
use godwit_function::Function;
use godwit_packet::{Arena, ArenaConfig};

use crate::error::Error;
use crate::load::build::build;
use crate::load::routes;
use crate::progress::Progress;
use crate::run::call::{PACKETS, measure};
use crate::run::options::{Context, LaneOptions};
use crate::run::peer::{self, Peer};
use crate::run::row::{Details, Row};
use crate::run::workload::{Competitor, Workload};

/// First byte after the Ethernet and IPv4 headers of our frames, which `aes` encrypts.
const DATA_OFFSET: usize = 34;

/// Work of a function: the name for OpenSSL, the stanza, and the first byte of each frame that it
/// processes.
struct Work {
    algorithm: &'static str,
    stanza: String,
    offset: usize,
}

fn works(kind: &str) -> Vec<Work> {
    let hash = |algorithm| Work { algorithm, stanza: format!("algorithm = '{algorithm}'"), offset: 0 };
    let cipher = |algorithm, key_bytes: u8| {
        let key: String = (0..key_bytes).map(|byte| format!("{byte:02x}")).collect();
        Work { algorithm, stanza: format!("cipher = '{algorithm}'\nkey = '{key}'"), offset: DATA_OFFSET }
    };
    match kind {
        "hash" => ["md5", "sha1", "sha256"].map(hash).into(),
        _ => vec![cipher("aes-128-cbc", 16), cipher("chacha20-poly1305", 32)],
    }
}

/// Measures the function of the definition with each of its algorithms.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let options = LaneOptions::parse(context)?;
    let kind = context.values.parameter("function")?;
    let use_peer = options.common.peers && !options.through_lane();
    let program = if use_peer { peer::find_or_report("openssl", progress) } else { None };
    let mut rows = Vec::new();
    for work in works(&kind) {
        progress(&format!("{kind}: {}", work.algorithm));
        let function = build(&kind, &work.stanza)?;
        let details = Details::default().with("algorithm", work.algorithm);
        let competitor = program.clone().map(|program| {
            let mut rival = Rival { program, algorithm: work.algorithm, offset: work.offset, running: None };
            let function = Arc::clone(&function);
            Competitor {
                device: "openssl",
                implementation: "evp",
                mode: "process",
                details: details.clone(),
                packets: PACKETS,
                round: Box::new(move |frames| rival.round(&*function, frames)),
            }
        });
        rows.extend(measure(Workload { competitor, details, ..Workload::new(function) }, &options, progress)?);
    }
    Ok(rows)
}

/// OpenSSL with the packets of the current size.
struct Rival {
    program: PathBuf,
    algorithm: &'static str,
    offset: usize,
    running: Option<Running>,
}

struct Running {
    peer: Peer,
    frames: Vec<Vec<u8>>,
    /// Sum of the results according to `ref`.
    expected: u64,
}

impl Rival {
    /// Runs one round, and verifies its results. Starts the program again if the frames are others.
    fn round(&mut self, function: &dyn Function, frames: &[Vec<u8>]) -> Result<f64, Error> {
        if self.running.as_ref().is_none_or(|running| running.frames != frames) {
            self.running = Some(self.start(function, frames)?);
        }
        let Some(running) = &mut self.running else { return Err(Error::Setup("no peer runs".to_owned())) };
        let (time, sum) = running.peer.round()?;
        if sum != running.expected {
            let what = format!("{}: the sum of all results is {sum} and not {}", self.algorithm, running.expected);
            return Err(Error::Wrong { who: "openssl".to_owned(), what });
        }
        Ok(time)
    }

    fn start(&self, function: &dyn Function, frames: &[Vec<u8>]) -> Result<Running, Error> {
        let mut file = Vec::new();
        for frame in frames {
            let text = &frame[self.offset..];
            // Frames are shorter than 64 KiB.
            file.extend((text.len() as u32).to_le_bytes());
            file.extend(text);
        }
        let file = routes::temporary(&file)?;
        let peer = Peer::start(&self.program, &[OsStr::new(self.algorithm), file.path().as_os_str()])?;
        let config = ArenaConfig { packets: 1, ..ArenaConfig::default() };
        let mut region = Arena::new(config, 1).map_err(Error::setup)?.split().remove(0);
        let mut expected = 0;
        for frame in frames {
            let packet = region.allocate(frame.len()).ok_or_else(|| Error::Setup("a frame is too long".to_owned()))?;
            region.frame_mut(&packet).copy_from_slice(frame);
            let mut after: Descriptor = packet;
            let outcome = function.run_ref(region.buffer_mut(&packet), &mut after, function.properties().variant, 0);
            let word = match self.offset {
                0 => outcome.value,
                offset => {
                    let data = &region.frame_mut(&after)[offset..offset + 4];
                    u32::from_be_bytes([data[0], data[1], data[2], data[3]])
                }
            };
            expected += u64::from(word);
            region.release(&packet);
        }
        Ok(Running { peer, frames: frames.to_vec(), expected })
    }
}
