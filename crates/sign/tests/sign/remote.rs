//! Tests the signer for other processes over its real socket and shared memory. Client and signer
//! are threads of one process here.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_sign::remote::{Connection, Host, HostConfig, HostReport, KeyRing, Remote};
use godwit_sign::{Class, Done, Hash, Key, PolicyConfig, Refusal, Scheme};
use godwit_test_support::{Folder, SetOnDrop, wait_for};

use crate::key_file;

const SOON: Duration = Duration::from_secs(30);

/// Message that TLS 1.3 signs with SHA-256.
fn message(byte: u8) -> Vec<u8> {
    [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[byte; 32]].concat()
}

fn user() -> u32 {
    std::fs::metadata("/proc/self").expect("/proc is mounted").uid()
}

fn key(class: Class, number: usize) -> Key {
    let text = std::fs::read(key_file(&format!("{}-{number}", class.name()))).expect("a test key");
    Key::from_pem(&text).expect("memory can be locked").expect("a valid key")
}

/// Runs `test` while a signer with `keys` serves `users`. Returns the final report.
fn with_host(keys: &Arc<KeyRing>, users: &[u32], test: impl FnOnce(PathBuf)) -> HostReport {
    let folder = Folder::new();
    let socket = folder.join("socket");
    let config = HostConfig {
        socket: socket.clone(),
        users: users.to_vec(),
        policy: PolicyConfig { jobs_max: 64, ..PolicyConfig::default() },
        library: None,
        lanes: "none".to_owned(),
    };
    let mut host = Host::open(config, Arc::clone(keys)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            host.run(&stop, || {});
            host.report()
        });
        {
            let _end = SetOnDrop(&stop);
            test(socket);
        }
        running.join().unwrap()
    })
}

/// Polls until `count` answers have arrived.
fn answers(remote: &mut Remote, count: usize) -> Vec<Done> {
    let mut done = Vec::new();
    wait_for("answers", SOON, || {
        remote.poll(&mut done);
        done.len() >= count
    });
    done
}

#[test]
fn every_scheme_is_signed_and_conserved() {
    let keys: Vec<_> = Class::ALL.iter().map(|class| Arc::new(key(*class, 0))).collect();
    let ring = Arc::new(KeyRing::new(keys.clone()));
    let report = with_host(&ring, &[user()], |socket| {
        let connection = Connection::open(&socket).unwrap();
        let public = connection.keys().to_vec();
        let mut remote = Remote::new(&socket, connection, 64);
        let mut jobs = Vec::new();
        for (number, scheme) in Scheme::ALL.into_iter().enumerate() {
            for (own, public) in keys.iter().zip(&public).filter(|(own, _)| scheme.is_of(own.class())) {
                let text = message(number as u8);
                jobs.push((remote.submit(public, scheme, &text).unwrap(), own, scheme, text));
            }
        }
        let done = answers(&mut remote, jobs.len());
        for (id, key, scheme, text) in &jobs {
            let answer = done.iter().find(|done| done.id == *id).expect("an answer to each job");
            assert!(key.verifies(*scheme, text, answer.result.as_ref().unwrap()), "{scheme:?}");
        }
        let counters = remote.counters();
        assert!(counters.is_conserved() && counters.signed == jobs.len() as u64, "{counters:?}");
        assert!(public.iter().all(|key| key.rsa().is_none() && key.sign(Scheme::Ed25519, b"").is_none()));
    });
    assert!(report.signer.is_conserved() && report.signer.signed == 21 && report.clients == 1, "{report:?}");
}

/// The signer does not sign other documents, does not use keys that it does not have, and refuses
/// more jobs than its rings hold.
#[test]
fn other_documents_and_keys_are_refused() {
    let ring = Arc::new(KeyRing::new(vec![Arc::new(key(Class::EcdsaP256, 0))]));
    let report = with_host(&ring, &[user()], |socket| {
        let connection = Connection::open(&socket).unwrap();
        let public = Arc::clone(&connection.keys()[0]);
        let mut remote = Remote::new(&socket, connection, 64);
        let scheme = Scheme::EcdsaP256Sha256;
        for document in [&b"{\"alg\":\"ES256\"}"[..], &[0x30; 200], &[]] {
            assert_eq!(remote.submit(&public, scheme, document), Err(Refusal::Invalid));
        }
        let wrong = Scheme::RsaPss(Hash::Sha256);
        assert_eq!(remote.submit(&public, wrong, &message(1)), Err(Refusal::Invalid));
        let stranger = key(Class::EcdsaP256, 1);
        remote.submit(&stranger, scheme, &message(1)).unwrap();
        assert!(matches!(answers(&mut remote, 1)[0].result, Err(Refusal::Invalid)));
        let sent = (0..200).filter(|_| remote.submit(&public, scheme, &message(2)).is_ok()).count();
        assert!((64..200).contains(&sent), "{sent}");
        assert!(answers(&mut remote, sent).iter().all(|done| done.result.is_ok()));
        let counters = remote.counters();
        assert!(counters.is_conserved() && counters.refused_backlog == 200 - sent as u64, "{counters:?}");
    });
    assert_eq!(report.signer.refused_invalid, 1, "{report:?}");
}

