mod table;

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;

use godwit_abi::{PORT_FLOOD, VERDICT_DROP};
use godwit_packet::{Arena, ArenaConfig, Region};
use serde_json::json;

use super::*;
use crate::testing::{self, Directory, build_error};

/// An engine that notes what it is told.
#[derive(Default)]
struct Engine {
    changed: RefCell<Vec<Range<usize>>>,
    waited: RefCell<usize>,
    /// It does not do so any more.
    fails: RefCell<bool>,
}

impl Running for Engine {
    fn image_changed(&self, range: Range<usize>) -> Result<(), Error> {
        self.changed.borrow_mut().push(range);
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        *self.waited.borrow_mut() += 1;
        match *self.fails.borrow() {
            true => Err(Error::Command { message: "it takes too long".to_owned() }),
            false => Ok(()),
        }
    }
}

/// A switch as one worker has it, with `ref` in the place of a device.
struct Under {
    function: L2,
    host: Box<dyn HostHalf>,
    region: Region,
    engine: Engine,
}

impl Under {
    fn new(stanza: &str, ports: &[&str]) -> Self {
        let ports: Vec<String> = ports.iter().map(|port| (*port).to_owned()).collect();
        let site = BuildContext { name: "under test", ports: &ports, directory: std::path::Path::new(".") };
        let function = build_switch(DeTable::parse(stanza).unwrap(), &site).unwrap();
        let host = function.host_half(0, 1).unwrap();
        let config = ArenaConfig { packets: 64, headroom_bytes: 64, ..ArenaConfig::default() };
        Self { function, host, region: Arena::new(config, 1).unwrap().split().remove(0), engine: Engine::default() }
    }

    /// What is said of a frame behind the host half, and what leaves by which ports.
    fn pass(&mut self, port: u8, frame: &[u8]) -> (Outcome, Vec<(u8, Vec<u8>)>) {
        let mut packet = self.region.allocate(frame.len()).unwrap();
        packet.port = port;
        self.region.frame_mut(&packet).copy_from_slice(frame);
        let mut after = packet;
        let mut outcome = self.function.run_ref(self.region.buffer_mut(&packet), &mut after, 0, 0);
        assert_eq!(after, packet);
        assert_eq!(self.region.frame(&packet), frame, "the kernel writes nothing");
        let (descriptors, outcomes) = (std::slice::from_mut(&mut after), std::slice::from_mut(&mut outcome));
        self.host.finish(&mut self.region, descriptors, outcomes);
        let mut left = Vec::new();
        if outcome.verdict == VERDICT_FORWARD {
            left.push((outcome.port as u8, self.region.frame(&after).to_vec()));
        } else if outcome.verdict == VERDICT_FLOOD {
            assert_eq!(outcome.port, PORT_FLOOD);
            for &port in self.function.flood_ports(outcome.value).iter().filter(|port| **port != packet.port) {
                let mut copy = self.region.duplicate(&after).unwrap();
                self.function.dress(self.region.buffer_mut(&copy.clone()), &mut copy, port, outcome.value);
                left.push((port, self.region.frame(&copy).to_vec()));
                self.region.release(&copy);
            }
        }
        self.region.release(&packet);
        (outcome, left)
    }

    /// The ports that a frame leaves by.
    fn ports(&mut self, port: u8, frame: &[u8]) -> Vec<u8> {
        self.pass(port, frame).1.into_iter().map(|(port, _)| port).collect()
    }

    fn keep_house(&self, now_s: f64) {
        self.function.control().keep_house(Duration::from_secs_f64(now_s), &self.engine).unwrap();
    }

    fn ask(&self, request: Value) -> Result<Value, String> {
        self.function.command(&request, &self.engine).map_err(|error| error.to_string())
    }

    fn count(&self, name: &str) -> u64 {
        let index = CONTRACT.counters.iter().position(|counter| counter.name == name).unwrap();
        self.function.counts()[index]
    }
}

fn mac(number: u32) -> MacAddress {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddress([2, 0, a, b, c, d])
}

