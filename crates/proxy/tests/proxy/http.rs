//! Tests mode `http` with HTTP/1.1: header fields, bodies, keep-alive, selection of servers,
//! WebSocket, redirects and the access log.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_test_support::{Random, wait_for};
use serde_json::Value;

use crate::backend::{Answer, Backend, Request};
use crate::client::Client;
use crate::setup::{Proxy, SOON, upstream};

fn http(extra: &str, backends: &[&Backend]) -> String {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address).collect();
    format!("mode = \"http\"\n{}\n{extra}", upstream(&addresses))
}

/// Returns the values of a field of a request.
fn values<'a>(request: &'a Request, name: &str) -> Vec<&'a str> {
    let fields = request.head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

#[test]
fn fields_of_a_connection_end_at_the_proxy() {
    let backend = Backend::http(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive, X-Secret\r\nX-Secret: s\r\n\
                    Keep-Alive: timeout=5\r\nServer: backend\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\nok";
        Answer::Raw(head.as_bytes().to_vec())
    });
    let Some(proxy) = Proxy::start(&http("", &[&backend])) else { return };
    let mut client = Client::connect(&proxy);
    let request = "GET /path?query#no HTTP/1.1\r\nHost: shop.example:8443\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\
                   Keep-Alive: 5\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\nX-Forwarded-For: 6.6.6.6\r\n\
                   X-Forwarded-Proto: http\r\nForwarded: for=6.6.6.6\r\nCookie: a=1\r\nCookie: b=2\r\nAccept: */*\r\n\r\n";
    client.send(request).unwrap();
    let response = client.response(false).unwrap();
    assert_eq!((response.status, &response.body[..]), (200, &b"ok"[..]));
    for gone in ["x-secret", "keep-alive:"] {
        assert!(!response.head.contains(gone), "{}", response.head);
    }
    for kept in ["server: backend", "set-cookie: a=1", "set-cookie: b=2", "connection: close"] {
        assert!(response.head.contains(kept), "{kept}: {}", response.head);
    }
    let received = &backend.requests()[0];
    assert_eq!(received.path, "/path?query");
    for gone in ["connection", "x-hop", "keep-alive", "proxy-authorization", "te", "forwarded"] {
        assert_eq!(values(received, gone), Vec::<&str>::new(), "{gone}: {}", received.head);
    }
    let expected = [
        ("host", "shop.example:8443"),
        ("x-forwarded-host", "shop.example:8443"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("cookie", "a=1; b=2"),
        ("accept", "*/*"),
    ];
    for (name, value) in expected {
        assert_eq!(values(received, name), [value], "{name}");
    }
    proxy.stop();
}

