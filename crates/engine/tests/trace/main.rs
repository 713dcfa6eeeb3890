//! Packet traces: what they say of packets is what happened, step by step, and what the counters say.

mod common;
mod devices;
#[path = "../faults/mod.rs"]
mod faults;
mod made;

use godwit_engine::config::Config;
use godwit_engine::trace::{Fate, StepKind};
use godwit_engine::{Engine, Options};
use serde_json::{Value, json};

use common::{GATEWAY, HERE, agrees, gateway_frames, path, replay, udp};

#[test]
fn steps_of_known_packets() {
    let (report, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 100, "frames": true }));
    agrees(&report, &found);
    assert_eq!((found.packets.len(), found.chosen, found.over), (6, 6, true));
    let of = |port: &str, sequence: usize| {
        let mut of_port = found.packets.iter().filter(|packet| packet.port == port);
        of_port.nth(sequence).unwrap_or_else(|| panic!("{found:?}"))
    };
    let expected = [
        vec![
            "branch > inspect",
            "inspect bin of cpu",
            "to cpu",
            "from cpu",
            "inspect: clean > route",
            "route bin of cpu",
            "to cpu",
            "from cpu",
            "route: forward > wan",
            "sent by wan",
        ],
        vec![
            "branch > inspect",
            "inspect bin of cpu",
            "to cpu",
            "from cpu",
            "inspect: match > drop",
            "dropped: engine_dropped_chain",
        ],
        vec!["dns > route", "route bin of cpu", "to cpu", "from cpu", "route: forward > wan", "sent by wan"],
        vec![
            "default > route",
            "route bin of cpu",
            "to cpu",
            "from cpu",
            "dropped: ipv4_dropped_blackhole{function=\"route\"}",
        ],
        vec![
            "default > route",
            "route bin of cpu",
            "to cpu",
            "from cpu",
            "route: ttl_exceeded > nowhere",
            "dropped: engine_dropped_unrouted",
        ],
    ];
    for (number, expected) in expected.iter().enumerate() {
        assert_eq!(path(of("lan", number)), *expected);
    }
    assert_eq!(path(of("wan", 0)), ["default > lan", "sent by lan"]);
    let fates: Vec<Fate> = (0..5).map(|number| of("lan", number).fate).collect();
    assert_eq!(fates, [Fate::Sent, Fate::Dropped, Fate::Sent, Fate::Dropped, Fate::Dropped]);

    let [(_, lan), _] = gateway_frames();
    let first = of("lan", 0);
    let flow = first.flow.as_ref().unwrap();
    assert_eq!((flow.source, flow.destination), ([10, 1, 0, 5].into(), [10, 2, 3, 4].into()));
    assert_eq!((flow.protocol, flow.source_port, flow.destination_port), (17, 4000, 5000));
    assert_eq!((first.frame.as_slice(), usize::from(first.length)), (lan[0].as_slice(), lan[0].len()));
    assert_eq!(first.time_ns, 1_700_000_000 * 1_000_000_000);
    // As it left: addresses of the next hop, one hop less to live.
    let [left] = first.left.as_slice() else { panic!("{first:?}") };
    assert_eq!((left.port.as_str(), &left.frame[..6], left.frame[22]), ("wan", &[2, 0, 0, 0, 0, 7][..], 63));
    assert!(of("lan", 1).left.is_empty());
    let StepKind::Submitted { chunk, bin, bins, bin_packets, chunk_packets, .. } = first.steps[2].kind else {
        panic!("{first:?}")
    };
    assert!(chunk >= 1 && (1..=bins).contains(&bin), "{first:?}");
    assert!(u32::from(bin_packets) <= chunk_packets && bin_packets >= 2, "{first:?}");
    let reasons: Vec<&str> = found
        .packets
        .iter()
        .flat_map(|packet| &packet.steps)
        .filter_map(|step| match step.kind {
            StepKind::Dropped { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert!(reasons.contains(&"The route is a blackhole."), "{reasons:?}");
}

#[test]
fn json_says_the_same() {
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 100, "frames": true }));
    let text = serde_json::to_string(&found).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["packets"].as_array().unwrap().len(), found.packets.len());
    for (packet, value) in found.packets.iter().zip(value["packets"].as_array().unwrap()) {
        assert_eq!((value["number"].as_u64(), value["port"].as_str()), (Some(packet.number), Some(&*packet.port)));
        assert_eq!(value["steps"].as_array().unwrap().len(), packet.steps.len());
        assert_eq!(value["source"], packet.flow.as_ref().unwrap().source.to_string());
        let hexadecimal: String = packet.frame.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(value["frame"], hexadecimal);
    }
    let steps = &value["packets"]
        .as_array()
        .unwrap()
        .iter()
        .find(|packet| packet["destination"] == "10.2.3.4")
        .unwrap()["steps"];
    assert_eq!(steps[0]["step"], "received");
    assert_eq!(steps[0]["class"], "branch");
    assert_eq!(steps[0]["next"], json!({ "function": "inspect" }));
    assert_eq!((&steps[1]["step"], &steps[1]["device"]), (&json!("binned"), &json!("cpu")));
    assert_eq!((&steps[4]["step"], &steps[4]["verdict"]), (&json!("verdict"), &json!("clean")));
}

