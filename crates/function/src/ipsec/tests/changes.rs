//! Tests of commands that change SAs and policies at run time.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use serde_json::{Value, json};

use super::*;

/// Engine that records the changed ranges of the table image and can simulate failures.
#[derive(Default)]
struct Engine {
    changed: RefCell<Vec<Range<usize>>>,
    quiesced: Cell<usize>,
    refuses: Cell<bool>,
    never_quiet: Cell<bool>,
}

impl Running for Engine {
    fn image_changed(&self, range: Range<usize>) -> Result<(), Error> {
        if self.refuses.get() {
            return Err(Error::Command { message: "the device is lost".to_owned() });
        }
        self.changed.borrow_mut().push(range);
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        if self.never_quiet.get() {
            return Err(Error::Command { message: "packets are stuck".to_owned() });
        }
        self.quiesced.set(self.quiesced.get() + 1);
        Ok(())
    }
}

const KEY: &str = "8899aabbccddeeff0011223344556677";
const HMAC_KEY: &str = "8899aabbccddeeff001122334455667700112233";

fn sa_json(name: &str, spi: u32, direction: &str) -> Value {
    let (source, destination) =
        if direction == "out" { ("192.0.2.1", "192.0.2.2") } else { ("192.0.2.2", "192.0.2.1") };
    json!({
        "name": name, "spi": spi, "direction": direction, "source": source, "destination": destination,
        "encryption": "aes-128-cbc", "encryption_key": KEY, "authentication": "hmac-sha1-96",
        "authentication_key": HMAC_KEY,
    })
}

fn send(function: &Ipsec, engine: &Engine, command: &str, sas: Value) -> Result<Value, String> {
    let request = json!({ "command": command, "sa": sas });
    function.operate().unwrap().command(&request, engine).map_err(|error| error.to_string())
}

fn esp_frame(spi: u32, sequence: u32) -> Vec<u8> {
    frame([192, 0, 2, 2], [192, 0, 2, 1], 50, 0, &[spi.to_be_bytes(), sequence.to_be_bytes()].concat())
}

