//! Chains that change while packets flow: no packet is lost or overtaken, each goes wholly by one chain, and once a change
//! is answered all that come take the new one.

mod faults;
mod recorder;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faults::{Faults, Loss, opener};
use godwit_device::{Mode, opencl};
use godwit_engine::config::Config;
use godwit_engine::{Engine, Opener, Options, Report};
use recorder::Record;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);

/// Everything but the chain. `three` needs no order.
fn text(device: &str, device_keys: &str, workers: usize, traffic: &str) -> String {
    let mut text = format!(
        r#"
        [engine]
        workers = {workers}
        pin = false
        in_flight_packets = 1024
        {device_keys}
        [[port]]
        name = "net"
        kind = "synthetic"
        size = 100
        flows = 1000
        seed = 7
        probe = true
        {traffic}
        [[port]]
        name = "late"
        kind = "synthetic"
        "#
    );
    for name in ["one", "two", "three"] {
        text += &format!("[[function]]\nname = \"{name}\"\nkind = \"template\"\ndevice = \"{device}\"\n");
    }
    text
}

const ENDLESS: &str = "rate = \"100kpps\"";

/// The recorders by number, and whether they need order.
const RECORDERS: [(&str, bool); 3] = [("one", false), ("two", true), ("three", true)];

/// Chains, and for each the ways of packets with source ports below and above the line.
const CHAINS: [(&[&str], [u32; 2]); 4] = [
    (&["net one", "one two", "two net"], [0x12, 0x12]),
    // Gates the other way round.
    (&["net three", "three two", "two one", "one net"], [0x321, 0x321]),
    // With classes.
    (&["net two", "two net", "net:some three", "three one", "one net", "two:some net"], [0x31, 0x2]),
    (&["net two", "two three", "three net"], [0x23, 0x23]),
];
const LINE: u16 = 30_000;

/// Stanzas of a chain: edges `from to`, `from:class to`.
fn stanzas(edges: &[&str]) -> String {
    let mut text = String::new();
    if edges.iter().any(|edge| edge.contains(':')) {
        text += &format!("[[class]]\nname = \"some\"\nsource_ports = \"0-{}\"\n", LINE - 1);
    }
    for edge in edges {
        let (from, to) = edge.split_once(' ').unwrap();
        let (from, class) = from.split_once(':').map_or((from, None), |(from, class)| (from, Some(class)));
        text += &format!("[[chain]]\nfrom = \"{from}\"\nto = \"{to}\"\n");
        class.into_iter().for_each(|class| text += &format!("class = \"{class}\"\n"));
    }
    text
}

fn chain(number: u32) -> String {
    stanzas(CHAINS[number as usize % CHAINS.len()].0)
}

/// A connected client.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "no reply");
        serde_json::from_str(&line).unwrap()
    }

    /// Takes a chain; what is said of it.
    fn take(&mut self, text: &str) -> Value {
        let reply = self.ask(&json!({ "command": "chain", "text": text }));
        assert_eq!(reply["ok"], true, "{reply}");
        reply["result"].clone()
    }

    fn refused(&mut self, request: &Value) -> String {
        let reply = self.ask(request);
        assert_eq!(reply["ok"], false, "{request}: {reply}");
        reply["error"].as_str().unwrap().to_owned()
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs an engine while `talk` speaks to it, which ends it too.
fn run(config: Config, opener: Option<Opener>, talk: impl FnOnce(&Path) + Send) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let engine = Engine::new(config, &Options { control: Some(path.clone()), opener, ..Options::default() }).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        let talking = scope.spawn(|| {
            // Also when it fails.
            let _stop = StopOnDrop(&stop);
            talk(&path);
        });
        let report = engine.run(&stop, Some(LIMIT), &mut |_| {}).unwrap();
        talking.join().unwrap();
        report
    });
    assert!(report.conservation.holds() && report.conservation.in_flight == 0, "{}", report.conservation);
    report
}

