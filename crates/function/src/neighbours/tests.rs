use super::*;

const STATION: Station = (1, IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7)));
const ONE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const START_NS: u64 = 100 * SECOND_NS;

fn neighbours(gateway: Option<IpAddr>) -> Neighbours {
    let neighbours = Neighbours::new(vec![None, Some(MacAddress([2; 6]))]);
    neighbours.register(3, 0, Target { port: 1, gateway, mtu: 1500 });
    neighbours
}

fn want(neighbours: &Neighbours, now_ns: u64) -> Resolution {
    let (station, target, resolution) = neighbours.resolve(3, 0, STATION.1, 0, now_ns).unwrap();
    assert_eq!((station, target.mtu), (STATION, 1500));
    resolution
}

/// Polls the table every 10 ms. Returns the time and the destination address of each request.
fn requests_between(neighbours: &Neighbours, from_ns: u64, to_ns: u64) -> Vec<(u64, Option<MacAddress>)> {
    let mut requested = Vec::new();
    for now_ns in (from_ns..to_ns).step_by(10 * MILLISECOND_NS as usize) {
        let mut requests = Vec::new();
        neighbours.poll(now_ns, &mut requests);
        let at_ms = (now_ns - START_NS) / MILLISECOND_NS;
        requested.extend(requests.into_iter().map(|request| (at_ms, request.to)));
    }
    requested
}

#[test]
fn sends_three_requests_then_reports_silence_and_starts_over() {
    let neighbours = neighbours(None);
    assert!(neighbours.resolve(3, 1, STATION.1, 0, 0).is_none(), "unregistered next hop");
    assert_eq!(want(&neighbours, START_NS), Resolution::Pending);
    assert_eq!(
        requests_between(&neighbours, START_NS, START_NS + 3 * SECOND_NS),
        [(0, None), (1000, None), (2000, None)]
    );
    assert_eq!(want(&neighbours, START_NS + 2 * SECOND_NS), Resolution::Pending);
    let version = neighbours.version();
    assert_eq!(requests_between(&neighbours, START_NS + 3 * SECOND_NS, START_NS + 5 * SECOND_NS), []);
    assert!(neighbours.version() > version, "waiting packets must see the silence");
    assert_eq!(want(&neighbours, START_NS + 5 * SECOND_NS), Resolution::Silent);
    // No packets arrive for the station, so the table forgets it and sends no requests.
    assert_eq!(requests_between(&neighbours, START_NS + 5 * SECOND_NS, START_NS + 60 * SECOND_NS), []);
    assert_eq!(neighbours.resolution(STATION), Resolution::Silent);
    let late_ns = START_NS + 60 * SECOND_NS;
    assert_eq!(want(&neighbours, late_ns), Resolution::Pending);
    assert_eq!(requests_between(&neighbours, late_ns, late_ns + SECOND_NS), [(60_000, None)]);
    assert_eq!(neighbours.counts(), [4, 0, 1, 0]);
}

#[test]
fn settles_an_address_after_the_waiting_packets_have_left() {
    let neighbours = neighbours(None);
    want(&neighbours, START_NS);
    requests_between(&neighbours, START_NS, START_NS + 1);
    neighbours.learn(STATION, ONE, START_NS + MILLISECOND_NS);
    assert_eq!(neighbours.resolution(STATION), Resolution::Known { address: ONE, is_settled: false });
    assert_eq!(neighbours.settled(), []);
    let version = neighbours.version();
    assert_eq!(requests_between(&neighbours, START_NS, START_NS + SECOND_NS), []);
    assert_eq!(neighbours.settled(), [(STATION, ONE)]);
    assert!(neighbours.version() > version, "routes must see the settled address");
    // A new Ethernet address of the station takes effect at once.
    let version = neighbours.version();
    neighbours.learn(STATION, OTHER, START_NS + 2 * SECOND_NS);
    assert_eq!(neighbours.settled(), [(STATION, OTHER)]);
    assert!(neighbours.version() > version);
    // A repetition of the same address changes nothing.
    let version = neighbours.version();
    neighbours.learn(STATION, OTHER, START_NS + 3 * SECOND_NS);
    assert_eq!(neighbours.version(), version);
    assert_eq!(neighbours.counts(), [1, 2, 0, 0]);
}

