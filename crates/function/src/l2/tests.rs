mod table;

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;

use godwit_abi::{PORT_FLOOD, VERDICT_DROP};
use godwit_packet::{Arena, ArenaConfig, Region};
use serde_json::json;

use super::*;
use crate::testing::{self, Directory, build_error};

#[derive(Default)]
struct Engine {
    changed: RefCell<Vec<Range<usize>>>,
    waited: RefCell<usize>,
    /// Whether waits for lookups fail with a timeout.
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
            true => Err(Error::Command { message: "timed out".to_owned() }),
            false => Ok(()),
        }
    }
}

/// Switch with one worker and the reference implementation as its kernel.
struct TestSwitch {
    function: L2,
    host: HostHalf,
    region: Region,
    engine: Engine,
}

impl TestSwitch {
    fn new(stanza: &str, ports: &[&str]) -> Self {
        let ports: Vec<String> = ports.iter().map(|port| (*port).to_owned()).collect();
        let context = BuildContext { name: "under test", ports: &ports, directory: std::path::Path::new(".") };
        let function = build_switch(DeTable::parse(stanza).unwrap(), &context).unwrap();
        let host = function.host_half(0, 1).unwrap();
        let config = ArenaConfig { packets: 64, headroom_bytes: 64, ..ArenaConfig::default() };
        Self { function, host, region: Arena::new(config, 1).unwrap().split().remove(0), engine: Engine::default() }
    }

    /// Passes a frame through the switch. Returns the outcome, and the copies of the frame with
    /// their egress ports.
    fn pass(&mut self, port: u8, frame: &[u8]) -> (Outcome, Vec<(u8, Vec<u8>)>) {
        let mut packet = self.region.allocate(frame.len()).unwrap();
        packet.port = port;
        self.region.frame_mut(&packet).copy_from_slice(frame);
        let mut after = packet;
        let mut outcome = self.function.run_ref(self.region.buffer_mut(&packet), &mut after, 0, 0);
        assert_eq!(after, packet);
        assert_eq!(self.region.frame(&packet), frame, "the kernel must not write");
        let (descriptors, outcomes) = (std::slice::from_mut(&mut after), std::slice::from_mut(&mut outcome));
        self.host.completing().finish(&mut self.region, descriptors, outcomes);
        let mut left = Vec::new();
        if outcome.verdict == VERDICT_FORWARD {
            left.push((outcome.port as u8, self.region.frame(&after).to_vec()));
        } else if outcome.verdict == VERDICT_FLOOD {
            assert_eq!(outcome.port, PORT_FLOOD);
            for &port in self.function.flood().unwrap().ports(outcome.value).iter().filter(|port| **port != packet.port)
            {
                let mut copy = self.region.duplicate(&after).unwrap();
                self.function.flood().unwrap().prepare_copy(
                    self.region.buffer_mut(&copy.clone()),
                    &mut copy,
                    port,
                    outcome.value,
                );
                left.push((port, self.region.frame(&copy).to_vec()));
                self.region.release(&copy);
            }
        }
        self.region.release(&packet);
        (outcome, left)
    }

    /// Returns the ports that a frame leaves by.
    fn ports(&mut self, port: u8, frame: &[u8]) -> Vec<u8> {
        self.pass(port, frame).1.into_iter().map(|(port, _)| port).collect()
    }

    fn housekeeping(&self, now_s: f64) {
        self.function.control().housekeeping(Duration::from_secs_f64(now_s), &self.engine).unwrap();
    }

    fn command(&self, request: Value) -> Result<Value, String> {
        self.function.operate().unwrap().command(&request, &self.engine).map_err(|error| error.to_string())
    }

    fn count(&self, name: &str) -> u64 {
        let index = CONTRACT.counters.iter().position(|counter| counter.name == name).unwrap();
        self.function.operate().unwrap().counts()[index]
    }
}

