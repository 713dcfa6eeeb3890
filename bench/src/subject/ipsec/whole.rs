//! One ESP suite with its host half, in one direction.
//!
//! The peer ipsec-mb runs bare jobs. It knows the offset, the SA and the operation of every packet,
//! and counts nothing. For decryption, it also compares the ICV.

use std::path::PathBuf;
use std::sync::Arc;

use godwit_function::Function;
use godwit_function::ipsec::suite::Suite;
use godwit_packet::ArenaConfig;

use super::jobs::{Keys, keys, packets, stanza};
use crate::error::Error;
use crate::load::build::build;
use crate::load::routes;
use crate::progress::Progress;
use crate::run::call::{PACKETS, measure};
use crate::run::options::LaneOptions;
use crate::run::peer::{self, Peer};
use crate::run::row::{Details, Row};
use crate::run::workload::{Competitor, Workload};

/// Measures an ESP suite. For decryption, each pass decrypts the packets of the previous pass,
/// which are encrypted again with the next sequence numbers.
pub(super) fn whole(
    suite: &'static Suite,
    decrypts: bool,
    options: &LaneOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let keys = keys(suite);
    let out = build("ipsec", &stanza(suite, &keys, false))?;
    let function = if decrypts { build("ipsec", &stanza(suite, &keys, true))? } else { Arc::clone(&out) };
    let path = if options.common.peers { peer::find_or_report("ipsec_mb", progress) } else { None };
    let competitor = path.map(|path| competitor(path, suite, decrypts, Arc::clone(&out), keys));
    let before = decrypts.then_some(out);
    let details = Details::default().with("suite", suite.name).with("direction", direction(decrypts));
    measure(Workload { competitor, before, details, ..Workload::new(function) }, options, progress)
}

/// Returns the value of the detail `direction`.
pub(super) fn direction(decrypts: bool) -> &'static str {
    if decrypts { "decrypt" } else { "encrypt" }
}

/// A running peer, its frames, and the sum that it must return.
struct Started {
    peer: Peer,
    frames: Vec<Vec<u8>>,
    sum: u64,
}

fn competitor<'a>(
    path: PathBuf,
    suite: &'static Suite,
    decrypts: bool,
    out: Arc<dyn Function>,
    keys: Vec<Keys>,
) -> Competitor<'a> {
    let mut started: Option<Started> = None;
    let round = move |frames: &[Vec<u8>]| {
        if started.as_ref().is_none_or(|started| started.frames != frames) {
            let (bytes, sums) = packets(suite, decrypts, &*out, &keys, frames, &ArenaConfig::default())?;
            let sum = sums.iter().sum();
            let file = routes::temporary(&bytes)?;
            let peer = Peer::start(&path, &[file.path().as_os_str()])?;
            started = Some(Started { peer, frames: frames.to_vec(), sum });
        }
        let started = started.as_mut().expect("it was just started");
        let (time_ns, sum) = started.peer.round()?;
        if sum != started.sum {
            let what = format!("the sum of its data and ICVs is {sum} instead of {}", started.sum);
            return Err(Error::Wrong { who: "ipsec_mb".to_owned(), what });
        }
        Ok(time_ns)
    };
    Competitor {
        device: "ipsec-mb",
        implementation: "jobs",
        details: Details::default()
            .with("work", "bare jobs, one by one or in bursts of 64")
            .with("suite", suite.name)
            .with("direction", direction(decrypts)),
        mode: "process",
        packets: PACKETS,
        round: Box::new(round),
    }
}
