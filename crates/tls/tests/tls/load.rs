//! Performs many handshakes at once with rustls clients, which verify every signature.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use godwit_sign::Library;
use godwit_test_support::Folder;
use godwit_tls::Settings;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore};

use crate::server::{Server, certify};

fn client(roots: &[&std::path::Path]) -> Arc<ClientConfig> {
    let mut store = RootCertStore::empty();
    for file in roots {
        store.add(CertificateDer::from_pem_file(file).unwrap()).unwrap();
    }
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![kx_group::X25519MLKEM768];
    let builder = ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    let mut config = builder.unwrap().with_root_certificates(store).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

fn handshake(config: &Arc<ClientConfig>, address: std::net::SocketAddr) -> Result<ClientConnection, std::io::Error> {
    let mut socket = TcpStream::connect(address)?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::clone(config), name).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(session)
}

#[test]
fn concurrent_handshakes_share_batches() {
    let folder = Folder::new();
    let Some(files) = certify(&folder, "rsa2048-0", &["localhost"]) else { return };
    let server = Server::start(std::slice::from_ref(&files), &Settings::default(), 1);
    let config = client(&[&files.certificate]);
    const CLIENTS: usize = 32;
    const HANDSHAKES: usize = 8;
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..HANDSHAKES {
                    let session = handshake(&config, server.address()).expect("a verified handshake");
                    let group = session.negotiated_key_exchange_group().unwrap().name();
                    assert_eq!(group, NamedGroup::X25519MLKEM768);
                }
            });
        }
    });
    let counters = server.stop();
    assert_eq!((counters.signed, counters.in_flight), ((CLIENTS * HANDSHAKES) as u64, 0), "{counters:?}");
    if Library::find().is_ok() {
        let batches: u64 = counters.batches_by_fill.iter().sum();
        assert!(counters.signed_lanes > 2 * batches && counters.faults_lanes == 0, "{counters:?}");
    }
}

/// Certificates are replaced repeatedly. Every handshake succeeds with one of them.
#[test]
fn reload_loses_no_handshake() {
    let folder = Folder::new();
    let find =
        || Some([certify(&folder, "rsa2048-0", &["localhost"])?, certify(&folder, "rsa2048-1", &["localhost"])?]);
    let Some([old, new]) = find() else { return };
    let server = Server::start(std::slice::from_ref(&old), &Settings::default(), 1);
    let config = client(&[&old.certificate, &new.certificate]);
    let (stop, reloads, seen) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::new([0; 2]));
    let certificates: Vec<_> =
        [&old, &new].iter().map(|files| CertificateDer::from_pem_file(&files.certificate).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let number = reloads.fetch_add(1, Ordering::Relaxed);
                let files = if number.is_multiple_of(2) { &new } else { &old };
                server.certificates.reload(std::slice::from_ref(files), SystemTime::now()).unwrap();
            }
        });
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let session = handshake(&config, server.address()).map_err(|error| error.to_string())?;
                        let found = &session.peer_certificates().unwrap()[0];
                        let index = certificates.iter().position(|certificate| certificate == found).unwrap();
                        seen.lock().unwrap()[index] += 1;
                    }
                    Ok(())
                })
            })
            .collect();
        // The reloads must end even if a client fails.
        let results: Vec<Result<(), String>> =
            clients.into_iter().map(|client| client.join().expect("clients do not panic")).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    });
    assert_eq!(server.stop().signed, 200);
    let seen = seen.into_inner().unwrap();
    assert!(seen.iter().all(|count| *count > 0), "{seen:?} after {reloads:?} reloads");
}

/// If a reload fails, the current certificates stay in use.
#[test]
fn a_failed_reload_changes_nothing() {
    let folder = Folder::new();
    let Some(files) = certify(&folder, "p256-0", &["localhost"]) else { return };
    let server = Server::start(std::slice::from_ref(&files), &Settings::default(), 1);
    let broken = godwit_tls::KeyFiles { certificate: folder.write("empty.crt", ""), ..files.clone() };
    let error = server.certificates.reload(&[broken], SystemTime::now()).unwrap_err().to_string();
    assert!(error.ends_with("empty.crt: contains no certificate in PEM form"), "{error}");
    handshake(&client(&[&files.certificate]), server.address()).expect("the old certificate");
    server.stop();
}
