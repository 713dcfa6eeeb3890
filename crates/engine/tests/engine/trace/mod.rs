//! Packet traces: each step of known packets, and agreement with the counters.

mod common;
mod devices;
mod made;

use godwit_engine::config::Config;
use godwit_engine::trace::{Fate, StepKind};
use godwit_engine::{Engine, Options};
use godwit_test_support::hex::hex;
use godwit_test_support::{Folder, capture};
use serde_json::{Value, json};

use common::{GATEWAY, HERE, assert_agreement, gateway_frames, path, replay, run, udp};

#[test]
fn a_trace_shows_each_step_of_a_packet() {
    let (report, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 100, "frames": true }));
    assert_agreement(&report, &found);
    assert_eq!((found.packets.len(), found.chosen, found.over), (6, 6, true));
    let packet = |port: &str, sequence: usize| {
        let mut received = found.packets.iter().filter(|packet| packet.port == port);
        received.nth(sequence).unwrap_or_else(|| panic!("{found:?}"))
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
        assert_eq!(path(packet("lan", number)), *expected);
    }
    assert_eq!(path(packet("wan", 0)), ["default > lan", "sent by lan"]);
    let fates: Vec<Fate> = (0..5).map(|number| packet("lan", number).fate).collect();
    assert_eq!(fates, [Fate::Sent, Fate::Dropped, Fate::Sent, Fate::Dropped, Fate::Dropped]);

    let [(_, lan), _] = gateway_frames();
    let first = packet("lan", 0);
    let flow = first.flow.as_ref().unwrap();
    assert_eq!((flow.source, flow.destination), ([10, 1, 0, 5].into(), [10, 2, 3, 4].into()));
    assert_eq!((flow.protocol, flow.source_port, flow.destination_port), (17, 4000, 5000));
    assert_eq!((first.frame.as_slice(), usize::from(first.length)), (lan[0].as_slice(), lan[0].len()));
    assert_eq!(first.time_ns, u64::from(capture::START_SECONDS) * 1_000_000_000);
    // The sent frame has the addresses of the next hop, and a TTL that is lower by 1.
    let [left] = first.left.as_slice() else { panic!("{first:?}") };
    assert_eq!((left.port.as_str(), &left.frame[..6], left.frame[22]), ("wan", &[2, 0, 0, 0, 0, 7][..], 63));
    assert!(packet("lan", 1).left.is_empty());
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
    assert!(reasons.iter().any(|reason| reason.contains("blackhole")), "{reasons:?}");
}

#[test]
fn the_json_of_a_trace_has_the_same_content() {
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 100, "frames": true }));
    let text = serde_json::to_string(&found).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["packets"].as_array().unwrap().len(), found.packets.len());
    for (packet, value) in found.packets.iter().zip(value["packets"].as_array().unwrap()) {
        assert_eq!((value["number"].as_u64(), value["port"].as_str()), (Some(packet.number), Some(&*packet.port)));
        assert_eq!(value["steps"].as_array().unwrap().len(), packet.steps.len());
        assert_eq!(value["source"], packet.flow.as_ref().unwrap().source.to_string());
        assert_eq!(value["frame"], hex(&packet.frame));
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
fn a_filter_selects_packets_by_any_field() {
    let matches = |filter: Value| {
        let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 100, "filter": filter.clone() }));
        let mut matches: Vec<(String, u64)> =
            found.packets.iter().map(|packet| (packet.port.clone(), packet.sequence)).collect();
        matches.sort();
        // The sequence numbers of both ports are merged by time, `lan` first.
        matches.into_iter().map(|(port, sequence)| format!("{port}{sequence}")).collect::<Vec<_>>().join(" ")
    };
    let all = matches(json!({}));
    let each: Vec<&str> = all.split(' ').collect();
    let [harmless, attack, dns, blackhole, expired, answer] = each[..] else { panic!("{all}") };
    for (filter, expected) in [
        (json!({ "port": "lan" }), vec![harmless, attack, dns, blackhole, expired]),
        (json!({ "port": ["wan"] }), vec![answer]),
        (json!({ "class": "branch" }), vec![harmless, attack]),
        (json!({ "class": ["branch", "dns"] }), vec![harmless, attack, dns]),
        (json!({ "class": "default" }), vec![blackhole, expired, answer]),
        (json!({ "source": "10.3.0.1" }), vec![answer]),
        (json!({ "source": ["10.3.0.0/16", "10.1.0.4/31"], "port": "wan" }), vec![answer]),
        (json!({ "destination": "10.2.0.0/15" }), vec![harmless, attack, dns, expired]),
        (json!({ "protocol": "udp" }), each.clone()),
        (json!({ "protocol": 17, "destination": "10.9.0.0/16" }), vec![blackhole]),
        (json!({ "protocol": ["tcp", "esp"] }), vec![]),
        (json!({ "source_ports": 4001 }), vec![dns, blackhole]),
        (json!({ "source_ports": "4000-4001", "destination_ports": [53, "70-90"] }), vec![dns, blackhole]),
        (json!({ "destination_ports": 80, "protocol": "udp" }), vec![blackhole, expired]),
        (json!({ "source": "2001:db8::/32" }), vec![]),
    ] {
        assert_eq!(matches(filter.clone()), expected.join(" "), "{filter}");
    }
}

