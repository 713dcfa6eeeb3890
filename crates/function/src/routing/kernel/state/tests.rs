use super::super::peers::Peers;
use super::*;

#[test]
fn memory_for_routes_of_zebra_is_bounded_by_the_table() {
    let fpm = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let peers = Peers::default();
    let mut state = State::new(Settings { source: RouteSource::Fpm, table: 254, fpm, peers, ports: Vec::new() });
    let event = |number: usize, is_there| {
        let address = std::net::Ipv4Addr::from_bits(number as u32);
        let prefix = Prefix::host(address.into());
        let route = Route { prefix, table: 254, metric: 0, is_of_address: false, target: Target::Local };
        Event::Route { route, is_there }
    };
    let ignored = 50_000;
    for number in 0..WAITING_MAX + ignored {
        state.zebra_event(event(number, true));
        state.zebra_event(Event::NextHop { id: number as u32, target: Some(Target::Local) });
        // The withdrawal of an unknown route must not take memory.
        state.zebra_event(event(1 << 30 | number, false));
    }
    let lengths = (state.zebra_routes.len(), state.objects.len(), state.dirty.len(), state.ignored);
    assert_eq!(lengths, (WAITING_MAX, WAITING_MAX, WAITING_MAX, 2 * ignored));
    assert!(state.report().unwrap_err().to_string().contains("no room"));
    // Each route in the table allows one more route from zebra.
    state.installed.insert(Prefix::host(IpAddr::from([10, 0, 0, 1])), HopKey::Local);
    state.zebra_event(event(WAITING_MAX + ignored, true));
    state.zebra_event(event(WAITING_MAX + ignored + 1, true));
    assert_eq!(state.zebra_routes.len(), WAITING_MAX + 1);
}

/// Packets that wait for a neighbour leave before routes use its address.
#[test]
fn routes_use_an_awaited_address_after_the_held_packets() {
    use crate::neighbours::{Neighbours, SETTLE_NS, Target};
    let responder = std::sync::Arc::new(Neighbours::new(vec![None, Some(MacAddress([2; 6]))]));
    let fpm = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let ports = vec![("right".to_owned(), 1)];
    let mut state =
        State::new(Settings { source: RouteSource::Kernel, table: 254, fpm, peers: Peers::default(), ports });
    state.awaiting = Awaiting::of_responders(5, vec![std::sync::Arc::clone(&responder)]);
    let link = Link { name: "right".to_owned(), address: MacAddress([2; 6]), mtu: 1500, is_up: true };
    state.event(Event::Link { index: 9, link: Some(link) }, Family::V4);
    state.awaiting.register(0, Some(Target { port: 1, gateway: None, mtu: 1500 }));
    let answer = |number: u8| Event::Neighbour {
        interface: 9,
        address: IpAddr::from([10, 0, 0, number]),
        station: Some(MacAddress([2, 0, 0, 0, 0, number])),
        is_stale: false,
    };
    let known = |state: &State, number| state.neighbours.contains_key(&(9, IpAddr::from([10, 0, 0, number])));
    let station = |number| (1, IpAddr::from([10, 0, 0, number]));
    let kernel = responder.kernel();

    state.event(answer(1), Family::V4);
    assert!(known(&state, 1));
    kernel.enter(5, station(1), 0);
    state.report_awaited();
    assert_eq!(kernel.address(station(1)), Some(Some(MacAddress([2, 0, 0, 0, 0, 1]))));

    for number in [2, 3] {
        kernel.enter(5, station(number), 0);
        state.event(answer(number), Family::V4);
        assert_eq!(kernel.address(station(number)), Some(Some(MacAddress([2, 0, 0, 0, 0, number]))));
        assert!(!known(&state, number), "{number}");
    }
    let (interface, address) = (9, IpAddr::from([10, 0, 0, 3]));
    state.event(Event::Neighbour { interface, address, station: None, is_stale: false }, Family::V4);
    assert_eq!(kernel.address(station(3)), Some(None));
    std::thread::sleep(Duration::from_nanos(SETTLE_NS));
    state.record_settled(Family::V4);
    assert!(known(&state, 2) && !known(&state, 3));
    assert!(state.dirty.contains(&Prefix::host(IpAddr::from([10, 0, 0, 2]))));
}
