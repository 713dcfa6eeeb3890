//! Tests mode `http` with HTTP/2. The clients are `curl` and `h2load`, and hostile clients that
//! create frames themselves (RFC 9113).

use std::io::{self, Read};
use std::sync::Arc;

use godwit_test_support::{Peer, Random};

use crate::backend::{Answer, Backend};
use crate::client::{Client, config};
use crate::setup::{Proxy, upstream};

// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
// Flags.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const REQUEST: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/hand"), (":authority", "localhost")];

fn start(extra: &str) -> Option<(Arc<Proxy>, Backend)> {
    let backend = Backend::http(|request| match request.path.as_str() {
        "/echo" => Answer::Body(request.body.clone()),
        _ => Answer::Body(request.path.clone().into_bytes()),
    });
    let proxy = Proxy::start(&format!("mode = \"http\"\n{}\n{extra}", upstream(&[backend.address])))?;
    Some((proxy, backend))
}

#[test]
fn curl_transfers_bodies() {
    let Some(curl) = Peer::find("curl") else { return };
    let Some((proxy, backend)) = start("") else { return };
    let body = Random::new(4).bytes(2 << 20);
    let file = proxy.folder.write("body", &body);
    let output = proxy.folder.join("output");
    for option in ["--http1.1", "--http2"] {
        let mut command = curl.command();
        command.args(["-sS", option, "-H", "Cookie: a=1", "--cacert"]).arg(&proxy.certificate);
        command.arg("--data-binary").arg(format!("@{}", file.display())).arg("-o").arg(&output);
        let url = format!("https://localhost:{}/echo", proxy.address().port());
        let result = command.arg(url).output().unwrap();
        assert!(result.status.success() && std::fs::read(&output).unwrap() == body, "{option}: {result:?}");
    }
    let requests = backend.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|request| request.head.contains("x-forwarded-proto: https")), "{}", requests[1].head);
    proxy.stop();
}

/// A response that the proxy itself creates has no body if the method is HEAD.
#[test]
fn head_has_no_body_without_a_server() {
    let Some(curl) = Peer::find("curl") else { return };
    let Some((proxy, mut backend)) = start("") else { return };
    backend.kill();
    for option in ["--http1.1", "--http2"] {
        let mut command = curl.command();
        command.args(["-sS", "--head", option, "--cacert"]).arg(&proxy.certificate);
        let result = command.arg(format!("https://localhost:{}/", proxy.address().port())).output().unwrap();
        assert!(result.status.success(), "{option}: {result:?}");
        assert!(String::from_utf8_lossy(&result.stdout).contains(" 503"), "{option}: {result:?}");
    }
    proxy.stop();
}

