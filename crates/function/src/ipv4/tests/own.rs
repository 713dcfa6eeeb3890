//! Tests which frames and packets the router accepts, depending on its own addresses.

use super::*;

#[test]
fn frames_to_a_group_of_stations_are_dropped() {
    let function = function(ROUTES);
    for destination in [[10, 0, 0, 1], [10, 1, 0, 1], [11, 0, 0, 1]] {
        for group in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [3, 0, 0, 0, 0, 1]] {
            let mut packet = frame([192, 0, 2, 1], destination, 9);
            packet[..6].copy_from_slice(&group);
            let mut tagged = packet.clone();
            tagged.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
            for mut packet in [packet, tagged] {
                assert_eq!(run(&*function, &mut packet), Outcome::drop(DROP_GROUP_FRAME), "{destination:?} {group:?}");
            }
        }
    }
    let mut arp = frame([192, 0, 2, 1], [10, 0, 0, 1], 9);
    arp[..6].fill(0xff);
    arp[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(run(&*function, &mut arp), Outcome::verdict(VERDICT_NOT_IPV4));
}

#[test]
fn own_addresses_are_those_of_local_host_routes() {
    let routes = "[[route]]\nprefix = \"10.1.0.1\"\nnext_hop = \"here\"";
    let function = function(&format!("{ROUTES}{routes}"));
    let own = function.station().map(|part| part.own_addresses()).unwrap();
    assert_eq!(own.all(), [std::net::IpAddr::from([10, 1, 0, 1])]);
    assert_eq!(own.stations(1).collect::<Vec<_>>(), [MacAddress([2, 0, 0, 0, 0, 11])]);
    assert_eq!(own.stations(0).count(), 0);
    let command = |command: &str, route: serde_json::Value| {
        let request = serde_json::json!({ "command": command, "route": [route] });
        function.operate().unwrap().command(&request, &Idle::default()).unwrap();
    };
    command("add", serde_json::json!({ "prefix": "10.9.9.9", "next_hop": "here" }));
    command("add", serde_json::json!({ "prefix": "10.9.9.8", "next_hop": "east" }));
    command("delete", serde_json::json!("10.1.0.1"));
    assert_eq!(own.all(), [std::net::IpAddr::from([10, 9, 9, 9])]);
}
