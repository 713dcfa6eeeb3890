//! Test client for TLS, which verifies the certificate with rustls, and a client for HTTP/1.1 on
//! top of it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::setup::{Proxy, SOON};

/// Connection of a client.
pub(crate) struct Client {
    pub(crate) stream: StreamOwned<ClientConnection, TcpStream>,
    /// Bytes that were received after the last response.
    rest: Vec<u8>,
}

/// Response of HTTP/1.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Header in lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn config(certificate: &Path, alpn: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

impl Client {
    /// Connects to the proxy and completes the handshake.
    pub(crate) fn connect(proxy: &Proxy) -> Self {
        Self::connect_with(&config(&proxy.certificate, &[]), proxy.address()).expect("a handshake")
    }

    pub(crate) fn connect_with(config: &Arc<ClientConfig>, address: SocketAddr) -> io::Result<Self> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(SOON))?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").expect("a host name");
        let mut session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(Self { stream: StreamOwned::new(session, socket), rest: Vec::new() })
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Ends the direction to the server with a `close_notify` alert. The server may already have
    /// closed the connection.
    pub(crate) fn end(&mut self) {
        self.stream.conn.send_close_notify();
        let _ = self.stream.flush();
        let _ = self.stream.sock.shutdown(Shutdown::Write);
    }

    /// Reads until the connection ends. Returns the bytes, and whether a `close_notify` alert
    /// announced the end.
    pub(crate) fn read_to_end(&mut self) -> (Vec<u8>, bool) {
        let mut bytes = std::mem::take(&mut self.rest);
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => (bytes, true),
            Err(error) => {
                assert!(error.kind() != io::ErrorKind::WouldBlock, "the server did not close the connection");
                (bytes, false)
            }
        }
    }

    /// Sends a request without a body.
    pub(crate) fn get(&mut self, path: &str) -> io::Result<Response> {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))?;
        self.response(false)
    }

    /// Reads bytes up to the end of a header. Returns it.
    pub(crate) fn head(&mut self) -> io::Result<String> {
        let end = loop {
            if let Some(at) = self.rest.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head: Vec<u8> = self.rest.drain(..end).collect();
        Ok(String::from_utf8(head).expect("ASCII").to_ascii_lowercase())
    }

    /// Reads a response. `to_head` is true for responses to HEAD.
    pub(crate) fn response(&mut self, to_head: bool) -> io::Result<Response> {
        let head = self.head()?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut body = Vec::new();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        if to_head || matches!(status, 101 | 204 | 304) {
        } else if let Some(length) = length {
            body = self.take(length.parse().expect("a length"))?;
        } else if head.contains("transfer-encoding: chunked") {
            loop {
                let line = self.line()?;
                let size = usize::from_str_radix(line.trim_end(), 16).expect("a chunk size");
                body.extend(self.take(size)?);
                assert_eq!(self.line()?, "\r\n");
                if size == 0 {
                    break;
                }
            }
        } else {
            panic!("the response has no length: {head}");
        }
        Ok(Response { status, head, body })
    }

    /// Reads a number of bytes.
    pub(crate) fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.rest.len() < count {
            self.more()?;
        }
        Ok(self.rest.drain(..count).collect())
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.rest.windows(2).position(|bytes| bytes == b"\r\n") {
                let line: Vec<u8> = self.rest.drain(..at + 2).collect();
                return Ok(String::from_utf8(line).expect("ASCII"));
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        let count = self.stream.read(&mut bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.rest.extend_from_slice(&bytes[..count]);
        Ok(())
    }
}