fn mac(number: u32) -> MacAddress {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddress([2, 0, a, b, c, d])
}

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
/// Configuration of two VLANs. VLAN 10 includes the access ports a and b and the trunk c. VLAN 20
/// includes the trunks c and d, and port d sends its frames untagged.
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
fn forwards_to_learned_addresses_and_follows_moves() {
    let mut switch = TestSwitch::new("", &PORTS);
    assert_eq!(switch.ports(0, &frame(mac(2), mac(1), None)), [1, 2, 3]);
    // The address is learned but not in the kernel's table yet, so frames to it are flooded.
    assert_eq!(switch.ports(1, &frame(mac(1), mac(2), None)), [0, 2, 3]);
    switch.housekeeping(0.0);
    assert_eq!(switch.ports(1, &frame(mac(1), mac(2), None)), [0]);
    assert_eq!(switch.ports(0, &frame(mac(2), mac(1), None)), [1]);
    assert_eq!([switch.count("addresses"), switch.count("learned")], [2, 2]);
    // The changed words are reported to the engine.
    let offsets: HashSet<usize> = switch.engine.changed.borrow().iter().flat_map(|range| range.clone()).collect();
    assert!(offsets.len() >= 16 && *switch.engine.waited.borrow() == 0);
    // The destination is behind the ingress port, so the frame is dropped.
    let (outcome, left) = switch.pass(0, &frame(mac(1), mac(3), None));
    assert_eq!((outcome.verdict, outcome.reason, left.len()), (VERDICT_DROP, DROP_SAME_PORT, 0));
    switch.housekeeping(0.1);
    assert_eq!(switch.ports(1, &frame(mac(3), mac(2), None)), [0], "learned from a frame that was dropped");
    // The source address moves to another port.
    assert_eq!(switch.ports(3, &frame(mac(2), mac(1), None)), [1]);
    switch.housekeeping(0.2);
    assert_eq!(switch.ports(1, &frame(mac(1), mac(2), None)), [3]);
    assert_eq!([switch.count("addresses"), switch.count("moved")], [3, 1]);
}

#[test]
fn floods_group_addresses_and_never_learns_them() {
    let mut switch = TestSwitch::new("", &PORTS);
    let group = MacAddress([1, 0, 0x5e, 1, 2, 3]);
    for destination in [MacAddress::BROADCAST, group] {
        assert_eq!(switch.ports(2, &frame(destination, mac(1), None)), [0, 1, 3]);
    }
    for source in [group, MacAddress::BROADCAST, MacAddress([0; 6])] {
        let (outcome, _) = switch.pass(2, &frame(mac(1), source, None));
        assert_eq!(outcome, Outcome::drop(DROP_SOURCE));
    }
    for last in 0..=0x10 {
        let (outcome, left) = switch.pass(2, &frame(MacAddress([1, 0x80, 0xc2, 0, 0, last]), mac(7), None));
        let expected = if last < 0x10 { (VERDICT_RESERVED, 0) } else { (VERDICT_FLOOD, 3) };
        assert_eq!((outcome.verdict, left.len()), expected, "01-80-c2-00-00-{last:02x}");
    }
    switch.housekeeping(0.0);
    assert_eq!(switch.count("addresses"), 2);
}

