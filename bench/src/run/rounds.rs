//! Competitors that take turns, and statistics of their rounds.
//!
//! All competitors of a race look up the same keys in the same table, and their results must have
//! the same sum.

use std::time::Instant;

use crate::error::Error;
use crate::progress::Progress;
use crate::run::options::Common;
use crate::run::peer::Peer;
use crate::run::row::{Details, Row};

/// Runs one round. Returns its time in nanoseconds and the sum of its results.
type Round<'a> = Box<dyn FnMut() -> Result<(f64, u64), Error> + 'a>;

/// Minimum number of rounds. With fewer rounds, the median is unreliable on a shared machine.
const ROUNDS_MIN: usize = 5;

/// Sorts the numbers, and returns their median and 99th percentile.
pub(crate) fn median_p99(numbers: &mut [f64]) -> (f64, f64) {
    if numbers.is_empty() {
        return (0.0, 0.0);
    }
    numbers.sort_by(f64::total_cmp);
    let quantile = |share: f64| numbers[((numbers.len() - 1) as f64 * share).round() as usize];
    (quantile(0.5), quantile(0.99))
}

/// Competitors that take turns.
pub(crate) struct Race<'a> {
    /// Lookups of a round.
    lookups: usize,
    ours: Vec<Entrant<Round<'a>>>,
    peers: Vec<(Peer, Vec<Entrant<String>>)>,
}

/// A competitor.
struct Entrant<T> {
    device: &'static str,
    implementation: String,
    /// Lookups of one call, or lookups in flight.
    batch: usize,
    details: Details,
    /// The function that runs a round, or the request to the peer.
    how: T,
    times: Vec<f64>,
}

impl<'a> Race<'a> {
    /// Starts a race with rounds of `lookups`.
    pub(crate) fn new(lookups: usize) -> Self {
        Self { lookups, ours: Vec::new(), peers: Vec::new() }
    }

    /// Adds a form of Godwit.
    pub(crate) fn ours(
        &mut self,
        implementation: &str,
        batch: usize,
        details: &Details,
        round: impl FnMut() -> Result<(f64, u64), Error> + 'a,
    ) {
        let how: Round<'a> = Box::new(round);
        let (implementation, details) = (implementation.to_owned(), details.clone());
        self.ours.push(Entrant { device: "cpu", implementation, batch, details, how, times: Vec::new() });
    }

    /// Adds a peer. Each of its forms has a name, a batch and a request.
    pub(crate) fn peer(
        &mut self,
        device: &'static str,
        peer: Peer,
        details: &Details,
        forms: Vec<(String, usize, String)>,
    ) {
        let entrant = |(implementation, batch, how)| {
            let details = details.clone().with("peer_ready", peer.ready.as_str());
            Entrant { device, implementation, batch, details, how, times: Vec::new() }
        };
        let entrants = forms.into_iter().map(entrant).collect();
        self.peers.push((peer, entrants));
    }

    /// Runs the race, and ends the peers.
    pub(crate) fn run(self, common: &Common) -> Result<Vec<Row>, Error> {
        Ok(self.run_and_keep(common)?.0)
    }

    /// Runs the race and returns the peers, which are still running. Rounds take turns until the
    /// time is over. Each competitor gets at least [`ROUNDS_MIN`] rounds unless the time is very
    /// short.
    ///
    /// Each timed round follows an untimed one of the same competitor, because the other
    /// competitors have evicted its table from the caches. Without it, half of the accesses to a
    /// table of 18 MB would be measured from memory.
    ///
    /// # Errors
    /// Returns [`Error::Wrong`] if the sum of a competitor differs from the first sum.
    pub(crate) fn run_and_keep(mut self, common: &Common) -> Result<(Vec<Row>, Vec<Peer>), Error> {
        let mut proof = None;
        let mut check = |sum: u64, device: &str, implementation: &str| {
            let expected = *proof.get_or_insert(sum);
            if sum == expected {
                return Ok(());
            }
            let what = format!("the sum of its results is {sum} instead of {expected}");
            Err(Error::Wrong { who: format!("{device} {implementation}"), what })
        };
        let rounds_min = if common.brief() { 1 } else { ROUNDS_MIN };
        let mut rounds = 0;
        let started = Instant::now();
        loop {
            for entrant in &mut self.ours {
                (entrant.how)()?;
                let (time_ns, sum) = (entrant.how)()?;
                check(sum, entrant.device, &entrant.implementation)?;
                entrant.times.push(time_ns);
            }
            for (peer, entrants) in &mut self.peers {
                for entrant in entrants {
                    peer.ask(&entrant.how)?;
                    let (time_ns, sum) = peer.ask(&entrant.how)?;
                    check(sum, entrant.device, &entrant.implementation)?;
                    entrant.times.push(time_ns);
                }
            }
            rounds += 1;
            if rounds >= rounds_min && started.elapsed() >= common.time {
                break;
            }
        }
        let mut rows = Vec::new();
        for entrant in &mut self.ours {
            rows.push(row(self.lookups, entrant, false));
        }
        for entrant in self.peers.iter_mut().flat_map(|(_, entrants)| entrants) {
            rows.push(row(self.lookups, entrant, true));
        }
        let peers = self.peers.into_iter().map(|(peer, _)| peer).collect();
        Ok((rows, peers))
    }
}

fn row<T>(lookups: usize, entrant: &mut Entrant<T>, peer: bool) -> Row {
    let (p50, p99) = median_p99(&mut entrant.times);
    let batch_us = |time_ns: f64| time_ns / 1e3 / lookups as f64 * entrant.batch as f64;
    Row {
        device: entrant.device.to_owned(),
        implementation: entrant.implementation.clone(),
        mode: if peer { "process" } else { "call" }.to_owned(),
        batch: entrant.batch,
        mpps: lookups as f64 / p50 * 1e3,
        p50_us: batch_us(p50),
        p99_us: batch_us(p99),
        peer,
        details: entrant.details.clone(),
        ..Row::default()
    }
}

/// Returns the sum of a call's results, and counts `none` as 0xffffffff. It has no branch, because
/// it is part of the measured time, as in the peers.
pub(crate) fn sum(answers: &[u32], none: u32) -> u64 {
    let (mut sum, mut missed) = (0, 0);
    for &answer in answers {
        sum += u64::from(answer);
        missed += u32::from(answer == none);
    }
    sum + u64::from(missed) * u64::from(u32::MAX - none)
}

/// Reports the ratio of our best form to the best form of all peers.
pub(crate) fn report_ratio(rows: &[Row], progress: &mut Progress<'_>) {
    let best = |peer: bool| rows.iter().filter(|row| row.peer == peer).max_by(|a, b| a.mpps.total_cmp(&b.mpps));
    if let (Some(ours), Some(theirs)) = (best(false), best(true)) {
        progress(&format!(
            "{:.2} M/s ({}), {:.2} M/s of {} ({}): ratio {:.2}",
            ours.mpps,
            ours.implementation,
            theirs.mpps,
            theirs.device,
            theirs.implementation,
            ours.mpps / theirs.mpps
        ));
    }
}
