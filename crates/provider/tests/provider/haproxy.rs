//! Debian's HAProxy with the provider and `ssl-mode-async`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use godwit_test_support::certificate::Certified;
use godwit_test_support::process::Background;
use godwit_test_support::{absent, repository, skip};
use nix::sys::signal::Signal;

use crate::clients::{client, free_address, request, wait_for_server};
use crate::setup::{Setup, Signer};

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

/// Runs many handshakes in parallel. No handshake fails.
fn load(setup: &Setup, certified: &Certified, key: &Path) {
    let address = free_address();
    let file = configure(setup, certified, key, address, "");
    let mut server = Background::start(setup.command("haproxy").arg("-db").arg("-f").arg(file));
    wait_for_server(address);
    let (config, next) = (client(&certified.certificate), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < HANDSHAKES {
                    let answer = request(&config, address).expect("a handshake and an answer");
                    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("works"), "{answer}");
                }
            });
        }
    });
    server.signal(Signal::SIGUSR1);
    assert!(server.wait().success());
    assert_eq!(setup.counter("signed"), HANDSHAKES as u64);
    assert_eq!(setup.counter("paused"), HANDSHAKES as u64, "a signature has stopped the event loop");
}

#[test]
fn haproxy_signs_in_batches() {
    let (setup, Some(())) = (Setup::new(""), program()) else { return };
    let Some(certified) = setup.certify("rsa2048-0") else { return };
    load(&setup, &certified, &certified.key);
    let report = &setup.reports()[0];
    match setup.counter("signed_lanes") {
        0 => skip(format_args!("HAProxy signs in SIMD lanes: {}", report["lanes"])),
        _ => {
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
    load(&setup, &certified, &named);
}
