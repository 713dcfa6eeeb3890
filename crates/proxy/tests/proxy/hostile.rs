//! Tests with hostile clients of HTTP/1.1: request smuggling, slow clients, and clients that do not
//! read responses.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use godwit_test_support::{Random, wait_for};

use crate::backend::{Answer, Backend};
use crate::client::Client;
use crate::setup::{Proxy, SOON, upstream};

fn start(extra: &str) -> Option<(Arc<Proxy>, Backend)> {
    let backend = Backend::http(|request| Answer::Body(request.path.clone().into_bytes()));
    let proxy = Proxy::start(&format!("mode = \"http\"\n{}\n{extra}", upstream(&[backend.address])))?;
    Some((proxy, backend))
}

const TARGET: &str = "POST /first HTTP/1.1\r\nHost: localhost\r\n";
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: localhost\r\nX: ";

/// Cases of request smuggling. Most of them come from the survey of Kettle (2019), and others from
/// RFC 9112, section 11.2. Each case is a header after [`TARGET`], and the bytes that follow the
/// header.
fn cases() -> Vec<(String, String)> {
    let chunked = format!("0\r\n\r\n{HIDDEN}");
    let mut cases: Vec<(String, String)> = [
        "Content-Length: 6\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 6",
        "Content-Length: 6\r\nTransfer-Encoding: xchunked",
        "Content-Length: 6\r\nTransfer-Encoding : chunked",
        "Content-Length: 6\r\nTransfer-Encoding\t: chunked",
        "Content-Length: 6\r\n Transfer-Encoding: chunked",
        "Content-Length: 6\r\nX: y\r\n\tTransfer-Encoding: chunked",
        "Content-Length: 6\r\nX: y\nTransfer-Encoding: chunked",
        "Content-Length: 6\r\nX: y\rTransfer-Encoding: chunked",
        "Content-Length: 6\r\nTransfer-Encoding: identity, chunked, identity",
        "Content-Length: 6\r\nTransfer-Encoding: chunked, identity",
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Content-Length: 6\r\nTransfer-Encoding:\x0bchunked",
        "Content-Length: 6\r\nTransfer-Encoding: \"chunked\"",
        "Content-Length: 6\r\nTransfer-Encoding: chunked\0",
        "Content-Length: 6\r\n\0Transfer-Encoding: chunked",
        "Content-Length: 6\r\nTransfer_Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length: 5.0",
        "Content-Length: 18446744073709551621",
        "Content-Length:\r\n 5",
        "Connection: Content-Length\r\nContent-Length: 5",
        "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
        "Connection: Host\r\nContent-Length: 5",
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\nContent-Length: 5",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 5",
        "Expect: 100-continue\r\nContent-Length: 5",
        "Host: other\r\nContent-Length: 5",
    ]
    .iter()
    .map(|fields| ((*fields).to_owned(), chunked.clone()))
    .collect();
    for size in [
        "5;x\n",
        "5\n",
        "+5\r\n",
        "0x5\r\n",
        "5 \r\n",
        " 5\r\n",
        "ffffffffffffffff5\r\n",
        "\r\n",
        "-1\r\n",
        "5;a=\"\r\n\"\r\n",
    ] {
        cases.push(("Transfer-Encoding: chunked".to_owned(), format!("{size}hello\r\n0\r\n\r\n{HIDDEN}")));
    }
    cases.push(("Transfer-Encoding: chunked".to_owned(), format!("5\r\nhelloXX0\r\n\r\n{HIDDEN}")));
    cases.push(("Transfer-Encoding: chunked".to_owned(), format!("5\r\nhello\r\n0\r\nX: y\r\n Z\r\n\r\n{HIDDEN}")));
    cases.push((
        "Transfer-Encoding: chunked".to_owned(),
        format!("5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n{HIDDEN}"),
    ));
    cases
}

/// The server and the proxy agree on the end of each request. No byte of a body or of trailing data
/// becomes a request that the proxy did not count.
#[test]
fn requests_cannot_be_smuggled() {
    let Some((proxy, backend)) = start("") else { return };
    for (fields, rest) in cases() {
        let before = (backend.requests().len(), proxy.counter("requests"));
        let mut client = Client::connect(&proxy);
        client.send(format!("{TARGET}{fields}\r\n\r\n{rest}")).unwrap();
        client.end();
        let (answer, _) = client.read_to_end();
        drop(client);
        proxy.expect("open", 0);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).map(|rest| &rest[..3]).collect();
        let seen = backend.requests().split_off(before.0);
        // For each request that a server received completely, it sent a response.
        let answered = statuses.iter().filter(|status| **status == "200").count();
        assert_eq!(answered, seen.len(), "{fields:?} {rest:?}: {answer}");
        assert!(seen.len() as u64 <= proxy.counter("requests") - before.1, "{fields:?}: {seen:?}");
        for request in &seen {
            let head = request.head.to_ascii_lowercase();
            assert!(!(head.contains("content-length") && head.contains("transfer-encoding")), "{fields:?}: {head}");
            let hosts = head.lines().filter(|line| line.starts_with("host: "));
            assert_eq!(hosts.count(), 1, "{fields:?}: {head}");
            assert!(!head.contains('\0') && !head.contains("\n "), "{fields:?}: {head}");
            assert_ne!(request.path, "/hidden", "{fields:?}: the header of the hidden request is not complete");
        }
    }
    proxy.stop();
}

