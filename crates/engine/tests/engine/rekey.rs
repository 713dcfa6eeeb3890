//! SAs that are added, replaced and deleted over the control socket while packets pass through a
//! tunnel. No packet is lost.

use std::time::Duration;

use godwit_engine::{Options, Report};
use godwit_test_support::{ConfigText, ControlClient};
use serde_json::{Value, json};

use crate::common::{config, count};
use crate::socket::run_with_socket;

const REKEYS: u32 = 20;

/// Returns the hexadecimal digits of a key that differs for each `number`.
fn key(number: u32, bytes: usize) -> String {
    let byte = |at: usize| (number as usize * 37 + at * 101 + at * at * 7) as u8;
    (0..bytes).map(|at| format!("{:02x}", byte(at))).collect()
}

/// Returns the SA of generation `number`. Odd generations use AES-GCM.
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

/// Returns the lines of an SA in the configuration.
fn keys(sa: &Value) -> String {
    sa.as_object().unwrap().iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}

fn text() -> String {
    ConfigText::new()
        .engine("")
        .port("in", "synthetic", "size = \"imix\"\nflows = 100\nrate = \"100kpps\"")
        .port("out", "synthetic", "")
        .function("outbound", "ipsec", "tailroom_bytes = 40")
        .nested("sa", &keys(&sa("west", 0, "out")))
        .nested("policy", "action = \"protect\"\nsa = \"west\"")
        .function("inbound", "ipsec", "")
        .nested("sa", &keys(&sa("east0", 0, "in")))
        .edge("in", "outbound")
        .verdict_edge("outbound", "encrypted", "inbound")
        .verdict_edge("inbound", "decrypted", "out")
        .to_string()
}

/// Client that sends commands about SAs.
struct Client(ControlClient);

impl Client {
    fn request(function: &str, command: &str, sas: Value) -> Value {
        let mut request = json!({ "command": command });
        if !function.is_empty() {
            request["function"] = function.into();
        }
        if !sas.is_null() {
            request["sa"] = sas;
        }
        request
    }

    fn result(&mut self, function: &str, command: &str, sas: Value) -> Value {
        self.0.result(&Self::request(function, command, sas))
    }

    fn error(&mut self, function: &str, command: &str, sas: Value) -> String {
        self.0.error(&Self::request(function, command, sas))
    }

    /// Waits until `packets` more packets are sent.
    fn wait_for(&mut self, packets: u64) {
        let sent =
            |client: &mut Self| client.result("", "status", Value::Null)["conservation"]["sent"].as_u64().unwrap();
        let until = sent(self) + packets;
        while sent(self) < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn run(body: impl FnOnce(&mut Client) + Send) -> Report {
    run_with_socket(config(&text()), Options::default(), |path| body(&mut Client(ControlClient::connect(path))))
}

#[test]
fn rekeying_loses_no_packet() {
    let report = run(|client| {
        client.wait_for(500);
        for number in 1..=REKEYS {
            // The receiver has the new SA before the sender uses it, and the old one until its last
            // packet has arrived.
            let (new, old) = (format!("east{number}"), format!("east{}", number - 1));
            assert_eq!(client.result("inbound", "add", json!([sa(&new, number, "in")]))["added"], 1);
            assert_eq!(client.result("outbound", "replace", json!([sa("west", number, "out")]))["replaced"], 1);
            client.wait_for(200);
            assert_eq!(client.result("inbound", "delete", json!([old]))["deleted"], 1);
        }
        let list = client.result("inbound", "list", Value::Null);
        let [only] = &list["sa"].as_array().unwrap()[..] else { panic!("{list}") };
        assert_eq!(only["name"], format!("east{REKEYS}"));
        assert!(only["packets"].as_u64().unwrap() > 0);
        let list = client.result("outbound", "list", json!(["west"]));
        assert_eq!(list["sa"][0]["spi"], 0x1000 + REKEYS);
        for secret in [key(REKEYS, 16), key(REKEYS, 20)] {
            assert!(!list.to_string().contains(&secret));
        }
    });
    assert!(report.conservation.received > 5000);
    assert_eq!((report.conservation.dropped, report.conservation.sent), (0, report.conservation.received));
}

#[test]
fn a_refused_change_has_no_effect_and_shows_no_key() {
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
            ("inbound", "add", json!([short])),
            ("inbound", "add", json!([unknown])),
            ("inbound", "add", json!([mistyped])),
            ("inbound", "add", twice),
            ("inbound", "add", json!([sa("east0", 98, "in")])),
            ("inbound", "add", json!([sa("other", 0, "in")])),
            ("inbound", "add", json!(7)),
            ("inbound", "add", Value::Null),
            ("inbound", "add", json!([])),
            ("outbound", "replace", json!([sa("nobody", 98, "out")])),
            ("outbound", "replace", json!([sa("west", 98, "in")])),
            ("outbound", "delete", json!(["west"])),
            ("inbound", "delete", json!(["nobody"])),
            ("inbound", "delete", Value::Null),
            ("inbound", "list", json!(["nobody"])),
            ("inbound", "frobnicate", Value::Null),
        ];
        for (function, command, sas) in requests {
            let error = client.error(function, command, sas.clone());
            assert!(!error.is_empty() && !error.contains(&secret), "{error}");
            for key in [key(98, 16), key(98, 20), "00112233".to_owned()] {
                assert!(!error.contains(&key), "{error}");
            }
            client.wait_for(20);
        }
        assert_eq!(client.result("inbound", "list", Value::Null)["sa"].as_array().unwrap().len(), 1);
        assert_eq!(client.result("outbound", "list", Value::Null)["sa"].as_array().unwrap().len(), 1);
    });
    assert_eq!((report.conservation.dropped, report.conservation.sent), (0, report.conservation.received));
}

#[test]
fn packets_of_a_deleted_sa_are_counted_drops() {
    let report = run(|client| {
        client.wait_for(500);
        client.result("inbound", "delete", json!(["east0"]));
        let sent = client.result("", "status", Value::Null)["conservation"]["sent"].clone();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(client.result("", "status", Value::Null)["conservation"]["sent"], sent);
        // An SA with the same name and SPI can be added again.
        client.result("inbound", "add", json!([sa("east0", 0, "in")]));
        client.wait_for(500);
    });
    // Without an inbound SA for the address, ESP is like any other packet, and no policy matches
    // it.
    let dropped = |reason: &str| count(&report, &format!("ipsec_dropped_{reason}{{function=\"inbound\"}}"));
    assert!(report.conservation.dropped > 0);
    assert_eq!(dropped("no_sa") + dropped("policy_discard"), report.conservation.dropped, "{:?}", report.counters);
}
