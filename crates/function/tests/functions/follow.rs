//! Tables that follow the routes and neighbours of the kernel and of FRR. Each test has its own
//! network namespace with real interfaces, and needs root. Some tests need FRR.

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_function::routing::{NextHop, Prefix, Routing};
use godwit_function::{BuildContext, Function, kind};
use godwit_test_support::network::{self, ip};
use godwit_test_support::{Folder, skip};
use toml::de::DeTable;

use super::running::Idle;

/// Creates two interfaces whose other ends are in the same namespace.
fn create_interfaces() {
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

fn function_of(kind_name: &str, keys: &str, follow: &str) -> Arc<dyn Function> {
    let stanza = format!("{keys}\n[follow]\n{follow}\ninterfaces = {{ a = \"lan\", b = \"wan\" }}\n");
    let ports = ["a", "b"].map(str::to_owned);
    let context = BuildContext { name: "under test", ports: &ports, directory: Path::new(".") };
    (kind(kind_name).unwrap().build)(DeTable::parse(&stanza).unwrap(), &context).unwrap()
}

/// Runs housekeeping until `condition` holds, for at most 60 s.
fn until(function: &dyn Function, subject: &str, mut condition: impl FnMut(&dyn Routing) -> bool) {
    let routing = function.station().unwrap().routing().unwrap();
    let begin = Instant::now();
    loop {
        function.housekeeping().unwrap().run(&Idle).unwrap();
        if condition(routing) {
            return;
        }
        if begin.elapsed() > Duration::from_secs(60) {
            let routes: Vec<_> = routing.routes().into_iter().take(40).collect();
            panic!("{subject}: {routes:?} {:?}", routing.next_hops());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn to(routing: &dyn Routing, address: &str) -> Option<NextHop> {
    let address: IpAddr = address.parse().unwrap();
    routing.next_hop(routing.find(address)?.1)
}

/// Returns the port, MAC address and MTU of a resolved next hop.
fn station(routing: &dyn Routing, address: &str) -> Option<(u16, String, u16)> {
    match to(routing, address)? {
        NextHop::Forward(to) => Some((to.port, to.destination.to_string(), to.mtu)),
        _ => None,
    }
}

#[test]
fn an_ipv4_table_follows_the_kernel() {
    network::in_namespace(|| {
        create_interfaces();
        ip("route add 10.9.0.0/16 via 10.2.0.9");
        ip("route add blackhole 10.10.0.0/16");
        let function = function("routes = \"kernel\"");
        let function = &*function;
        until(function, "existing routes", |table| table.routes().len() >= 8);
        let table = function.station().unwrap().routing().unwrap();
        assert_eq!(to(table, "10.1.0.1"), Some(NextHop::Local));
        assert_eq!(to(table, "10.1.0.255"), Some(NextHop::Local));
        assert_eq!(to(table, "10.10.1.1"), Some(NextHop::Blackhole));
        assert!(matches!(to(table, "10.1.0.7"), Some(NextHop::Unresolved(to)) if to.port == 0));
        assert!(matches!(to(table, "10.9.1.1"), Some(NextHop::Unresolved(to)) if to.port == 1));
        assert_eq!(to(table, "11.0.0.1"), None);

        ip("neighbour replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev wan nud reachable");
        ip("neighbour replace 10.1.0.7 lladdr 02:00:00:00:00:07 dev lan nud reachable");
        let nine = Some((1, "02:00:00:00:00:09".to_owned(), 1500));
        until(function, "a gateway is known", |table| station(table, "10.9.1.1") == nine);
        until(function, "a station is known", |table| station(table, "10.1.0.7").is_some());
        ip("neighbour replace 10.2.0.9 lladdr 02:00:00:00:00:0a dev wan nud reachable");
        until(function, "the gateway has its new address", |table| {
            station(table, "10.9.1.1") == Some((1, "02:00:00:00:00:0a".to_owned(), 1500))
        });
        ip("neighbour delete 10.1.0.7 dev lan");
        until(function, "the station is deleted", |table| station(table, "10.1.0.7").is_none());

        ip("route add 10.9.9.0/24 via 10.1.0.8");
        until(
            function,
            "a longer route",
            |table| matches!(to(table, "10.9.9.1"), Some(NextHop::Unresolved(to)) if to.port == 0),
        );
        ip("route replace 10.9.9.0/24 via 10.2.0.9");
        until(function, "the longer route has another port", |table| {
            station(table, "10.9.9.1").is_some_and(|to| to.0 == 1)
        });
        ip("route add unreachable 10.9.9.0/24 metric 5");
        ip("route delete 10.9.9.0/24 via 10.2.0.9");
        until(function, "the route with the next metric", |table| to(table, "10.9.9.1") == Some(NextHop::Unreachable));
        ip("route delete unreachable 10.9.9.0/24");
        until(function, "the shorter route", |table| station(table, "10.9.9.1").is_some());

        ip("link set wan mtu 1400");
        until(function, "the MTU", |table| station(table, "10.9.1.1").is_some_and(|to| to.2 == 1400));
        ip("link set wan down");
        until(function, "no route through an interface that is down", |table| to(table, "10.9.1.1").is_none());
        ip("link set wan up");
        until(
            function,
            "the network of the interface again",
            |table| matches!(to(table, "10.2.0.7"), Some(NextHop::Unresolved(to)) if to.port == 1),
        );
        assert_eq!(to(table, "10.9.1.1"), None, "the kernel deletes the routes of an interface that is down");

        // A route of the kernel returns if an operator deletes it.
        let command = |request: serde_json::Value| function.operate().unwrap().command(&request, &Idle);
        assert!(command(serde_json::json!({"command": "delete", "route": ["10.10.0.0/16"]})).is_ok());
        until(function, "the deleted route returns", |table| {
            table.route(Prefix::parse("10.10.0.0/16").unwrap()).is_some()
        });

        // The netlink socket has no room for all these changes. No route may be missing or remain.
        let lines: String =
            (0..20_000).map(|i| format!("route add 10.{}.{}.0/24 via 10.1.0.8\n", 100 + i / 256, i % 256)).collect();
        batch(&lines);
        let count = |table: &dyn Routing| table.routes().iter().filter(|(prefix, _)| is_of_batch(*prefix)).count();
        let begin = Instant::now();
        until(function, "20,000 routes", |table| count(table) == 20_000);
        println!("20000 routes {:.0} ms after the kernel had them", begin.elapsed().as_secs_f64() * 1e3);
        batch(&lines.replace("add", "delete"));
        until(function, "none of the 20,000 routes", |table| count(table) == 0);
    });
}

#[test]
fn an_ipv6_table_follows_the_kernel() {
    network::in_namespace(|| {
        create_interfaces();
        for (name, address) in [("lan", "fd00:1::1/64"), ("wan", "fd00:2::1/64")] {
            ip(&format!("address add {address} dev {name} nodad"));
        }
        ip("route add fd00:9::/32 via fd00:2::9");
        ip("route add blackhole fd00:a::/32");
        let function = function_of("ipv6", "", "routes = \"kernel\"");
        let function = &*function;
        until(function, "the addresses of the interfaces", |table| {
            to(table, "fd00:1::1") == Some(NextHop::Local) && to(table, "fd00:2::1") == Some(NextHop::Local)
        });
        let table = function.station().unwrap().routing().unwrap();
        assert_eq!(to(table, "fd00:a::1"), Some(NextHop::Blackhole));
        assert!(matches!(to(table, "fd00:1::7"), Some(NextHop::Unresolved(to)) if to.port == 0));
        assert!(matches!(to(table, "fd00:9::1"), Some(NextHop::Unresolved(to)) if to.port == 1));
        assert_eq!(to(table, "2001:db8::1"), None);
        assert_eq!(to(table, "10.1.0.1"), None, "the table has no IPv4 routes");

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
        until(function, "the station is deleted", |table| station(table, "fd00:1::7").is_none());

        // The longest prefix applies. After its deletion, the shorter prefix applies again.
        ip("route add fd00:9:9::/48 via fe80::5 dev lan");
        until(function, "a longer route", |table| station(table, "fd00:9:9::1").is_some_and(|to| to.0 == 0));
        ip("route delete fd00:9:9::/48");
        until(function, "the shorter route", |table| station(table, "fd00:9:9::1").is_some_and(|to| to.0 == 1));

        // An interface that goes down loses its routes and addresses, as in the kernel.
        ip("link set wan mtu 1400");
        until(function, "the MTU", |table| station(table, "fd00:9::1").is_some_and(|to| to.2 == 1400));
        ip("link set wan down");
        until(function, "no route through an interface that is down", |table| to(table, "fd00:9::1").is_none());
    });
}

/// Prefixes that a tier-1 provider announces (`bench/data/README.md`).
const PREFIXES_2025: &[u8] = include_bytes!("../../../../bench/data/tier1-2025-10-prefixes.txt.xz");

#[test]
fn an_empty_table_follows_a_full_table_of_ipv6() {
    network::in_namespace(|| {
        create_interfaces();
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
            until(&**function, "the address of the interface", |table| to(table, "fd00:2::1") == Some(NextHop::Local));
        }
        let lines: String = prefixes.iter().map(|prefix| format!("route add {prefix} via fd00:2::9\n")).collect();
        batch(&lines);
        let level = godwit_kernels::levels().iter().find(|level| level.supported()).unwrap();
        for function in &functions {
            let begin = Instant::now();
            until(&**function, "a full table", |table| {
                let is_present = |prefix: &&str| table.route(Prefix::parse(prefix).unwrap()).is_some();
                table.routes().len() >= prefixes.len() && prefixes.iter().all(is_present)
            });
            println!("{} routes of the kernel in {:.1} s", prefixes.len(), begin.elapsed().as_secs_f64());
            // Packets use the table image, so it must contain the routes too.
            let table = function.station().unwrap().routing().unwrap();
            let requested: Vec<Ipv6Addr> =
                prefixes.iter().step_by(97).map(|prefix| prefix.split_once('/').unwrap().0.parse().unwrap()).collect();
            let bytes: Vec<[u8; 16]> = requested.iter().map(Ipv6Addr::octets).collect();
            let mut found = vec![0; requested.len()];
            // SAFETY: the image is complete, and the CPU supports the level.
            unsafe {
                level.ipv6_lookup_bulk(
                    function.image().as_ptr(),
                    function.properties().variant.into(),
                    &bytes,
                    &mut found,
                )
            };
            for (address, found) in requested.iter().zip(found) {
                let next_hop = table.next_hop(found);
                let is_forwarded = matches!(next_hop, Some(NextHop::Forward(to)) if to.port == 1);
                assert!(is_forwarded, "{address}: {next_hop:?}");
            }
        }
    });
}

fn is_of_batch(prefix: Prefix) -> bool {
    matches!(prefix.address(), IpAddr::V4(address) if address.octets()[1] >= 100) && prefix.length() == 24
}

fn batch(lines: &str) {
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    ip.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    drop(ip.stdin.take());
    assert!(ip.wait().unwrap().success());
}

/// FRR's daemon zebra with its FPM plugin. The process is killed when this value is dropped.
struct Zebra {
    _folder: Folder,
    daemon: Child,
}

const ZEBRA: &str = "/usr/lib/frr/zebra";

impl Zebra {
    /// Starts the daemon, which connects to a TCP port of this machine.
    fn start(port: u16) -> Self {
        let folder = Folder::new();
        let at = |name: &str| folder.join(name);
        // The daemon changes to another user, who needs access to this folder.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::write(at("zebra.conf"), format!("fpm address 127.0.0.1 port {port}\n")).unwrap();
        let mut command = Command::new(ZEBRA);
        command.args(["-M", "dplane_fpm_nl", "-P", "0", "-f"]).arg(at("zebra.conf")).arg("-i").arg(at("zebra.pid"));
        command.arg("-z").arg(at("zserv.api")).arg("--vty_socket").arg(folder.path());
        let daemon = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { _folder: folder, daemon }
    }
}

impl Drop for Zebra {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[test]
fn an_ipv4_table_follows_frr() {
    const ROUTES: usize = 100_000;
    if !has_zebra() {
        return;
    }
    network::in_namespace(|| {
        create_interfaces();
        ip("neighbour replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev wan nud permanent");
        let frr_routes = |table: &dyn Routing| {
            let first = |prefix: &Prefix| matches!(prefix.address(), IpAddr::V4(address) if address.octets()[0] == 20);
            table.routes().iter().filter(|(prefix, _)| first(prefix)).count()
        };
        let one = function("routes = \"fpm\"");
        until(&*one, "the networks of the interfaces", |table| table.routes().len() >= 6);
        // Zebra learns these routes from the kernel. The function ignores them in the kernel's
        // routing table.
        let lines = |first: usize, end: usize| -> String {
            (first..end)
                .map(|i| format!("route add 20.{}.{}.{}/32 via 10.2.0.9\n", i >> 16, i >> 8 & 255, i & 255))
                .collect()
        };
        batch(&lines(0, ROUTES));
        one.housekeeping().unwrap().run(&Idle).unwrap();
        assert_eq!(frr_routes(one.station().unwrap().routing().unwrap()), 0);
        let begin = Instant::now();
        let frr = Zebra::start(2620);
        until(&*one, "all routes of FRR", |table| frr_routes(table) == ROUTES);
        println!("{ROUTES} routes {:.1} s after FRR was started", begin.elapsed().as_secs_f64());
        assert!(station(one.station().unwrap().routing().unwrap(), "20.1.0.1").is_some_and(|to| to.0 == 1));
        assert_eq!(to(one.station().unwrap().routing().unwrap(), "10.1.0.1"), Some(NextHop::Local));
        ip("route delete 20.0.0.77/32");
        until(&*one, "a withdrawn route", |table| to(table, "20.0.0.77").is_none());
        // FRR restarts with fewer routes. The routes that it no longer announces are deleted.
        drop(frr);
        batch(&lines(1000, ROUTES).replace("add", "delete"));
        one.housekeeping().unwrap().run(&Idle).unwrap();
        assert_eq!(
            frr_routes(one.station().unwrap().routing().unwrap()),
            ROUTES - 1,
            "routes must stay while FRR is not connected"
        );
        let frr = Zebra::start(2620);
        until(&*one, "the announced routes only", |table| frr_routes(table) == 999);
        // A new function receives all routes when FRR connects again.
        drop(one);
        let two = function("routes = \"fpm\"");
        until(&*two, "FRR connects again", |table| frr_routes(table) == 999);
        drop(frr);
    });
}

/// Returns whether FRR is installed. Otherwise reports a skipped test.
fn has_zebra() -> bool {
    let is_installed = Path::new(ZEBRA).exists();
    if !is_installed {
        skip(format_args!("FRR is not installed: {ZEBRA}"));
    }
    is_installed
}

/// Zebra has one connection for both IP versions.
#[test]
fn an_ipv4_and_an_ipv6_function_follow_the_same_zebra() {
    if !has_zebra() {
        return;
    }
    network::in_namespace(|| {
        create_interfaces();
        ip("address add fd00:2::1/64 dev wan nodad");
        ip("neighbour replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev wan nud permanent");
        ip("neighbour replace fd00:2::9 lladdr 02:00:00:00:00:09 dev wan nud permanent");
        ip("route add 20.0.0.0/8 via 10.2.0.9");
        ip("route add 2001:db8::/32 via fd00:2::9");
        let follow = "routes = \"fpm\"\nfpm = \"127.0.0.1:2621\"";
        let v4 = function(follow);
        until(&*v4, "the networks of the interfaces", |table| table.routes().len() >= 6);
        let _frr = Zebra::start(2621);
        until(&*v4, "an IPv4 route", |table| station(table, "20.0.0.1").is_some());
        // The second function starts after zebra has announced all routes.
        let v6 = function_of("ipv6", "", follow);
        until(&*v6, "an IPv6 route", |table| station(table, "2001:db8::1").is_some());
        ip("route add 21.0.0.0/8 via 10.2.0.9");
        ip("route delete 2001:db8::/32");
        until(&*v4, "another IPv4 route", |table| station(table, "21.0.0.1").is_some());
        until(&*v6, "no IPv6 route", |table| to(table, "2001:db8::1").is_none());
        assert!(
            station(v4.station().unwrap().routing().unwrap(), "20.0.0.1").is_some(),
            "a route that is announced twice must stay"
        );
    });
}

/// Returns an FPM frame that announces the route `prefix/24`. The route leads over interface 1,
/// which belongs to no port.
fn announcement(prefix: [u8; 4]) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(44u32.to_ne_bytes());
    message.extend([24, 0, 0, 0]); // RTM_NEWROUTE
    message.extend([0; 8]);
    message.extend([2, 24, 0, 0, 254, 186, 0, 1]); // AF_INET, /24, main table, of zebra, unicast
    message.extend([0; 4]);
    message.extend([8, 0, 1, 0]); // RTA_DST
    message.extend(prefix);
    message.extend([8, 0, 4, 0, 1, 0, 0, 0]); // RTA_OIF
    [&[1, 1, 0, 48][..], &message].concat()
}

fn messages(function: &dyn Function, time: Duration) -> Vec<String> {
    let begin = Instant::now();
    let mut messages = Vec::new();
    while begin.elapsed() < time {
        messages.extend(function.housekeeping().unwrap().run(&Idle).err().map(|error| error.to_string()));
        std::thread::sleep(Duration::from_millis(5));
    }
    messages.dedup();
    messages
}

#[test]
fn fpm_connections_of_other_users_are_refused() {
    network::in_namespace(|| {
        create_interfaces();
        let function = function("routes = \"fpm\"\nfpm = \"127.0.0.1:2622\"\nfpm_users = [\"0\"]");
        let function = &*function;
        until(function, "the networks of the interfaces", |table| table.routes().len() >= 6);
        let connect = || TcpStream::connect("127.0.0.1:2622").unwrap();
        let mut zebra = connect();
        zebra.write_all(&announcement([20, 0, 0, 0])).unwrap();
        until(function, "a route of zebra", |table| to(table, "20.0.0.1") == Some(NextHop::Local));

        // Another user announces a route. No other message arrives for longer than zebra's pause.
        let folder = Folder::new();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let file = folder.join("announcement");
        std::fs::write(&file, announcement([66, 0, 0, 0])).unwrap();
        let script = "exec 3<>/dev/tcp/127.0.0.1/2622; cat \"$0\" >&3; exec cat <&3";
        let mut stranger = Command::new("bash").args(["-c", script]).arg(&file).uid(65534).spawn().unwrap();
        let messages_of_stranger = messages(function, Duration::from_secs(4));
        assert!(stranger.try_wait().unwrap().is_some(), "the connection of the other user must be closed");
        let refusal = messages_of_stranger.iter().find(|message| message.contains("uid 65534"));
        assert!(refusal.is_some_and(|message| message.contains("fpm_users")), "{messages_of_stranger:?}");
        let table = function.station().unwrap().routing().unwrap();
        assert_eq!(to(table, "66.0.0.1"), None);
        assert_eq!(to(table, "20.0.0.1"), Some(NextHop::Local), "the routes of zebra must stay");
        zebra.write_all(&announcement([20, 0, 1, 0])).expect("the connection of zebra must stay");
        let arrives = |prefix: &str| {
            let begin = Instant::now();
            while to(table, prefix).is_none() {
                assert!(begin.elapsed() < Duration::from_secs(60), "{prefix}");
                let _ = function.housekeeping().unwrap().run(&Idle);
            }
        };
        arrives("20.0.1.1");

        // A second connection of the allowed user waits until the first connection ends.
        let mut second = connect();
        second.write_all(&announcement([20, 0, 2, 0])).unwrap();
        messages(function, Duration::from_millis(200));
        assert_eq!(to(table, "20.0.2.1"), None, "the second connection must wait");
        drop(zebra);
        arrives("20.0.2.1");
        // The second connection announced one route. The routes of the first connection disappear
        // unless the second connection repeated them.
        messages(function, Duration::from_secs(4));
        assert_eq!((to(table, "20.0.0.1"), to(table, "20.0.2.1")), (None, Some(NextHop::Local)));

        // A connection that announces no routes removes no routes.
        drop(second);
        let _third = connect();
        messages(function, Duration::from_secs(4));
        assert_eq!(to(table, "20.0.2.1"), Some(NextHop::Local), "a silent connection must not remove routes");
    });
}