#[test]
fn adds_and_removes_tags_as_ports_require() {
    let mut switch = TestSwitch::new(VLANS, &PORTS);
    let (to, from) = (mac(9), mac(1));
    let bare = frame(to, from, None);
    let tagged = |tci| frame(to, from, Some(tci));
    let rest = |frame: &[u8], at: usize| frame[at..].to_vec();
    let left = |switch: &mut TestSwitch, port, frame: &[u8]| switch.pass(port, frame).1;
    // The tag is added at the trunk and not at the access port.
    let copies = left(&mut switch, 0, &bare);
    assert_eq!(copies.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(copies[0].1, bare);
    assert_eq!(copies[1].1[..18], [&bare[..12], &[0x81, 0, 0, 10, 8, 0]].concat());
    assert_eq!(copies[1].1.len(), 64);
    assert_eq!(rest(&copies[1].1, 18), rest(&bare, 14));
    let copies = left(&mut switch, 2, &tagged(0xe00a));
    assert_eq!(copies.iter().map(|(port, frame)| (*port, frame.len())).collect::<Vec<_>>(), [(0, 56), (1, 56)]);
    assert_eq!(copies[0].1, [&bare[..14], &tagged(0)[18..]].concat());
    // VLAN 20 is the native VLAN of d, so its frames are untagged at d and tagged at c.
    let copies = left(&mut switch, 3, &bare);
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0].1[12..16], [0x81, 0, 0, 20]);
    assert_eq!(left(&mut switch, 2, &tagged(0x2014))[0].1[12..14], [8, 0]);
    // The trunk writes the VLAN identifier into a priority tag and keeps its priority. The access
    // ports remove the tag.
    let copies = left(&mut switch, 0, &tagged(0xa000));
    assert_eq!(copies[0].1[12..14], [8, 0]);
    assert_eq!(copies[1].1[12..16], [0x81, 0, 0xa0, 10]);
    assert_eq!(copies[1].1.len(), 60);
    // No other port belongs to VLAN 21.
    assert!(left(&mut switch, 2, &tagged(21)).is_empty());
    // Frames to known destinations get tags in the same way as flooded frames.
    switch.pass(2, &frame(mac(5), to, Some(10)));
    switch.housekeeping(0.0);
    let forwarded = left(&mut switch, 0, &bare);
    assert_eq!((forwarded[0].0, &forwarded[0].1[12..16]), (2, &[0x81, 0, 0, 10][..]));
    let forwarded = left(&mut switch, 0, &tagged(0x6000));
    assert_eq!(forwarded[0].1[12..16], [0x81, 0, 0x60, 10]);
    switch.pass(0, &frame(mac(5), mac(6), None));
    switch.housekeeping(0.0);
    let forwarded = left(&mut switch, 2, &frame(mac(6), to, Some(0xf00a)));
    assert_eq!((forwarded[0].0, &forwarded[0].1[12..14]), (0, &[8, 0][..]));
    assert_eq!(switch.function.properties().headroom_bytes, 4);
    assert_eq!(TestSwitch::new("", &PORTS).function.properties().headroom_bytes, 0);
}

#[test]
fn keeps_vlans_apart_and_filters_frames_at_ingress() {
    let mut switch = TestSwitch::new(VLANS, &PORTS);
    switch.pass(0, &frame(mac(9), mac(1), None));
    switch.housekeeping(0.0);
    assert_eq!(switch.ports(2, &frame(mac(1), mac(2), Some(10))), [0]);
    assert_eq!(switch.ports(2, &frame(mac(1), mac(2), Some(20))), [3], "unknown in the other VLAN");
    let verdict = |switch: &mut TestSwitch, port, tci| switch.pass(port, &frame(mac(1), mac(2), tci)).0;
    let drop = |reason| Outcome::drop(reason);
    assert_eq!(verdict(&mut switch, 0, Some(10)), drop(DROP_VLAN), "tagged frame at an access port");
    assert_eq!(verdict(&mut switch, 2, None), drop(DROP_VLAN), "untagged frame at a trunk without native VLAN");
    assert_eq!(verdict(&mut switch, 2, Some(0)), drop(DROP_VLAN));
    for vid in [1, 9, 22, 30, 4095] {
        assert_eq!(verdict(&mut switch, 2, Some(vid)), drop(DROP_VLAN), "VLAN {vid}");
    }
    assert_eq!(verdict(&mut switch, 3, Some(20)).verdict, VERDICT_FLOOD, "tagged frame of the native VLAN");
    let mut three = TestSwitch::new("[[port]]\nport = \"a\"\n[[port]]\nport = \"b\"", &PORTS);
    assert_eq!(verdict(&mut three, 3, None), drop(DROP_PORT));
    assert_eq!(verdict(&mut three, 200, None), drop(DROP_PORT));
    let whole = frame(mac(1), mac(2), Some(10));
    for length in 0..18 {
        assert_eq!(switch.pass(2, &whole[..length]).0, drop(DROP_TRUNCATED), "{length} bytes");
    }
    let bare = frame(mac(9), mac(2), None);
    assert_eq!(switch.pass(0, &bare[..13]).0, drop(DROP_TRUNCATED));
    assert_ne!(switch.pass(0, &bare[..14]).0.verdict, VERDICT_DROP);
}