fn plain_frame() -> Vec<u8> {
    frame([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[])
}

fn has_key(function: &Ipsec) -> bool {
    function
        .image()
        .to_vec()
        .windows(16)
        .any(|bytes| *bytes == 0x8899aabb_ccddeeff_00112233_44556677_u128.to_be_bytes())
}

/// Returns a function with enough headroom and tailroom for the SAs of these tests.
fn empty(more: &str) -> Ipsec {
    ipsec(&("headroom_bytes = 44\ntailroom_bytes = 29\n".to_owned() + more))
}

#[test]
fn an_added_sa_is_found_after_it_was_uploaded() {
    let (function, engine) = (empty(""), Engine::default());
    assert_eq!(prepare(&function, 0, 1, &[plain_frame()]), [drop(DROP_POLICY_DISCARD)]);
    let mut added = sa_json("east", 0x2001, "in");
    added["selectors"] = json!([{ "source": "10.0.0.0/8" }, { "protocol": "tcp", "destination_ports": "80-90" }]);
    let response = send(&function, &engine, "add", json!([added, sa_json("west", 0x1001, "out")])).unwrap();
    assert_eq!(response, json!({ "added": 2 }));
    assert_eq!(prepare(&function, 0, 1, &[esp_frame(0x2001, 7)]), [decrypt(0, 7)]);
    // Every changed byte of the image was reported to the engine.
    let (image, before) = (function.image().to_vec(), empty("").image().to_vec());
    let changed = engine.changed.borrow();
    for (at, _) in image.iter().zip(&before).enumerate().filter(|(_, (now, before))| now != before) {
        assert!(changed.iter().any(|range| range.contains(&at)), "byte {at}");
    }
    assert!(has_key(&function));
}

#[test]
fn a_failed_request_changes_nothing() {
    let (function, engine) = (empty(""), Engine::default());
    let before = function.image().to_vec();
    let two = json!([sa_json("east", 0x2001, "in"), sa_json("other", 0x2001, "in")]);
    assert!(send(&function, &engine, "add", two).unwrap_err().contains("same SPI 0x2001 as SA \"east\""));
    engine.refuses.set(true);
    let response = send(&function, &engine, "add", json!([sa_json("east", 0x2001, "in")])).unwrap_err();
    assert_eq!(response, "the device is lost");
    engine.refuses.set(false);
    assert_eq!(function.image().to_vec(), before);
    assert_eq!(prepare(&function, 0, 1, &[esp_frame(0x2001, 7)]), [drop(DROP_POLICY_DISCARD)]);
    send(&function, &engine, "add", json!([sa_json("east", 0x2001, "in")])).unwrap();
    assert_eq!(send(&function, &engine, "list", json!(["east"])).unwrap()["sa"][0]["spi"], 0x2001);
}

#[test]
fn a_refused_request_has_no_side_effects() {
    let (function, engine) = (empty("[[policy]]\naction = \"bypass\"\n"), Engine::default());
    send(&function, &engine, "add", json!([sa_json("east", 0x2001, "in")])).unwrap();
    let two = json!([sa_json("second", 0x2002, "in"), sa_json("third", 0x2001, "in")]);
    assert!(send(&function, &engine, "add", two).unwrap_err().contains("same SPI"));
    assert_eq!(prepare(&function, 0, 1, &[esp_frame(0x2001, 7)]), [decrypt(0, 7)]);
    assert_eq!(prepare(&function, 0, 1, &[esp_frame(0x2007, 7)]), [drop(DROP_NO_SA)], "the endpoint still exists");
    // Nonces that no packet has used may be used by one SA.
    let mut gcm = sa_json("west", 0x1001, "out");
    gcm["encryption"] = "aes-128-gcm".into();
    gcm["encryption_key"] = format!("{KEY}01020304").into();
    for key in ["authentication", "authentication_key"] {
        gcm.as_object_mut().unwrap().remove(key);
    }
    let wrong = json!([gcm, sa_json("third", 0x2001, "in")]);
    assert!(send(&function, &engine, "add", wrong).unwrap_err().contains("same SPI"));
    send(&function, &engine, "add", json!([gcm])).unwrap();
    for policy in [json!({ "action": "protect", "sa": "west" }), json!({ "action": "bypass" })] {
        function.operate().unwrap().command(&json!({ "command": "policies", "policy": [policy] }), &engine).unwrap();
        prepare(&function, 0, 1, &[plain_frame()]);
    }
    send(&function, &engine, "delete", json!(["west"])).unwrap();
    assert!(send(&function, &engine, "add", json!([gcm])).unwrap_err().contains("present or deleted"));
}

#[test]
fn a_deleted_sa_is_wiped_after_its_packets_drained() {
    let (function, engine) = (empty("[[policy]]\naction = \"bypass\"\n"), Engine::default());
    let before = function.image().to_vec();
    send(&function, &engine, "add", json!([sa_json("east", 0x2001, "in")])).unwrap();
    engine.never_quiet.set(true);
    assert_eq!(send(&function, &engine, "delete", json!(["east"])).unwrap_err(), "packets are stuck");
    assert_eq!(
        prepare(&function, 0, 1, &[esp_frame(0x2001, 7)]),
        [decrypt(0, 7)],
        "the failed command changes nothing"
    );
    engine.never_quiet.set(false);
    let quiesced = engine.quiesced.get();
    assert_eq!(send(&function, &engine, "delete", json!(["east"])).unwrap(), json!({ "deleted": 1 }));
    assert_eq!(engine.quiesced.get(), quiesced + 1);
    assert_eq!(function.image().to_vec(), before, "all bytes of the SA are wiped");
    assert!(!has_key(&function));
    let bypass = Work::Done(Outcome::verdict(VERDICT_BYPASS));
    assert_eq!(prepare(&function, 0, 1, &[esp_frame(0x2001, 7)]), [bypass], "the endpoint is gone");
    assert!(send(&function, &engine, "delete", json!(["east"])).unwrap_err().contains("\"east\""));
    send(&function, &engine, "add", json!([sa_json("east", 0x2001, "in")])).unwrap();
    assert_eq!(send(&function, &engine, "list", json!(["east"])).unwrap()["sa"][0]["sequence"], 0);
}

#[test]
fn replacing_an_sa_loses_no_packets() {
    let policies = "[[policy]]\naction = \"protect\"\nsa = \"west\"\n";
    let stanza = sa("other", 0x1000, "out", "") + &sa("west", 0x1001, "out", "") + policies;
    let (function, engine) = (ipsec(&stanza), Engine::default());
    let steer = function.steer_key().unwrap();
    let owner = |frame: &[u8]| steer.steer_key(frame, &godwit_wire::parse(frame), 77) as usize % BUCKETS;
    let bucket = owner(&plain_frame());
    assert_eq!(prepare(&function, 0, 1, &[plain_frame()]), [encrypt(1, 1)]);
    assert!(send(&function, &engine, "delete", json!(["west"])).unwrap_err().contains("used by a policy"));
    let same_spi = send(&function, &engine, "replace", json!([sa_json("west", 0x1001, "out")])).unwrap_err();
    assert!(same_spi.contains("same SPI"), "{same_spi}");
    let inbound = send(&function, &engine, "replace", json!([sa_json("west", 0x1002, "in")])).unwrap_err();
    assert!(inbound.contains("other direction"), "{inbound}");
    assert_eq!(prepare(&function, 0, 1, &[plain_frame()]), [encrypt(1, 2)], "the failed commands change nothing");
    assert_eq!(
        send(&function, &engine, "replace", json!([sa_json("west", 0x1002, "out")])).unwrap(),
        json!({ "replaced": 1 })
    );
    assert_eq!(owner(&plain_frame()), bucket, "the worker stays the same");
    let Work::Run { parameter, .. } = prepare(&function, 0, 1, &[plain_frame()])[0] else { panic!("not encapsulated") };
    let (index, sequence) = sa_and_sequence(parameter);
    assert_eq!((index as usize % BUCKETS, sequence), (1, 1));
    let list = send(&function, &engine, "list", json!(["west"])).unwrap();
    assert_eq!((&list["sa"][0]["spi"], &list["sa"][0]["policies"]), (&json!(0x1002), &json!(1)));
    send(&function, &engine, "replace", json!([sa_json("west", 0x1003, "out")])).unwrap();
    assert_eq!(prepare(&function, 0, 1, &[plain_frame()]), [encrypt(1, 1)]);
    assert!(
        send(&function, &engine, "replace", json!([sa_json("wset", 0x1004, "out")])).unwrap_err().contains("no SA")
    );
}

#[test]
fn keys_of_a_replaced_sa_are_wiped_after_stuck_packets_drained() {
    let policies = "[[policy]]\naction = \"protect\"\nsa = \"other\"\n";
    let (function, engine) = (empty(&(sa("other", 0x1000, "out", "") + policies)), Engine::default());
    send(&function, &engine, "add", json!([sa_json("west", 0x1001, "out")])).unwrap();
    let mut new = sa_json("west", 0x1002, "out");
    new["encryption_key"] = "0123456789abcdef0123456789abcdff".into();
    engine.never_quiet.set(true);
    let error = send(&function, &engine, "replace", json!([new])).unwrap_err();
    assert!(error.contains("the new SAs are in use, but packets are stuck"), "{error}");
    let spi = |function| send(function, &engine, "list", json!(["west"])).unwrap()["sa"][0]["spi"].clone();
    assert_eq!(spi(&function), 0x1002);
    function.housekeeping().unwrap().run(&engine).unwrap();
    assert!(has_key(&function), "packets in flight may refer to the old SA");
    engine.never_quiet.set(false);
    function.housekeeping().unwrap().run(&engine).unwrap();
    assert!(!has_key(&function));
    assert_eq!(spi(&function), 0x1002);
    // The SPI of the old SA is free again.
    new = sa_json("next", 0x1001, "out");
    new["encryption_key"] = "0123456789abcdef0123456789abcdfe".into();
    send(&function, &engine, "add", json!([new])).unwrap();
}

#[test]
fn a_refused_sa_does_not_reserve_its_nonces() {
    let (function, engine) = (empty(""), Engine::default());
    let gcm = |name: &str, spi: u32, direction: &str| {
        let mut sa = sa_json(name, spi, direction);
        let keys = sa.as_object_mut().unwrap();
        keys.retain(|key, _| !key.starts_with("authentication"));
        sa["encryption"] = "aes-128-gcm".into();
        sa["encryption_key"] = (KEY.to_owned() + "01020304").into();
        sa
    };
    send(&function, &engine, "add", json!([gcm("in", 0x2001, "in"), gcm("in", 0x2002, "in")])).unwrap_err();
    send(&function, &engine, "add", json!([gcm("out", 0x1001, "out")])).unwrap();
    let error = send(&function, &engine, "add", json!([gcm("in", 0x2001, "in")])).unwrap_err();
    assert!(error.contains("the other direction"), "{error}");
    // The nonces of an SA that no packet has used can be used again.
    send(&function, &engine, "delete", json!(["out"])).unwrap();
    send(&function, &engine, "add", json!([gcm("in", 0x2001, "in")])).unwrap();
}

#[test]
fn a_peer_can_have_two_inbound_sas() {
    let (function, engine) = (ipsec(&sa("old", 0x2001, "in", "")), Engine::default());
    send(&function, &engine, "add", json!([sa_json("new", 0x2002, "in")])).unwrap();
    assert_eq!(prepare(&function, 0, 1, &[esp_frame(0x2001, 5), esp_frame(0x2002, 1)]), [decrypt(0, 5), decrypt(1, 1)]);
    send(&function, &engine, "delete", json!(["old"])).unwrap();
    assert_eq!(
        prepare(&function, 0, 1, &[esp_frame(0x2001, 6), esp_frame(0x2002, 2)]),
        [drop(DROP_NO_SA), decrypt(1, 2)]
    );
}

/// Policies are listed in the form of the configuration, so a listed policy can be set again.
#[test]
fn lists_policies_in_configuration_format() {
    let (function, engine) = (empty(&sa("west", 0x1001, "out", "")), Engine::default());
    let send =
        |request: Value| function.operate().unwrap().command(&request, &engine).map_err(|error| error.to_string());
    let listed = || send(json!({ "command": "policies" })).unwrap()["policy"].clone();
    assert_eq!(listed(), json!([]));
    let policies = json!([
        { "action": "bypass", "protocol": "udp", "source_ports": "500-501", "destination_ports": 500 },
        { "action": "discard", "protocol": 33 },
        { "action": "protect", "source": "10.1.0.0/16", "destination": "0.0.0.0/0", "sa": "west" },
        { "action": "protect", "source": "2001:db8::1/128", "destination": "::/0", "sa": "west" },
        { "action": "discard" },
    ]);
    send(json!({ "command": "policies", "policy": policies })).unwrap();
    let written = listed();
    assert_eq!(written, policies);
    send(json!({ "command": "policies", "policy": [] })).unwrap();
    assert_eq!(listed(), json!([]));
    send(json!({ "command": "policies", "policy": written })).unwrap();
    assert_eq!(listed(), policies);
}

#[test]
fn an_error_names_the_stanza() {
    let (function, engine) = (empty(""), Engine::default());
    let mut wrong = sa_json("third", 0x2003, "in");
    wrong["encryption"] = "aes-129-cbc".into();
    let error = send(&function, &engine, "add", json!([sa_json("first", 0x2001, "in"), wrong])).unwrap_err();
    assert!(error.starts_with("SA \"third\": ") && error.contains("`aes-129-cbc`"), "{error}");
    let policies = json!([{ "action": "bypass" }, { "action": "discard", "destination": "10.0.0.1/8" }]);
    let error = function
        .operate()
        .unwrap()
        .command(&json!({ "command": "policies", "policy": policies }), &engine)
        .unwrap_err();
    assert!(error.to_string().starts_with("policy 2: \"10.0.0.1/8\""), "{error}");
    let error = function.operate().unwrap().command(&json!({ "command": "add", "sa": "west" }), &engine).unwrap_err();
    assert_eq!(error.to_string(), "the command needs \"sa\": [{...}, ...]");
}

#[test]
fn setting_policies_replaces_all_of_them() {
    let (function, engine) = (empty(""), Engine::default());
    send(&function, &engine, "add", json!([sa_json("west", 0x1001, "out")])).unwrap();
    let set = |policies: Value| {
        let request = json!({ "command": "policies", "policy": policies });
        function.operate().unwrap().command(&request, &engine).map_err(|error| error.to_string())
    };
    let protect = json!({ "action": "protect", "destination": "10.0.0.0/8", "sa": "west" });
    assert_eq!(set(json!([protect, { "action": "bypass" }])).unwrap(), json!({ "policies": 2 }));
    assert_eq!(prepare(&function, 0, 1, &[plain_frame()]), [encrypt(0, 1)]);
    assert!(send(&function, &engine, "delete", json!(["west"])).unwrap_err().contains("used by a policy"));
    let error = set(json!([protect, { "action": "protect", "sa": "wset" }])).unwrap_err();
    assert!(error.contains("policy 2: no SA is called \"wset\""), "{error}");
    assert_eq!(prepare(&function, 0, 1, &[plain_frame()]), [encrypt(0, 2)]);
    assert_eq!(set(json!([])).unwrap(), json!({ "policies": 0 }));
    assert_eq!(prepare(&function, 0, 1, &[plain_frame()]), [drop(DROP_POLICY_DISCARD)]);
    send(&function, &engine, "delete", json!(["west"])).unwrap();
}

#[test]
fn no_response_contains_a_key() {
    let (function, engine) = (empty(""), Engine::default());
    let shows = |text: &str| {
        let text = text.to_lowercase();
        [KEY, HMAC_KEY, "8899", "ccdd"].iter().any(|key| text.contains(key))
    };
    let mut answers =
        vec![send(&function, &engine, "add", json!([sa_json("west", 0x1001, "out")])).unwrap().to_string()];
    answers.push(send(&function, &engine, "list", json!(["west"])).unwrap().to_string());
    answers.push(function.operate().unwrap().command(&json!({ "command": "list" }), &engine).unwrap().to_string());
    assert!(answers[1].contains("cbc128_sha1"));
    let changed = |key: &str, value: Value| {
        let mut sa = sa_json("second", 0x1002, "out");
        sa[key] = value;
        json!([sa])
    };
    for wrong in [
        changed("encryption_key", json!(KEY.to_owned() + "00")),
        changed("encryption_key", json!(0x8899_aabb_u64)),
        changed("encryption_key", json!([KEY])),
        changed("encryption_key", json!({ "a": KEY })),
        changed("encryption_key", json!(KEY.to_owned() + "\n\u{7f}\"\\")),
        changed("authentication_key", json!(KEY)),
        changed("salt", json!(KEY)),
        changed("spi", json!(0)),
        changed("spi", json!(null)),
        changed("spi", json!(KEY)),
        changed("esn", json!(KEY)),
        changed("lifetime", json!(KEY)),
        changed("encryption", json!("aes-128-gcm")),
        changed("key", json!("x")),
        json!([KEY]),
        json!(KEY),
        json!([]),
    ] {
        for command in ["add", "replace"] {
            answers.push(send(&function, &engine, command, wrong.clone()).unwrap_err());
        }
    }
    for answer in answers {
        assert!(!shows(&answer), "{answer}");
    }
    assert!(!shows(&format!("{:?}", function.database.sa(0))));
}

#[test]
fn refuses_sas_that_do_not_fit() {
    let engine = Engine::default();
    let function = ipsec("headroom_bytes = 44\ntailroom_bytes = 28\n");
    let error = send(&function, &engine, "add", json!([sa_json("west", 0x1001, "out")])).unwrap_err();
    assert!(error.contains("tailroom_bytes = 29"), "{error}");
    let function = ipsec("headroom_bytes = 43\ntailroom_bytes = 29\n");
    let error = send(&function, &engine, "add", json!([sa_json("west", 0x1001, "out")])).unwrap_err();
    assert!(error.contains("headroom_bytes = 44"), "{error}");
    let function = empty("sa_capacity = 1\nselector_capacity = 2\n");
    let mut three = sa_json("east", 0x2001, "in");
    three["selectors"] = json!([{ "protocol": 1 }, { "protocol": 2 }, { "protocol": 3 }]);
    let error = send(&function, &engine, "add", json!([three])).unwrap_err();
    assert!(error.contains("selector_capacity"), "{error}");
    let all: Vec<Value> = (0..129).map(|index| sa_json(&format!("{index}"), 0x1000 + index, "out")).collect();
    assert!(send(&function, &engine, "add", json!(all)).unwrap_err().contains("sa_capacity"));
    assert_eq!(send(&function, &engine, "add", json!(all[..128])).unwrap(), json!({ "added": 128 }));
    for command in ["add", "delete", "replace"] {
        let error =
            function.operate().unwrap().command(&json!({ "command": command }), &engine).unwrap_err().to_string();
        assert!(error.contains("the command needs"), "{error}");
    }
    assert!(function.operate().unwrap().command(&json!({ "command": "flush" }), &engine).is_err());
}

/// A worker looks up SAs while other SAs are added and deleted. It finds only the right SAs, and it
/// always finds the SA that stays.
#[test]
fn workers_find_sas_during_changes() {
    let stanza = sa("stays", 0x2000, "in", "replay_window = 0") + "sa_capacity = 256\n";
    let stanza = format!("sa_capacity = 256\n{}", stanza.replace("sa_capacity = 256\n", ""));
    let (function, engine) = (ipsec(&stanza), Engine::default());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut found = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let frames: Vec<_> = (0x2000..0x2020).map(|spi| esp_frame(spi, 1)).collect();
                for (spi, work) in (0x2000..).zip(prepare(&function, 0, 1, &frames)) {
                    match work {
                        Work::Run { parameter, .. } => {
                            let index = sa_and_sequence(parameter).0;
                            assert_eq!(index == 0, spi == 0x2000);
                            found += 1;
                        }
                        work => assert!(spi != 0x2000 && work == drop(DROP_NO_SA), "{spi:#x} {work:?}"),
                    }
                }
            }
            found
        });
        for turn in 0..200 {
            let names: Vec<String> = (1..32).map(|index| format!("{index}")).collect();
            let sas: Vec<Value> = (1..32)
                .zip(&names)
                .map(|(index, name)| sa_json(name, 0x2000 + (index + turn) % 31 + 1, "in"))
                .collect();
            send(&function, &engine, "add", json!(sas)).unwrap();
            send(&function, &engine, "delete", json!(names)).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(worker.join().unwrap() > 0);
    });
}

/// A new SA changes only its own part of the table image.
#[test]
fn adds_many_sas_one_by_one() {
    let (function, engine) = (empty("sa_capacity = 20000\n"), Engine::default());
    for index in 0..20_000 {
        let direction = if index % 2 == 0 { "in" } else { "out" };
        send(&function, &engine, "add", json!([sa_json(&format!("sa{index}"), 0x1000 + index, direction)])).unwrap();
    }
    let frames: Vec<_> = (0..100).map(|index| esp_frame(0x1000 + index * 198, 3)).collect();
    assert!(prepare(&function, 0, 1, &frames).iter().all(|work| matches!(work, Work::Run { .. })));
    assert!(engine.changed.borrow().iter().all(|range| range.len() <= 576));
}