/// 20 connections with 10 concurrent requests each.
#[test]
fn h2load_has_no_failure() {
    let Some(h2load) = Peer::find("h2load") else { return };
    let Some((proxy, _backend)) = start("") else { return };
    let url = format!("https://localhost:{}/load", proxy.address().port());
    let output = h2load.command().args(["-n", "4000", "-c", "20", "-m", "10", &url]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("4000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
    let counters = &proxy.stop().proxies[0].counters;
    assert_eq!((counters["handshakes"], counters["responses_2xx"]), (20, 4000));
}

/// Client that writes frames.
struct Hand(Client);

impl Hand {
    fn connect(proxy: &Proxy) -> Self {
        let client = Client::connect_with(&config(&proxy.certificate, &["h2"]), proxy.address()).expect("a handshake");
        let mut hand = Self(client);
        hand.0.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        hand.frame(SETTINGS, 0, 0, &[]).unwrap();
        hand
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.0.send(frame(kind, flags, stream, payload))
    }

    /// Reads frames until a frame of one of the types in `kinds` arrives, or the connection ends.
    /// Returns the type, the stream and the payload of the frame.
    fn next(&mut self, kinds: &[u8]) -> Option<(u8, u32, Vec<u8>)> {
        loop {
            let mut head = [0; 9];
            self.0.stream.read_exact(&mut head).ok()?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.0.stream.read_exact(&mut payload).ok()?;
            if kinds.contains(&head[3]) {
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                return Some((head[3], stream, payload));
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Encodes header fields as literals without indexing and without Huffman codes (RFC 7541, section
/// 6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            if text.len() < 127 {
                bytes.push(text.len() as u8);
            } else {
                let rest = text.len() - 127;
                assert!((128..1 << 14).contains(&rest));
                bytes.extend([127, (rest & 127) as u8 | 128, (rest >> 7) as u8]);
            }
            bytes.extend(text.bytes());
        }
    }
    bytes
}

fn request(fields: &[(&str, &str)]) -> Vec<u8> {
    block(&[&REQUEST[..], fields].concat())
}

/// Requests that a server of HTTP/1.1 could interpret in another way never reach the server (RFC
/// 9113, sections 8.2.1 and 10.3).
#[test]
fn malformed_requests_do_not_reach_the_server() {
    let Some((proxy, backend)) = start("") else { return };
    let changed = |name: &str, value: &'static str| {
        let fields: Vec<_> =
            REQUEST.iter().map(|(found, old)| (*found, if *found == name { value } else { *old })).collect();
        block(&fields)
    };
    let cases = [
        ("line break in a value", request(&[("x", "a\r\nGET /smuggled HTTP/1.1")])),
        ("line break in a name", request(&[("x: a\r\ny", "b")])),
        ("colon in a name", request(&[("x:y", "b")])),
        ("upper case", request(&[("X-Upper", "b")])),
        ("NUL", request(&[("x", "a\0b")])),
        ("connection", request(&[("connection", "keep-alive")])),
        ("transfer-encoding", request(&[("transfer-encoding", "chunked")])),
        ("second path", request(&[(":path", "/smuggled")])),
        ("pseudo-header after a field", block(&[&REQUEST[..3], &[("x", "y"), (":authority", "localhost")]].concat())),
        ("unknown pseudo-header", request(&[(":smuggled", "x")])),
        ("no method", block(&REQUEST[1..])),
        ("line break in the path", changed(":path", "/ HTTP/1.1\r\nX: y")),
        ("space in the path", changed(":path", "/a b")),
        ("empty path", changed(":path", "")),
        ("space in the method", changed(":method", "GET /smuggled")),
        ("user in the authority", changed(":authority", "a@localhost")),
        ("other host", request(&[("host", "other")])),
        ("CONNECT", block(&[(":method", "CONNECT"), (":authority", "localhost:22")])),
        ("two lengths", request(&[("content-length", "1"), ("content-length", "2")])),
        ("length that is no number", request(&[("content-length", "+1")])),
        ("index beyond the table", vec![0xff, 0xff, 0xff, 0x7f]),
    ];
    for (name, payload) in &cases {
        let mut hand = Hand::connect(&proxy);
        hand.frame(HEADERS, END_HEADERS | END_STREAM, 1, payload).unwrap();
        if let Some((HEADERS, _, block)) = hand.next(&[HEADERS, RST_STREAM, GOAWAY]) {
            // The response has status 400 or 405, as an index into the static table or as a
            // literal.
            let is_refused =
                block.contains(&0x8c) || block.windows(3).any(|part| part == b"405") || block.contains(&0x48);
            assert!(is_refused, "{name}: {block:x?}");
        }
    }
    // The body of this request is shorter than its declared length.
    let mut hand = Hand::connect(&proxy);
    let length = [("content-length", "100")];
    let post = block(&[&[(":method", "POST")], &REQUEST[1..], &length[..]].concat());
    hand.frame(HEADERS, END_HEADERS, 1, &post).unwrap();
    hand.frame(DATA, END_STREAM, 1, b"short").unwrap();
    let answer = hand.next(&[HEADERS, RST_STREAM, GOAWAY]);
    assert!(!matches!(&answer, Some((HEADERS, _, block)) if block[0] == 0x88), "{answer:?}");
    drop(hand);
    let complete: Vec<_> = backend.requests().into_iter().map(|request| (request.method, request.path)).collect();
    assert_eq!(complete, [], "requests that reached the server");

    // The connection still accepts a valid request.
    let mut hand = Hand::connect(&proxy);
    hand.frame(HEADERS, END_HEADERS | END_STREAM, 1, &request(&[])).unwrap();
    let (_, _, block) = hand.next(&[HEADERS]).unwrap();
    assert_eq!(block[0], 0x88, "status 200");
    assert_eq!(hand.next(&[DATA]).unwrap().2, b"/hand");
    drop(hand);
    proxy.stop();
}

/// Sends frames with `flood` until the connection ends. Returns the error code of the GOAWAY frame
/// that the proxy sends.
fn goaway(proxy: &Proxy, mut flood: impl FnMut(&mut Hand, u32) -> io::Result<()>) -> Option<u32> {
    let mut hand = Hand::connect(proxy);
    for turn in 0..200_000 {
        if flood(&mut hand, turn).is_err() {
            break;
        }
    }
    let (_, _, payload) = hand.next(&[GOAWAY])?;
    Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()))
}