#[test]
fn removes_idle_addresses_after_the_ageing_time() {
    let mut switch =
        TestSwitch::new("ageing_s = 8\ncapacity = 900\n[[mac]]\nmac = \"02:00:00:00:00:63\"\nport = \"d\"", &PORTS);
    switch.pass(0, &frame(mac(9), mac(1), None));
    switch.pass(1, &frame(mac(9), mac(2), None));
    switch.housekeeping(0.0);
    assert_eq!(switch.count("addresses"), 3);
    let mut gone = None;
    for tenth in 0..200 {
        let now = f64::from(tenth) / 10.0;
        // One address sends a frame every two seconds.
        if tenth % 20 == 0 {
            switch.pass(1, &frame(MacAddress::BROADCAST, mac(2), None));
        }
        switch.housekeeping(now);
        if gone.is_none() && switch.function.lookup_ref(key(1, mac(1))).is_none() {
            gone = Some(now);
        }
    }
    let gone = gone.expect("the idle address is removed");
    assert!((8.0..=10.2).contains(&gone), "after {gone} s");
    assert_eq!(switch.function.lookup_ref(key(1, mac(2))), Some(1));
    assert_eq!(switch.function.lookup_ref(key(1, mac(99))), Some(3), "static");
    assert_eq!([switch.count("addresses"), switch.count("aged")], [2, 1]);
    let mut ageless = TestSwitch::new("ageing_s = 0", &PORTS);
    ageless.pass(0, &frame(mac(9), mac(1), None));
    [0.0, 1e6, 2e6, 3e6].into_iter().for_each(|now| ageless.housekeeping(now));
    assert_eq!(ageless.count("addresses"), 1);
}

#[test]
fn first_housekeeping_ages_no_more_than_later_ones() {
    let switch = TestSwitch::new("ageing_s = 800\ncapacity = 900", &PORTS);
    let addresses: Vec<(u64, u8)> = (1..=500).map(|number| (key(1, mac(number)), 1)).collect();
    switch.function.learn_all(&addresses).unwrap();
    let fresh = || switch.function.control().entries.read().unwrap().values().filter(|entry| entry.is_fresh).count();
    assert_eq!(fresh(), 500);
    switch.housekeeping(1e6);
    assert!(fresh() > 450, "{} of 500 are fresh", fresh());
    // The second housekeeping visits the whole table, because more than an eighth of the ageing
    // time has passed.
    switch.housekeeping(1e6 + 100.0);
    assert_eq!(fresh(), 0);
}

#[test]
fn sends_no_notices_for_known_sources() {
    let mut switch = TestSwitch::new("", &PORTS);
    for _ in 0..100 {
        switch.pass(0, &frame(mac(9), mac(1), None));
    }
    switch.housekeeping(0.0);
    let changed = switch.engine.changed.borrow().len();
    assert_eq!(switch.count("learned"), 1);
    let mut packet = switch.region.allocate(60).unwrap();
    switch.region.frame_mut(&packet).copy_from_slice(&frame(mac(9), mac(1), None));
    let outcome = switch.function.run_ref(switch.region.buffer_mut(&packet.clone()), &mut packet, 0, 0);
    assert_eq!(outcome.value & NOTICE, 0);
    switch.housekeeping(0.01);
    assert_eq!(switch.engine.changed.borrow().len(), changed);
}