/// A frame of 60 bytes, with this TCI.
fn frame(destination: MacAddress, source: MacAddress, tci: Option<u16>) -> Vec<u8> {
    let mut frame = [destination.0, source.0].concat();
    if let Some(tci) = tci {
        frame.extend([0x81, 0x00]);
        frame.extend(tci.to_be_bytes());
    }
    frame.extend([0x08, 0x00]);
    frame.extend((frame.len()..60).map(|at| at as u8));
    frame
}

const PORTS: [&str; 4] = ["a", "b", "c", "d"];
/// Two VLANs: 10 on a, b and the trunk c; 20 on the trunks c and d, without a tag on d.
const VLANS: &str = r#"
    [[port]]
    port = "a"
    access = 10
    [[port]]
    port = "b"
    access = 10
    [[port]]
    port = "c"
    trunk = [10, "20-21"]
    [[port]]
    port = "d"
    trunk = [20, 30]
    native = 20
"#;

#[test]
fn the_second_frame_to_a_learned_address_leaves_by_one_port() {
    let mut under = Under::new("", &PORTS);
    assert_eq!(under.ports(0, &frame(mac(2), mac(1), None)), [1, 2, 3]);
    // Not written down yet: nobody knows.
    assert_eq!(under.ports(1, &frame(mac(1), mac(2), None)), [0, 2, 3]);
    under.keep_house(0.0);
    assert_eq!(under.ports(1, &frame(mac(1), mac(2), None)), [0]);
    assert_eq!(under.ports(0, &frame(mac(2), mac(1), None)), [1]);
    assert_eq!([under.count("addresses"), under.count("learned")], [2, 2]);
    // It is told to devices where the words lie.
    let offsets: HashSet<usize> = under.engine.changed.borrow().iter().flat_map(|range| range.clone()).collect();
    assert!(offsets.len() >= 16 && *under.engine.waited.borrow() == 0);
    // Behind the same port there is nothing to do.
    let (outcome, left) = under.pass(0, &frame(mac(1), mac(3), None));
    assert_eq!((outcome.verdict, outcome.reason, left.len()), (VERDICT_DROP, DROP_SAME_PORT, 0));
    under.keep_house(0.1);
    assert_eq!(under.ports(1, &frame(mac(3), mac(2), None)), [0], "learned from a frame that was dropped");
    // It moves.
    assert_eq!(under.ports(3, &frame(mac(2), mac(1), None)), [1]);
    under.keep_house(0.2);
    assert_eq!(under.ports(1, &frame(mac(1), mac(2), None)), [3]);
    assert_eq!([under.count("addresses"), under.count("moved")], [3, 1]);
}

#[test]
fn groups_are_flooded_and_never_learned() {
    let mut under = Under::new("", &PORTS);
    let group = MacAddress([1, 0, 0x5e, 1, 2, 3]);
    for destination in [MacAddress::BROADCAST, group] {
        assert_eq!(under.ports(2, &frame(destination, mac(1), None)), [0, 1, 3]);
    }
    for source in [group, MacAddress::BROADCAST, MacAddress([0; 6])] {
        let (outcome, _) = under.pass(2, &frame(mac(1), source, None));
        assert_eq!(outcome, Outcome::drop(DROP_SOURCE));
    }
    for last in 0..=0x10 {
        let (outcome, left) = under.pass(2, &frame(MacAddress([1, 0x80, 0xc2, 0, 0, last]), mac(7), None));
        let expected = if last < 0x10 { (VERDICT_RESERVED, 0) } else { (VERDICT_FLOOD, 3) };
        assert_eq!((outcome.verdict, left.len()), expected, "01-80-c2-00-00-{last:02x}");
    }
    under.keep_house(0.0);
    assert_eq!(under.count("addresses"), 2);
}

