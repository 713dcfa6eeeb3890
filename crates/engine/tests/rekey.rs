//! SAs are added, replaced and deleted over the control socket while packets go through a tunnel and out of it again, and no
//! packet is lost.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_engine::config::Config;
use godwit_engine::{Engine, Options, Report};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);
const REKEYS: u32 = 20;

/// Hex digits of a key that nobody else has.
fn key(number: u32, bytes: usize) -> String {
    let byte = |at: usize| (number as usize * 37 + at * 101 + at * at * 7) as u8;
    (0..bytes).map(|at| format!("{:02x}", byte(at))).collect()
}

/// An SA of generation `number`; odd ones are AES-GCM.
fn sa(name: &str, number: u32, direction: &str) -> Value {
    let mut sa = json!({
        "name": name, "spi": 0x1000 + number, "direction": direction,
        "source": "192.0.2.1", "destination": "192.0.2.2",
    });
    if number % 2 == 1 {
        sa["encryption"] = "aes-128-gcm".into();
        sa["encryption_key"] = key(number, 20).into();
    } else {
        sa["encryption"] = "aes-128-cbc".into();
        sa["encryption_key"] = key(number, 16).into();
        sa["authentication"] = "hmac-sha1-96".into();
        sa["authentication_key"] = key(number, 20).into();
    }
    if direction == "in" {
        sa["replay_window"] = 4096.into();
    }
    sa
}

/// A stanza of the configuration.
fn stanza(sa: &Value) -> String {
    let lines = sa.as_object().unwrap().iter().map(|(key, value)| format!("{key} = {value}\n"));
    format!("[[function.sa]]\n{}", lines.collect::<String>())
}

fn text() -> String {
    format!(
        r#"
        [engine]
        pin = false
        [[port]]
        name = "in"
        kind = "synthetic"
        size = "imix"
        flows = 100
        rate = "100kpps"
        [[port]]
        name = "out"
        kind = "synthetic"
        [[function]]
        name = "seal"
        kind = "ipsec"
        tailroom_bytes = 40
        {}
        [[function.policy]]
        action = "protect"
        sa = "west"
        [[function]]
        name = "open"
        kind = "ipsec"
        {}
        [[chain]]
        from = "in"
        to = "seal"
        [[chain]]
        from = "seal"
        verdict = "encrypted"
        to = "open"
        [[chain]]
        from = "open"
        verdict = "decrypted"
        to = "out"
        "#,
        stanza(&sa("west", 0, "out")),
        stanza(&sa("east0", 0, "in")),
    )
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, function: &str, command: &str, sas: Value) -> Value {
        let mut request = json!({ "command": command });
        if !function.is_empty() {
            request["function"] = function.into();
        }
        if !sas.is_null() {
            request["sa"] = sas;
        }
        self.0.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn result(&mut self, function: &str, command: &str, sas: Value) -> Value {
        let reply = self.ask(function, command, sas);
        assert_eq!(reply["ok"], true, "{command}: {reply}");
        reply["result"].clone()
    }

    fn refused(&mut self, function: &str, command: &str, sas: Value) -> String {
        let reply = self.ask(function, command, sas);
        assert_eq!(reply["ok"], false, "{command}: {reply}");
        reply["error"].as_str().unwrap().to_owned()
    }

    /// Waits until so many packets more are out.
    fn wait_for(&mut self, packets: u64) {
        let sent =
            |client: &mut Self| client.result("", "status", Value::Null)["conservation"]["sent"].as_u64().unwrap();
        let until = sent(self) + packets;
        while sent(self) < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn run(talk: impl FnOnce(&mut Client) + Send) -> Report {
    struct StopOnDrop<'a>(&'a AtomicBool);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let config = Config::parse(&text(), "test.toml", Path::new(".")).unwrap();
    let engine = Engine::new(config, &Options { control: Some(path.clone()), ..Options::default() }).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let talking = scope.spawn(|| {
            let _stop = StopOnDrop(&stop);
            talk(&mut Client::connect(&path));
        });
        let report = engine.run(&stop, Some(LIMIT), &mut |_| {}).unwrap();
        talking.join().unwrap();
        assert!(report.conservation.holds() && report.conservation.in_flight == 0, "{}", report.conservation);
        report
    })
}

