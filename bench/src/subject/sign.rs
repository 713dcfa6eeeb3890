//! Private-key operations of TLS on one core. The peers are bare crypto_mb and `openssl speed`.
//!
//! Each row has a number of waiting jobs, for which the policy chooses one at a time or eight
//! lanes. The measured time includes the queue, the padding, and the check of every RSA result with
//! the public key. After the measurement, every signature is verified again.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use godwit_sign::{Class, Done, Hash, Key, Library, PolicyConfig, Scheme, Signer, measure_costs};

use crate::error::Error;
use crate::load::routes;
use crate::progress::Progress;
use crate::run::options::{BATCH, Common, Context, KEY, Value};
use crate::run::peer::{self, Peer};
use crate::run::rounds::{Race, median_p99};
use crate::run::row::{Details, Row};

/// Message of the size that TLS 1.3 signs with SHA-256 (RFC 8446, section 4.4.3).
const MESSAGE: [u8; 130] = [0x20; 130];
/// Jobs that wait when the bare crypto_mb is compared.
const LANES: usize = godwit_sign::LANES;

impl Value for Class {
    const EXPECTED: &str = "rsa2048, rsa3072, rsa4096, p256, p384 or ed25519";
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == text)
    }
}

/// Measures every key with every number of waiting jobs.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let Context { common, values } = context;
    let (classes, batches): (Vec<Class>, Vec<usize>) = (values.list(KEY.name)?, values.list(BATCH.name)?);
    let library = match Library::find() {
        Ok(library) => Some(Arc::new(library)),
        Err(error) => {
            progress(&format!("no lanes: {error}"));
            None
        }
    };
    let mut rows = Vec::new();
    for class in classes {
        // A key of RSA-4096 takes seconds.
        if common.brief() && matches!(class, Class::Rsa3072 | Class::Rsa4096) {
            continue;
        }
        let key = Arc::new(Key::generate(class).map_err(Error::setup)?);
        rows.append(&mut measure(&key, &batches, library.as_ref(), common, progress)?);
        if common.peers {
            rows.extend(openssl(class, common, progress)?);
        }
    }
    Ok(rows)
}

fn scheme(class: Class) -> Scheme {
    match class {
        Class::Rsa2048 | Class::Rsa3072 | Class::Rsa4096 => Scheme::RsaPss(Hash::Sha256),
        Class::EcdsaP256 => Scheme::EcdsaP256Sha256,
        Class::EcdsaP384 => Scheme::EcdsaP384Sha384,
        Class::Ed25519 => Scheme::Ed25519,
    }
}

/// Returns the number of jobs for a round of about 50 ms, a multiple of the lanes.
fn jobs_per_round(class: Class, common: &Common) -> usize {
    let jobs = match class {
        Class::Rsa2048 => 128,
        Class::Rsa3072 => 32,
        Class::Rsa4096 => 24,
        Class::EcdsaP256 | Class::Ed25519 => 1024,
        Class::EcdsaP384 => 256,
    };
    if common.brief() { LANES } else { jobs }
}

fn measure(
    key: &Arc<Key>,
    batches: &[usize],
    library: Option<&Arc<Library>>,
    common: &Common,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    let class = key.class();
    let costs = measure_costs(&[Arc::clone(key)], library).map_err(Error::setup)?;
    let jobs = jobs_per_round(class, common);
    let cost = costs.of(class);
    let lanes = cost.lanes_ns.map_or("none".to_owned(), |lanes_ns| format!("{} us a batch", lanes_ns / 1000));
    progress(&format!("{}: {} us one at a time, lanes: {lanes}", class.name(), cost.single_ns / 1000));
    let mut race = Race::new(jobs);
    for &batch in batches {
        let config = PolicyConfig { costs: costs.clone(), ..PolicyConfig::default() };
        let mut signer = Signer::new(config, library.cloned(), Vec::new()).map_err(Error::setup)?;
        round(&mut signer, key, batch.min(LANES), batch)?;
        let form = if signer.counters().signed_lanes > 0 { "lanes" } else { "single" };
        let details = Details::default().with("key", class.name()).with("waiting", batch);
        race.ours(form, batch, &details, move || round(&mut signer, key, jobs, batch));
    }
    if let Some(peer) = bare(key, library.map(|library| library.file()), jobs, common, progress)? {
        let details = Details::default().with("key", class.name()).with("work", "no padding, no check of the result");
        race.peer("crypto_mb", peer, &details, vec![("lanes".to_owned(), LANES, "lanes".to_owned())]);
    }
    let mut rows = race.run(common)?;
    for row in &mut rows {
        row.details = std::mem::take(&mut row.details).with("per_second", row.mpps * 1e6);
    }
    let best = |peer: bool| rows.iter().filter(|row| row.peer == peer).map(|row| row.mpps).reduce(f64::max);
    if let (Some(ours), Some(theirs)) = (best(false), best(true)) {
        let (ours, theirs, ratio) = (ours * 1e6, theirs * 1e6, ours / theirs);
        progress(&format!("{}: {ours:.0} /s, {theirs:.0} /s of crypto_mb: ratio {ratio:.2}", class.name()));
    }
    Ok(rows)
}