fn wait_for_packets(record: &Record, more: u64) {
    let came = || record.came.iter().map(|count| count.load(Ordering::Acquire)).sum::<u64>();
    let (before, started) = (came(), Instant::now());
    while came() < before + more {
        assert!(started.elapsed() < LIMIT, "no packet comes any more");
        std::thread::yield_now();
    }
}

/// Changes the chain so many times, a few packets apart, and looks at where every packet was.
fn change(changes: u32, text: &str, opener: Option<Opener>) {
    let mut config = Config::parse(&(text.to_owned() + &chain(0)), "test.toml", Path::new(".")).unwrap();
    let record = recorder::put(&mut config, &RECORDERS, 4 << 20);
    let report = run(config, opener, |path| {
        let mut client = Client::connect(path);
        for number in 1..=changes {
            // Most changes come right behind one another.
            if number % 3 == 0 {
                wait_for_packets(&record, 20);
            }
            record.asked.store(number, Ordering::Release);
            let said = client.take(&chain(number));
            record.answered.store(number, Ordering::Release);
            assert_eq!(said["change"], number, "{said}");
        }
        wait_for_packets(&record, 100);
    });
    let flow = &report.conservation;
    assert_eq!((flow.dropped, flow.sent), (0, flow.received), "{flow}");
    let probes = report.ports[0].probes.unwrap();
    assert_eq!((probes.received, probes.duplicates, probes.reordered, probes.foreign), (flow.received, 0, 0, 0));
    let mut went = [0_u64; CHAINS.len()];
    // Workers that are stopped have come to different numbers.
    for (number, seen) in record.packets() {
        let way = |chain: &u32| CHAINS[*chain as usize % CHAINS.len()].1[usize::from(seen.source_port >= LINE)];
        let chain = (seen.answered..=seen.asked).find(|chain| way(chain) == seen.path);
        let Some(chain) = chain else { panic!("packet {number} went by no chain that it could: {seen:x?}") };
        went[chain as usize % CHAINS.len()] += 1;
    }
    assert_eq!(went.iter().sum::<u64>(), flow.received, "each packet came to a recorder");
    assert!(went.iter().all(|&packets| packets > 0), "{went:?}");
}

#[test]
fn a_thousand_changes_lose_and_reorder_nothing() {
    change(1000, &text("cpu", "", 2, ENDLESS), None);
}

/// With chunks that are long under way, many of them at once, and bins that wait to be filled.
#[test]
fn packets_on_a_slow_device_finish_the_old_chain() {
    let device =
        "[[device]]\nname = \"opencl:9\"\nchunk_packets = 64\nbins = 5\nbin_packets = 32\ndeadline_ns = 1000000000\n";
    let faults = Faults { delay_polls: 50, fails_each: 0, loss: None };
    change(200, &text("opencl:9", device, 2, ENDLESS), Some(opener("opencl:9", faults)));
}

/// A device that is lost takes packets with it, which are counted; changes go on, and nothing else is lost or overtaken.
#[test]
fn a_device_is_lost_between_changes() {
    for loss in [Loss::Hangs, Loss::Dies, Loss::Refuses] {
        let device =
            "[[device]]\nname = \"opencl:9\"\nchunk_packets = 64\nbins = 5\nbin_packets = 32\nwatchdog_ms = 50\n";
        let faults = Faults { delay_polls: 3, fails_each: 7, loss: Some((loss, 40)) };
        let text = text("opencl:9", device, 2, ENDLESS) + &chain(0);
        let mut config = Config::parse(&text, "test.toml", Path::new(".")).unwrap();
        let record = recorder::put(&mut config, &RECORDERS, 0);
        let report = run(config, Some(opener("opencl:9", faults)), |path| {
            let mut client = Client::connect(path);
            for number in 1..=100 {
                wait_for_packets(&record, 100);
                client.take(&chain(number));
            }
        });
        assert_eq!(report.lost_devices.len(), 1);
        let count = |name: &str| report.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count);
        let lost = count("engine_dropped_device") + count("engine_dropped_device_lost");
        let probes = report.ports[0].probes.unwrap();
        assert_eq!((report.conservation.dropped, probes.reordered), (lost, 0), "{loss:?}");
        assert_eq!(probes.received, report.conservation.received - lost);
    }
}

