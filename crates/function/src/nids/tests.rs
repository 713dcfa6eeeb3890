use std::io::Read;
use std::os::unix::net::UnixListener;

use godwit_packet::{Arena, ArenaConfig, Stamp};

use super::*;
use crate::testing::{self, Directory};
use crate::{Arrangement, Step, Work};

const RULES: &str = "\
alert udp any any -> any any (msg:\"word\"; content:\"attack\"; sid:1; rev:2;)\n\
drop udp any any -> any any (msg:\"block\"; content:\"forbidden\"; sid:2;)\n";

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let total = 28 + payload.len() as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(total.to_be_bytes());
    ip.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !(((sum >> 16) + (sum & 0xffff)) as u16);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame.extend([0x10, 0, 0x20, 0]);
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

struct Bench {
    directory: Directory,
    function: Arc<dyn Function>,
}

impl Bench {
    fn new(name: &str, more: &str) -> Self {
        let directory = Directory::new(name);
        std::fs::write(directory.0.join("a.rules"), RULES).unwrap();
        let stanza = format!("rules = [\"a.rules\"]\n{more}");
        let function = testing::build(&KIND, &stanza, &["left", "right"], &directory.0).unwrap();
        Self { directory, function }
    }

    fn pass(&self, half: &mut HostHalf, payloads: &[&[u8]], live: bool, ending: bool) -> Vec<Outcome> {
        let mut region = Arena::new(ArenaConfig::default(), 1).unwrap().split().remove(0);
        let put = |payload: &&[u8]| {
            let frame = frame(payload);
            let packet = region.allocate(frame.len()).unwrap();
            region.frame_mut(&packet).copy_from_slice(&frame);
            packet
        };
        let arrived: Vec<Descriptor> = payloads.iter().map(put).collect();
        let stamps: Vec<Stamp> =
            (0..payloads.len() as u64).map(|sequence| Stamp { sequence, time_ns: 1_700_000_000_000_000_000 }).collect();
        let mut steps = Vec::new();
        half.arranging().unwrap().arrange(&mut Arrangement {
            region: &mut region,
            now_ns: 1,
            live,
            ending,
            arrived: &arrived,
            previous: &[],
            stamps: &stamps,
            steps: &mut steps,
        });
        let outcome = |step: &Step| match step {
            Step::Keep { work: Work::Done(outcome), .. } => *outcome,
            step => panic!("{step:?}"),
        };
        steps.iter().map(outcome).collect()
    }

    fn half(&self) -> HostHalf {
        self.function.host_half(0, 1).unwrap()
    }