#[test]
fn tags_are_as_the_port_has_them() {
    let mut under = Under::new(VLANS, &PORTS);
    let (to, from) = (mac(9), mac(1));
    let bare = frame(to, from, None);
    let tagged = |tci| frame(to, from, Some(tci));
    let rest = |frame: &[u8], at: usize| frame[at..].to_vec();
    let left = |under: &mut Under, port, frame: &[u8]| under.pass(port, frame).1;
    // Put on at the trunk, not at the access port.
    let copies = left(&mut under, 0, &bare);
    assert_eq!(copies.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(copies[0].1, bare);
    assert_eq!(copies[1].1[..18], [&bare[..12], &[0x81, 0, 0, 10, 8, 0]].concat());
    assert_eq!(copies[1].1.len(), 64);
    assert_eq!(rest(&copies[1].1, 18), rest(&bare, 14));
    // Taken off at access ports; priority is kept where the tag is.
    let copies = left(&mut under, 2, &tagged(0xe00a));
    assert_eq!(copies.iter().map(|(port, frame)| (*port, frame.len())).collect::<Vec<_>>(), [(0, 56), (1, 56)]);
    assert_eq!(copies[0].1, [&bare[..14], &tagged(0)[18..]].concat());
    // The native VLAN of d is without a tag there, tagged at c.
    let copies = left(&mut under, 3, &bare);
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0].1[12..16], [0x81, 0, 0, 20]);
    assert_eq!(left(&mut under, 2, &tagged(0x2014))[0].1[12..14], [8, 0]);
    // A priority tag is no VLAN: it becomes one at the trunk, with its priority, and goes at access ports.
    let copies = left(&mut under, 0, &tagged(0xa000));
    assert_eq!(copies[0].1[12..14], [8, 0]);
    assert_eq!(copies[1].1[12..16], [0x81, 0, 0xa0, 10]);
    assert_eq!(copies[1].1.len(), 60);
    // From trunk to trunk it stays: here nobody else has VLAN 21 or 30.
    assert!(left(&mut under, 2, &tagged(21)).is_empty());
    // A known destination is dressed the same way.
    under.pass(2, &frame(mac(5), to, Some(10)));
    under.keep_house(0.0);
    let forwarded = left(&mut under, 0, &bare);
    assert_eq!((forwarded[0].0, &forwarded[0].1[12..16]), (2, &[0x81, 0, 0, 10][..]));
    let forwarded = left(&mut under, 0, &tagged(0x6000));
    assert_eq!(forwarded[0].1[12..16], [0x81, 0, 0x60, 10]);
    under.pass(0, &frame(mac(5), mac(6), None));
    under.keep_house(0.0);
    let forwarded = left(&mut under, 2, &frame(mac(6), to, Some(0xf00a)));
    assert_eq!((forwarded[0].0, &forwarded[0].1[12..14]), (0, &[8, 0][..]));
    assert_eq!(under.function.headroom_bytes(), 4);
    assert_eq!(Under::new("", &PORTS).function.headroom_bytes(), 0);
}

#[test]
fn addresses_of_vlans_are_apart_and_ports_take_only_theirs() {
    let mut under = Under::new(VLANS, &PORTS);
    under.pass(0, &frame(mac(9), mac(1), None));
    under.keep_house(0.0);
    assert_eq!(under.ports(2, &frame(mac(1), mac(2), Some(10))), [0]);
    assert_eq!(under.ports(2, &frame(mac(1), mac(2), Some(20))), [3], "another VLAN: unknown");
    let verdict = |under: &mut Under, port, tci| under.pass(port, &frame(mac(1), mac(2), tci)).0;
    let drop = |reason| Outcome::drop(reason);
    assert_eq!(verdict(&mut under, 0, Some(10)), drop(DROP_VLAN), "an access port takes no tags");
    assert_eq!(verdict(&mut under, 2, None), drop(DROP_VLAN), "a trunk without native takes only tags");
    assert_eq!(verdict(&mut under, 2, Some(0)), drop(DROP_VLAN));
    for vid in [1, 9, 22, 30, 4095] {
        assert_eq!(verdict(&mut under, 2, Some(vid)), drop(DROP_VLAN), "VLAN {vid}");
    }
    assert_eq!(verdict(&mut under, 3, Some(20)).verdict, VERDICT_FLOOD, "the native VLAN may come with its tag");
    let mut three = Under::new("[[port]]\nport = \"a\"\n[[port]]\nport = \"b\"", &PORTS);
    assert_eq!(verdict(&mut three, 3, None), drop(DROP_PORT));
    assert_eq!(verdict(&mut three, 200, None), drop(DROP_PORT));
    let whole = frame(mac(1), mac(2), Some(10));
    for length in 0..18 {
        assert_eq!(under.pass(2, &whole[..length]).0, drop(DROP_TRUNCATED), "{length} bytes");
    }
    let bare = frame(mac(9), mac(2), None);
    assert_eq!(under.pass(0, &bare[..13]).0, drop(DROP_TRUNCATED));
    assert_ne!(under.pass(0, &bare[..14]).0.verdict, VERDICT_DROP);
}

