//! Debian's HAProxy with the provider and `ssl-mode-async`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use godwit_sign::Library;
use godwit_test_support::certificate::Certified;
use godwit_test_support::process::Background;
use godwit_test_support::{absent, repository, skip, wait_for};
use nix::sys::signal::Signal;
use rustls::ClientConfig;

use crate::clients::{client, free_address, request, send_hello, wait_for_server};
use crate::setup::{SOON, Setup, Signer};

const CLIENTS: usize = 32;
const HANDSHAKES: usize = 256;

/// Returns the program, or `None` if it is not installed.
pub(crate) fn program() -> Option<()> {
    let is_installed = Command::new("haproxy").arg("-v").output().is_ok_and(|output| output.status.success());
    if !is_installed {
        absent("haproxy");
    }
    is_installed.then_some(())
}

/// Writes the example configuration of HAProxy, changed so that it answers requests itself.
pub(crate) fn configure(
    setup: &Setup,
    certified: &Certified,
    key: &Path,
    address: SocketAddr,
    global: &str,
) -> PathBuf {
    let read = |path: &Path| fs::read_to_string(path).expect("the file exists");
    let pem = read(&certified.certificate) + &read(key);
    let pem = setup.folder.write("haproxy.pem", pem);
    let example = fs::read_to_string(repository().join("examples/haproxy/haproxy.cfg")).expect("the example");
    let text = example
        .replace("global\n", &format!("global\n    nbthread 2\n    {global}"))
        .replace(":443", &address.to_string())
        .replace("/etc/haproxy/shop.pem", &pem.display().to_string())
        .replace("default_backend web", "http-request return status 200 content-type text/plain string works");
    setup.folder.write("haproxy.cfg", text)
}

/// Runs HAProxy while `work` runs. Its arguments are the configuration of a client, the address and
/// the number of the process.
fn serve(setup: &Setup, certified: &Certified, key: &Path, work: impl FnOnce(&Arc<ClientConfig>, SocketAddr, u32)) {
    let address = free_address();
    let file = configure(setup, certified, key, address, "");
    let mut server = Background::start_silent(setup.command("haproxy").arg("-db").arg("-f").arg(file));
    wait_for_server(address);
    work(&client(&certified.certificate), address, server.id());
    server.signal(Signal::SIGUSR1);
    assert!(server.wait().success());
}

fn expect_answer(config: &Arc<ClientConfig>, address: SocketAddr) {
    let answer = request(config, address).expect("a handshake and an answer");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("works"), "{answer}");
}

/// Runs many handshakes in parallel. No handshake fails.
fn load(config: &Arc<ClientConfig>, address: SocketAddr, _process: u32) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < HANDSHAKES {
                    expect_answer(config, address);
                }
            });
        }
    });
}

/// The handshakes of many connections wait for signatures at the same time.
#[test]
fn haproxy_signs_in_batches() {
    let (library, Some(())) = (Library::find(), program()) else { return };
    // HAProxy does not search for the library in the folder of this test.
    let setting = library.as_ref().map(|library| format!("crypto_mb = {}", library.file().display()));
    let setup = Setup::new(&setting.unwrap_or_default());
    let Some(certified) = setup.certify("rsa2048-0") else { return };
    serve(&setup, &certified, &certified.key, load);
    assert_eq!(setup.counter("signed"), HANDSHAKES as u64);
    assert_eq!(setup.counter("paused"), HANDSHAKES as u64, "a signature has stopped the event loop");
    assert!(setup.counter("paused_most") > 2, "{:?}", setup.reports());
    let report = &setup.reports()[0];
    match library {
        Err(reason) => skip(format_args!("HAProxy does not sign in SIMD lanes: {reason}")),
        Ok(_) => {
            let fills = report["signer"]["batches_by_fill"].as_array().expect("a list");
            let batches: u64 = fills[2..].iter().filter_map(serde_json::Value::as_u64).sum();
            assert!(batches > 0, "{report}");
        }
    }
}

/// HAProxy has only the public half of its key.
#[test]
fn haproxy_uses_the_signer() {
    let (setup, Some(())) = (Setup::new("socket = socket"), program()) else { return };
    let Some(certified) = setup.certify("p256-0") else { return };
    let Some(named) = setup.name_key("p256-0") else { return };
    let _signer = Signer::start(&setup, &["p256-0"]);
    serve(&setup, &certified, &named, load);
    assert_eq!(setup.counter("signed"), HANDSHAKES as u64);
    assert_eq!(setup.counter("paused"), HANDSHAKES as u64, "a signature has stopped the event loop");
}

/// Handshakes fail while no signer runs. HAProxy connects to the next signer.
#[test]
fn haproxy_connects_to_the_signer_again() {
    let (setup, Some(())) = (Setup::new("socket = socket"), program()) else { return };
    let Some(certified) = setup.certify("rsa2048-0") else { return };
    let Some(named) = setup.name_key("rsa2048-0") else { return };
    let signer = Signer::start(&setup, &["rsa2048-0"]);
    serve(&setup, &certified, &named, |config, address, process| {
        // Both threads of HAProxy connect to the signer.
        load(config, address, process);
        drop(signer);
        assert!(request(config, address).is_err());
        let _signer = Signer::start(&setup, &["rsa2048-0"]);
        let works = || request(config, address).is_ok();
        wait_for("the new signer", SOON, works);
    });
    assert!(setup.counter("refused_lost") > 0 && setup.counter("signers_lost") > 0, "{:?}", setup.reports());
}

/// Returns the number of open event descriptors of a process.
fn events(process: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("the process runs").flatten();
    let is_event = |path: PathBuf| fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("eventfd"));
    descriptors.filter(|entry| is_event(entry.path())).count()
}

/// Clients that disconnect during their handshakes leave no job and no descriptor behind.
#[test]
fn clients_may_disconnect_during_a_signature() {
    let (setup, Some(())) = (Setup::new(""), program()) else { return };
    let Some(certified) = setup.certify("rsa2048-0") else { return };
    serve(&setup, &certified, &certified.key, |config, address, process| {
        for _ in 0..HANDSHAKES {
            send_hello(config, address);
        }
        expect_answer(config, address);
        wait_for("closed events", SOON, || events(process) < HANDSHAKES / 4);
    });
    let [received, signed, refused, cancelled] =
        ["received", "signed", "refused", "refused_cancelled"].map(|name| setup.counter(name));
    assert_eq!((received, refused), (signed + refused, cancelled), "{:?}", setup.reports());
    assert!(signed > 0 && setup.counter("in_flight") == 0, "{:?}", setup.reports());
}