#[test]
fn rekeying_loses_nothing() {
    let report = run(|client| {
        client.wait_for(500);
        for number in 1..=REKEYS {
            // The receiver knows the new SA before the sender uses it, and the old one until nothing of it is on the way.
            let (new, old) = (format!("east{number}"), format!("east{}", number - 1));
            assert_eq!(client.result("open", "add", json!([sa(&new, number, "in")]))["added"], 1);
            assert_eq!(client.result("seal", "replace", json!([sa("west", number, "out")]))["replaced"], 1);
            client.wait_for(200);
            assert_eq!(client.result("open", "delete", json!([old]))["deleted"], 1);
        }
        let list = client.result("open", "list", Value::Null);
        let [only] = &list["sa"].as_array().unwrap()[..] else { panic!("{list}") };
        assert_eq!(only["name"], format!("east{REKEYS}"));
        assert!(only["packets"].as_u64().unwrap() > 0);
        let list = client.result("seal", "list", json!(["west"]));
        assert_eq!(list["sa"][0]["spi"], 0x1000 + REKEYS);
        for shown in [key(REKEYS, 16), key(REKEYS, 20)] {
            assert!(!list.to_string().contains(&shown));
        }
    });
    assert!(report.conservation.received > 5000);
    assert_eq!((report.conservation.dropped, report.conservation.sent), (0, report.conservation.received));
}

/// What is wrong changes nothing: the tunnel goes on with the SAs that it has.
#[test]
fn wrong_changes_change_nothing() {
    let report = run(|client| {
        client.wait_for(100);
        let secret = key(99, 16);
        let mut short = sa("short", 98, "in");
        short["encryption_key"] = "00112233".into();
        let mut unknown = sa("unknown", 98, "in");
        unknown["cipher"] = secret.clone().into();
        let mut mistyped = sa("mistyped", 98, "in");
        mistyped["spi"] = secret.clone().into();
        let twice = json!([sa("a", 98, "in"), sa("a", 100, "in")]);
        let requests = [
            ("open", "add", json!([short])),
            ("open", "add", json!([unknown])),
            ("open", "add", json!([mistyped])),
            ("open", "add", twice),
            ("open", "add", json!([sa("east0", 98, "in")])),
            ("open", "add", json!([sa("other", 0, "in")])),
            ("open", "add", json!(7)),
            ("open", "add", Value::Null),
            ("open", "add", json!([])),
            ("seal", "replace", json!([sa("nobody", 98, "out")])),
            ("seal", "replace", json!([sa("west", 98, "in")])),
            ("seal", "delete", json!(["west"])),
            ("open", "delete", json!(["nobody"])),
            ("open", "delete", Value::Null),
            ("open", "list", json!(["nobody"])),
            ("open", "frobnicate", Value::Null),
        ];
        for (function, command, sas) in requests {
            let sentence = client.refused(function, command, sas.clone());
            assert!(!sentence.is_empty() && !sentence.contains(&secret), "{sentence}");
            for shown in [key(98, 16), key(98, 20), "00112233".to_owned()] {
                assert!(!sentence.contains(&shown), "{sentence}");
            }
            client.wait_for(20);
        }
        assert_eq!(client.result("open", "list", Value::Null)["sa"].as_array().unwrap().len(), 1);
        assert_eq!(client.result("seal", "list", Value::Null)["sa"].as_array().unwrap().len(), 1);
    });
    assert_eq!((report.conservation.dropped, report.conservation.sent), (0, report.conservation.received));
}

/// Deleting an SA that packets still come for: each of these is a counted drop, and nothing else happens.
#[test]
fn packets_of_a_deleted_sa_are_counted() {
    let report = run(|client| {
        client.wait_for(500);
        client.result("open", "delete", json!(["east0"]));
        let sent = client.result("", "status", Value::Null)["conservation"]["sent"].clone();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(client.result("", "status", Value::Null)["conservation"]["sent"], sent);
        // And it can come again: as another SA with the same name and SPI.
        client.result("open", "add", json!([sa("east0", 0, "in")]));
        client.wait_for(500);
    });
    // Where no inbound SA ends any more, ESP for that address is any other packet, and no policy is for it.
    let dropped = |reason: &str| {
        let name = format!("ipsec_dropped_{reason}{{function=\"open\"}}");
        report.counters.iter().find(|(counter, _)| *counter == name).map_or(0, |(_, count)| *count)
    };
    assert!(report.conservation.dropped > 0);
    assert_eq!(dropped("no_sa") + dropped("policy_discard"), report.conservation.dropped, "{:?}", report.counters);
}