#[test]
fn counts_dropped_notices_and_learns_their_addresses_later() {
    let mut switch = TestSwitch::new("capacity = 10000\nageing_s = 0", &PORTS);
    let all = 0..9000u32;
    for number in all.clone() {
        switch.pass(0, &frame(MacAddress::BROADCAST, mac(number), None));
    }
    switch.housekeeping(0.0);
    let learned = switch.count("learned");
    assert_eq!(learned, super::host::QUEUE as u64);
    for round in 1..3 {
        for number in all.clone() {
            switch.pass(0, &frame(MacAddress::BROADCAST, mac(number), None));
        }
        switch.housekeeping(f64::from(round));
    }
    assert_eq!(switch.count("addresses"), 9000);
    drop(std::mem::replace(
        &mut switch.host,
        HostHalf::Complete(Box::new(Host::new(switch.function.control().notice_sender()))),
    ));
    assert_eq!(switch.count("unheard"), 9000 - learned + (9000 - 2 * learned));
}

#[test]
fn stops_learning_when_the_table_or_the_port_is_full() {
    let mut switch = TestSwitch::new(
        "capacity = 977\nageing_s = 0\n[[port]]\nport = \"a\"\n[[port]]\nport = \"b\"\nmac_limit = 3",
        &PORTS,
    );
    for number in 0..10 {
        switch.pass(1, &frame(MacAddress::BROADCAST, mac(number), None));
    }
    switch.housekeeping(0.0);
    assert_eq!([switch.count("addresses"), switch.count("not_learned")], [3, 7]);
    for number in 100..1200 {
        switch.pass(0, &frame(MacAddress::BROADCAST, mac(number), None));
    }
    switch.housekeeping(0.0);
    assert_eq!(switch.count("addresses"), 977);
    assert_eq!(switch.count("not_learned"), 7 + 1100 - 974);
    assert!(switch.count("displaced") > 0);
    // The switch finds the addresses that are in the table, and floods frames to all other
    // addresses.
    let known = (0..1200).filter(|number| switch.function.lookup_ref(key(1, mac(*number))).is_some()).count();
    assert_eq!(known, 977);
    let error = switch.command(json!({"command":"add","mac":[{"mac":"02:00:00:00:ff:01","port":"a"}]})).unwrap_err();
    assert!(error.contains("full") && error.contains("977"), "{error}");
    assert_eq!(switch.command(json!({"command":"flush","port":"a"})).unwrap(), json!({"flushed": 974}));
    assert_eq!(switch.count("addresses"), 3);
}

