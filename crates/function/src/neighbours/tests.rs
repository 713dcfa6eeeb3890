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

fn want(neighbours: &Neighbours, now_ns: u64) -> Reach {
    let (station, target, reach) = neighbours.want(3, 0, STATION.1, now_ns).unwrap();
    assert_eq!((station, target.mtu), (STATION, 1500));
    reach
}

/// When what was asked from `START_NS` on, looked at every 10 ms: milliseconds after it, and whom.
fn asked(neighbours: &Neighbours, from_ns: u64, to_ns: u64) -> Vec<(u64, Option<MacAddress>)> {
    let mut asked = Vec::new();
    for now_ns in (from_ns..to_ns).step_by(10 * MILLISECOND_NS as usize) {
        let mut questions = Vec::new();
        neighbours.due(now_ns, &mut questions);
        let at_ms = (now_ns - START_NS) / MILLISECOND_NS;
        asked.extend(questions.into_iter().map(|question| (at_ms, question.to)));
    }
    asked
}

#[test]
fn three_questions_a_second_apart_then_silence_then_all_over_again() {
    let neighbours = neighbours(None);
    assert!(neighbours.want(3, 1, STATION.1, 0).is_none(), "no such next hop");
    assert_eq!(want(&neighbours, START_NS), Reach::Asking);
    assert_eq!(asked(&neighbours, START_NS, START_NS + 3 * SECOND_NS), [(0, None), (1000, None), (2000, None)]);
    assert_eq!(want(&neighbours, START_NS + 2 * SECOND_NS), Reach::Asking);
    let version = neighbours.version();
    assert_eq!(asked(&neighbours, START_NS + 3 * SECOND_NS, START_NS + 5 * SECOND_NS), []);
    assert!(neighbours.version() > version, "those that wait are told");
    assert_eq!(want(&neighbours, START_NS + 5 * SECOND_NS), Reach::Silent);
    // Nobody wants it any more: it is forgotten, and nothing is asked.
    assert_eq!(asked(&neighbours, START_NS + 5 * SECOND_NS, START_NS + 60 * SECOND_NS), []);
    assert_eq!(neighbours.reach(STATION), Reach::Silent);
    let late_ns = START_NS + 60 * SECOND_NS;
    assert_eq!(want(&neighbours, late_ns), Reach::Asking);
    assert_eq!(asked(&neighbours, late_ns, late_ns + SECOND_NS), [(60_000, None)]);
    assert_eq!(neighbours.counts(), [4, 0, 1]);
}

#[test]
fn an_answer_is_settled_when_those_that_waited_have_left() {
    let neighbours = neighbours(None);
    want(&neighbours, START_NS);
    asked(&neighbours, START_NS, START_NS + 1);
    neighbours.heard(STATION, ONE, START_NS + MILLISECOND_NS);
    assert_eq!(neighbours.reach(STATION), Reach::Known { address: ONE, is_settled: false });
    assert_eq!(neighbours.settled(), []);
    let version = neighbours.version();
    assert_eq!(asked(&neighbours, START_NS, START_NS + SECOND_NS), []);
    assert_eq!(neighbours.settled(), [(STATION, ONE)]);
    assert!(neighbours.version() > version, "routes are told");
    // It moves: routes are told at once.
    let version = neighbours.version();
    neighbours.heard(STATION, OTHER, START_NS + 2 * SECOND_NS);
    assert_eq!(neighbours.settled(), [(STATION, OTHER)]);
    assert!(neighbours.version() > version);
    // The same again is no news.
    let version = neighbours.version();
    neighbours.heard(STATION, OTHER, START_NS + 3 * SECOND_NS);
    assert_eq!(neighbours.version(), version);
    assert_eq!(neighbours.counts(), [1, 2, 0]);
}

#[test]
fn a_station_that_says_nothing_for_long_is_asked_itself_then_everybody_then_gone() {
    let neighbours = neighbours(None);
    want(&neighbours, START_NS);
    asked(&neighbours, START_NS, START_NS + 1);
    neighbours.heard(STATION, ONE, START_NS);
    assert_eq!(
        asked(&neighbours, START_NS, START_NS + 40 * SECOND_NS),
        [30_020, 31_020, 32_020, 33_020, 34_020, 35_020].map(|at_ms| (at_ms, (at_ms < 33_000).then_some(ONE)))
    );
    assert_eq!((neighbours.settled(), neighbours.reach(STATION)), (vec![], Reach::Silent));
    // One that answers stays.
    let from_ns = START_NS + 50 * SECOND_NS;
    want(&neighbours, from_ns);
    for second in 0..100 {
        let now_ns = from_ns + second * SECOND_NS;
        if !asked(&neighbours, now_ns, now_ns + SECOND_NS).is_empty() {
            neighbours.heard(STATION, OTHER, now_ns + SECOND_NS);
        }
    }
    assert_eq!(neighbours.settled(), [(STATION, OTHER)]);
}

#[test]
fn a_gateway_is_asked_for_without_a_packet_and_for_ever() {
    let neighbours = neighbours(Some(STATION.1));
    let far = "192.0.2.1".parse().unwrap();
    assert_eq!(neighbours.want(3, 0, far, START_NS).unwrap().0, STATION, "and not the destination");
    let at_ms: Vec<u64> =
        asked(&neighbours, START_NS, START_NS + 20 * SECOND_NS).into_iter().map(|(at_ms, _)| at_ms).collect();
    assert_eq!(at_ms, [0, 1000, 2000, 6000, 7000, 8000, 12_000, 13_000, 14_000, 18_000, 19_000]);
    neighbours.heard(STATION, ONE, START_NS + 20 * SECOND_NS);
    assert!(matches!(neighbours.reach(STATION), Reach::Known { address: ONE, .. }));
}

#[test]
fn strangers_are_not_listened_to_and_the_table_is_bounded() {
    let neighbours = neighbours(None);
    neighbours.heard(STATION, ONE, START_NS);
    assert_eq!(neighbours.reach(STATION), Reach::Silent);
    want(&neighbours, START_NS);
    for nobody in [MacAddress::BROADCAST, MacAddress([1, 0, 0, 0, 0, 1]), MacAddress::default()] {
        neighbours.heard(STATION, nobody, START_NS);
        assert_eq!(neighbours.reach(STATION), Reach::Asking, "{nobody}");
    }
    let other = |number: u32| IpAddr::V4((0x0a01_0000 + number).into());
    for number in 1..STATIONS_MAX as u32 {
        assert_eq!(neighbours.want(3, 0, other(number), START_NS).unwrap().2, Reach::Asking, "{number}");
    }
    assert_eq!(neighbours.want(3, 0, other(0), START_NS).unwrap().2, Reach::Full);
    // One that is known stays; silent ones make room.
    neighbours.heard(STATION, ONE, START_NS);
    asked(&neighbours, START_NS, START_NS + 4 * SECOND_NS);
    assert_eq!(neighbours.want(3, 0, other(0), START_NS + 4 * SECOND_NS).unwrap().2, Reach::Asking);
    assert_eq!(neighbours.settled(), [(STATION, ONE)]);
}
