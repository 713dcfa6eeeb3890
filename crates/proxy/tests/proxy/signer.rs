//! Tests a proxy whose keys a signer in another process holds. The signer is this test program,
//! which starts itself again.

use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use godwit_proxy::{Config, Flags, run_signer};
use godwit_test_support::process::Background;
use godwit_test_support::{Folder, SetOnDrop, certificate, wait_for};

use crate::backend::Backend;
use crate::client::{Client, config};
use crate::setup::{Proxy, SOON};

/// Variable with the configuration file of the signer.
const FILE: &str = "GODWIT_TEST_SIGNER";

#[test]
#[ignore = "a process that other tests start"]
fn process() {
    let file = PathBuf::from(std::env::var_os(FILE).expect("another test sets the file"));
    let config = Config::load(&file).unwrap();
    let (stop, reload) = (AtomicBool::new(false), AtomicBool::new(false));
    let flags = Flags { stop: &stop, reload: &reload };
    run_signer::<godwit_proxy::Error>(&file, &config, flags, |_| Ok(())).unwrap();
}

/// Starts a signer and waits until it accepts clients.
fn start_signer(file: &Path, socket: &Path) -> Background {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "signer::process", "--ignored"]).env(FILE, file);
    let mut signer = Background::start_silent(&mut command);
    wait_for("the signer", SOON, || {
        assert!(!signer.has_ended(), "the signer ended at its start");
        UnixStream::connect(socket).is_ok()
    });
    signer
}

/// Proxy with a signer in another process, and a server.
struct Setup {
    proxy: Arc<Proxy>,
    signer: Background,
    file: PathBuf,
    socket: PathBuf,
    _backend: Backend,
}

fn start(workers: usize) -> Option<Setup> {
    let folder = Folder::new();
    let certified = certificate::certify(&folder, "rsa2048-0", &["localhost"])?;
    let backend = Backend::paths();
    let socket = folder.join("socket");
    let text = format!(
        "workers = {workers}\n[signer]\nprocess = \"separate\"\nsocket = \"socket\"\n[[signer.key]]\nname = \"key\"\n\
         certificate = \"rsa2048-0-localhost.crt\"\nkey = \"rsa2048-0.key\"\n[[proxy]]\nname = \"front\"\n\
         listen = \"127.0.0.1:0\"\nmode = \"http\"\nkeys = [\"key\"]\nupstream = [{{ address = \"{}\" }}]\n",
        backend.address
    );
    let file = folder.write("proxy.toml", text);
    let config = Config::load(&file).unwrap_or_else(|error| panic!("{error}"));
    let error = godwit_proxy::Running::start(config.clone()).err().expect("no signer runs").to_string();
    assert!(error.starts_with("[signer] ") && error.contains("start `godwit signer`"), "{error}");
    let signer = start_signer(&file, &socket);
    let proxy = Proxy::of(folder, certified.certificate, config);
    Some(Setup { proxy, signer, file, socket, _backend: backend })
}

#[test]
fn handshakes_are_signed_by_the_other_process() {
    let Some(setup) = start(2) else { return };
    // A proxy without access to the file of the key works as well.
    std::fs::remove_file(setup.proxy.folder.join("rsa2048-0.key")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..8 {
                    assert_eq!(Client::connect(&setup.proxy).get("/signed").unwrap().body, b"/signed");
                }
            });
        }
    });
    let text = std::fs::read_to_string(&setup.file).unwrap();
    let again = Config::parse(&text, "proxy.toml", setup.proxy.folder.path()).unwrap();
    assert_eq!(setup.proxy.with(|running| running.reload(again)).unwrap(), 2);
    assert_eq!(Client::connect(&setup.proxy).get("/reloaded").unwrap().status, 200);
    let report = setup.proxy.stop();
    assert_eq!((report.signer.signed, report.signer.refused), (65, 0), "{:?}", report.signer);
}

/// Results of handshakes, each with one request.
#[derive(Default)]
struct Tally {
    correct: AtomicUsize,
    wrong: AtomicUsize,
    failed: AtomicUsize,
}

/// Opens connections until `stop`. The client verifies certificate and signature.
fn load(proxy: &Proxy, tally: &Tally, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        let connected = Client::connect_with(&config(&proxy.certificate, &[]), proxy.address());
        let result = match connected.and_then(|mut client| client.get("/load")) {
            Ok(response) if response.status == 200 && response.body == b"/load" => &tally.correct,
            Ok(_) => &tally.wrong,
            Err(error) => {
                let text = error.to_string();
                let is_wrong = text.contains("invalid peer certificate") || text.contains("BadSignature");
                if is_wrong { &tally.wrong } else { &tally.failed }
            }
        };
        result.fetch_add(1, Ordering::SeqCst);
    }
}

/// The signer is killed repeatedly while clients connect. No answer is wrong, each failed handshake
/// is counted, and the proxy serves clients again within a second after the signer has started.
#[test]
fn service_recovers_from_a_killed_signer() {
    let Some(mut setup) = start(2) else { return };
    let (tally, stop) = (Tally::default(), AtomicBool::new(false));
    let correct = || tally.correct.load(Ordering::SeqCst);
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&stop);
        for _ in 0..6 {
            scope.spawn(|| load(&setup.proxy, &tally, &stop));
        }
        for _ in 0..3 {
            let before = correct();
            wait_for("handshakes", SOON, || correct() > before + 20);
            let failed = tally.failed.load(Ordering::SeqCst);
            // The process receives SIGKILL.
            drop(std::mem::replace(&mut setup.signer, Background::start_silent(&mut Command::new("true"))));
            assert!(
                setup.socket.symlink_metadata().unwrap().file_type().is_socket(),
                "a killed signer removes nothing"
            );
            wait_for("failed handshakes", SOON, || tally.failed.load(Ordering::SeqCst) > failed + 6);
            setup.signer = start_signer(&setup.file, &setup.socket);
            let (started, before) = (Instant::now(), correct());
            wait_for("service", SOON, || correct() > before);
            longest = longest.max(started.elapsed());
        }
    });
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    assert_eq!(tally.wrong.load(Ordering::SeqCst), 0);
    let report = setup.proxy.stop();
    let counters = &report.proxies[0].counters;
    assert_eq!(counters["handshake_failed_signing"], report.signer.refused_lost, "{counters:?}");
    assert_eq!(tally.failed.load(Ordering::SeqCst) as u64, report.signer.refused_lost, "{:?}", report.signer);
    assert!(report.signer.signers_lost >= 3 && report.signer.refused == report.signer.refused_lost);
}