#[test]
fn who_is_not_heard_of_is_forgotten_and_who_is_stays() {
    let mut under =
        Under::new("ageing_s = 8\ncapacity = 900\n[[mac]]\nmac = \"02:00:00:00:00:63\"\nport = \"d\"", &PORTS);
    under.pass(0, &frame(mac(9), mac(1), None));
    under.pass(1, &frame(mac(9), mac(2), None));
    under.keep_house(0.0);
    assert_eq!(under.count("addresses"), 3);
    let mut gone = None;
    for tenth in 0..200 {
        let now = f64::from(tenth) / 10.0;
        // One of them is heard of every two seconds.
        if tenth % 20 == 0 {
            under.pass(1, &frame(MacAddress::BROADCAST, mac(2), None));
        }
        under.keep_house(now);
        if gone.is_none() && under.function.lookup_ref(key(1, mac(1))).is_none() {
            gone = Some(now);
        }
    }
    let gone = gone.expect("it is forgotten");
    assert!((8.0..=10.2).contains(&gone), "after {gone} s");
    assert_eq!(under.function.lookup_ref(key(1, mac(2))), Some(1));
    assert_eq!(under.function.lookup_ref(key(1, mac(99))), Some(3), "static");
    assert_eq!([under.count("addresses"), under.count("aged")], [2, 1]);
    let mut ageless = Under::new("ageing_s = 0", &PORTS);
    ageless.pass(0, &frame(mac(9), mac(1), None));
    [0.0, 1e6, 2e6, 3e6].into_iter().for_each(|now| ageless.keep_house(now));
    assert_eq!(ageless.count("addresses"), 1);
}

/// However long a table waited for its engine: the first look goes over no more of it than any other.
#[test]
fn a_table_that_waited_is_not_aged_in_one_go() {
    let under = Under::new("ageing_s = 800\ncapacity = 900", &PORTS);
    let addresses: Vec<(u64, u8)> = (1..=500).map(|number| (key(1, mac(number)), 1)).collect();
    under.function.learn_all(&addresses).unwrap();
    let fresh = || under.function.control().entries.read().unwrap().values().filter(|entry| entry.is_fresh).count();
    assert_eq!(fresh(), 500);
    under.keep_house(1e6);
    assert!(fresh() > 450, "{} of 500 are fresh", fresh());
    // From then on all of it is looked at within an eighth of the ageing time.
    under.keep_house(1e6 + 100.0);
    assert_eq!(fresh(), 0);
}

#[test]
fn the_frames_of_a_known_source_tell_nobody_anything() {
    let mut under = Under::new("", &PORTS);
    for _ in 0..100 {
        under.pass(0, &frame(mac(9), mac(1), None));
    }
    under.keep_house(0.0);
    let changed = under.engine.changed.borrow().len();
    assert_eq!(under.count("learned"), 1);
    let mut packet = under.region.allocate(60).unwrap();
    under.region.frame_mut(&packet).copy_from_slice(&frame(mac(9), mac(1), None));
    let outcome = under.function.run_ref(under.region.buffer_mut(&packet.clone()), &mut packet, 0, 0);
    assert_eq!(outcome.value & NOTICE, 0);
    under.keep_house(0.01);
    assert_eq!(under.engine.changed.borrow().len(), changed);
}

#[test]
fn more_new_sources_than_can_be_told_are_counted_and_learned_later() {
    let mut under = Under::new("capacity = 10000\nageing_s = 0", &PORTS);
    let all = 0..9000u32;
    for number in all.clone() {
        under.pass(0, &frame(MacAddress::BROADCAST, mac(number), None));
    }
    under.keep_house(0.0);
    let learned = under.count("learned");
    assert_eq!(learned, super::host::QUEUE as u64);
    for round in 1..3 {
        for number in all.clone() {
            under.pass(0, &frame(MacAddress::BROADCAST, mac(number), None));
        }
        under.keep_house(f64::from(round));
    }
    assert_eq!(under.count("addresses"), 9000);
    drop(std::mem::replace(&mut under.host, Box::new(Host::new(under.function.control().ear()))));
    assert_eq!(under.count("unheard"), 9000 - learned + (9000 - 2 * learned));
}

