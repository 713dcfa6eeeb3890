//! Housekeeping of functions, beside workers and commands.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use godwit_abi::{Descriptor, Outcome};
use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Replay, Report};
use godwit_function::{Contract, Counter, Error, Function, Running, echo};
use godwit_packet::ImageRef;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// `echo` that keeps house.
struct Keeper {
    echo: Arc<dyn Function>,
    interval: Option<Duration>,
    calls: AtomicU64,
    /// Commands that came between two calls, and not into one.
    commands: AtomicU64,
    inside: AtomicBool,
    then: Then,
}

/// What a call comes to.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Works,
    Fails,
    Panics,
}

static CONTRACT: Contract = Contract {
    counters: &[
        Counter { name: "calls", unit: "calls", sentence: "Of its housekeeping." },
        Counter { name: "nothing", unit: "calls", sentence: "Never." },
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

    fn housekeeping_interval(&self) -> Option<Duration> {
        self.interval
    }

    fn housekeeping(&self, running: &dyn Running) -> Result<(), Error> {
        assert!(!self.inside.swap(true, Ordering::SeqCst));
        self.calls.fetch_add(1, Ordering::SeqCst);
        running.quiesce()?;
        assert!(self.inside.swap(false, Ordering::SeqCst));
        match self.then {
            Then::Works => Ok(()),
            Then::Fails => Err(Error::Command { message: "it cannot be".to_owned() }),
            Then::Panics => panic!("told to"),
        }
    }

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

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.echo.run_ref(buffer, descriptor, variant, parameter)
    }
}

fn keeper(config: &mut Config, interval: Option<Duration>, then: Then) -> Arc<Keeper> {
    let keeper = Arc::new(Keeper {
        echo: Arc::clone(&config.functions[0].function),
        interval,
        calls: AtomicU64::new(0),
        commands: AtomicU64::new(0),
        inside: AtomicBool::new(false),
        then,
    });
    config.functions[0].function = Arc::clone(&keeper) as Arc<dyn Function>;
    keeper
}

fn config(traffic: &str) -> Config {
    let text = format!(
        r#"
        [engine]
        workers = 2
        pin = false
        [[port]]
        name = "in"
        kind = "synthetic"
        {traffic}
        [[port]]
        name = "out"
        kind = "synthetic"
        [[function]]
        name = "house"
        kind = "echo"
        [[chain]]
        from = "in"
        to = "house"
        [[chain]]
        from = "house"
        to = "out"
        "#
    );
    Config::parse(&text, "test.toml", Path::new(".")).unwrap()
}

/// Runs until `done`.
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

fn count(report: &Report, counter: &str) -> Option<u64> {
    report.counters.iter().find(|(name, _)| name == counter).map(|(_, value)| *value)
}

const ENDLESS: &str = "rate = \"100kpps\"";

#[test]
fn a_function_keeps_house_and_counts_while_packets_flow() {
    for then in [Then::Works, Then::Fails] {
        let mut config = config(ENDLESS);
        let keeper = keeper(&mut config, Some(Duration::from_millis(2)), then);
        let report = run(config, None, || keeper.calls.load(Ordering::SeqCst) > 20);
        let calls = keeper.calls.load(Ordering::SeqCst);
        assert_eq!(count(&report, "keeper_calls{function=\"house\"}"), Some(calls));
        assert_eq!(count(&report, "keeper_nothing{function=\"house\"}"), None, "zeros are left out");
        assert!(report.conservation.holds() && report.conservation.received > 0);
    }
}

#[test]
fn commands_come_between() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let mut config = config(ENDLESS);
    let keeper = keeper(&mut config, Some(Duration::ZERO), Then::Works);
    let asking = path.clone();
    run(config, Some(path), || {
        if let Ok(mut stream) = UnixStream::connect(&asking) {
            for _ in 0..5 {
                stream.write_all(b"{\"function\":\"house\",\"command\":\"x\"}\n").unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                assert!(line.contains("true"), "{line}");
            }
        }
        keeper.commands.load(Ordering::SeqCst) > 20 && keeper.calls.load(Ordering::SeqCst) > 20
    });
}

#[test]
fn a_bug_in_it_stops_nothing_else() {
    let mut config = config("packets = 20000\nrate = \"200kpps\"");
    let keeper = keeper(&mut config, Some(Duration::from_millis(1)), Then::Panics);
    let engine = Engine::new(config, &Options::default()).unwrap();
    let report = engine.run(&Arc::default(), Some(LIMIT), &mut |_| {}).unwrap();
    assert_eq!(keeper.calls.load(Ordering::SeqCst), 1);
    assert!(report.conservation.holds());
    assert_eq!(report.conservation.sent, 20_000);
}

#[test]
fn nobody_is_called_who_did_not_ask_nor_in_a_replay() {
    let mut live = config("packets = 1000");
    let idle = keeper(&mut live, None, Then::Works);
    let report = Engine::new(live, &Options::default()).unwrap();
    let report = report.run(&Arc::default(), Some(LIMIT), &mut |_| {}).unwrap();
    assert_eq!((idle.calls.load(Ordering::SeqCst), report.conservation.sent), (0, 1000));

    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let replay = Replay { inputs: vec![(None, from.clone())], outputs: vec![(None, to)] };
    std::fs::write(&from, [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0])
        .unwrap();
    let mut replayed = config("");
    let idle = keeper(&mut replayed, Some(Duration::from_millis(1)), Then::Works);
    let engine = Engine::new(replayed, &Options { replay: Some(replay), ..Options::default() }).unwrap();
    engine.run(&Arc::default(), None, &mut |_| {}).unwrap();
    assert_eq!(idle.calls.load(Ordering::SeqCst), 0);
}
