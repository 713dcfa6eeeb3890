//! Tests mode `tcp`: copied bytes, the end of each direction, the PROXY protocol header, and ALPN.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::channel;

use godwit_test_support::{Peer, Random};

use crate::backend::Backend;
use crate::client::{Client, config};
use crate::setup::{Proxy, SOON, upstream};

fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 64 << 10];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}

fn tcp(extra: &str, backend: &Backend) -> String {
    format!("mode = \"tcp\"\n{}\n{extra}", upstream(&[backend.address]))
}

/// Client and server send at the same time. When one direction ends, the other direction stays
/// open.
#[test]
fn bytes_pass_unchanged_in_both_directions() {
    let backend = Backend::raw(echo);
    let Some(proxy) = Proxy::start(&tcp("", &backend)) else { return };
    let sent = Random::new(1).bytes(3 << 20);
    let mut client = Client::connect(&proxy);
    let mut received = vec![0; sent.len()];
    let (mut from, mut to) = (0, 0);
    let mut random = Random::new(2);
    while to < sent.len() {
        // Up to 256 KiB are in flight, which buffers on the way hold.
        let count = (random.below(40_000) as usize + 1).min(sent.len() - from).min((256 << 10) - (from - to));
        client.send(&sent[from..from + count]).unwrap();
        from += count;
        if from - to > 128 << 10 || from == sent.len() {
            to += client.stream.read(&mut received[to..from]).unwrap();
        }
    }
    client.send("last").unwrap();
    client.end();
    assert_eq!(client.read_to_end(), (b"last".to_vec(), true));
    assert!(received == sent, "the echo differs");
    let counters = &proxy.stop().proxies[0].counters;
    let bytes = sent.len() as u64 + 4;
    assert_eq!((counters["bytes_in"], counters["bytes_out"], counters["closed"]), (bytes, bytes, 1));
}

/// If the server closes its connection first, the connection of the client ends too.
#[test]
fn the_end_of_the_server_reaches_the_client() {
    let backend = Backend::raw(|mut stream: TcpStream| {
        let _ = stream.write_all(b"welcome\n");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut [0; 1]);
    });
    let Some(proxy) = Proxy::start(&tcp("", &backend)) else { return };
    let mut client = Client::connect(&proxy);
    assert_eq!(client.read_to_end(), (b"welcome\n".to_vec(), true));
    client.end();
    proxy.expect("closed", 1);
    proxy.stop();
}

/// The unit test checks that the layout of the header agrees with `scapy` and HAProxy. This test
/// checks that the header contains the addresses of the connection.
#[test]
fn the_proxy_header_precedes_the_bytes() {
    let (sender, received) = channel();
    let backend = Backend::raw(move |mut stream: TcpStream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    let Some(proxy) = Proxy::start(&tcp("proxy_protocol = true\nalpn = [\"h2\", \"mqtt\"]", &backend)) else { return };
    let address = proxy.address();
    let mut client = Client::connect_with(&config(&proxy.certificate, &["mqtt"]), address).unwrap();
    let from = client.stream.sock.local_addr().unwrap();
    client.send("bytes").unwrap();
    client.end();
    let bytes = received.recv_timeout(SOON).unwrap();
    let fields =
        [&[1, 0, 4][..], b"mqtt", &[2, 0, 9], b"localhost", &[0x20, 0, 15, 1, 0, 0, 0, 1, 0x21, 0, 7], b"TLSv1.3"];
    let fields = fields.concat();
    let length = (12 + fields.len()) as u16;
    let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    expected.extend(length.to_be_bytes());
    expected.extend([127, 0, 0, 1, 127, 0, 0, 1]);
    expected.extend(from.port().to_be_bytes());
    expected.extend(address.port().to_be_bytes());
    expected.extend(&fields);
    expected.extend(b"bytes");
    assert_eq!(bytes, expected);
    drop(client);
    proxy.stop();
}

/// A client of HTTP/2 reaches a server of HTTP/2 through a proxy in mode `tcp`, because the proxy
/// offers the protocol that the client has selected.
#[test]
fn alpn_is_passed_on() {
    let Some(curl) = Peer::find("curl") else { return };
    let backend = Backend::paths();
    let Some(inner) = Proxy::start(&format!("mode = \"http\"\n{}", upstream(&[backend.address]))) else { return };
    let file = inner.certificate.display();
    let tls = format!("upstream_tls = {{ authorities = \"{file}\", server_name = \"localhost\" }}");
    let stanza = format!("mode = \"tcp\"\nalpn = [\"h2\", \"http/1.1\"]\n{tls}\n{}", upstream(&[inner.address()]));
    let Some(outer) = Proxy::start(&stanza) else { return };
    let url = format!("https://localhost:{}/a?b=c", outer.address().port());
    for (option, protocol) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let mut command = curl.command();
        command.args(["-sS", option, "-w", " %{http_version}", "--cacert"]).arg(&outer.certificate).arg(&url);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("/a?b=c {protocol}"), "{output:?}");
    }
    outer.stop();
    inner.stop();
}

#[test]
fn idle_connections_are_closed() {
    let backend = Backend::raw(echo);
    let Some(proxy) = Proxy::start(&tcp("timeouts = { idle_s = 0.3 }", &backend)) else { return };
    let mut client = Client::connect(&proxy);
    client.send("a").unwrap();
    assert_eq!(client.read_to_end().0, b"a");
    proxy.expect("closed_idle", 1);
    proxy.stop();
}

#[test]
fn further_connections_than_the_limit_are_closed() {
    let backend = Backend::raw(echo);
    let Some(proxy) = Proxy::start(&tcp("limits = { connections = 2 }", &backend)) else { return };
    let mut clients = [Client::connect(&proxy), Client::connect(&proxy)];
    let refused = Client::connect_with(&config(&proxy.certificate, &[]), proxy.address());
    assert!(refused.is_err());
    proxy.expect("refused_limit", 1);
    for client in &mut clients {
        client.send("a").unwrap();
        assert_eq!(client.take(1).unwrap(), b"a");
    }
    drop(clients);
    proxy.expect("open", 0);
    let mut client = Client::connect(&proxy);
    client.send("b").unwrap();
    assert_eq!(client.take(1).unwrap(), b"b");
    drop(client);
    proxy.stop();
}