#[test]
fn a_trace_is_limited_by_count_and_by_dropped() {
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "count": 2 }));
    assert_eq!((found.packets.len(), found.chosen, found.over), (2, 2, true));
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "dropped": true }));
    assert_eq!((found.packets.len(), found.chosen), (3, 6));
    assert!(found.packets.iter().all(|packet| packet.fate == Fate::Dropped));
    let (_, found) = replay(GATEWAY, &gateway_frames(), &json!({ "dropped": true, "count": 1 }));
    assert_eq!(found.packets.len(), 1);
}

/// A trace of dropped packets cannot know which packets will be dropped. If it followed all of
/// them, a healthy data path would slow down many times.
#[test]
fn a_live_trace_of_dropped_packets_follows_samples() {
    let config = |to: &str| {
        format!(
            "[engine]\nworkers = 1\n[[port]]\nname = \"in\"\nkind = \"synthetic\"\npackets = 400000\n\
             [[function]]\nname = \"back\"\nkind = \"echo\"\n[[chain]]\nfrom = \"in\"\nto = \"back\"\n\
             [[chain]]\nfrom = \"back\"\nto = \"{to}\"\n"
        )
    };
    let folder = Folder::new();
    let (report, found) = run(&config("in"), folder.path(), &json!({ "dropped": true }), &Options::default());
    assert_eq!((found.packets.len(), report.conservation.received), (0, 400_000));
    assert!(found.chosen >= 32 && found.chosen <= 40_000, "{}", found.chosen);
    let (_, found) = run(&config("drop"), folder.path(), &json!({ "dropped": true }), &Options::default());
    assert_eq!(found.packets.len(), 10);
    assert!(found.packets.iter().all(|packet| packet.fate == Fate::Dropped));
}

#[test]
fn an_invalid_trace_request_is_refused() {
    let folder = Folder::new();
    folder.write("patterns.txt", "attack\n");
    let config = Config::parse(GATEWAY, "test.toml", folder.path()).unwrap();
    let engine = Engine::new(config, &Options::default()).unwrap();
    let with = |filter: Value| json!({ "filter": filter });
    for (request, expected) in [
        (json!([]), "JSON object"),
        (json!({ "count": 0 }), "`count`"),
        (json!({ "count": 4097 }), "4096"),
        (json!({ "frames": 1 }), "`frames`"),
        (json!({ "cuont": 1 }), "`count`"),
        (json!({ "filter": "udp" }), "`filter`"),
        (with(json!({ "sources": "10.0.0.1" })), "`source`"),
        (with(json!({ "port": "lam" })), "`lan`"),
        (with(json!({ "class": "brunch" })), "`branch`"),
        (with(json!({ "class": 7 })), "`class`"),
        (with(json!({ "protocol": "upd" })), "`udp`"),
        (with(json!({ "protocol": 256 })), "256"),
        (with(json!({ "source": "10.0.0.1/33" })), "`source`: "),
        (with(json!({ "source": "10.0.0.1/8" })), "`source`: "),
        (with(json!({ "destination": 7 })), "7 "),
        (with(json!({ "source_ports": "9-3" })), "9-3"),
        (with(json!({ "source_ports": 65536 })), "65536"),
        (with(json!({ "destination_ports": [] })), "`destination_ports`"),
        (with(json!({ "destination_ports": 1.5 })), "`destination_ports`"),
        (with(json!({ "protocol": "esp", "source_ports": 1 })), "`source_ports`"),
        (with(json!({ "source": "10.0.0.0/8", "destination": "2001:db8::/32" })), "IP version"),
    ] {
        let error = engine.trace(&request).unwrap_err().to_string();
        assert!(error.contains(expected), "{request}: {error}");
    }
    let trace = engine.trace(&json!({})).unwrap();
    let error = engine.trace(&json!({})).unwrap_err().to_string();
    assert!(error.contains("another client"), "{error}");
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
fn a_trace_shows_the_copies_of_a_flooded_packet() {
    let frame = udp(HERE, [10, 2, 3, 4], [1, 2], 64, b"to whom it may concern");
    let (report, found) = replay(SWITCH, &[("a", vec![frame.clone()])], &json!({ "frames": true }));
    assert_agreement(&report, &found);
    let [packet] = found.packets.as_slice() else { panic!("{found:?}") };
    let path = path(packet);
    // The order of the copy and the original is not specified.
    assert_eq!(path[path.len() - 4..path.len() - 2], ["switch: flood > a+b+c", "copy to b"], "{path:?}");
    let mut sent = path[path.len() - 2..].to_vec();
    sent.sort();
    assert_eq!(sent, ["sent by b", "sent by c"]);
    assert_eq!((packet.fate, packet.left.len()), (Fate::Sent, 2));
    assert!(packet.left.iter().all(|left| left.frame == frame));
}
