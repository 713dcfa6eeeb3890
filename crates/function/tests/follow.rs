//! The table follows the kernel's, and FRR's: in a network namespace of this test's own, with real interfaces.
//!
//! Skipped where namespaces cannot be made; the part with FRR, where FRR is not installed.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_function::routing::{NextHop, Prefix, Routing};
use godwit_function::{BuildContext, Error, Function, Running, kind};
use nix::sched::{CloneFlags, unshare};
use toml::de::DeTable;

/// An engine without packets.
struct Idle;

impl Running for Idle {
    fn image_changed(&self, _range: Range<usize>) -> Result<(), Error> {
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Whether this thread has a network of its own now.
fn alone(what: &str) -> bool {
    let made = unshare(CloneFlags::CLONE_NEWNET).is_ok();
    if !made {
        eprintln!("{what} is skipped: no network namespace can be made here without the right to");
    }
    made
}

fn ip(words: &str) {
    let said = Command::new("ip").args(words.split_whitespace()).output().expect("iproute2 is installed");
    assert!(said.status.success(), "ip {words}: {}", String::from_utf8_lossy(&said.stderr));
}

/// Two interfaces, each with its other end beside it: what is sent there comes back to this machine.
fn interfaces() {
    ip("link set lo up");
    for (name, other, address) in [("lan", "lan-peer", "10.1.0.1/24"), ("wan", "wan-peer", "10.2.0.1/24")] {
        ip(&format!("link add {name} type veth peer name {other}"));
        ip(&format!("address add {address} dev {name}"));
        ip(&format!("link set {name} up"));
        ip(&format!("link set {other} up"));
    }
}

fn function(follow: &str) -> Arc<dyn Function> {
    function_of("ipv4", "", follow)
}

fn function_of(which: &str, keys: &str, follow: &str) -> Arc<dyn Function> {
    let stanza = format!("{keys}\n[follow]\n{follow}\ninterfaces = {{ a = \"lan\", b = \"wan\" }}\n");
    let ports = ["a", "b"].map(str::to_owned);
    let site = BuildContext { name: "under test", ports: &ports, directory: Path::new(".") };
    (kind(which).unwrap().build)(DeTable::parse(&stanza).unwrap(), &site).unwrap()
}

/// Keeps house until it is so.
fn until(function: &dyn Function, what: &str, mut is_so: impl FnMut(&dyn Routing) -> bool) {
    let routing = function.routing().unwrap();
    let begin = Instant::now();
    loop {
        function.housekeeping(&Idle).unwrap();
        if is_so(routing) {
            return;
        }
        if begin.elapsed() > Duration::from_secs(60) {
            let routes: Vec<_> = routing.routes().into_iter().take(40).collect();
            panic!("{what}: {routes:?} {:?}", routing.next_hops());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where packets to an address go.
fn to(routing: &dyn Routing, address: &str) -> Option<NextHop> {
    let address: IpAddr = address.parse().unwrap();
    routing.next_hop(routing.find(address)?.1)
}

fn station(routing: &dyn Routing, address: &str) -> Option<(u16, String, u16)> {
    match to(routing, address)? {
        NextHop::Forward(to) => Some((to.port, to.destination.to_string(), to.mtu)),
        _ => None,
    }
}

#[test]
fn the_table_says_what_the_kernel_says() {
    if !alone("following the kernel's table") {
        return;
    }
    interfaces();
    ip("route add 10.9.0.0/16 via 10.2.0.9");
    ip("route add blackhole 10.10.0.0/16");
    let function = function("routes = \"kernel\"");
    let function = &*function;
    until(function, "what there is", |table| table.routes().len() >= 8);
    let table = function.routing().unwrap();
    assert_eq!(to(table, "10.1.0.1"), Some(NextHop::Local));
    assert_eq!(to(table, "10.1.0.255"), Some(NextHop::Local));
    assert_eq!(to(table, "10.10.1.1"), Some(NextHop::Blackhole));
    assert!(matches!(to(table, "10.1.0.7"), Some(NextHop::Unresolved(to)) if to.port == 0));
    assert!(matches!(to(table, "10.9.1.1"), Some(NextHop::Unresolved(to)) if to.port == 1));
    assert_eq!(to(table, "11.0.0.1"), None);

    // Neighbours come, get another address, and go.
    ip("neighbour replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev wan nud reachable");
    ip("neighbour replace 10.1.0.7 lladdr 02:00:00:00:00:07 dev lan nud reachable");
    let nine = Some((1, "02:00:00:00:00:09".to_owned(), 1500));
    until(function, "a gateway is known", |table| station(table, "10.9.1.1") == nine);
    until(function, "a station is known", |table| station(table, "10.1.0.7").is_some());
    ip("neighbour replace 10.2.0.9 lladdr 02:00:00:00:00:0a dev wan nud reachable");
    until(function, "its new address", |table| {
        station(table, "10.9.1.1") == Some((1, "02:00:00:00:00:0a".to_owned(), 1500))
    });
    ip("neighbour delete 10.1.0.7 dev lan");
    until(function, "it is gone", |table| station(table, "10.1.0.7").is_none());

    // Routes come, change and go; longer ones win.
    ip("route add 10.9.9.0/24 via 10.1.0.8");
    until(
        function,
        "a longer route",
        |table| matches!(to(table, "10.9.9.1"), Some(NextHop::Unresolved(to)) if to.port == 0),
    );
    ip("route replace 10.9.9.0/24 via 10.2.0.9");
    until(function, "it leads elsewhere", |table| station(table, "10.9.9.1").is_some_and(|to| to.0 == 1));
    ip("route add unreachable 10.9.9.0/24 metric 5");
    ip("route delete 10.9.9.0/24 via 10.2.0.9");
    until(function, "the next best", |table| to(table, "10.9.9.1") == Some(NextHop::Unreachable));
    ip("route delete unreachable 10.9.9.0/24");
    until(function, "what it covered", |table| station(table, "10.9.9.1").is_some());

    // The MTU shrinks; the interface goes down, and up again.
    ip("link set wan mtu 1400");
    until(function, "the MTU", |table| station(table, "10.9.1.1").is_some_and(|to| to.2 == 1400));
    ip("link set wan down");
    until(function, "no route by an interface that is down", |table| to(table, "10.9.1.1").is_none());
    ip("link set wan up");
    until(
        function,
        "its own net again",
        |table| matches!(to(table, "10.2.0.7"), Some(NextHop::Unresolved(to)) if to.port == 1),
    );
    assert_eq!(to(table, "10.9.1.1"), None, "the kernel has dropped it");

    // An operator's route stays.
    let ask = |request: serde_json::Value| function.command(&request, &Idle);
    assert!(ask(serde_json::json!({"command": "delete", "route": ["10.10.0.0/16"]})).is_ok());
    until(function, "what an operator deletes comes back", |table| {
        table.route(Prefix::parse("10.10.0.0/16").unwrap()).is_some()
    });

    // More at once than the kernel keeps for us: nothing is missing, and nothing remains.
    let lines: String =
        (0..20_000).map(|i| format!("route add 10.{}.{}.0/24 via 10.1.0.8\n", 100 + i / 256, i % 256)).collect();
    batch(&lines);
    let count = |table: &dyn Routing| table.routes().iter().filter(|(prefix, _)| is_of_batch(*prefix)).count();
    let begin = Instant::now();
    until(function, "20,000 routes", |table| count(table) == 20_000);
    println!("20000 routes of the kernel {:.0} ms after it had them", begin.elapsed().as_secs_f64() * 1e3);
    batch(&lines.replace("add", "delete"));
    until(function, "none of them", |table| count(table) == 0);
}

#[test]
fn the_table_of_ipv6_says_what_the_kernel_says() {
    if !alone("following the kernel's table of IPv6") {
        return;
    }
    interfaces();
    for (name, address) in [("lan", "fd00:1::1/64"), ("wan", "fd00:2::1/64")] {
        ip(&format!("address add {address} dev {name} nodad"));
    }
    ip("route add fd00:9::/32 via fd00:2::9");
    ip("route add blackhole fd00:a::/32");
    let function = function_of("ipv6", "", "routes = \"kernel\"");
    let function = &*function;
    until(function, "its own addresses", |table| {
        to(table, "fd00:1::1") == Some(NextHop::Local) && to(table, "fd00:2::1") == Some(NextHop::Local)
    });
    let table = function.routing().unwrap();
    assert_eq!(to(table, "fd00:a::1"), Some(NextHop::Blackhole));
    assert!(matches!(to(table, "fd00:1::7"), Some(NextHop::Unresolved(to)) if to.port == 0));
    assert!(matches!(to(table, "fd00:9::1"), Some(NextHop::Unresolved(to)) if to.port == 1));
    assert_eq!(to(table, "2001:db8::1"), None);
    assert_eq!(to(table, "10.1.0.1"), None, "the other family");

    // A gateway, a station, and a gateway by its link-local address.
    ip("neighbour replace fd00:2::9 lladdr 02:00:00:00:00:09 dev wan nud reachable");
    ip("neighbour replace fd00:1::7 lladdr 02:00:00:00:00:07 dev lan nud reachable");
    ip("neighbour replace fe80::5 lladdr 02:00:00:00:00:05 dev lan nud reachable");
    ip("route add fd00:5::/48 via fe80::5 dev lan");
    until(function, "a gateway is known", |table| {
        station(table, "fd00:9::1") == Some((1, "02:00:00:00:00:09".to_owned(), 1500))
    });
    until(function, "a station is known", |table| station(table, "fd00:1::7").is_some_and(|to| to.0 == 0));
    until(function, "a link-local gateway", |table| {
        station(table, "fd00:5::1") == Some((0, "02:00:00:00:00:05".to_owned(), 1500))
    });
    ip("neighbour delete fd00:1::7 dev lan");
    until(function, "it is gone", |table| station(table, "fd00:1::7").is_none());

    // Longer routes win, and what they covered comes back.
    ip("route add fd00:9:9::/48 via fe80::5 dev lan");
    until(function, "a longer route", |table| station(table, "fd00:9:9::1").is_some_and(|to| to.0 == 0));
    ip("route delete fd00:9:9::/48");
    until(function, "what it covered", |table| station(table, "fd00:9:9::1").is_some_and(|to| to.0 == 1));

    // The interface goes down: its routes and addresses go, as in the kernel.
    ip("link set wan mtu 1400");
    until(function, "the MTU", |table| station(table, "fd00:9::1").is_some_and(|to| to.2 == 1400));
    ip("link set wan down");
    until(function, "no route by an interface that is down", |table| to(table, "fd00:9::1").is_none());
}

/// What a tier-1 provider announces; see `bench/data/README.md`.
const PREFIXES_2025: &[u8] = include_bytes!("../../../bench/data/tier1-2025-10-prefixes.txt.xz");

#[test]
fn a_full_table_comes_into_an_empty_one() {
    if !alone("following a full table of IPv6") {
        return;
    }
    interfaces();
    ip("address add fd00:2::1/64 dev wan nodad");
    ip("neighbour replace fd00:2::9 lladdr 02:00:00:00:00:09 dev wan nud permanent");
    let functions =
        ["trie", "hash"].map(|form| function_of("ipv6", &format!("lookup = \"{form}\""), "routes = \"kernel\""));
    let mut text = Vec::new();
    lzma_rs::xz_decompress(&mut &PREFIXES_2025[..], &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let prefixes: Vec<&str> = text.lines().filter(|line| line.contains(':')).collect();
    assert_eq!(prefixes.len(), 160_147);
    for function in &functions {
        until(&**function, "its own address", |table| to(table, "fd00:2::1") == Some(NextHop::Local));
    }
    let lines: String = prefixes.iter().map(|prefix| format!("route add {prefix} via fd00:2::9\n")).collect();
    batch(&lines);
    let level = godwit_kernels::levels().iter().find(|level| level.supported()).unwrap();
    for function in &functions {
        let begin = Instant::now();
        until(&**function, "a full table", |table| {
            let there = |prefix: &&str| table.route(Prefix::parse(prefix).unwrap()).is_some();
            table.routes().len() >= prefixes.len() && prefixes.iter().all(there)
        });
        println!("{} routes of the kernel in {:.1} s", prefixes.len(), begin.elapsed().as_secs_f64());
        // Packets find what was announced: the image is asked, not what stands beside it.
        let table = function.routing().unwrap();
        let asked: Vec<Ipv6Addr> =
            prefixes.iter().step_by(97).map(|prefix| prefix.split_once('/').unwrap().0.parse().unwrap()).collect();
        let bytes: Vec<[u8; 16]> = asked.iter().map(Ipv6Addr::octets).collect();
        let mut found = vec![0; asked.len()];
        // SAFETY: the image is whole, and the level is one that this CPU has.
        unsafe { level.ipv6_lookup_bulk(function.image().as_ptr(), function.variant().into(), &bytes, &mut found) };
        for (address, found) in asked.iter().zip(found) {
            let next_hop = table.next_hop(found);
            let reached = matches!(next_hop, Some(NextHop::Forward(to)) if to.port == 1);
            assert!(reached, "{address}: {next_hop:?}");
        }
    }
}

fn is_of_batch(prefix: Prefix) -> bool {
    matches!(prefix.address(), IpAddr::V4(address) if address.octets()[1] >= 100) && prefix.length() == 24
}

fn batch(lines: &str) {
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(ip.stdin.as_mut().unwrap(), lines.as_bytes()).unwrap();
    drop(ip.stdin.take());
    assert!(ip.wait().unwrap().success());
}

/// FRR's zebra with its forwarding plane plugin, killed when dropped.
struct Zebra {
    folder: tempfile::TempDir,
    daemon: Child,
}

const ZEBRA: &str = "/usr/lib/frr/zebra";

impl Zebra {
    /// It connects to this port.
    fn start(port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // It gives up its rights.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::write(at("zebra.conf"), format!("fpm address 127.0.0.1 port {port}\n")).unwrap();
        let mut command = Command::new(ZEBRA);
        command.args(["-M", "dplane_fpm_nl", "-P", "0", "-f"]).arg(at("zebra.conf")).arg("-i").arg(at("zebra.pid"));
        command.arg("-z").arg(at("zserv.api")).arg("--vty_socket").arg(folder.path());
        let daemon = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { folder, daemon }
    }
}

impl Drop for Zebra {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = self.folder.path();
    }
}

#[test]
fn the_table_says_what_frr_says() {
    const ROUTES: usize = 100_000;
    if !alone("following FRR") {
        return;
    }
    if !Path::new(ZEBRA).exists() {
        eprintln!("following FRR is skipped: there is no {ZEBRA}");
        return;
    }
    interfaces();
    ip("neighbour replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev wan nud permanent");
    let ours = |table: &dyn Routing| {
        let first = |prefix: &Prefix| matches!(prefix.address(), IpAddr::V4(address) if address.octets()[0] == 20);
        table.routes().iter().filter(|(prefix, _)| first(prefix)).count()
    };
    let one = function("routes = \"fpm\"");
    until(&*one, "its own nets", |table| table.routes().len() >= 6);
    // Routes of a daemon that zebra learns: what the kernel has of it we are told not to look at.
    let lines = |first: usize, end: usize| -> String {
        (first..end)
            .map(|i| format!("route add 20.{}.{}.{}/32 via 10.2.0.9\n", i >> 16, i >> 8 & 255, i & 255))
            .collect()
    };
    batch(&lines(0, ROUTES));
    one.housekeeping(&Idle).unwrap();
    assert_eq!(ours(one.routing().unwrap()), 0);
    let begin = Instant::now();
    let frr = Zebra::start(2620);
    until(&*one, "all routes of FRR", |table| ours(table) == ROUTES);
    println!("{ROUTES} routes {:.1} s after FRR was started", begin.elapsed().as_secs_f64());
    assert!(station(one.routing().unwrap(), "20.1.0.1").is_some_and(|to| to.0 == 1));
    assert_eq!(to(one.routing().unwrap(), "10.1.0.1"), Some(NextHop::Local));
    ip("route delete 20.0.0.77/32");
    until(&*one, "one is withdrawn", |table| to(table, "20.0.0.77").is_none());
    // FRR starts again with fewer routes: those it does not tell of any more go, the others never do.
    drop(frr);
    batch(&lines(1000, ROUTES).replace("add", "delete"));
    one.housekeeping(&Idle).unwrap();
    assert_eq!(ours(one.routing().unwrap()), ROUTES - 1, "routes stay while FRR is away");
    let frr = Zebra::start(2620);
    until(&*one, "no orphans", |table| ours(table) == 999);
    // We start again: FRR tells all anew.
    drop(one);
    let two = function("routes = \"fpm\"");
    until(&*two, "FRR connects again", |table| ours(table) == 999);
    drop(frr);
}

/// Zebra has one connection for all families.
#[test]
fn functions_of_both_families_follow_one_zebra() {
    if !alone("following FRR with both families") {
        return;
    }
    if !Path::new(ZEBRA).exists() {
        eprintln!("following FRR with both families is skipped: there is no {ZEBRA}");
        return;
    }
    interfaces();
    ip("address add fd00:2::1/64 dev wan nodad");
    ip("neighbour replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev wan nud permanent");
    ip("neighbour replace fd00:2::9 lladdr 02:00:00:00:00:09 dev wan nud permanent");
    ip("route add 20.0.0.0/8 via 10.2.0.9");
    ip("route add 2001:db8::/32 via fd00:2::9");
    let follow = "routes = \"fpm\"\nfpm = \"127.0.0.1:2621\"";
    let of4 = function(follow);
    until(&*of4, "its own nets", |table| table.routes().len() >= 6);
    let _frr = Zebra::start(2621);
    until(&*of4, "a route of IPv4", |table| station(table, "20.0.0.1").is_some());
    // The second comes when zebra has told everything already.
    let of6 = function_of("ipv6", "", follow);
    until(&*of6, "a route of IPv6", |table| station(table, "2001:db8::1").is_some());
    ip("route add 21.0.0.0/8 via 10.2.0.9");
    ip("route delete 2001:db8::/32");
    until(&*of4, "another of IPv4", |table| station(table, "21.0.0.1").is_some());
    until(&*of6, "none of IPv6", |table| to(table, "2001:db8::1").is_none());
    assert!(station(of4.routing().unwrap(), "20.0.0.1").is_some(), "what was told twice stays");
}
