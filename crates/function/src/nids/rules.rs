//! Current inspection rules, which can be replaced while packets flow.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use godwit_nids::detect::Engine;
use godwit_nids::literal::Frequencies;
use godwit_nids::rules::{RuleSet, Variables};

use crate::Error;

/// Maximum time to wait for all workers to switch to the new rules. An idle worker switches within
/// 100 ms.
const RETIRE_LIMIT: Duration = Duration::from_secs(2);

/// Result of loading rules.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loaded {
    /// Number of rules that were loaded.
    pub(super) rules: usize,
    /// Number of rules that are not supported.
    pub(super) unsupported: usize,
    /// Number of byte strings that the first inspection stage searches for.
    pub(super) patterns: usize,
    /// Time that reading and compiling the rules took.
    pub(super) took: Duration,
}

/// Current rules, with the result of loading them.
struct Current {
    engine: Arc<Engine>,
    loaded: Loaded,
}

/// Rule files and the current rules.
pub(super) struct Rules {
    files: Vec<PathBuf>,
    variables: Variables,
    current: Arc<ArcSwap<Current>>,
    reloads: AtomicU64,
}

/// Lets a worker notice new rules.
pub(super) struct Follower {
    current: Arc<ArcSwap<Current>>,
    /// Number of the version of the rules that the worker has.
    seen: u32,
}

impl Follower {
    /// Returns the current rules if they were replaced since the last call, and `None` otherwise.
    pub(super) fn replacement(&mut self) -> Option<Arc<Engine>> {
        let current = self.current.load();
        if current.engine.number == self.seen {
            return None;
        }
        self.seen = current.engine.number;
        Some(Arc::clone(&current.engine))
    }
}

impl Rules {
    /// Loads rule files. Rules that are not supported are counted and skipped.
    ///
    /// # Errors
    /// Returns [`Error::File`] for the first file that cannot be read.
    pub(super) fn load(files: Vec<PathBuf>, variables: Variables) -> Result<Self, Error> {
        let begin = Instant::now();
        let set = read(&files, &variables)?;
        Ok(Self { files, variables, ..Self::compile(set, begin) })
    }

    /// Compiles rules that come from no file. `begin` is the time at which loading began.
    pub(super) fn compile(set: RuleSet, begin: Instant) -> Self {
        let unsupported = set.unsupported.len();
        let engine = Arc::new(Engine::new(set, &Frequencies::new(), seed()));
        let loaded = loaded(&engine, unsupported, begin);
        let current = Arc::new(ArcSwap::from_pointee(Current { engine, loaded }));
        let (files, variables, reloads) = Default::default();
        Self { files, variables, current, reloads }
    }

    /// Reads the rule files again and replaces the current rules. Each worker takes the new rules
    /// before its next batch of packets. The caller must not run two replacements at the same time.
    ///
    /// # Errors
    /// Returns [`Error::Command`] if a file cannot be read. The current rules then stay.
    pub(super) fn reload(&self) -> Result<Loaded, Error> {
        let begin = Instant::now();
        let set = read(&self.files, &self.variables)
            .map_err(|error| Error::Command { message: format!("the rules stay unchanged: cannot read {error}") })?;
        let unsupported = set.unsupported.len();
        let old = Arc::clone(&self.current.load().engine);
        let engine = Arc::new(old.replacement(set, &Frequencies::new(), seed()));
        let loaded = loaded(&engine, unsupported, begin);
        self.current.store(Arc::new(Current { engine, loaded }));
        self.reloads.fetch_add(1, Ordering::Relaxed);
        // Freeing many rules takes milliseconds, which would delay the packets of a worker. This
        // thread therefore keeps the old rules until no worker uses them, and then frees them.
        let limit = Instant::now() + RETIRE_LIMIT;
        while Arc::strong_count(&old) > 1 && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(loaded)
    }

    /// Returns the current rules, and a follower that tells the worker about new ones.
    pub(super) fn current(&self) -> (Arc<Engine>, Follower) {
        let engine = Arc::clone(&self.current.load().engine);
        let seen = engine.number;
        (engine, Follower { current: Arc::clone(&self.current), seen })
    }

    /// Returns the result of loading the current rules.
    pub(super) fn loaded(&self) -> Loaded {
        self.current.load().loaded
    }

    /// Returns how often the rules were replaced.
    pub(super) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }
}

fn read(files: &[PathBuf], variables: &Variables) -> Result<RuleSet, Error> {
    RuleSet::load(files, variables, false).map_err(|error| match error {
        godwit_nids::Error::RuleFile { path, source } => Error::File { path, source },
        other => Error::Value { span: None, message: other.to_string() },
    })
}

fn loaded(engine: &Engine, unsupported: usize, begin: Instant) -> Loaded {
    Loaded { rules: engine.rules.len(), unsupported, patterns: engine.literals(), took: begin.elapsed() }
}

/// Returns a random seed for the hashes. An attacker who knows the seed could send traffic whose
/// hashes collide.
fn seed() -> u64 {
    // If the operating system provides no random numbers, the hashes are predictable but still
    // correct.
    getrandom::u64().unwrap_or(0)
}
