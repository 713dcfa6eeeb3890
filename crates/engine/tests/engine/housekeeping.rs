//! Housekeeping of functions, while workers and commands run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome};
use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Replay, Report};
use godwit_function::{Contract, Counter, Error, Function, Housekeeping, Operate, Running, echo};
use godwit_packet::ImageRef;
use godwit_test_support::{ConfigText, ControlClient, Folder, capture};
use serde_json::{Value, json};

use crate::common::{self, LIMIT, count};

/// `echo` with housekeeping.
struct Keeper {
    echo: Arc<dyn Function>,
    interval: Option<Duration>,
    /// Number of housekeeping calls.
    calls: AtomicU64,
    /// Number of commands.
    commands: AtomicU64,
    /// Set during a call or a command, which must not overlap.
    inside: AtomicBool,
    result: CallResult,
}

/// Result of a housekeeping call.
#[derive(Clone, Copy, PartialEq)]
enum CallResult {
    Works,
    Fails,
    Panics,
}

static CONTRACT: Contract = Contract {
    counters: &[
        Counter { name: "calls", unit: "calls", sentence: "Housekeeping calls." },
        Counter { name: "nothing", unit: "calls", sentence: "Never counted." },
    ],
    kind: "keeper",
    ..echo::CONTRACT
};

impl Function for Keeper {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        self.echo.image()
    }

    fn housekeeping(&self) -> Option<&dyn Housekeeping> {
        self.interval.map(|_| self as &dyn Housekeeping)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.echo.run_ref(buffer, descriptor, variant, parameter)
    }
}

impl Housekeeping for Keeper {
    fn interval(&self) -> Duration {
        self.interval.unwrap()
    }

    fn run(&self, running: &dyn Running) -> Result<(), Error> {
        assert!(!self.inside.swap(true, Ordering::SeqCst));
        self.calls.fetch_add(1, Ordering::SeqCst);
        running.quiesce()?;
        assert!(self.inside.swap(false, Ordering::SeqCst));
        match self.result {
            CallResult::Works => Ok(()),
            CallResult::Fails => Err(Error::Command { message: "failed on purpose".to_owned() }),
            CallResult::Panics => panic!("panic on purpose"),
        }
    }
}

impl Operate for Keeper {
    fn command(&self, _request: &Value, running: &dyn Running) -> Result<Value, Error> {
        assert!(!self.inside.swap(true, Ordering::SeqCst));
        running.quiesce()?;
        assert!(self.inside.swap(false, Ordering::SeqCst));
        self.commands.fetch_add(1, Ordering::SeqCst);
        Ok(Value::Null)
    }

    fn counts(&self) -> Vec<u64> {
        vec![self.calls.load(Ordering::SeqCst), 0]
    }
}

/// Replaces the function by a keeper.
fn install(config: &mut Config, interval: Option<Duration>, result: CallResult) -> Arc<Keeper> {
    let keeper = Arc::new(Keeper {
        echo: Arc::clone(&config.functions[0].function),
        interval,
        calls: AtomicU64::new(0),
        commands: AtomicU64::new(0),
        inside: AtomicBool::new(false),
        result,
    });
    config.functions[0].function = Arc::clone(&keeper) as Arc<dyn Function>;
    keeper
}

fn config(traffic: &str) -> Config {
    let text = ConfigText::new()
        .engine("workers = 2")
        .port("in", "synthetic", traffic)
        .port("out", "synthetic", "")
        .function("house", "echo", "")
        .path(&["in", "house", "out"]);
    common::config(&text.to_string())
}

/// Runs an engine until `done` returns true.
fn run(config: Config, control: Option<PathBuf>, done: impl Fn() -> bool + Sync) -> Report {
    let engine = Engine::new(config, &Options { control, ..Options::default() }).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done() {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::SeqCst);
        });
        engine.run(&stop, Some(LIMIT), &mut |_| {}).unwrap()
    })
}

const ENDLESS: &str = "rate = \"100kpps\"";

#[test]
fn housekeeping_runs_and_counts_while_packets_flow() {
    for result in [CallResult::Works, CallResult::Fails] {
        let mut config = config(ENDLESS);
        let keeper = install(&mut config, Some(Duration::from_millis(2)), result);
        let report = run(config, None, || keeper.calls.load(Ordering::SeqCst) > 20);
        let calls = keeper.calls.load(Ordering::SeqCst);
        assert_eq!(count(&report, "keeper_calls{function=\"house\"}"), calls);
        let nothing = report.counters.iter().find(|(name, _)| name == "keeper_nothing{function=\"house\"}");
        assert_eq!(nothing.map(|(_, count)| *count), Some(0), "a report has counters of value 0");
        assert!(report.conservation.holds() && report.conservation.received > 0);
    }
}

#[test]
fn commands_run_between_housekeeping_calls() {
    let folder = Folder::new();
    let path = folder.join("control");
    let mut config = config(ENDLESS);
    let keeper = install(&mut config, Some(Duration::ZERO), CallResult::Works);
    let socket = path.clone();
    run(config, Some(path), || {
        if let Some(mut client) = ControlClient::try_connect(&socket) {
            for _ in 0..5 {
                client.result(&json!({ "function": "house", "command": "x" }));
            }
        }
        keeper.commands.load(Ordering::SeqCst) > 20 && keeper.calls.load(Ordering::SeqCst) > 20
    });
}

#[test]
fn a_panic_in_housekeeping_stops_only_housekeeping() {
    let mut config = config("packets = 20000\nrate = \"200kpps\"");
    let keeper = install(&mut config, Some(Duration::from_millis(1)), CallResult::Panics);
    let engine = Engine::new(config, &Options::default()).unwrap();
    let report = engine.run(&Arc::default(), Some(LIMIT), &mut |_| {}).unwrap();
    assert_eq!(keeper.calls.load(Ordering::SeqCst), 1);
    assert!(report.conservation.holds());
    assert_eq!(report.conservation.sent, 20_000);
}

#[test]
fn housekeeping_does_not_run_without_an_interval_or_in_a_replay() {
    let mut live = config("packets = 1000");
    let idle = install(&mut live, None, CallResult::Works);
    let report = Engine::new(live, &Options::default()).unwrap();
    let report = report.run(&Arc::default(), Some(LIMIT), &mut |_| {}).unwrap();
    assert_eq!((idle.calls.load(Ordering::SeqCst), report.conservation.sent), (0, 1000));

    let folder = Folder::new();
    let (input, output) = (folder.join("in.pcap"), folder.join("out.pcap"));
    capture::write(&input, &[]);
    let replay = Replay { inputs: vec![(None, input)], outputs: vec![(None, output)] };
    let mut replayed = config("");
    let idle = install(&mut replayed, Some(Duration::from_millis(1)), CallResult::Works);
    let engine = Engine::new(replayed, &Options { replay: Some(replay), ..Options::default() }).unwrap();
    engine.run(&Arc::default(), None, &mut |_| {}).unwrap();
    assert_eq!(idle.calls.load(Ordering::SeqCst), 0);
}