#[test]
fn a_thread_that_sends_keeps_the_order() {
    change(100, &text("cpu", "", 1, ENDLESS).replace("pin = false", "pin = false\nio = \"dual\""), None);
}

#[test]
fn packets_on_opencl_devices_finish_the_old_chain() {
    let probe = opencl::probe();
    let Some(found) = probe.found.iter().find(|found| found.usable.is_ok()) else {
        std::io::stderr().write_all(b"skipped: no OpenCL device can be used\n").unwrap();
        return;
    };
    let id = &found.capabilities.id;
    let keys = |mode: &str| {
        format!("[[device]]\nname = \"{id}\"\nmode = \"{mode}\"\nchunk_packets = 64\nbins = 5\nbin_packets = 32\n")
    };
    let traffic = "rate = \"20kpps\"";
    change(50, &text(id, &keys("launch"), 2, traffic), None);
    if found.lacks(Mode::Persistent).is_none() {
        change(50, &text(id, &keys("persistent"), 1, traffic), None);
    }
}

/// Clients that change the chain at the same time get their turns; packets do not notice.
#[test]
fn two_change_at_once() {
    let mut config = Config::parse(&(text("cpu", "", 2, ENDLESS) + &chain(0)), "test.toml", Path::new(".")).unwrap();
    let record = recorder::put(&mut config, &RECORDERS, 0);
    let report = run(config, None, |path| {
        let numbers = std::thread::scope(|scope| {
            let client = |first: u32| {
                move || {
                    let mut client = Client::connect(path);
                    let take = |number| client.take(&chain(number))["change"].as_u64().unwrap();
                    (first..first + 50).map(take).collect::<Vec<_>>()
                }
            };
            let clients = [scope.spawn(client(0)), scope.spawn(client(1))];
            clients.map(|client| client.join().unwrap()).concat()
        });
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (1..=100).collect::<Vec<_>>());
        wait_for_packets(&record, 10);
    });
    assert_eq!((report.conservation.dropped, report.ports[0].probes.unwrap().reordered), (0, 0));
}

/// What is wrong is one sentence, and packets go on as before.
#[test]
fn a_chain_that_cannot_be_is_refused() {
    let mut config = Config::parse(&(text("cpu", "", 2, ENDLESS) + &chain(0)), "test.toml", Path::new(".")).unwrap();
    let record = recorder::put(&mut config, &RECORDERS, 4 << 20);
    let report = run(config, None, |path| {
        let mut client = Client::connect(path);
        let bad = [
            ("", "there is no chain"),
            ("[[chain]\n", "7.toml:1:"),
            ("nonsense", "7.toml:1:"),
            ("[[chain]]\nfrom = \"net\"\nto = \"four\"\n", "`four`"),
            ("[[chain]]\nfrom = \"nett\"\nto = \"one\"\n", "did you mean `net`"),
            ("[[chain]]\nfrom = \"net\"\nto = \"one\"\nclass = \"some\"\n", "class"),
            ("[[chain]]\nfrom = \"net\"\nto = \"one\"\nverdict = \"no\"\n", "verdict"),
            (&stanzas(&["net one", "one two", "two one"]), "cycle"),
            (&stanzas(&["net one", "net two"]), "already set"),
            (&stanzas(&["net one", "one late", "late net"]), "`late` does not receive"),
            ("[engine]\nworkers = 3\n[[chain]]\nfrom = \"net\"\nto = \"one\"\n", "only"),
            ("[[function]]\nname = \"x\"\nkind = \"echo\"\n", "only"),
            ("[[chains]]\nfrom = \"net\"\nto = \"one\"\n", "did you mean `chain`"),
            ("[[class]]\nname = \"a b\"\n[[chain]]\nfrom = \"net\"\nto = \"one\"\n", "not a valid name"),
            ("[[chain]]\nfile = \"not there.csv\"\n", "not there.csv"),
        ];
        for (text, expected) in bad {
            let sentence = client.refused(&json!({ "command": "chain", "text": text, "origin": "7.toml" }));
            assert!(sentence.contains(expected) && !sentence.contains('\n'), "{text}: {sentence}");
        }
        for request in [json!({ "command": "chain" }), json!({ "command": "chain", "text": 1 })] {
            assert!(client.refused(&request).contains("`text`"));
        }
        let request = json!({ "command": "chain", "text": chain(0), "directory": [] });
        assert!(client.refused(&request).contains("`directory`"));
        let sentence = client.refused(&json!({ "command": "reload" }));
        assert!(sentence.contains("not from a file"), "{sentence}");
        // One that can be is still taken, and what is probably not meant is said.
        assert_eq!(client.take(&chain(3))["change"], 1);
        let said = client.take(&stanzas(&["net one", "one net"]));
        let warned = said["warnings"].as_array().unwrap();
        assert!(warned.iter().any(|warning| warning.as_str().unwrap().contains("never used")), "{said}");
        wait_for_packets(&record, 100);
    });
    assert_eq!((report.conservation.dropped, report.ports[0].probes.unwrap().reordered), (0, 0));
}