#[test]
fn bodies_pass_in_both_directions() {
    let backend = Backend::http(|request| match request.path.as_str() {
        "/chunked" => {
            let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for chunk in request.body.chunks(10_000) {
                bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            Answer::Raw(bytes)
        }
        "/until-close" => Answer::Last([b"HTTP/1.1 200 OK\r\n\r\n", &request.body[..]].concat()),
        "/no-content" => Answer::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        "/interim" => {
            Answer::Raw(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ni".to_vec())
        }
        _ => Answer::Body(request.body.clone()),
    });
    let Some(proxy) = Proxy::start(&http("", &[&backend])) else { return };
    let mut client = Client::connect(&proxy);
    let body = Random::new(3).bytes(300_000);
    let mut bytes_in = 0;
    for path in ["/length", "/chunked", "/until-close", "/length"] {
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len())).unwrap();
        client.send(&body).unwrap();
        let response = client.response(false).unwrap();
        assert!(response.status == 200 && response.body == body, "{path}: {}", response.head);
        bytes_in += body.len() as u64;
    }
    client
        .send("POST /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    assert!(client.head().unwrap().starts_with("http/1.1 100 "));
    client.send("4;x=y\r\nbody\r\n0\r\nTrailer: t\r\n\r\n").unwrap();
    assert_eq!(client.response(false).unwrap().body, b"body");
    client.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(client.response(true).unwrap().status, 200);
    assert_eq!(client.get("/no-content").unwrap().status, 204);
    assert_eq!(client.get("/interim").unwrap().body, b"i");
    drop(client);
    let counters = &proxy.stop().proxies[0].counters;
    assert_eq!((counters["requests"], counters["responses_2xx"], counters["bytes_in"]), (8, 8, bytes_in + 4));
    // All requests of one client use the same connection. The server closed it once.
    assert_eq!((counters["upstream_connections"], counters["upstream_reused"]), (2, 6));
}

#[test]
fn large_bodies_are_refused() {
    let backend = Backend::http(|request| Answer::Body(request.body.clone()));
    let Some(proxy) = Proxy::start(&http("limits = { body_bytes = 1000 }", &[&backend])) else { return };
    let chunk = format!("3e8\r\n{}\r\n", "a".repeat(1000));
    let cases = [
        ("Content-Length: 1000", "a".repeat(1000), 200),
        ("Content-Length: 1001", "a".repeat(1001), 413),
        ("Content-Length: 99999999999", String::new(), 413),
        ("Transfer-Encoding: chunked", format!("{chunk}0\r\n\r\n"), 200),
        ("Transfer-Encoding: chunked", format!("{chunk}{chunk}0\r\n\r\n"), 413),
    ];
    for (field, body, status) in cases {
        let mut client = Client::connect(&proxy);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n{body}")).unwrap();
        assert_eq!(client.response(false).unwrap().status, status, "{field}");
    }
    assert_eq!(proxy.stop().proxies[0].counters["requests_refused_body"], 3);
}

#[test]
fn large_headers_are_refused() {
    let backend = Backend::paths();
    let Some(proxy) = Proxy::start(&http("limits = { header_bytes = 8192, header_fields = 50 }", &[&backend])) else {
        return;
    };
    let field = |size: usize| format!("X: {}\r\n", "a".repeat(size));
    for (fields, status) in
        [(field(7000), 200), (field(9000), 431), (field(1).repeat(49), 200), (field(1).repeat(60), 431)]
    {
        let mut client = Client::connect(&proxy);
        client.send(format!("GET /h HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).unwrap();
        assert_eq!(client.response(false).unwrap().status, status, "{} bytes", fields.len());
    }
    assert_eq!(backend.requests().len(), 2);
    proxy.stop();
}

#[test]
fn servers_are_chosen_by_the_configured_rule() {
    let names = ["a", "b", "c"];
    let backends = names.map(|name| Backend::http(move |_| Answer::Body(name.into())));
    let all: Vec<&Backend> = backends.iter().collect();
    let run = |balance: &str, kept: bool| {
        let proxy = Proxy::start(&http(&format!("balance = \"{balance}\""), &all))?;
        let mut counts = [0; 3];
        let mut client = Client::connect(&proxy);
        for _ in 0..30 {
            if !kept {
                client = Client::connect(&proxy);
            }
            let body = client.get("/").unwrap().body;
            counts[names.iter().position(|name| name.as_bytes() == body).unwrap()] += 1;
        }
        drop(client);
        proxy.stop();
        Some(counts)
    };
    let Some(counts) = run("round_robin", true) else { return };
    assert_eq!(counts, [10, 10, 10]);
    assert_eq!(run("least_connections", true).unwrap(), [10, 10, 10], "all servers are unused");
    let mut counts = run("hash", false).unwrap();
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 30], "all connections have the same client");
}

/// Requests in progress count as load, so a slow server gets no further requests.
#[test]
fn least_connections_avoids_a_busy_server() {
    let open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&open);
    let slow = Backend::http(move |_| {
        wait_for("the test ends", SOON, || gate.load(Ordering::SeqCst));
        Answer::Body("slow".into())
    });
    let fast = Backend::http(|_| Answer::Body("fast".into()));
    let Some(proxy) = Proxy::start(&http("balance = \"least_connections\"", &[&slow, &fast])) else { return };
    let mut waiting = Client::connect(&proxy);
    let mut client = Client::connect(&proxy);
    // Both servers are unused, so the first request goes to either of them.
    waiting.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    wait_for("a request", SOON, || slow.requests().len() + fast.requests().len() == 1);
    if slow.requests().is_empty() {
        assert_eq!(waiting.response(false).unwrap().body, b"fast");
        waiting.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        wait_for("a request", SOON, || slow.requests().len() == 1);
    }
    for _ in 0..10 {
        assert_eq!(client.get("/").unwrap().body, b"fast");
    }
    open.store(true, Ordering::SeqCst);
    assert_eq!(waiting.response(false).unwrap().body, b"slow");
    drop((waiting, client));
    proxy.stop();
}

#[test]
fn health_checks_take_a_server_out_and_back() {
    let healthy = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&healthy);
    let sick = Backend::http(move |request| match (request.path.as_str(), state.load(Ordering::SeqCst)) {
        ("/ok", false) => Answer::Last(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ("/ok", true) => Answer::Last(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()),
        _ => Answer::Body("sick".into()),
    });
    let well = Backend::http(|_| Answer::Body("well".into()));
    let health = "health = { path = \"/ok\", every_s = 0.02 }";
    let Some(proxy) = Proxy::start(&http(health, &[&sick, &well])) else { return };
    let is_healthy = |expected: [bool; 2]| {
        proxy.with(|running| {
            let servers = &running.report().proxies[0].upstreams;
            servers.iter().map(|server| server.healthy).eq(expected)
        })
    };
    wait_for("the server is taken out", SOON, || is_healthy([false, true]));
    let mut client = Client::connect(&proxy);
    for _ in 0..6 {
        assert_eq!(client.get("/").unwrap().body, b"well");
    }
    healthy.store(true, Ordering::SeqCst);
    wait_for("the server is back", SOON, || is_healthy([true, true]));
    let bodies: Vec<_> = (0..2).map(|_| client.get("/").unwrap().body).collect();
    assert!(bodies.contains(&b"sick".to_vec()) && bodies.contains(&b"well".to_vec()), "{bodies:?}");
    drop(client);
    proxy.stop();
}