/// Signs `jobs` jobs, of which `batch` wait at a time. Returns the time in nanoseconds and the
/// number of valid signatures.
fn round(signer: &mut Signer, key: &Arc<Key>, jobs: usize, batch: usize) -> Result<(f64, u64), Error> {
    let scheme = scheme(key.class());
    let mut done: Vec<Done> = Vec::with_capacity(jobs);
    let started = Instant::now();
    let mut submitted = 0;
    while submitted < jobs {
        for _ in 0..batch.min(jobs - submitted) {
            signer.submit(Arc::clone(key), scheme, &MESSAGE).map_err(refused)?;
            submitted += 1;
        }
        while signer.turn(0, &mut done) {}
    }
    let time_ns = started.elapsed().as_nanos() as f64;
    let is_valid = |done: &&Done| done.result.as_ref().is_ok_and(|signature| key.verifies(scheme, &MESSAGE, signature));
    Ok((time_ns, done.iter().filter(is_valid).count() as u64))
}

fn refused(refusal: godwit_sign::Refusal) -> Error {
    Error::Wrong { who: "the signer".to_owned(), what: format!("a job was refused: {refusal:?}") }
}

/// Starts bare crypto_mb with `key`, if it is an RSA key and the peer was built.
fn bare(
    key: &Key,
    library: Option<&Path>,
    jobs: usize,
    common: &Common,
    progress: &mut Progress<'_>,
) -> Result<Option<Peer>, Error> {
    let (Some(words), Some(library), true) = (key.rsa(), library, common.peers) else { return Ok(None) };
    let Some(path) = peer::find_or_report("crypto_mb", progress) else { return Ok(None) };
    let bits = [words.modulus().len() as u64 * 64];
    let parts = [&bits[..], words.modulus()].into_iter().chain(words.crt());
    let bytes: Vec<u8> = parts.flatten().flat_map(|word| word.to_le_bytes()).collect();
    // The key was made for this run.
    let file = routes::temporary(&bytes)?;
    let jobs = jobs.to_string();
    Peer::start(&path, &[library.as_os_str(), file.path().as_os_str(), jobs.as_ref()]).map(Some)
}

/// Runs `openssl speed`, if it is installed. It does not verify results, but OpenSSL's own tests
/// do.
fn openssl(class: Class, common: &Common, progress: &mut Progress<'_>) -> Result<Option<Row>, Error> {
    let algorithm = match class {
        Class::EcdsaP256 => "ecdsap256",
        Class::EcdsaP384 => "ecdsap384",
        _ => class.name(),
    };
    let seconds = if common.brief() { 1 } else { 2 };
    let mut times_ns = Vec::new();
    for _ in 0..if common.brief() { 1 } else { 3 } {
        let mut command = Command::new("openssl");
        command.args(["speed", "-mr", "-seconds", &format!("{seconds}"), algorithm]).stderr(Stdio::null());
        let Ok(output) = command.output() else {
            progress("peer openssl is left out: it is not installed");
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&output.stdout);
        // "+F2:0:2048:SIGN:VERIFY" for RSA, "+F4:..." and "+F6:..." for the others, each per
        // second.
        let rate = |line: &str| line.rsplit(':').nth(1)?.parse::<f64>().ok().filter(|rate| *rate > 0.0);
        let rate = text.lines().filter(|line| line.starts_with("+F")).find_map(rate);
        let rate = rate.ok_or_else(|| Error::Setup(format!("openssl speed {algorithm}: no rate in `{text}`")))?;
        times_ns.push(1e9 / rate);
    }
    let (p50_ns, p99_ns) = median_p99(&mut times_ns);
    let version = Command::new("openssl").arg("version").output().map_err(Error::setup)?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    Ok(Some(Row {
        device: "openssl".to_owned(),
        implementation: "speed".to_owned(),
        mode: "process".to_owned(),
        batch: 1,
        mpps: 1e3 / p50_ns,
        p50_us: p50_ns / 1e3,
        p99_us: p99_ns / 1e3,
        peer: true,
        details: Details::default()
            .with("key", class.name())
            .with("per_second", 1e9 / p50_ns)
            .with("peer_ready", version),
        ..Row::default()
    }))
}