#[test]
fn filters_by_every_field() {
    let matches = |filter: Value| {
        let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 100, "filter": filter.clone() }));
        let mut matches: Vec<(String, u64)> =
            found.packets.iter().map(|packet| (packet.port.clone(), packet.sequence)).collect();
        matches.sort();
        // Numbers in the sequence of both ports together, which are merged by time: those of `lan` first.
        matches.into_iter().map(|(port, sequence)| format!("{port}{sequence}")).collect::<Vec<_>>().join(" ")
    };
    let all = matches(json!({}));
    let each: Vec<&str> = all.split(' ').collect();
    let [a, attack, dns, hole, old, answer] = each[..] else { panic!("{all}") };
    for (filter, expected) in [
        (json!({ "port": "lan" }), vec![a, attack, dns, hole, old]),
        (json!({ "port": ["wan"] }), vec![answer]),
        (json!({ "class": "branch" }), vec![a, attack]),
        (json!({ "class": ["branch", "dns"] }), vec![a, attack, dns]),
        (json!({ "class": "default" }), vec![hole, old, answer]),
        (json!({ "source": "10.3.0.1" }), vec![answer]),
        (json!({ "source": ["10.3.0.0/16", "10.1.0.4/31"], "port": "wan" }), vec![answer]),
        (json!({ "destination": "10.2.0.0/15" }), vec![a, attack, dns, old]),
        (json!({ "protocol": "udp" }), each.clone()),
        (json!({ "protocol": 17, "destination": "10.9.0.0/16" }), vec![hole]),
        (json!({ "protocol": ["tcp", "esp"] }), vec![]),
        (json!({ "source_ports": 4001 }), vec![dns, hole]),
        (json!({ "source_ports": "4000-4001", "destination_ports": [53, "70-90"] }), vec![dns, hole]),
        (json!({ "destination_ports": 80, "protocol": "udp" }), vec![hole, old]),
        (json!({ "source": "2001:db8::/32" }), vec![]),
    ] {
        assert_eq!(matches(filter.clone()), expected.join(" "), "{filter}");
    }
}

#[test]
fn only_so_many_and_only_those_dropped() {
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 2 }));
    assert_eq!((found.packets.len(), found.chosen, found.over), (2, 2, true));
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "dropped": true }));
    assert_eq!((found.packets.len(), found.chosen), (3, 6));
    assert!(found.packets.iter().all(|packet| packet.fate == Fate::Dropped));
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "dropped": true, "count": 1 }));
    assert_eq!(found.packets.len(), 1);
}