#[test]
fn a_full_table_and_a_full_port_learn_no_more() {
    let mut under = Under::new(
        "capacity = 977\nageing_s = 0\n[[port]]\nport = \"a\"\n[[port]]\nport = \"b\"\nmac_limit = 3",
        &PORTS,
    );
    for number in 0..10 {
        under.pass(1, &frame(MacAddress::BROADCAST, mac(number), None));
    }
    under.keep_house(0.0);
    assert_eq!([under.count("addresses"), under.count("not_learned")], [3, 7]);
    for number in 100..1200 {
        under.pass(0, &frame(MacAddress::BROADCAST, mac(number), None));
    }
    under.keep_house(0.0);
    assert_eq!(under.count("addresses"), 977);
    assert_eq!(under.count("not_learned"), 7 + 1100 - 974);
    assert!(under.count("displaced") > 0);
    // Whoever is in the table is found, and what is not is flooded.
    let known = (0..1200).filter(|number| under.function.lookup_ref(key(1, mac(*number))).is_some()).count();
    assert_eq!(known, 977);
    let error = under.ask(json!({"command":"add","mac":[{"mac":"02:00:00:00:ff:01","port":"a"}]})).unwrap_err();
    assert!(error.contains("full") && error.contains("977"), "{error}");
    assert_eq!(under.ask(json!({"command":"flush","port":"a"})).unwrap(), json!({"flushed": 974}));
    assert_eq!(under.count("addresses"), 3);
}

#[test]
fn operators_add_delete_flush_and_list() {
    let mut under = Under::new(VLANS, &PORTS);
    under.pass(0, &frame(mac(9), mac(1), None));
    under.pass(2, &frame(mac(9), mac(2), Some(20)));
    under.keep_house(0.0);
    let one = json!({"vlan": 10, "mac": "02-00-00-00-00-01", "port": "b"});
    let two = json!({"vlan": 20, "mac": "02:00:00:00:00:07", "port": "d"});
    assert_eq!(under.ask(json!({"command":"add","mac":[one, two]})).unwrap(), json!({"added": 2}));
    // What was learned is static now, and stays where it is said to be.
    under.pass(0, &frame(mac(9), mac(1), None));
    under.keep_house(0.1);
    assert_eq!(under.function.lookup_ref(key(10, mac(1))), Some(1));
    let list = under.ask(json!({"command":"list"})).unwrap();
    assert_eq!((&list["addresses"], &list["left"]), (&json!(3), &json!(0)));
    let of = |value: &Value| {
        (value["vlan"].as_u64().unwrap(), value["mac"].as_str().unwrap().to_owned(), value["static"].as_bool().unwrap())
    };
    let listed: Vec<_> = list["mac"].as_array().unwrap().iter().map(of).collect();
    let expected = [(10, mac(1), true), (20, mac(2), false), (20, mac(7), true)];
    assert_eq!(listed, expected.map(|(vid, mac, is_static)| (vid, mac.to_string(), is_static)));
    let behind = under.ask(json!({"command":"list","vlan":20,"after":{"vlan":20,"mac":"02:00:00:00:00:02"}})).unwrap();
    assert_eq!(behind["mac"].as_array().unwrap().len(), 1);
    assert_eq!(under.ask(json!({"command":"list","port":"c"})).unwrap()["mac"].as_array().unwrap().len(), 1);
    assert_eq!(under.ask(json!({"command":"flush"})).unwrap(), json!({"flushed": 1}));
    let gone = json!({"vlan": 10, "mac": "02:00:00:00:00:01"});
    assert_eq!(under.ask(json!({"command":"delete","mac":[gone]})).unwrap(), json!({"deleted": 1}));
    assert_eq!(under.count("addresses"), 1);
    for (request, part) in [
        (json!({"command":"add"}), "needs \"mac\""),
        (json!({"command":"add","mac":[]}), "needs \"mac\""),
        (json!({"command":"add","mac":[{"mac":"02:00:00:00:00:08"}]}), "\"port\""),
        (json!({"command":"add","mac":[{"mac":"02:00:00:00:00","port":"a"}]}), "not an Ethernet address"),
        (json!({"command":"add","mac":[{"mac":"03:00:00:00:00:00","port":"a"}]}), "no address of a station"),
        (json!({"command":"add","mac":[{"mac":"02:00:00:00:00:08","port":"a"}]}), "does not belong to VLAN 1"),
        (json!({"command":"add","mac":[{"vlan":20,"mac":"02:00:00:00:00:07","port":"d"}]}), "already"),
        (json!({"command":"add","mac":[{"vlan":4095,"mac":"02:00:00:00:00:07","port":"d"}]}), "1 to 4094"),
        (json!({"command":"delete","mac":[{"mac":"02:00:00:00:00:08"}]}), "not in the table"),
        (json!({"command":"list","port":"x"}), "it has a, b, c, d"),
        (json!({"command":"flush","vlan":0}), "1 to 4094"),
        (json!({"command":"learn"}), "list, add, delete and flush"),
    ] {
        let error = under.ask(request.clone()).unwrap_err();
        assert!(error.contains(part), "{request}: {error}");
        assert_eq!(under.count("addresses"), 1);
    }
    // All or nothing.
    let good = json!({"vlan": 10, "mac": "02:00:00:00:00:11", "port": "a"});
    let bad = json!({"vlan": 20, "mac": "02:00:00:00:00:07", "port": "d"});
    under.ask(json!({"command":"add","mac":[good, bad]})).unwrap_err();
    assert_eq!(under.function.lookup_ref(key(10, mac(0x11))), None);
}