const TUNNEL: &str = r#"
    [[function]]
    name = "vpn"
    kind = "ipsec"
    [[function.sa]]
    name = "out"
    spi = 4097
    direction = "out"
    source = "198.51.100.1"
    destination = "203.0.113.1"
    encryption = "aes-128-cbc"
    encryption_key = "000102030405060708090a0b0c0d0e0f"
    authentication = "hmac-sha1-96"
    authentication_key = "101112131415161718191a1b1c1d1e1f20212223"
    [[function.policy]]
    action = "protect"
    sa = "out"
"#;

/// A chain that steers packets of an SA to another worker than the one that counts for it is refused; with one worker it is not.
/// So is one that needs more room around frames than buffers have.
#[test]
fn what_was_settled_at_the_start_stays() {
    for workers in [1, 2] {
        let text = text("cpu", "", workers, "rate = \"10kpps\"").replace("probe = true", "") + TUNNEL;
        let config = Config::parse(&(text.clone() + &chain(0)), "test.toml", Path::new(".")).unwrap();
        run(config, None, |path| {
            let mut client = Client::connect(path);
            let tunnel = json!({ "command": "chain", "text": stanzas(&["net one", "one vpn", "vpn late"]) });
            if workers > 1 {
                let sentence = client.refused(&tunnel);
                assert!(sentence.contains("`vpn` keeps state") && sentence.contains("workers = 1"), "{sentence}");
            } else {
                assert_eq!(client.ask(&tunnel)["ok"], true);
            }
        });
        // As it was from the start, whatever is in front of it.
        let first = stanzas(&["net vpn", "vpn late"]);
        let config = Config::parse(&(text.clone() + &first), "test.toml", Path::new(".")).unwrap();
        run(config, None, |path| {
            let mut client = Client::connect(path);
            let edges = ["net one", "net:some two", "one vpn", "two vpn", "vpn late"];
            client.take(&stanzas(&edges));
            let around = json!({ "command": "chain", "text": stanzas(&["net one", "one late"]) });
            assert_eq!(client.ask(&around)["ok"], workers == 1);
        });
        let again = TUNNEL.replace("\"vpn\"", "\"again\"").replace("4097", "4098");
        let small = text.clone() + &again + "[arena]\nheadroom_bytes = 64\ntailroom_bytes = 64\n";
        let config = Config::parse(&(small + &first), "test.toml", Path::new(".")).unwrap();
        run(config, None, |path| {
            let twice = stanzas(&["net vpn", "vpn again", "again late"]);
            let sentence = Client::connect(path).refused(&json!({ "command": "chain", "text": twice }));
            let expected = if workers == 1 { "bytes of headroom" } else { "set workers = 1" };
            assert!(sentence.contains(expected), "{sentence}");
        });
    }
}
