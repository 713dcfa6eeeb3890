//! Clients that verify certificates and signatures.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use godwit_test_support::certificate::Certified;
use godwit_test_support::wait_for;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::setup::SOON;

/// Returns an address that nothing listens on.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a free port")
}

/// Waits until a server accepts connections.
pub(crate) fn wait_for_server(address: SocketAddr) {
    wait_for("the server", SOON, || TcpStream::connect(address).is_ok());
}

/// Connects with `openssl s_client`, which verifies the certificate.
pub(crate) fn s_client(address: SocketAddr, certified: &Certified, options: &[&str]) {
    let mut command = std::process::Command::new("openssl");
    command.args(["s_client", "-connect", &address.to_string(), "-verify_return_error", "-CAfile"]);
    command.arg(&certified.certificate).args(options).stdin(Stdio::null());
    let output = command.output().expect("openssl is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("Verify return code: 0 (ok)"), "{options:?}: {output:?}");
}

/// Configuration of a client that never resumes a session.
pub(crate) fn client(certificate: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// Sends a request over a new connection, and returns the answer.
pub(crate) fn request(config: &Arc<ClientConfig>, address: SocketAddr) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(SOON))?;
    let name = ServerName::try_from("localhost").expect("a host name");
    let mut session = ClientConnection::new(Arc::clone(config), name).map_err(std::io::Error::other)?;
    let mut stream = Stream::new(&mut session, &mut socket);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Sends a ClientHello, and disconnects.
pub(crate) fn send_hello(config: &Arc<ClientConfig>, address: SocketAddr) {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    let name = ServerName::try_from("localhost").expect("a host name");
    let mut session = ClientConnection::new(Arc::clone(config), name).expect("a valid configuration");
    session.write_tls(&mut socket).expect("an open connection");
}