#[test]
fn the_user_of_a_client_is_checked() {
    let ring = Arc::new(KeyRing::default());
    let report = with_host(&ring, &[user() + 1], |socket| {
        let error = Connection::open(&socket).map(drop).unwrap_err().to_string();
        assert!(error.contains(&format!("the signer refuses user {}: set `user`", user())), "{error}");
    });
    assert_eq!((report.clients, report.clients_refused), (0, 1));
    let error = Connection::open(std::path::Path::new("/none")).map(drop).unwrap_err().to_string();
    assert_eq!(
        error,
        "/none: No such file or directory (os error 2): start `godwit signer` with the same configuration first"
    );
}

/// Clients that send no greeting do not delay others.
#[test]
fn bad_greetings_are_closed() {
    let ring = Arc::new(KeyRing::new(vec![Arc::new(key(Class::EcdsaP256, 0))]));
    let report = with_host(&ring, &[user()], |socket| {
        let _silent = UnixStream::connect(&socket).unwrap();
        let mut wrong = UnixStream::connect(&socket).unwrap();
        wrong.write_all(b"GET / HT").unwrap();
        assert!(matches!(wrong.read(&mut [0; 1]), Ok(0) | Err(_)), "the connection is closed");
        let connection = Connection::open(&socket).unwrap();
        let public = Arc::clone(&connection.keys()[0]);
        let mut remote = Remote::new(&socket, connection, 64);
        remote.submit(&public, Scheme::EcdsaP256Sha256, &message(1)).unwrap();
        assert!(answers(&mut remote, 1)[0].result.is_ok());
    });
    assert_eq!((report.clients, report.signer.signed), (3, 1));
}

/// A signer that is stopped signs the jobs that it has received. Later jobs are refused, and the
/// client continues with the next signer.
#[test]
fn a_stopped_signer_finishes_its_jobs() {
    let ring = Arc::new(KeyRing::new(vec![Arc::new(key(Class::Rsa4096, 0))]));
    let scheme = Scheme::RsaPss(Hash::Sha256);
    let mut stopped = None;
    with_host(&ring, &[user()], |socket| {
        let connection = Connection::open(&socket).unwrap();
        let public = Arc::clone(&connection.keys()[0]);
        let mut remote = Remote::new(&socket, connection, 64);
        for _ in 0..60 {
            remote.submit(&public, scheme, &message(1)).unwrap();
        }
        // The signer has begun when it has answered once.
        assert!(answers(&mut remote, 1).iter().all(|done| done.result.is_ok()));
        stopped = Some((remote, public));
    });
    let (mut remote, public) = stopped.unwrap();
    // The client has not noticed the end yet.
    let late = remote.submit(&public, scheme, &message(1)).unwrap();
    let mut done = Vec::new();
    wait_for("the end", SOON, || {
        remote.poll(&mut done);
        !remote.is_connected()
    });
    let is_valid = |signature: &Vec<u8>| public.verifies(scheme, &message(1), signature);
    for Done { id, result } in &done {
        assert!(if *id == late { *result == Err(Refusal::Lost) } else { result.as_ref().is_ok_and(is_valid) });
    }
    assert_eq!(remote.submit(&public, scheme, &message(1)), Err(Refusal::Lost));
    let counters = remote.counters();
    assert!(counters.is_conserved() && counters.in_flight == 0, "{counters:?}");
    assert_eq!((counters.signed, counters.refused_lost), (60, 2), "{counters:?}");
    with_host(&ring, &[user()], |socket| {
        remote.resume(Connection::open(&socket).unwrap());
        remote.submit(&public, scheme, &message(2)).unwrap();
        assert!(answers(&mut remote, 1)[0].result.is_ok());
    });
}

/// After a reload, the keys of the previous configuration still sign, and older ones do not.
#[test]
fn replaced_keys_stay_for_one_reload() {
    let [old, new] = [0, 1].map(|number| Arc::new(key(Class::EcdsaP256, number)));
    let ring = Arc::new(KeyRing::new(vec![Arc::clone(&old)]));
    with_host(&ring, &[user()], |socket| {
        let mut remote = Remote::new(&socket, Connection::open(&socket).unwrap(), 64);
        let mut sign = |key: &Key| {
            remote.submit(key, Scheme::EcdsaP256Sha256, &message(1)).unwrap();
            answers(&mut remote, 1).remove(0).result.is_ok()
        };
        assert_eq!((sign(&old), sign(&new)), (true, false));
        ring.replace(vec![Arc::clone(&new)]);
        assert_eq!((sign(&old), sign(&new)), (true, true));
        ring.replace(vec![Arc::clone(&new)]);
        assert_eq!((sign(&old), sign(&new)), (false, true));
    });
    // Only this test still has the old key, so the signer has overwritten nothing that is in use.
    assert_eq!(Arc::strong_count(&old), 1);
}
