//! The lesson `nat44` in the engine: one worker, a port that replays one packet of each session,
//! and lookups of sessions with and without interleaving.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_engine::config::{Config, PortKind};
use godwit_engine::{Engine, Options, Report};

use crate::error::Error;
use crate::load::frames::{self, Random};
use crate::load::size::Size;
use crate::load::traffic::{Frames, Traffic};
use crate::progress::Progress;
use crate::run::options::Context;
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};

/// The lesson.
const NAT44: &str = include_str!("../../../../examples/functions/nat44/nat44.c");
/// Sessions.
const SESSIONS: usize = 2_000_000;
/// Sessions of a test.
const SESSIONS_BRIEF: usize = 1000;
/// Sessions of one source.
const SESSIONS_OF_SOURCE: usize = 32;
/// Addresses of the pool.
const POOL: usize = 64;
/// Rounds of each form.
const ROUNDS: usize = 3;
/// Packets of a burst, and of a bin.
const BURST_PACKETS: usize = 256;
/// Time after which a round fails if not all sessions exist.
const ROUND_MAX: Duration = Duration::from_secs(120);

/// Measures the lesson with interleaved lookups (`gopt`) and without (`scalar`), in turns.
pub(in crate::subject) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let common = &context.common;
    let sessions = if common.brief() { SESSIONS_BRIEF } else { SESSIONS };
    let size = common.sizes[0];
    let folder = tempfile::tempdir().map_err(Error::setup)?;
    std::fs::write(folder.path().join("nat44.c"), NAT44).map_err(Error::setup)?;
    progress(&format!("{sessions} sessions"));
    let frames = Arc::new(Frames::new((0..sessions).map(|session| frame(session, size))));
    let forms = match common.implementation.as_deref() {
        Some(form) => vec![form],
        None => vec!["scalar", "gopt"],
    };
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); forms.len()];
    let mut last = Vec::new();
    for round in 1..=if common.brief() { 1 } else { ROUNDS } {
        last.clear();
        for (form, rates) in forms.iter().zip(&mut rates) {
            let (mpps, report) = one(folder.path(), form, &frames, common.time)?;
            progress(&format!("round {round}, {form}: {mpps:.2} Mpps"));
            rates.push(mpps);
            last.push(report);
        }
    }
    let rows: Vec<Row> = forms
        .iter()
        .zip(&mut rates)
        .zip(&last)
        .map(|((form, rates), report)| row(form, size, median_p99(rates).0, sessions, report, &frames))
        .collect();
    if let [off, on] = &rows[..] {
        progress(&format!(
            "{:.2} Mpps, {:.2} Mpps without interleaving: ratio {:.2}",
            on.mpps,
            off.mpps,
            on.mpps / off.mpps
        ));
    }
    Ok(rows)
}

/// Returns a UDP frame of a session to a random server.
fn frame(session: usize, size: Size) -> Vec<u8> {
    let mut random = Random::new(session as u64 + 1);
    let mut frame = frames::frame(size, &mut random, &|_, payload| payload.fill(0));
    // Successive sources differ in all bytes of the address.
    let source = ((session / SESSIONS_OF_SOURCE) as u32).wrapping_mul(0x9e37_79b1) & 0x00ff_ffff | 10 << 24;
    let port = 1024 + (session % SESSIONS_OF_SOURCE) as u16;
    let server = 0x0b00_0000 | random.below(1 << 24);
    frame[26..30].copy_from_slice(&source.to_be_bytes());
    frame[30..34].copy_from_slice(&server.to_be_bytes());
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    // There is no UDP checksum, and nat44 does not check that of the header.
    frame[40..42].fill(0);
    frame
}

/// Returns the rate of a round in millions of packets per second, after all sessions exist, and the
/// report.
fn one(folder: &Path, form: &str, frames: &Arc<Frames>, time: Duration) -> Result<(f64, Report), Error> {
    let pool: Vec<String> = (0..POOL).map(|number| format!("\"192.0.2.{number}\"")).collect();
    let longest = frames.bytes_max();
    let text = format!(
        r#"
        [engine]
        burst_packets = {BURST_PACKETS}
        in_flight_packets = 1024
        [arena]
        frame_bytes_max = {longest}
        [packing]
        chunk_packets = {BURST_PACKETS}
        bin_packets = {BURST_PACKETS}
        grouping = "none"
        [[port]]
        name = "memory"
        kind = "synthetic"
        [[function]]
        name = "nat"
        kind = "custom"
        source = "nat44.c"
        impl = "{form}"
        params.inside = "10.0.0.0/8"
        params.pool = [{pool}]
        [[chain]]
        from = "memory"
        to = "nat"
        [[chain]]
        from = "nat"
        to = "memory"
        "#,
        pool = pool.join(", "),
    );
    let mut config = Config::parse(&text, "bench custom-nat44", folder).map_err(Error::setup)?;
    config.ports[0].kind = PortKind::Live("frames", Arc::new(Traffic::new(frames)));
    let engine = Engine::new(config, &Options::default()).map_err(Error::setup)?;
    let stop = Arc::new(AtomicBool::new(false));
    let frame_count = frames.count() as u64;
    let mut begin: Option<(f64, u64)> = None;
    let mut end = None;
    let report = engine
        .run(&stop, Some(ROUND_MAX), &mut |report| {
            let now = (report.elapsed_s, report.conservation.received);
            match begin {
                // Every session exists after its first packet.
                None if now.1 >= frame_count => begin = Some(now),
                Some((began_s, _)) if end.is_none() && now.0 - began_s >= time.as_secs_f64() => {
                    end = Some(now);
                    stop.store(true, Ordering::Relaxed);
                }
                _ => {}
            }
        })
        .map_err(Error::setup)?;
    let wrong = |what: String| Error::Wrong { who: format!("nat44, {form}"), what };
    let (Some((began_s, before)), Some((ended_s, after))) = (begin, end) else {
        return Err(wrong(format!("the sessions did not exist after {} s", ROUND_MAX.as_secs())));
    };
    if !report.conservation.holds() || report.conservation.dropped > 0 {
        return Err(wrong(report.conservation.to_string()));
    }
    let known = &report.functions[0].tables;
    if known.iter().all(|(_, entries)| *entries != frame_count) {
        return Err(wrong(format!("{known:?} instead of {frame_count} sessions")));
    }
    Ok(((after - before) as f64 / (ended_s - began_s) / 1e6, report))
}

fn row(form: &str, size: Size, mpps: f64, sessions: usize, report: &Report, frames: &Frames) -> Row {
    let latency = report.latency.unwrap_or_default();
    Row {
        device: "cpu".to_owned(),
        implementation: form.to_owned(),
        mode: "engine".to_owned(),
        size: Some(size),
        batch: BURST_PACKETS,
        mpps,
        gbps: mpps * frames.bytes_mean() * 8.0 / 1e3,
        p50_us: latency.p50_ns as f64 / 1e3,
        p99_us: latency.p99_ns as f64 / 1e3,
        details: Details::default()
            .with("sessions", sessions)
            .with("kernel_ns", report.functions[0].busy_ns_per_packet),
        ..Row::default()
    }
}