#[test]
fn commands_add_delete_flush_and_list_addresses() {
    let mut switch = TestSwitch::new(VLANS, &PORTS);
    switch.pass(0, &frame(mac(9), mac(1), None));
    switch.pass(2, &frame(mac(9), mac(2), Some(20)));
    switch.housekeeping(0.0);
    let one = json!({"vlan": 10, "mac": "02-00-00-00-00-01", "port": "b"});
    let two = json!({"vlan": 20, "mac": "02:00:00:00:00:07", "port": "d"});
    assert_eq!(switch.command(json!({"command":"add","mac":[one, two]})).unwrap(), json!({"added": 2}));
    // The learned address became static and does not move.
    switch.pass(0, &frame(mac(9), mac(1), None));
    switch.housekeeping(0.1);
    assert_eq!(switch.function.lookup_ref(key(10, mac(1))), Some(1));
    let list = switch.command(json!({"command":"list"})).unwrap();
    assert_eq!((&list["addresses"], &list["left"]), (&json!(3), &json!(0)));
    let of = |value: &Value| {
        (value["vlan"].as_u64().unwrap(), value["mac"].as_str().unwrap().to_owned(), value["static"].as_bool().unwrap())
    };
    let listed: Vec<_> = list["mac"].as_array().unwrap().iter().map(of).collect();
    let expected = [(10, mac(1), true), (20, mac(2), false), (20, mac(7), true)];
    assert_eq!(listed, expected.map(|(vid, mac, is_static)| (vid, mac.to_string(), is_static)));
    let rest =
        switch.command(json!({"command":"list","vlan":20,"after":{"vlan":20,"mac":"02:00:00:00:00:02"}})).unwrap();
    assert_eq!(rest["mac"].as_array().unwrap().len(), 1);
    assert_eq!(switch.command(json!({"command":"list","port":"c"})).unwrap()["mac"].as_array().unwrap().len(), 1);
    assert_eq!(switch.command(json!({"command":"flush"})).unwrap(), json!({"flushed": 1}));
    let gone = json!({"vlan": 10, "mac": "02:00:00:00:00:01"});
    assert_eq!(switch.command(json!({"command":"delete","mac":[gone]})).unwrap(), json!({"deleted": 1}));
    assert_eq!(switch.count("addresses"), 1);
    for (request, part) in [
        (json!({"command":"add"}), "needs \"mac\""),
        (json!({"command":"add","mac":[]}), "needs \"mac\""),
        (json!({"command":"add","mac":[{"mac":"02:00:00:00:00:08"}]}), "\"port\""),
        (json!({"command":"add","mac":[{"mac":"02:00:00:00:00","port":"a"}]}), "not an Ethernet address"),
        (json!({"command":"add","mac":[{"mac":"03:00:00:00:00:00","port":"a"}]}), "03:00:00:00:00:00"),
        (json!({"command":"add","mac":[{"mac":"02:00:00:00:00:08","port":"a"}]}), "VLAN 1"),
        (json!({"command":"add","mac":[{"vlan":20,"mac":"02:00:00:00:00:07","port":"d"}]}), "already"),
        (json!({"command":"add","mac":[{"vlan":4095,"mac":"02:00:00:00:00:07","port":"d"}]}), "1 to 4094"),
        (json!({"command":"delete","mac":[{"mac":"02:00:00:00:00:08"}]}), "not in the table"),
        (json!({"command":"list","port":"x"}), "it has a, b, c, d"),
        (json!({"command":"flush","vlan":0}), "1 to 4094"),
        (json!({"command":"learn"}), "list, add, delete and flush"),
    ] {
        let error = switch.command(request.clone()).unwrap_err();
        assert!(error.contains(part), "{request}: {error}");
        assert_eq!(switch.count("addresses"), 1);
    }
    // A command is executed completely or not at all.
    let good = json!({"vlan": 10, "mac": "02:00:00:00:00:11", "port": "a"});
    let bad = json!({"vlan": 20, "mac": "02:00:00:00:00:07", "port": "d"});
    switch.command(json!({"command":"add","mac":[good, bad]})).unwrap_err();
    assert_eq!(switch.function.lookup_ref(key(10, mac(0x11))), None);
}

#[test]
fn reads_static_addresses_from_the_file_and_the_stanza() {
    let directory = Directory::new("l2-macs");
    let write = |text: &str| std::fs::write(directory.0.join("macs.txt"), text).unwrap();
    let build = |stanza: &str| testing::build(&KIND, stanza, &PORTS, &directory.0);
    let stanza = format!("macs = \"macs.txt\"\n{VLANS}");
    write("# switch\n10 02:00:00:00:00:01 a\r\n\n20\t02-00-00-00-00-01 d ; here too\n");
    let function = build(&stanza).unwrap();
    assert_eq!(function.operate().unwrap().counts()[0], 2);
    for (text, part) in [
        ("10 02:00:00:00:00:01", ":1: a line is VLAN ADDRESS PORT"),
        ("\n10 02:00:00:00:00:01 a b", ":2: a line is"),
        ("0 02:00:00:00:00:01 a", ":1: \"0\""),
        ("4095 02:00:00:00:00:01 a", ":1: \"4095\""),
        ("+1 02:00:00:00:00:01 a", "\"+1\""),
        ("10 02:00:00:00:00:0x a", ":1: \"02:00:00:00:00:0x\""),
        ("10 ff:ff:ff:ff:ff:ff a", "ff:ff:ff:ff:ff:ff"),
        ("10 02:00:00:00:00:01 e", "\"e\"; it has a, b, c, d"),
        ("20 02:00:00:00:00:01 a", "VLAN 20"),
        ("10 02:00:00:00:00:01 a\n\n10 02-00-00-00-00-01 b", "line 1"),
        ("10 02:00:00:00:00:01 \u{fffd}\n", "no port"),
    ] {
        write(text);
        let error = build(&stanza).err().unwrap().to_string();
        assert!(error.contains(part) && error.contains("macs.txt"), "{text:?}: {error}");
    }
    std::fs::write(directory.0.join("macs.txt"), b"10 \xff a\n").unwrap();
    assert!(build(&stanza).err().unwrap().to_string().contains(":1: the line is not valid UTF-8"));
    let error = build("macs = \"missing.txt\"").err().unwrap().to_string();
    assert!(error.contains("missing.txt: "), "{error}");
}