#[test]
fn asks_an_idle_station_then_all_stations_then_gives_up() {
    let neighbours = neighbours(None);
    want(&neighbours, START_NS);
    requests_between(&neighbours, START_NS, START_NS + 1);
    neighbours.learn(STATION, ONE, START_NS);
    assert_eq!(
        requests_between(&neighbours, START_NS, START_NS + 40 * SECOND_NS),
        [30_020, 31_020, 32_020, 33_020, 34_020, 35_020].map(|at_ms| (at_ms, (at_ms < 33_000).then_some(ONE)))
    );
    assert_eq!((neighbours.settled(), neighbours.resolution(STATION)), (vec![], Resolution::Silent));
    // A station that answers stays known.
    let from_ns = START_NS + 50 * SECOND_NS;
    want(&neighbours, from_ns);
    for second in 0..100 {
        let now_ns = from_ns + second * SECOND_NS;
        if !requests_between(&neighbours, now_ns, now_ns + SECOND_NS).is_empty() {
            neighbours.learn(STATION, OTHER, now_ns + SECOND_NS);
        }
    }
    assert_eq!(neighbours.settled(), [(STATION, OTHER)]);
}

#[test]
fn requests_a_gateway_without_packets_and_never_forgets_it() {
    let neighbours = neighbours(Some(STATION.1));
    let far = "192.0.2.1".parse().unwrap();
    assert_eq!(neighbours.resolve(3, 0, far, 0, START_NS).unwrap().0, STATION, "the station is the gateway");
    let at_ms: Vec<u64> = requests_between(&neighbours, START_NS, START_NS + 20 * SECOND_NS)
        .into_iter()
        .map(|(at_ms, _)| at_ms)
        .collect();
    assert_eq!(at_ms, [0, 1000, 2000, 6000, 7000, 8000, 12_000, 13_000, 14_000, 18_000, 19_000]);
    neighbours.learn(STATION, ONE, START_NS + 20 * SECOND_NS);
    assert!(matches!(neighbours.resolution(STATION), Resolution::Known { address: ONE, .. }));
}

#[test]
fn ignores_unknown_stations_and_invalid_addresses() {
    let neighbours = neighbours(None);
    neighbours.learn(STATION, ONE, START_NS);
    assert_eq!(neighbours.resolution(STATION), Resolution::Silent);
    want(&neighbours, START_NS);
    for invalid in [MacAddress::BROADCAST, MacAddress([1, 0, 0, 0, 0, 1]), MacAddress::default()] {
        neighbours.learn(STATION, invalid, START_NS);
        assert_eq!(neighbours.resolution(STATION), Resolution::Pending, "{invalid}");
    }
}

fn address(number: u32) -> IpAddr {
    IpAddr::V4((0x0a01_0000 + number).into())
}

fn ask(neighbours: &Neighbours, number: u32, from: u16, now_ns: u64) -> Resolution {
    neighbours.resolve(3, 0, address(number), from, now_ns).unwrap().2
}