#[test]
fn invalid_requests_are_refused() {
    let Some((proxy, backend)) = start("") else { return };
    let cases = [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: user@a\r\n\r\n", 400),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:22 HTTP/1.1\r\nHost: a:22\r\n\r\n", 405),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/3.7\r\nHost: a\r\n\r\n", 400),
        ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("G\u{1}T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHo st: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \u{7f}\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03\r\n\r\n", 400),
    ];
    for (request, status) in cases {
        let mut client = Client::connect(&proxy);
        client.send(request).unwrap();
        let found = client.response(false).map(|response| response.status);
        assert_eq!(found.unwrap_or(400), status, "{request:?}");
    }
    // A header above `limits.header_bytes`.
    let mut client = Client::connect(&proxy);
    client.send(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(40_000))).unwrap();
    let status = client.response(false).unwrap().status;
    assert!(matches!(status, 414 | 431), "{status}");
    let mut random = Random::new(5);
    for _ in 0..50 {
        let mut client = Client::connect(&proxy);
        let count = 1 + random.below(2000) as usize;
        client.send(random.bytes(count)).unwrap();
        client.end();
        client.read_to_end();
    }
    assert_eq!(backend.requests(), []);
    proxy.stop();
}

/// The proxy closes the connection of a client that sends its header too slowly, however short the
/// time between two bytes is.
#[test]
fn slow_headers_are_closed() {
    let Some((proxy, backend)) = start("timeouts = { header_s = 0.5, handshake_s = 0.5 }") else { return };
    // The client is slow in the TLS handshake.
    let mut silent = TcpStream::connect(proxy.address()).unwrap();
    silent.set_read_timeout(Some(SOON)).unwrap();
    for byte in [22, 3, 1] {
        let _ = silent.write_all(&[byte]);
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = silent.read_to_end(&mut Vec::new());
    proxy.expect("handshake_failed_timeout", 1);
    // The client is slow in the request header.
    let mut client = Client::connect(&proxy);
    let mut header = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".iter().copied().chain(std::iter::repeat(b'a'));
    let closed = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        client.send([header.next().unwrap()]).is_err()
    });
    assert!(closed, "the client was not closed in 20 s");
    // The client is slow before the request header.
    let mut client = Client::connect(&proxy);
    client.read_to_end();
    drop(client);
    proxy.expect("closed", 2);
    assert_eq!(backend.requests(), []);
    let report = proxy.stop();
    assert_eq!(report.proxies[0].counters["closed_idle"], 2, "{report:?}");
}

/// The proxy closes the connection of a client that sends its body too slowly, or that does not
/// read a response. In both cases, the server is released.
#[test]
fn stalled_bodies_are_closed() {
    let backend =
        Backend::http(|request| Answer::Body(vec![b'a'; if request.path == "/large" { 64 << 20 } else { 1 }]));
    let timeouts = "timeouts = { idle_s = 0.3, response_s = 0.3, connect_s = 0.3 }";
    let stanza = format!("mode = \"http\"\n{}\n{timeouts}", upstream(&[backend.address]));
    let Some(proxy) = Proxy::start(&stanza) else { return };
    let mut sender = Client::connect(&proxy);
    sender.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc").unwrap();
    let mut reader = Client::connect(&proxy);
    reader.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (answer, _) = sender.read_to_end();
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    wait_for("both requests end", SOON, || proxy.counter("requests_in_flight") == 0);
    let active = |running: &godwit_proxy::Running| running.report().proxies[0].upstreams[0].active;
    wait_for("no use of the server is left", SOON, || proxy.with(active) == 0);
    drop((sender, reader));
    proxy.stop();
}

/// Slow clients on all their connections do not prevent other clients from being served.
#[test]
fn many_slow_clients_leave_others_alone() {
    let Some((proxy, _backend)) = start("") else { return };
    let mut slow: Vec<Client> = (0..200).map(|_| Client::connect(&proxy)).collect();
    for turn in 0..3 {
        for client in &mut slow {
            client.send([b"GET"[turn]]).unwrap();
        }
        let mut client = Client::connect(&proxy);
        assert_eq!(client.get("/other").unwrap().body, b"/other");
    }
    assert_eq!(proxy.counter("open"), 200 + u64::from(proxy.counter("open") == 201));
    drop(slow);
    proxy.stop();
}
