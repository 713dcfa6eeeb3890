//! Tests reloads and stops of the proxy while connections are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_test_support::{SetOnDrop, certificate, wait_for};

use crate::backend::{Answer, Backend};
use crate::client::Client;
use crate::setup::{Proxy, SOON, upstream};

const HEAD: &str = "workers = 1";

fn http(backend: &Backend) -> String {
    format!("mode = \"http\"\n{}", upstream(&[backend.address]))
}

/// Clients send requests while the configuration is replaced repeatedly. Every request is answered.
/// If a connection ends, the client opens a new one, as HTTP requires.
#[test]
fn a_reload_fails_no_request() {
    let backends = ["old", "new"].map(|name| Backend::http(move |_| Answer::Body(name.into())));
    let Some(proxy) = Proxy::start(&http(&backends[0])) else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = Client::connect(&proxy);
                while !stop.load(Ordering::SeqCst) {
                    let response = client.get("/").unwrap_or_else(|_| {
                        // The connection ended between two requests.
                        client = Client::connect(&proxy);
                        client.get("/").expect("a new connection answers")
                    });
                    assert_eq!(response.status, 200);
                    if response.head.contains("connection: close") {
                        client = Client::connect(&proxy);
                    }
                }
            });
        }
        for number in 0..20 {
            assert_eq!(proxy.reload(HEAD, &http(&backends[number % 2])), Ok(number as u64 + 2));
            let before = proxy.counter("responses_2xx");
            wait_for("more requests", SOON, || proxy.counter("responses_2xx") > before + 10);
        }
    });
    assert!(backends.iter().all(|backend| backend.requests().len() > 50));
    assert_eq!(proxy.stop().generation, 21);
}

/// A reload reads the certificate again. Open connections of mode `tcp` continue.
#[test]
fn a_reload_replaces_the_certificate_and_keeps_connections() {
    let backend = Backend::paths();
    let stanza = format!("mode = \"tcp\"\n{}", upstream(&[backend.address]));
    let Some(proxy) = Proxy::start(&stanza) else { return };
    let mut client = Client::connect(&proxy);
    assert_eq!(client.get("/before").unwrap().body, b"/before");
    let serial = |client: &Client| client.stream.conn.peer_certificates().unwrap()[0].to_vec();
    let old = serial(&client);
    certificate::certify(&proxy.folder, "rsa2048-0", &["localhost"]).unwrap();
    assert_eq!(proxy.reload(HEAD, &stanza), Ok(2));
    assert_ne!(serial(&Client::connect(&proxy)), old);
    assert_eq!(client.get("/after").unwrap().body, b"/after");
    drop(client);
    proxy.stop();
}

#[test]
fn a_refused_reload_changes_nothing() {
    let backend = Backend::paths();
    let Some(proxy) = Proxy::start(&http(&backend)) else { return };
    let refused = [
        (proxy.reload("workers = 2", &http(&backend)), "`workers` and `pin`"),
        (proxy.reload(HEAD, &http(&backend).replace("http", "tcp")), "names, modes and addresses"),
    ];
    for (result, part) in refused {
        let error = result.unwrap_err();
        assert!(error.starts_with("a reload cannot change ") && error.contains(part), "{error}");
    }
    let certificate = std::fs::read(&proxy.certificate).unwrap();
    std::fs::write(&proxy.certificate, "").unwrap();
    let error = proxy.reload(HEAD, &http(&backend)).unwrap_err();
    assert!(error.starts_with("proxy `front`: ") && error.contains("contains no certificate"), "{error}");
    std::fs::write(&proxy.certificate, certificate).unwrap();
    assert_eq!(Client::connect(&proxy).get("/still").unwrap().body, b"/still");
    assert_eq!(proxy.stop().generation, 1);
}

/// A server that failed its health check before a reload receives no request after it.
#[test]
fn a_reload_keeps_the_health_of_servers() {
    let (mut first, second) = (Backend::paths(), Backend::paths());
    let stanza = |every_s: &str| {
        let servers = upstream(&[first.address, second.address]);
        format!("mode = \"http\"\n{servers}\nhealth = {{ every_s = {every_s} }}")
    };
    let (often, seldom) = (stanza("0.01"), stanza("1"));
    let Some(proxy) = Proxy::start(&often) else { return };
    let healthy = |running: &godwit_proxy::Running| running.report().proxies[0].upstreams[0].healthy;
    first.kill();
    wait_for("the failed check", SOON, || !proxy.with(healthy));
    assert_eq!(proxy.reload(HEAD, &seldom), Ok(2));
    assert!(!proxy.with(healthy));
    let failed = proxy.counter("upstream_failed_connect");
    for _ in 0..4 {
        assert_eq!(Client::connect(&proxy).get("/kept").unwrap().status, 200);
    }
    assert_eq!(proxy.counter("upstream_failed_connect"), failed);
    proxy.stop();
}

/// A request in progress is answered after a stop has begun, but no new connection is accepted.
#[test]
fn a_stop_waits_for_requests() {
    let open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&open);
    let backend = Backend::http(move |_| {
        wait_for("the gate opens", SOON, || gate.load(Ordering::SeqCst));
        Answer::Body("late".into())
    });
    let Some(proxy) = Proxy::start(&http(&backend)) else { return };
    let address = proxy.address();
    let mut idle = Client::connect(&proxy);
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    wait_for("the request", SOON, || backend.requests().len() == 1);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| proxy.stop());
        assert_eq!(idle.read_to_end(), (Vec::new(), true), "an idle connection ends at once");
        wait_for("no listener", SOON, || std::net::TcpStream::connect(address).is_err());
        open.store(true, Ordering::SeqCst);
        let response = client.response(false).unwrap();
        assert_eq!(response.body, b"late");
        assert!(response.head.contains("connection: close"), "{}", response.head);
        let report = stopping.join().unwrap();
        assert_eq!((report.proxies[0].counters["responses_2xx"], report.proxies[0].counters["closed_drain"]), (1, 0));
    });
}

/// After the configured time for connections to end, the remaining connections are closed and
/// counted.
#[test]
fn a_stop_ends_after_the_time_to_drain() {
    let backend = Backend::http(|_| Answer::Raw(Vec::new()));
    let Some(proxy) = Proxy::start_with("workers = 1\ndrain_s = 0.2", &http(&backend)) else { return };
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let silent = std::net::TcpStream::connect(proxy.address()).unwrap();
    proxy.expect("handshaking", 1);
    wait_for("the request", SOON, || backend.requests().len() == 1);
    let counters = &proxy.stop().proxies[0].counters;
    let counts = ["closed_drain", "requests_aborted", "handshake_failed_timeout"].map(|name| counters[name]);
    assert_eq!(counts, [1, 1, 1], "{counters:?}");
    drop(silent);
}
