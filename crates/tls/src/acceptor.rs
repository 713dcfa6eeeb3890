//! Turns TCP connections into TLS connections.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::sync::Arc;

use rustls::{HandshakeKind, ProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::fiber::Fiber;
use crate::service::NoSignature;
use crate::{Certificates, Error, Settings};

/// Accepts TLS connections. Implementations need not use rustls.
pub trait Acceptor {
    /// Connection after the handshake.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Performs a TLS handshake on the connection. The future must run on a thread that has a
    /// signing [`crate::Service`].
    fn accept(&self, connection: TcpStream) -> impl Future<Output = Result<Accepted<Self::Stream>, Failure>>;
}

/// Connection after a successful handshake.
#[derive(Debug)]
pub struct Accepted<S> {
    /// Connection that carries decrypted bytes.
    pub stream: S,
    /// Server name that the client requested.
    pub server_name: Option<String>,
    /// Protocol that ALPN selected.
    pub alpn: Option<Vec<u8>>,
    /// Name of the TLS version.
    pub version: &'static str,
    /// Whether the client resumed an earlier session. Resumed handshakes need no signature.
    pub resumed: bool,
    /// Whether the client has a valid certificate.
    pub client_certificate: bool,
}

/// Reason why a handshake failed. Each reason has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The client closed the connection.
    Closed,
    /// The handshake took too long.
    Timeout,
    /// The client did not send valid TLS, or shares no version or algorithm with this server.
    Protocol,
    /// The client reported an error, such as an unknown authority.
    Alert,
    /// The client's certificate is missing or invalid.
    ClientCertificate,
    /// The signing engine refused the signature.
    Signing,
}

/// Acceptor with rustls.
#[derive(Clone)]
pub struct RustlsAcceptor {
    acceptor: TlsAcceptor,
    timeout: std::time::Duration,
}

impl RustlsAcceptor {
    /// Creates an acceptor with these settings.
    ///
    /// # Errors
    /// Returns an error if the settings contradict each other, or if the file with client
    /// authorities is invalid.
    pub fn new(settings: &Settings, certificates: Arc<Certificates>) -> Result<Self, Error> {
        let config = settings.server_config(certificates)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), timeout: settings.handshake_timeout })
    }

    /// Creates an acceptor with other certificates. Session tickets from this acceptor stay valid.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`RustlsAcceptor::new`].
    pub fn with_certificates(&self, settings: &Settings, certificates: Arc<Certificates>) -> Result<Self, Error> {
        let mut config = settings.server_config(certificates)?;
        config.ticketer = Arc::clone(&self.acceptor.config().ticketer);
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), timeout: settings.handshake_timeout })
    }
}

impl Acceptor for RustlsAcceptor {
    type Stream = TlsStream<TcpStream>;

    async fn accept(&self, connection: TcpStream) -> Result<Accepted<Self::Stream>, Failure> {
        // Keep the timeout outside the fiber. A poll of tokio's timer must not be suspended.
        let handshake = Fiber::new(self.acceptor.accept(connection));
        let stream = match tokio::time::timeout(self.timeout, handshake).await {
            Err(_) => return Err(Failure::Timeout),
            // The fiber's stack could not be allocated.
            Ok(Err(_)) => return Err(Failure::Signing),
            Ok(Ok(Err(error))) => return Err(classify(&error)),
            Ok(Ok(Ok(stream))) => stream,
        };
        let (_, session) = stream.get_ref();
        Ok(Accepted {
            server_name: session.server_name().map(str::to_owned),
            alpn: session.alpn_protocol().map(<[u8]>::to_vec),
            version: if session.protocol_version() == Some(ProtocolVersion::TLSv1_2) { "1.2" } else { "1.3" },
            resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
            client_certificate: session.peer_certificates().is_some(),
            stream,
        })
    }
}

fn classify(error: &io::Error) -> Failure {
    let source = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    match source {
        None => Failure::Closed,
        Some(rustls::Error::Other(other)) if other.source().is_some_and(|source| source.is::<NoSignature>()) => {
            Failure::Signing
        }
        Some(rustls::Error::AlertReceived(_)) => Failure::Alert,
        Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)) => {
            Failure::ClientCertificate
        }
        Some(_) => Failure::Protocol,
    }
}
