//! Tests the loss of servers under load. No response is wrong, and the service recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use godwit_test_support::{SetOnDrop, wait_for};

use crate::backend::{Answer, Backend, Request};
use crate::client::Client;
use crate::setup::{Proxy, SOON, upstream};

const CLIENTS: usize = 4;

/// Results of requests, by kind.
#[derive(Default)]
struct Tally {
    correct: AtomicUsize,
    /// Responses of the proxy that no server was available.
    refused: AtomicUsize,
    wrong: AtomicUsize,
    broken: AtomicUsize,
}

impl Tally {
    fn correct(&self) -> usize {
        self.correct.load(Ordering::SeqCst)
    }
}

fn answer(request: &Request) -> Answer {
    // The response body repeats the path, so that a response to another request is noticed.
    Answer::Body(format!("{0}{0}", request.path).into_bytes())
}

/// Sends requests of `method` until `stop`.
fn load(proxy: &Proxy, method: &str, tally: &Tally, client_index: usize, stop: &AtomicBool) {
    let mut client = Client::connect(proxy);
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        number += 1;
        let path = format!("/{client_index}/{number}");
        let length = if method == "POST" { "Content-Length: 4\r\n\r\nbody" } else { "\r\n" };
        let sent = client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{length}"));
        let result = match sent.and_then(|()| client.response(false)) {
            Ok(response) if response.status == 200 && response.body == format!("{path}{path}").as_bytes() => {
                &tally.correct
            }
            Ok(response) if matches!(response.status, 502..=504) => &tally.refused,
            Ok(_) => &tally.wrong,
            Err(_) => {
                client = Client::connect(proxy);
                &tally.broken
            }
        };
        result.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs `scenario` while clients send requests. Returns the results of the requests.
fn under_load(proxy: &Proxy, method: &str, scenario: impl FnOnce(&Tally)) -> Tally {
    let (stop, tally) = (AtomicBool::new(false), Tally::default());
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&stop);
        for index in 0..CLIENTS {
            let (stop, tally) = (&stop, &tally);
            scope.spawn(move || load(proxy, method, tally, index, stop));
        }
        scenario(&tally);
    });
    tally
}

/// Waits until `count` further responses are correct.
fn more(tally: &Tally, count: usize) {
    let target = tally.correct() + count;
    wait_for("more correct responses", SOON, || tally.correct() >= target);
}

#[test]
fn a_killed_server_of_two_fails_no_get() {
    let (mut first, second) = (Backend::http(answer), Backend::http(answer));
    let stanza = format!("mode = \"http\"\n{}", upstream(&[first.address, second.address]));
    let Some(proxy) = Proxy::start(&stanza) else { return };
    let address = first.address;
    let tally = under_load(&proxy, "GET", |tally| {
        more(tally, 200);
        first.kill();
        more(tally, 200);
        first = Backend::http_on(address, answer);
        wait_for("the server is used again", SOON, || first.requests().len() > 50);
    });
    let results = [&tally.refused, &tally.wrong, &tally.broken].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(results, [0, 0, 0], "refused, wrong, broken");
    let report = proxy.stop();
    assert!(report.proxies[0].counters["upstream_retries"] > 0);
}

/// A request with a body may already have had an effect, so it is not sent again after its server
/// is lost.
#[test]
fn a_killed_server_repeats_no_post() {
    let (mut first, second) = (Backend::http(answer), Backend::http(answer));
    let stanza = format!("mode = \"http\"\n{}", upstream(&[first.address, second.address]));
    let Some(proxy) = Proxy::start(&stanza) else { return };
    let tally = under_load(&proxy, "POST", |tally| {
        more(tally, 200);
        first.kill();
        more(tally, 200);
    });
    assert_eq!(tally.wrong.load(Ordering::SeqCst), 0);
    assert!(tally.refused.load(Ordering::SeqCst) <= CLIENTS, "at most one request of each connection");
    let mut paths: Vec<String> = [first.requests(), second.requests()].concat().into_iter().map(|r| r.path).collect();
    let count = paths.len();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), count, "a request reached two servers");
    proxy.stop();
}

#[test]
fn service_recovers_when_the_only_server_returns() {
    let mut server = Backend::http(answer);
    let address = server.address;
    let Some(proxy) = Proxy::start(&format!("mode = \"http\"\n{}", upstream(&[address]))) else { return };
    let tally = under_load(&proxy, "GET", |tally| {
        for _ in 0..3 {
            more(tally, 100);
            server.kill();
            let refused = tally.refused.load(Ordering::SeqCst);
            wait_for("refusals", SOON, || tally.refused.load(Ordering::SeqCst) > refused + 10);
            server = Backend::http_on(address, answer);
        }
        more(tally, 100);
    });
    assert_eq!((tally.wrong.load(Ordering::SeqCst), tally.broken.load(Ordering::SeqCst)), (0, 0));
    let counters = &proxy.stop().proxies[0].counters;
    assert!(counters["upstream_none"] > 0 && counters["responses_5xx"] > 0, "{counters:?}");
}