#[test]
fn what_is_wrong_with_a_request_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("patterns.txt"), "attack\n").unwrap();
    let config = Config::parse(GATEWAY, "test.toml", folder.path()).unwrap();
    let engine = Engine::new(config, &Options::default()).unwrap();
    let with = |filter: Value| json!({ "filter": filter });
    for (request, expected) in [
        (json!([]), "a trace request must be a JSON object"),
        (json!({ "count": 0 }), "`count` must be a number from 1 to 4096"),
        (json!({ "count": 4097 }), "`count` must be a number from 1 to 4096"),
        (json!({ "frames": 1 }), "`frames` must be true or false"),
        (json!({ "cuont": 1 }), "did you mean `count`?"),
        (json!({ "filter": "udp" }), "`filter` must be a JSON object"),
        (with(json!({ "sources": "10.0.0.1" })), "did you mean `source`?"),
        (with(json!({ "port": "lam" })), "did you mean `lan`?"),
        (with(json!({ "class": "brunch" })), "did you mean `branch`?"),
        (with(json!({ "class": 7 })), "`class` must be a name"),
        (with(json!({ "protocol": "upd" })), "did you mean `udp`?"),
        (with(json!({ "protocol": 256 })), "256 is not a protocol number"),
        (with(json!({ "source": "10.0.0.1/33" })), "`source`: "),
        (with(json!({ "source": "10.0.0.1/8" })), "`source`: "),
        (with(json!({ "destination": 7 })), "7 is not a prefix"),
        (with(json!({ "source_ports": "9-3" })), "empty range"),
        (with(json!({ "source_ports": 65536 })), "65536 is not a port"),
        (with(json!({ "destination_ports": [] })), "an empty list matches no packet"),
        (
            with(json!({ "destination_ports": 1.5 })),
            "`destination_ports` must be a number, a string, or a list of them",
        ),
        (with(json!({ "protocol": "esp", "source_ports": 1 })), "requires protocols with ports"),
        (with(json!({ "source": "10.0.0.0/8", "destination": "2001:db8::/32" })), "have different IP versions"),
    ] {
        let error = engine.trace(&request).unwrap_err();
        assert!(error.contains(expected), "{request}: {error}");
    }
    let trace = engine.trace(&json!({})).unwrap();
    let error = engine.trace(&json!({})).unwrap_err();
    assert!(error.contains("another client is tracing"), "{error}");
    drop(trace);
    engine.trace(&json!({})).unwrap();
}

const SWITCH: &str = r#"
    [engine]
    pin = false
    [[port]]
    name = "a"
    kind = "synthetic"
    [[port]]
    name = "b"
    kind = "synthetic"
    [[port]]
    name = "c"
    kind = "synthetic"
    [[function]]
    name = "switch"
    kind = "l2"
    [[chain]]
    from = "a"
    to = "switch"
    [[chain]]
    from = "b"
    to = "switch"
    [[chain]]
    from = "switch"
    verdict = "flood"
    to = "egress"
    [[chain]]
    from = "switch"
    verdict = "forward"
    to = "egress"
"#;

#[test]
fn a_flood() {
    let frame = udp(HERE, [10, 2, 3, 4], [1, 2], 64, b"to whom it may concern");
    let (report, found) = replay(SWITCH, &[("a", vec![frame.clone()])], &json!({ "frames": true }));
    agrees(&report, &found);
    let [packet] = found.packets.as_slice() else { panic!("{found:?}") };
    let path = path(packet);
    // Which of them is the copy is the engine's own business.
    assert_eq!(path[path.len() - 4..path.len() - 2], ["switch: flood > a+b+c", "copy to b"], "{path:?}");
    let mut sent = path[path.len() - 2..].to_vec();
    sent.sort();
    assert_eq!(sent, ["sent by b", "sent by c"]);
    assert_eq!((packet.fate, packet.left.len()), (Fate::Sent, 2));
    assert!(packet.left.iter().all(|left| left.frame == frame));
}