#[test]
fn rejects_invalid_stanzas_with_the_reason() {
    for (stanza, part) in [
        ("capacity = 0", "capacity = 0: must be 1 to "),
        ("capacity = 2000000000", "must be 1 to 1025"),
        ("ageing_s = 1000001", "1000000"),
        ("ports = 1", "ports"),
        ("[[port]]\nport = \"x\"", "the ports are: a, b, c, d"),
        ("[[port]]\nport = \"a\"\n[[port]]\nport = \"a\"", "twice"),
        ("[[port]]\nport = \"a\"\naccess = 0", "0 is not a VLAN"),
        ("[[port]]\nport = \"a\"\naccess = 4095", "4095 is not a VLAN"),
        ("[[port]]\nport = \"a\"\naccess = 1\ntrunk = [2]", "either access"),
        ("[[port]]\nport = \"a\"\naccess = 1\nnative = 1", "either access"),
        ("[[port]]\nport = \"a\"\nnative = 1", "requires trunk"),
        ("[[port]]\nport = \"a\"\ntrunk = []", "without tagged VLANs"),
        ("[[port]]\nport = \"a\"\ntrunk = [5]\nnative = 5", "without tagged VLANs"),
        ("[[port]]\nport = \"a\"\ntrunk = [\"9-4\"]", "\"9-4\""),
        ("[[port]]\nport = \"a\"\ntrunk = [\"1-4095\"]", "\"4095\""),
        ("[[port]]\nport = \"a\"\ntrunk = [\"x\"]", "\"x\" is not a VLAN"),
        ("[[mac]]\nmac = \"02:00:00:00:00:01\"\nport = \"x\"", "\"x\""),
        ("[[mac]]\nmac = \"02:00:00:00:00:01\"\nport = \"a\"\nvlan = 2", "VLAN 2"),
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
fn publishes_the_rest_after_a_failed_wait() {
    let switch = TestSwitch::new("capacity = 977\nageing_s = 0", &PORTS);
    let addresses = |range: Range<u32>| range.map(|number| (key(1, mac(number)), 0)).collect::<Vec<_>>();
    switch.function.learn_all(&addresses(0..900)).unwrap();
    *switch.engine.fails.borrow_mut() = true;
    // The table is nearly full, so the insertion must move existing entries. These moves need
    // several groups of writes.
    let error = switch.function.control().learn_all(&addresses(900..977), Some(&switch.engine)).unwrap_err();
    assert!(error.to_string().contains("timed out"));
    assert!(switch.function.control().housekeeping(Duration::ZERO, &switch.engine).is_err());
    *switch.engine.fails.borrow_mut() = false;
    switch.housekeeping(0.0);
    let image = switch.function.image().to_vec();
    let entries = (0..4 << tables::BUCKET_BITS.start).map(tables::offset);
    let full = entries.filter(|at| image[*at..at + 8] != [0; 8]).count();
    assert_eq!(full, 977);
}

/// Compares the frames that leave the switch with frames from scapy, which are stored in
/// `tests/vectors/l2/`.
#[test]
fn tags_agree_with_scapy() {
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
        tags::retag(&mut buffer, &mut descriptor, vid, leaves == "tagged");
        assert_eq!(buffer[usize::from(descriptor.head)..][..usize::from(descriptor.length)], left, "{line}");
        tried += 1;
    }
    assert!(tried > 80);
}