/// A client never takes a truncated response for a complete one. The length of the response is
/// declared, or the response is sent in chunks.
#[test]
fn a_response_that_ends_early_is_not_complete() {
    let backend = Backend::http(|request| {
        let head = match request.path.as_str() {
            "/length" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
            "/chunk" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nshort",
            "/chunks" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
            "/header" => "HTTP/1.1 200 OK\r\nContent-Le",
            "/garbage" => "\x16\x03\x01\x02",
            _ => "",
        };
        Answer::Last(head.as_bytes().to_vec())
    });
    let Some(proxy) = Proxy::start(&format!("mode = \"http\"\n{}", upstream(&[backend.address]))) else { return };
    for path in ["/length", "/chunk", "/chunks"] {
        let error = Client::connect(&proxy).get(path);
        assert!(error.is_err(), "{path}: {error:?}");
    }
    for path in ["/header", "/garbage", "/nothing"] {
        let status = Client::connect(&proxy).get(path).unwrap().status;
        assert!(matches!(status, 502 | 503), "{path}: {status}");
    }
    proxy.expect("open", 0);
    assert_eq!(proxy.stop().proxies[0].counters["requests_aborted"], 3);
}

#[test]
fn a_silent_server_is_given_up() {
    let backend = Backend::http(|_| Answer::Raw(Vec::new()));
    let stanza = format!("mode = \"http\"\n{}\ntimeouts = {{ response_s = 0.2 }}", upstream(&[backend.address]));
    let Some(proxy) = Proxy::start(&stanza) else { return };
    assert_eq!(Client::connect(&proxy).get("/").unwrap().status, 504);
    let counters = &proxy.stop().proxies[0].counters;
    assert_eq!((counters["upstream_failed_timeout"], counters["responses_5xx"]), (1, 1));
}

/// If the client disconnects while the server works, the request is given up.
#[test]
fn a_client_that_leaves_frees_the_server() {
    let backend = Backend::http(|_| Answer::Raw(Vec::new()));
    let Some(proxy) = Proxy::start(&format!("mode = \"http\"\n{}", upstream(&[backend.address]))) else { return };
    let mut client = Client::connect(&proxy);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    wait_for("the request", SOON, || backend.requests().len() == 1);
    drop(client);
    proxy.expect("requests_aborted", 1);
    let active = |running: &godwit_proxy::Running| running.report().proxies[0].upstreams[0].active;
    assert_eq!(proxy.with(active), 0);
    proxy.stop();
}

/// If no connection to a server can be established, mode `tcp` uses another server.
#[test]
fn tcp_connections_move_to_another_server() {
    let (mut first, second) = (Backend::paths(), Backend::paths());
    let stanza = format!("mode = \"tcp\"\n{}", upstream(&[first.address, second.address]));
    let Some(proxy) = Proxy::start(&stanza) else { return };
    first.kill();
    for _ in 0..6 {
        assert_eq!(Client::connect(&proxy).get("/moved").unwrap().body, b"/moved");
    }
    assert!(proxy.counter("upstream_failed_connect") > 0 && proxy.counter("upstream_retries") > 0);
    let (third, address) = (second, first.address);
    drop(third);
    let mut client = Client::connect(&proxy);
    assert_eq!(client.read_to_end().0, b"", "no server is left at {address}");
    proxy.expect("upstream_none", 1);
    drop(client);
    proxy.stop();
}

/// Combines all losses at once, with several workers, and with connections that open and close.
#[test]
fn workers_share_servers() {
    let backend = Arc::new(Backend::http(answer));
    let stanza = format!("mode = \"http\"\n{}", upstream(&[backend.address]));
    let Some(proxy) = Proxy::start_with("workers = 3", &stanza) else { return };
    std::thread::scope(|scope| {
        for index in 0..6 {
            let proxy = &proxy;
            scope.spawn(move || {
                for number in 0..10 {
                    let path = format!("/{index}/{number}");
                    let response = Client::connect(proxy).get(&path).unwrap();
                    assert_eq!(response.body, format!("{path}{path}").as_bytes());
                }
            });
        }
    });
    let counters = &proxy.stop().proxies[0].counters;
    assert_eq!((counters["handshakes"], counters["responses_2xx"]), (60, 60));
}