#[test]
fn static_addresses_come_from_the_file_and_the_stanza() {
    let directory = Directory::new("l2-macs");
    let write = |text: &str| std::fs::write(directory.0.join("macs.txt"), text).unwrap();
    let build = |stanza: &str| testing::build(&KIND, stanza, &PORTS, &directory.0);
    let stanza = format!("macs = \"macs.txt\"\n{VLANS}");
    write("# switch\n10 02:00:00:00:00:01 a\r\n\n20\t02-00-00-00-00-01 d ; here too\n");
    let function = build(&stanza).unwrap();
    assert_eq!(function.counts()[0], 2);
    for (text, part) in [
        ("10 02:00:00:00:00:01", ":1: a line is VLAN ADDRESS PORT"),
        ("\n10 02:00:00:00:00:01 a b", ":2: a line is"),
        ("0 02:00:00:00:00:01 a", ":1: \"0\" is not a VLAN"),
        ("4095 02:00:00:00:00:01 a", ":1: \"4095\" is not a VLAN"),
        ("+1 02:00:00:00:00:01 a", "is not a VLAN"),
        ("10 02:00:00:00:00:0x a", ":1: \"02:00:00:00:00:0x\" is not an Ethernet"),
        ("10 ff:ff:ff:ff:ff:ff a", "no address of a station"),
        ("10 02:00:00:00:00:01 e", "no port called \"e\"; it has a, b, c, d"),
        ("20 02:00:00:00:00:01 a", "port \"a\" does not belong to VLAN 20"),
        ("10 02:00:00:00:00:01 a\n\n10 02-00-00-00-00-01 b", ":3: this VLAN and address stand in line 1 already"),
        ("10 02:00:00:00:00:01 \u{fffd}\n", "no port"),
    ] {
        write(text);
        let error = build(&stanza).err().unwrap().to_string();
        assert!(error.contains(part) && error.contains("macs.txt"), "{text:?}: {error}");
    }
    std::fs::write(directory.0.join("macs.txt"), b"10 \xff a\n").unwrap();
    assert!(build(&stanza).err().unwrap().to_string().contains(":1: this is not text"));
    let error = build("macs = \"missing.txt\"").err().unwrap().to_string();
    assert!(error.contains("missing.txt: "), "{error}");
}

