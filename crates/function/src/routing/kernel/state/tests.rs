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
        // A route that was never announced is withdrawn. The withdrawal must not take memory.
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
