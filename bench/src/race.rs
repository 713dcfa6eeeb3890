//! Competitors that look up the same things in the same table: rounds in turn, one sum that all must have.

use std::time::Instant;

use crate::peer::Peer;
use crate::{BenchOptions, Error, Progress, Row, median_p99};

/// One round: its time in nanoseconds, and the sum of its answers.
type Round<'a> = Box<dyn FnMut() -> Result<(f64, u64), Error> + 'a>;

/// A median of fewer says little on a machine that others use too.
const ROUNDS_MIN: usize = 5;

/// What competes.
pub(crate) struct Race<'a> {
    bench: &'static str,
    /// Look-ups of a round.
    lookups: usize,
    ours: Vec<Entrant<Round<'a>>>,
    peers: Vec<(Peer, Vec<Entrant<String>>)>,
}

/// One of them; `how` runs its round.
struct Entrant<T> {
    device: &'static str,
    implementation: String,
    /// Look-ups handed over, or under way, at once.
    batch: usize,
    note: String,
    how: T,
    times: Vec<f64>,
}

impl<'a> Race<'a> {
    pub(crate) fn new(bench: &'static str, lookups: usize) -> Self {
        Self { bench, lookups, ours: Vec::new(), peers: Vec::new() }
    }

    /// One of ours.
    pub(crate) fn ours(
        &mut self,
        implementation: &str,
        batch: usize,
        note: &str,
        round: impl FnMut() -> Result<(f64, u64), Error> + 'a,
    ) {
        let (implementation, note) = (implementation.to_owned(), note.to_owned());
        let how: Round<'a> = Box::new(round);
        self.ours.push(Entrant { device: "cpu", implementation, batch, note, how, times: Vec::new() });
    }

    /// A peer, in each of its forms: what a row calls it, its batch, and the line that asks for it.
    pub(crate) fn peer(&mut self, device: &'static str, peer: Peer, forms: Vec<(String, usize, String)>) {
        let entrant = |(implementation, batch, how)| {
            let note = peer.ready.clone();
            Entrant { device, implementation, batch, note, how, times: Vec::new() }
        };
        let entrants = forms.into_iter().map(entrant).collect();
        self.peers.push((peer, entrants));
    }

    /// As [`run_and_keep`](Self::run_and_keep); the peers end.
    pub(crate) fn run(self, options: &BenchOptions) -> Result<Vec<Row>, Error> {
        Ok(self.run_and_keep(options)?.0)
    }

    /// Rounds of all in turn until the time is over, at least [`ROUNDS_MIN`] of each unless little time is given. The peers go on living.
    ///
    /// Each round comes right behind one that no figure has: what others looked up in between has pushed a table out of the
    /// caches, and one that is in use all the time lies there. Else a table of 18 MB whose lines a round reads twice each is measured half from memory.
    ///
    /// # Errors
    /// [`Error::Wrong`] where a sum differs from the first one's.
    pub(crate) fn run_and_keep(mut self, options: &BenchOptions) -> Result<(Vec<Row>, Vec<Peer>), Error> {
        let mut proof = None;
        let mut check = |sum: u64, device: &str, implementation: &str| {
            let expected = *proof.get_or_insert(sum);
            if sum == expected {
                return Ok(());
            }
            let what = format!("its answers sum up to {sum} instead of {expected}");
            Err(Error::Wrong { who: format!("{device} {implementation}"), what })
        };
        let rounds_min = if options.time < crate::LITTLE { 1 } else { ROUNDS_MIN };
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
            if rounds >= rounds_min && started.elapsed() >= options.time {
                break;
            }
        }
        let mut rows = Vec::new();
        for entrant in &mut self.ours {
            rows.push(row(self.bench, self.lookups, entrant, false));
        }
        for entrant in self.peers.iter_mut().flat_map(|(_, entrants)| entrants) {
            rows.push(row(self.bench, self.lookups, entrant, true));
        }
        let peers = self.peers.into_iter().map(|(peer, _)| peer).collect();
        Ok((rows, peers))
    }
}

fn row<T>(bench: &str, lookups: usize, entrant: &mut Entrant<T>, peer: bool) -> Row {
    let (p50, p99) = median_p99(&mut entrant.times);
    let batch_us = |time_ns: f64| time_ns / 1e3 / lookups as f64 * entrant.batch as f64;
    Row {
        bench: bench.to_owned(),
        device: entrant.device.to_owned(),
        implementation: entrant.implementation.clone(),
        mode: if peer { "process" } else { "call" },
        size: None,
        batch: entrant.batch,
        mpps: lookups as f64 / p50 * 1e3,
        gbps: 0.0,
        p50_us: batch_us(p50),
        p99_us: batch_us(p99),
        watts: None,
        peer,
        note: entrant.note.clone(),
    }
}

/// The sum of what a call answered, `none` counted as 0xffffffff: as peers have it. Without a branch: it is part of what is measured, here as there.
pub(crate) fn sum(answers: &[u32], none: u32) -> u64 {
    let (mut sum, mut missed) = (0, 0);
    for &answer in answers {
        sum += u64::from(answer);
        missed += u32::from(answer == none);
    }
    sum + u64::from(missed) * u64::from(u32::MAX - none)
}

/// Says how the best of ours compares with the best form of any peer.
pub(crate) fn say_ratio(rows: &[Row], progress: &mut Progress<'_>) {
    let best = |peer: bool| rows.iter().filter(|row| row.peer == peer).max_by(|a, b| a.mpps.total_cmp(&b.mpps));
    if let (Some(ours), Some(theirs)) = (best(false), best(true)) {
        progress(&format!(
            "{:.2} M/s ({}) against {:.2} of {} ({}): ratio {:.2}",
            ours.mpps,
            ours.implementation,
            theirs.mpps,
            theirs.device,
            theirs.implementation,
            ours.mpps / theirs.mpps
        ));
    }
}