#[test]
fn a_scan_neither_fills_the_table_nor_stops_new_stations() {
    let neighbours = neighbours(None);
    want(&neighbours, START_NS);
    neighbours.learn(STATION, ONE, START_NS);
    // For ten seconds, 100,000 packets per second arrive on port 0. Their destinations are random
    // stations.
    let mut random = 1u32;
    let (mut policed, mut requests) = (0, Vec::new());
    for packet in 0..1_000_000u64 {
        let now_ns = START_NS + packet * 10_000;
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        policed += u32::from(ask(&neighbours, random >> 16, 0, now_ns) == Resolution::Policed);
        if packet % 64 == 0 {
            neighbours.poll(now_ns, &mut requests);
        }
        // The address of a station that answers becomes known, despite many packets to random
        // stations.
        if packet % 100_000 == 99_999 {
            let number = 0x10_0000 + packet as u32;
            assert_eq!(ask(&neighbours, number, 2, now_ns), Resolution::Pending, "packet {packet}");
            neighbours.learn((1, address(number)), OTHER, now_ns + MILLISECOND_NS);
            let resolution = neighbours.resolution((1, address(number)));
            assert!(matches!(resolution, Resolution::Known { address: OTHER, .. }), "{resolution:?}");
        }
    }
    neighbours.lock().check();
    let (stations, timers, items) = neighbours.lock().sizes();
    assert!(stations <= UNANSWERED_MAX + 11 && items <= 2 * UNANSWERED_MAX + 1, "{stations} {items}");
    assert!(timers <= 8 * UNANSWERED_MAX, "{timers}");
    let [asked, learned, _, evicted] = neighbours.counts();
    assert_eq!((learned, asked), (11, requests.len() as u64));
    let new = 11 * u64::from(NEW_PER_SENDER);
    assert!(asked <= new * u64::from(REQUESTS_MAX) && evicted > 0 && evicted < new, "{asked} {evicted}");
    assert!(policed > 900_000, "{policed}");
    assert!(matches!(neighbours.resolution(STATION), Resolution::Known { address: ONE, .. }));
}

#[test]
fn the_oldest_unanswered_station_makes_room() {
    let neighbours = neighbours(None);
    let mut now_ns = START_NS;
    let mut number = 0;
    let mut fill = |stations: u32| {
        for _ in 0..stations {
            now_ns += SECOND_NS / u64::from(NEW_PER_SENDER) + 1;
            assert_eq!(ask(&neighbours, number, 0, now_ns), Resolution::Pending, "{number}");
            number += 1;
        }
        now_ns
    };
    fill(UNANSWERED_MAX as u32);
    // Stations that have answered are not evicted.
    neighbours.learn((1, address(0)), ONE, START_NS);
    fill(3);
    let is_there = |number: u32| neighbours.lock().resolution((1, address(number))).is_some();
    let evicted: Vec<u32> = (0..UNANSWERED_MAX as u32 + 3).filter(|number| !is_there(*number)).collect();
    assert_eq!(evicted, [1, 2]);
    let version = neighbours.version();
    neighbours.poll(fill(1), &mut Vec::new());
    assert!(neighbours.version() > version, "packets that wait for evicted stations must leave");
    neighbours.lock().check();
}

#[test]
fn a_full_table_evicts_unanswered_stations_of_other_ports() {
    let neighbours = neighbours(None);
    neighbours.register(3, 1, Target { port: 0, gateway: None, mtu: 1500 });
    let mut now_ns = START_NS;
    for number in 0..STATIONS_MAX as u32 {
        now_ns += SECOND_NS / u64::from(NEW_PER_SENDER) + 1;
        assert_eq!(ask(&neighbours, number, 0, now_ns), Resolution::Pending, "{number}");
        if number > 0 {
            neighbours.learn((1, address(number)), ONE, now_ns);
        }
    }
    let other = |now_ns| neighbours.resolve(3, 1, address(7), 0, now_ns).unwrap().2;
    assert_eq!(other(now_ns + SECOND_NS), Resolution::Pending, "the only unanswered station makes room");
    assert_eq!(ask(&neighbours, 1 << 15, 0, now_ns + 2 * SECOND_NS), Resolution::Pending);
    neighbours.learn((1, address(1 << 15)), ONE, now_ns + 2 * SECOND_NS);
    assert!(!neighbours.take_full());
    assert_eq!(other(now_ns + 3 * SECOND_NS), Resolution::TableFull);
    assert_eq!([neighbours.take_full(), neighbours.take_full()], [true, false]);
    neighbours.lock().check();
}