/// Floods of frames end the connection, and the memory of the proxy does not grow without bound.
#[test]
fn floods_end_the_connection() {
    let Some((proxy, backend)) = start("limits = { streams = 20 }") else { return };
    const NO_ERROR: u32 = 0;
    const PROTOCOL_ERROR: u32 = 1;
    const ENHANCE_YOUR_CALM: u32 = 11;
    // The connection can also end without a GOAWAY frame, because a TCP reset discards it.
    let is_end = |code: Option<u32>| matches!(code, None | Some(NO_ERROR | PROTOCOL_ERROR | ENHANCE_YOUR_CALM));
    let rapid_reset = goaway(&proxy, |hand, turn| {
        let stream = 2 * turn + 1;
        hand.frame(HEADERS, END_HEADERS | END_STREAM, stream, &request(&[]))?;
        hand.frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())
    });
    assert!(is_end(rapid_reset), "rapid reset (CVE-2023-44487): {rapid_reset:?}");
    let continuation = goaway(&proxy, |hand, turn| {
        let part = block(&[("x", &"a".repeat(1000))]);
        if turn == 0 {
            hand.frame(HEADERS, END_STREAM, 1, &request(&[]))
        } else {
            hand.frame(CONTINUATION, 0, 1, &part)
        }
    });
    assert!(is_end(continuation), "CONTINUATION flood (CVE-2024-27316): {continuation:?}");
    let empty = goaway(&proxy, |hand, turn| match turn {
        0 => hand.frame(HEADERS, END_HEADERS, 1, &block(&[&[(":method", "POST")], &REQUEST[1..]].concat())),
        _ => hand.frame(HEADERS, END_HEADERS, 1, &request(&[])),
    });
    assert!(is_end(empty), "second header on a stream: {empty:?}");
    // Streams above the limit are refused one by one.
    let mut hand = Hand::connect(&proxy);
    let open = block(&[&[(":method", "POST")], &REQUEST[1..]].concat());
    let frames: Vec<u8> = (0..30).flat_map(|stream| frame(HEADERS, END_HEADERS, 2 * stream + 1, &open)).collect();
    hand.0.send(frames).unwrap();
    let (kind, stream, _) = hand.next(&[RST_STREAM, GOAWAY]).unwrap();
    assert!(kind == GOAWAY || (kind == RST_STREAM && stream > 39), "type {kind}, stream {stream}");
    drop(hand);
    // If a client does not read the replies to its PING frames, TCP stops the client, or the proxy
    // closes the connection.
    let mut hand = Hand::connect(&proxy);
    hand.0.stream.sock.set_write_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    let pings: Vec<u8> = (0..1000).flat_map(|_| frame(PING, 0, 0, &[0; 8])).collect();
    let stopped = (0..2000).any(|_| hand.0.send(&pings).is_err());
    assert!(stopped, "34 MB of PING frames were accepted");
    drop(hand);
    assert!(backend.requests().len() < 1000);
    let counters = &proxy.stop().proxies[0].counters;
    assert!(counters["closed"] == 5, "{counters:?}");
}
