//! The server of the program `openssl` with the provider.

use godwit_test_support::process::Background;

use crate::clients::{free_address, s_client, wait_for_server};
use crate::setup::{Setup, Signer};

/// Serves clients with TLS 1.2 and 1.3 from a server with the file `key`. Returns the number of
/// handshakes.
fn serve(setup: &Setup, name: &str, key: &str, is_async: bool) -> u64 {
    let certified = setup.certify(name).expect("openssl is installed");
    let address = free_address();
    let mut command = setup.command("openssl");
    command.args(["s_server", "-quiet", "-accept", &address.to_string(), "-naccept", "3", "-cert"]);
    command.arg(&certified.certificate).args(["-key", key]).stdin(std::process::Stdio::piped());
    if is_async {
        command.arg("-async");
    }
    let mut server = Background::start_silent(&mut command);
    // This connection ends without a handshake.
    wait_for_server(address);
    s_client(address, &certified, &["-tls1_2"]);
    s_client(address, &certified, &["-tls1_3"]);
    assert!(server.wait().success());
    2
}

/// The server works with each kind of key, with and without asynchronous jobs.
#[test]
fn s_server_serves_s_client() {
    for (name, is_async) in [("rsa2048-0", false), ("rsa2048-0", true), ("p256-0", true), ("ed25519-0", true)] {
        let setup = Setup::new("");
        if setup.certify(name).is_none() {
            return;
        }
        let handshakes = serve(&setup, name, &format!("{name}.key"), is_async);
        assert_eq!(setup.counter("signed"), handshakes, "{name}");
        assert_eq!(setup.counter("paused"), if is_async { handshakes } else { 0 }, "{name}");
    }
}

/// The signer signs for a server, which has the same key.
#[test]
fn s_server_uses_the_signer() {
    let cases = [
        ("rsa2048-0", true, 2),
        ("p256-0", false, 2),
        // TLS 1.2 signs with SHA-256, which the engine supports with P-256 only.
        ("p384-0", true, 1),
        ("ed25519-0", true, 2),
    ];
    for (name, is_async, signed) in cases {
        let setup = Setup::new("socket = socket");
        if setup.certify(name).is_none() {
            return;
        }
        let _signer = Signer::start(&setup, &[name]);
        serve(&setup, name, &format!("{name}.key"), is_async);
        assert_eq!(setup.counter("signed"), signed, "{name}");
        assert_eq!(setup.counter("paused"), if is_async { signed } else { 0 }, "{name}");
    }
}
