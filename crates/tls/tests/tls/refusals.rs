//! Tests clients that do not complete a valid handshake. Each failure has its reason, and the
//! counters account for all jobs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use godwit_test_support::{Folder, Random};
use godwit_tls::{Certificates, ClientCertificates, Failure, RustlsAcceptor, Settings};

use crate::server::{Server, certify};

/// Sends bytes and reads the answer until the server closes.
fn send(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset is also an end.
    let _ = socket.read_to_end(&mut answer);
    answer
}

/// A fatal alert is a record of type 21 (RFC 8446, section 6).
fn is_alert(answer: &[u8]) -> bool {
    answer.len() == 7 && answer[0] == 21 && answer[5] == 2
}

#[test]
fn garbage_is_answered_by_an_alert() {
    let folder = Folder::new();
    let Some(files) = certify(&folder, "p256-0", &["localhost"]) else { return };
    let server = Server::start(&[files], &Settings::default(), 1);
    let http = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // The client sends a record longer than 2^14 bytes, or a handshake message that is not a
    // ClientHello.
    let oversized = [&[22, 3, 1, 0xff, 0xff][..], &[0; 100]].concat();
    let wrong = [22, 3, 1, 0, 4, 2, 0, 0, 0];
    // This ClientHello has a length that exceeds the record.
    let hello = [22, 3, 1, 0, 8, 1, 0, 0, 4, 3, 3, 0, 0];
    for bytes in [&http[..], &oversized, &wrong, &hello] {
        let answer = send(&server, bytes);
        assert!(is_alert(&answer), "{bytes:?}: {answer:?}");
        assert_eq!(server.next(), Err(Failure::Protocol), "{bytes:?}");
    }
    let mut random = Random::new(7);
    for _ in 0..200 {
        let mut bytes = random.bytes(300);
        if random.below(2) == 0 {
            bytes[..5].copy_from_slice(&[22, 3, 1, 0, 200]);
        }
        let mut socket = TcpStream::connect(server.address()).unwrap();
        socket.write_all(&bytes).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
        assert!(matches!(server.next(), Err(Failure::Protocol | Failure::Closed)));
    }
    assert_eq!(server.stop().received, 0);
}

#[test]
fn slow_and_closed_connections_end() {
    let folder = Folder::new();
    let Some(files) = certify(&folder, "p256-0", &["localhost"]) else { return };
    let settings = Settings { handshake_timeout: Duration::from_millis(200), ..Settings::default() };
    let server = Server::start(&[files], &settings, 1);
    let silent = TcpStream::connect(server.address()).unwrap();
    assert_eq!(server.next(), Err(Failure::Timeout));
    drop(silent);
    drop(TcpStream::connect(server.address()).unwrap());
    assert_eq!(server.next(), Err(Failure::Closed));
    server.stop();
}

#[test]
fn bad_settings_name_the_file() {
    let folder = Folder::new();
    let Some(files) = certify(&folder, "p256-0", &["localhost"]) else { return };
    let load = |files: &[_]| Certificates::load(files, SystemTime::now());
    let expect = |error: godwit_tls::Error, file: &str, part: &str| {
        let text = error.to_string();
        assert!(text.contains(file) && text.contains(part), "{text}");
    };
    assert!(load(&[]).unwrap_err().to_string().contains("at least one key"));
    let with_ocsp = |path| godwit_tls::KeyFiles { ocsp: Some(path), ..files.clone() };
    expect(load(&[with_ocsp(folder.join("none"))]).unwrap_err(), "none", "cannot be read");
    let text = folder.write("ocsp", "text");
    expect(load(&[with_ocsp(text)]).unwrap_err(), "ocsp", "not a successful OCSP response");
    let certificates = Arc::new(load(&[files]).unwrap());
    let authorities = folder.write("authorities", "");
    let request = ClientCertificates::Required { authorities };
    let settings = Settings { client_certificates: request, ..Settings::default() };
    let error = RustlsAcceptor::new(&settings, Arc::clone(&certificates)).err().unwrap();
    expect(error, "authorities", "contains no certificate");
    let settings = Settings { groups: Vec::new(), ..Settings::default() };
    assert!(RustlsAcceptor::new(&settings, certificates).is_err());
}