#[test]
fn wrong_stanzas_are_refused_with_the_reason() {
    for (stanza, part) in [
        ("capacity = 0", "capacity = 0: must be 1 to "),
        ("capacity = 2000000000", "must be 1 to 1025"),
        ("ageing_s = 1000001", "0 (never) to 1000000"),
        ("ports = 1", "ports"),
        ("[[port]]\nport = \"x\"", "the ports are: a, b, c, d"),
        ("[[port]]\nport = \"a\"\n[[port]]\nport = \"a\"", "said twice"),
        ("[[port]]\nport = \"a\"\naccess = 0", "0 is not a VLAN"),
        ("[[port]]\nport = \"a\"\naccess = 4095", "4095 is not a VLAN"),
        ("[[port]]\nport = \"a\"\naccess = 1\ntrunk = [2]", "either access"),
        ("[[port]]\nport = \"a\"\naccess = 1\nnative = 1", "either access"),
        ("[[port]]\nport = \"a\"\nnative = 1", "goes with trunk"),
        ("[[port]]\nport = \"a\"\ntrunk = []", "without VLANs"),
        ("[[port]]\nport = \"a\"\ntrunk = [5]\nnative = 5", "without VLANs"),
        ("[[port]]\nport = \"a\"\ntrunk = [\"9-4\"]", "the lower one first"),
        ("[[port]]\nport = \"a\"\ntrunk = [\"1-4095\"]", "is not a VLAN"),
        ("[[port]]\nport = \"a\"\ntrunk = [\"x\"]", "\"x\" is not a VLAN"),
        ("[[mac]]\nmac = \"02:00:00:00:00:01\"\nport = \"x\"", "no port called \"x\""),
        ("[[mac]]\nmac = \"02:00:00:00:00:01\"\nport = \"a\"\nvlan = 2", "does not belong to VLAN 2"),
        ("[[mac]]\nmac = \"02:00\"\nport = \"a\"", "not an Ethernet address"),
        (
            "[[mac]]\nmac = \"02:00:00:00:00:01\"\nport = \"a\"\n[[mac]]\nmac = \"02:00:00:00:00:01\"\nport = \"b\"",
            "in the table already",
        ),
    ] {
        let error = build_error(&KIND, stanza, &PORTS).to_string();
        assert!(error.contains(part), "{stanza}: {error}");
    }
}

#[test]
fn what_cannot_be_written_down_is_written_later() {
    let under = Under::new("capacity = 977\nageing_s = 0", &PORTS);
    let addresses = |range: Range<u32>| range.map(|number| (key(1, mac(number)), 0)).collect::<Vec<_>>();
    under.function.learn_all(&addresses(0..900)).unwrap();
    *under.engine.fails.borrow_mut() = true;
    // Nearly full: some entries have to move, which takes more waves than one.
    let error = under.function.control().learn_all(&addresses(900..977), Some(&under.engine)).unwrap_err();
    assert!(error.to_string().contains("too long"));
    assert!(under.function.control().keep_house(Duration::ZERO, &under.engine).is_err());
    *under.engine.fails.borrow_mut() = false;
    under.keep_house(0.0);
    let image = under.function.image().to_vec();
    let entries = (0..4 << tables::BUCKET_BITS.start).map(tables::offset);
    let full = entries.filter(|at| image[*at..at + 8] != [0; 8]).count();
    assert_eq!(full, 977);
}

/// What scapy makes of tags: `tests/vectors/l2/`.
#[test]
fn tags_are_what_scapy_makes_of_them() {
    let vectors = include_str!("../../../../tests/vectors/l2/scapy.txt");
    let bytes = |text: &str| -> Vec<u8> {
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
    };
    let mut tried = 0;
    for line in vectors.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [leaves, vid, came, left] = words[..] else { panic!("{line}") };
        let (came, left, vid) = (bytes(came), bytes(left), vid.parse::<u16>().unwrap());
        let (head, room) = (64usize, 4usize);
        let mut buffer = vec![0x5a; room * 64];
        buffer[head..head + came.len()].copy_from_slice(&came);
        let (head, length, room) = (head as u16, came.len() as u16, room as u8);
        let mut descriptor = Descriptor { head, length, room, ..Descriptor::default() };
        tags::dress(&mut buffer, &mut descriptor, vid, leaves == "tagged");
        assert_eq!(buffer[usize::from(descriptor.head)..][..usize::from(descriptor.length)], left, "{line}");
        tried += 1;
    }
    assert!(tried > 80);
}