#[test]
fn websockets_are_bytes_after_the_switch() {
    let backend = Backend::raw(|mut stream: TcpStream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.contains("upgrade: websocket") && head.contains("sec-websocket-key: a2v5"), "{head}");
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: eA==\r\n\r\nfirst";
        stream.write_all(answer.as_bytes()).unwrap();
        let mut bytes = [0; 1000];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            bytes[..count].reverse();
            if stream.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    });
    let Some(proxy) = Proxy::start(&http("", &[&backend])) else { return };
    let mut client = Client::connect(&proxy);
    let request = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
                   Sec-WebSocket-Key: a2V5\r\nSec-WebSocket-Version: 13\r\n\r\n";
    client.send(request).unwrap();
    let head = client.head().unwrap();
    for part in ["http/1.1 101 ", "upgrade: websocket", "connection: upgrade", "sec-websocket-accept: ea=="] {
        assert!(head.contains(part), "{part}: {head}");
    }
    assert_eq!(client.take(5).unwrap(), b"first");
    client.send("abc").unwrap();
    assert_eq!(client.take(3).unwrap(), b"cba");
    proxy.expect("upgrades", 1);
    client.end();
    assert_eq!(client.read_to_end().0, b"");
    proxy.stop();
}

#[test]
fn the_plain_listener_redirects_and_answers_challenges() {
    let backend = Backend::paths();
    let stanza = http("redirect = \"127.0.0.1:0\"\nacme = \"challenges\"", &[&backend]);
    let Some(proxy) = Proxy::start(&stanza) else { return };
    std::fs::create_dir(proxy.folder.join("challenges")).unwrap();
    proxy.folder.write("challenges/to-ken_1", "to-ken_1.thumbprint");
    proxy.folder.write("secret", "secret");
    let get = |target: &str, host: &str| {
        let mut socket = TcpStream::connect(proxy.plain_address()).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        write!(socket, "GET {target} HTTP/1.1\r\n{host}\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    };
    let host = "Host: shop.example:8080\r\n";
    let text = get("/a/b?c=d", host);
    assert!(text.starts_with("HTTP/1.1 308 "), "{text}");
    // The test listens on port 0, and the redirect contains this port as configured.
    assert!(text.contains("location: https://shop.example:0/a/b?c=d\r\n"), "{text}");
    let text = get("/.well-known/acme-challenge/to-ken_1", host);
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\nto-ken_1.thumbprint"), "{text}");
    for missing in ["none", "../secret", "..%2fsecret", "", "to-ken_1/", &"a".repeat(200)] {
        let text = get(&format!("/.well-known/acme-challenge/{missing}"), host);
        assert!(text.starts_with("HTTP/1.1 404 "), "{missing}: {text}");
    }
    assert!(get("/", "").starts_with("HTTP/1.1 400 "));
    assert!(get("/", "Host: a@b\r\n").starts_with("HTTP/1.1 400 "));
    let counters = &proxy.stop().proxies[0].counters;
    assert_eq!((counters["redirects"], counters["acme"], counters["requests"]), (1, 1, 0));
}

#[test]
fn the_access_log_has_a_line_for_each_request() {
    let backend = Backend::paths();
    let stanza = http("", &[&backend]);
    let Some(proxy) = Proxy::start_with("workers = 1\naccess_log = \"access.log\"", &stanza) else { return };
    let mut client = Client::connect(&proxy);
    client.send("GET /\u{e4}?q=\"1\" HTTP/1.1\r\nHost: h\r\nUser-Agent: a\"b\r\nReferer: r\r\n\r\n").ok();
    assert_eq!(client.response(false).map(|response| response.status).unwrap_or(400), 400, "not ASCII");
    let mut client = Client::connect(&proxy);
    client.send("GET /log?q=1 HTTP/1.1\r\nHost: h\r\nUser-Agent: a\"b\r\nReferer: r\r\n\r\n").unwrap();
    assert_eq!(client.response(false).unwrap().body, b"/log?q=1");
    assert_eq!(client.get("/second").unwrap().body, b"/second");
    let from = client.stream.sock.local_addr().unwrap();
    drop(client);
    proxy.stop();
    let text = std::fs::read_to_string(proxy.folder.join("access.log")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{text}");
    let line = &lines[0];
    let texts = [
        ("proxy", "front"),
        ("tls", "1.3"),
        ("protocol", "HTTP/1.1"),
        ("method", "GET"),
        ("host", "h"),
        ("path", "/log?q=1"),
        ("user_agent", "a\"b"),
        ("referer", "r"),
    ];
    for (name, value) in texts {
        assert_eq!(line[name], value, "{name}");
    }
    assert_eq!(line["client"], from.to_string());
    assert_eq!(line["upstream"], backend.address.to_string());
    assert_eq!((line["status"].as_u64(), line["bytes_out"].as_u64()), (Some(200), Some(8)));
    assert_eq!(line["complete"], true);
}