    /// Returns the records of a file.
    fn records(&self, name: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.directory.0.join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Commands of `nids` need no running engine.
struct Idle;

impl Running for Idle {
    fn image_changed(&self, _: std::ops::Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        Ok(())
    }
}

fn alert(port: u16) -> Outcome {
    Outcome { value: 1, port, ..Outcome::verdict(VERDICT_ALERT) }
}

fn clean(port: u16) -> Outcome {
    Outcome { port, ..Outcome::verdict(VERDICT_CLEAN) }
}

#[test]
fn rules_decide_the_verdict() {
    let detect = Bench::new("nids-detect", "pairs = [[\"left\", \"right\"]]");
    let payloads: [&[u8]; 3] = [b"an attack", b"a forbidden word", b"nothing"];
    let block = Outcome { value: 2, ..alert(1) };
    assert_eq!(detect.pass(&mut detect.half(), &payloads, true, false), [alert(1), block, clean(1)]);
    let inline = Bench::new("nids-inline", "mode = \"inline\"");
    let mut half = inline.half();
    assert_eq!(inline.pass(&mut half, &payloads, true, true), [alert(0), Outcome::drop(DROP_RULE), clean(0)]);
    let counts = inline.function.operate().unwrap().counts();
    assert_eq!(counts.len(), CONTRACT.counters.len());
    assert_eq!((counts[0], counts[2]), (2, 1), "two alerts in one flow");
    let mut bytes = frame(b"an attack");
    assert_eq!(testing::run(&*inline.function, &mut bytes), alert(0));
}

#[test]
fn records_reach_the_file_and_follow_its_name() {
    let bench = Bench::new("nids-file", "[eve]\nfile = \"eve.json\"\ntypes = [\"alert\", \"flow\", \"stats\"]");
    bench.function.lifecycle().unwrap().start(true).unwrap();
    let mut half = bench.half();
    bench.pass(&mut half, &[b"attack"], true, false);
    let (now, old) = (bench.directory.0.join("eve.json"), bench.directory.0.join("eve.1"));
    std::fs::rename(&now, &old).unwrap();
    bench.function.lifecycle().unwrap().reopen().unwrap();
    bench.pass(&mut half, &[b"attack", b"attack"], true, true);
    drop(half);
    bench.function.lifecycle().unwrap().finish();
    let kinds = |name: &str| -> Vec<String> {
        bench.records(name).iter().map(|record| record["event_type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds("eve.1"), ["alert"]);
    assert_eq!(kinds("eve.json"), ["alert", "alert", "flow", "stats"]);
    let records = bench.records("eve.json");
    assert_eq!(records[0]["alert"]["signature_id"], 1);
    assert_eq!(records[0]["timestamp"], "2023-11-14T22:13:20.000000+0000");
    assert_eq!(records[3]["stats"]["detect"]["alert"], 3);
    assert_eq!(records[3]["stats"]["decoder"]["pkts"], 3);
    assert_eq!(bench.function.operate().unwrap().counts()[6], 0, "no record is lost");
}

#[test]
fn records_without_a_reader_are_counted() {
    let bench = Bench::new("nids-socket", "[eve]\nsocket = \"eve.sock\"\ntypes = [\"alert\"]");
    bench.function.lifecycle().unwrap().start(true).unwrap();
    let mut half = bench.half();
    bench.pass(&mut half, &[b"attack", b"attack"], true, false);
    godwit_test_support::wait_for("the loss", Duration::from_secs(10), || {
        bench.function.operate().unwrap().counts()[6] == 2
    });
    assert!(bench.function.operate().unwrap().notices()[0].1.contains("records are lost"));
    let listener = UnixListener::bind(bench.directory.0.join("eve.sock")).unwrap();
    bench.pass(&mut half, &[b"attack"], true, false);
    bench.function.lifecycle().unwrap().finish();
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert_eq!(bench.function.operate().unwrap().counts()[6], 2);
}

#[test]
fn a_reload_replaces_the_rules_and_keeps_flows() {
    let bench = Bench::new("nids-reload", "");
    let mut half = bench.half();
    assert_eq!(bench.pass(&mut half, &[b"attack"], true, false), [alert(0)]);
    std::fs::write(
        bench.directory.0.join("a.rules"),
        "alert udp any any -> any any (content:\"nothing\"; sid:7;)\nalert nonsense\n",
    )
    .unwrap();
    // The command waits until this loop makes the worker switch to the new rules.
    let result = std::thread::scope(|scope| {
        let command =
            scope.spawn(|| bench.function.operate().unwrap().command(&json!({ "command": "reload" }), &Idle).unwrap());
        while !command.is_finished() {
            bench.pass(&mut half, &[], true, false);
        }
        command.join().unwrap()
    });
    assert_eq!((&result["rules"], &result["unsupported"]), (&json!(1), &json!(1)));
    assert_eq!(
        bench.pass(&mut half, &[b"attack", b"nothing"], true, true),
        [clean(0), Outcome { value: 7, ..alert(0) }]
    );
    let counts = bench.function.operate().unwrap().counts();
    assert_eq!((counts[2], counts[7]), (1, 1), "one flow, one reload");
    std::fs::remove_file(bench.directory.0.join("a.rules")).unwrap();
    let error =
        bench.function.operate().unwrap().command(&json!({ "command": "reload" }), &Idle).unwrap_err().to_string();
    assert!(error.contains("stay unchanged") && error.contains("a.rules"), "{error}");
    let error =
        bench.function.operate().unwrap().command(&json!({ "command": "alarm" }), &Idle).unwrap_err().to_string();
    assert!(error.contains("reload"), "{error}");
}

#[test]
fn rules_that_do_not_load_are_reported() {
    let directory = Directory::new("nids-unsupported");
    std::fs::write(directory.0.join("a.rules"), format!("{RULES}alert nonsense\n")).unwrap();
    let function = testing::build(&KIND, "rules = [\"a.rules\"]", &[], &directory.0).unwrap();
    function.lifecycle().unwrap().start(true).unwrap();
    let notices = function.operate().unwrap().notices();
    assert!(notices.len() == 1 && notices[0].1.starts_with("1 of 3 rules"), "{notices:?}");
}

#[test]
fn bad_keys_are_errors() {
    let directory = Directory::new("nids-keys");
    std::fs::write(directory.0.join("a.rules"), RULES).unwrap();
    for (stanza, part) in [
        ("", "rules"),
        ("rules = []", "at least one rule file"),
        ("rules = [\"missing.rules\"]", "missing.rules"),
        ("rules = [\"a.rules\"]\nmode = \"tap\"", "tap"),
        ("rules = [\"a.rules\"]\nfail = \"safe\"", "safe"),
        ("rules = [\"a.rules\"]\npairs = [[\"left\", \"middle\"]]", "no port is named `middle`"),
        ("rules = [\"a.rules\"]\npairs = [[\"left\", \"left\"]]", "one pair only"),
        ("rules = [\"a.rules\"]\n[settings]\nstream.midstraem = true", "midstraem"),
        ("rules = [\"a.rules\"]\n[settings]\n\"stream.midstream\" = 3.5", "a boolean"),
        ("rules = [\"a.rules\"]\n[settings.stream]\nmidstream = \"perhaps\"", "yes or no"),
        ("rules = [\"a.rules\"]\n[eve]\ntypes = [\"alert\"]", "either `file` or `socket`"),
        ("rules = [\"a.rules\"]\n[eve]\nfile = \"e\"\ntypes = [\"alarm\"]", "alarm"),
        ("rules = [\"a.rules\"]\n[eve]\nfile = \"e\"\nstats_s = 0", "at least 1 second"),
    ] {
        let error = testing::build(&KIND, stanza, &["left", "right"], &directory.0).err().unwrap().to_string();
        assert!(error.contains(part), "{stanza}: {error}");
    }
    let stanza = "rules = [\"a.rules\"]\n[eve]\nfile = \"no/such/folder/eve.json\"";
    let function = testing::build(&KIND, stanza, &[], &directory.0).unwrap();
    let error = function.lifecycle().unwrap().start(true).unwrap_err().to_string();
    assert!(error.contains("cannot write records to") && error.contains("no/such/folder"), "{error}");
}
