//! Connections to servers, with or without TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Server;
use crate::Error;
use crate::config;

/// Connection to a server.
pub(crate) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Establishes connections to the servers of one proxy.
pub(crate) struct Connector {
    tls: Option<Tls>,
    timeout: Duration,
}

struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl Connector {
    /// Prepares TLS to the servers, if it is configured.
    pub(crate) fn new(proxy: &config::Proxy) -> Result<Self, Error> {
        let tls = proxy.upstream_tls.as_ref().map(|tls| Tls::new(proxy, tls)).transpose()?;
        Ok(Self { tls, timeout: config::seconds(proxy.timeouts.connect_s) })
    }

    /// Connects to `server`. With TLS, `alpn` lists the application protocols to offer.
    pub(crate) async fn connect(&self, server: &Server, alpn: &[Vec<u8>]) -> io::Result<Connection> {
        let connect = async {
            let socket = TcpStream::connect(server.address).await?;
            socket.set_nodelay(true)?;
            match &self.tls {
                None => Ok(Connection::Plain(socket)),
                Some(tls) => tls.handshake(socket, server, alpn).await,
            }
        };
        match tokio::time::timeout(self.timeout, connect).await {
            Ok(result) => result,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Tls {
    fn new(proxy: &config::Proxy, tls: &config::UpstreamTls) -> Result<Self, Error> {
        let refuse =
            |reason: String| Error::Authorities { proxy: proxy.name.clone(), file: tls.authorities.clone(), reason };
        let mut roots = RootCertStore::empty();
        let found = CertificateDer::pem_file_iter(&tls.authorities).map_err(|error| refuse(error.to_string()))?;
        for certificate in found {
            let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
            roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(refuse("contains no certificate in PEM form".to_owned()));
        }
        let server_name = tls.server_name.clone().map(ServerName::try_from).transpose();
        let server_name = server_name.map_err(|_| refuse("upstream_tls.server_name is no host name".to_owned()))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| refuse(error.to_string()))?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { config: Arc::new(config), server_name })
    }

    async fn handshake(&self, socket: TcpStream, server: &Server, alpn: &[Vec<u8>]) -> io::Result<Connection> {
        let host = server.name.rsplit_once(':').map_or(server.name.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        };
        let config = if alpn.is_empty() {
            Arc::clone(&self.config)
        } else {
            let mut config = ClientConfig::clone(&self.config);
            config.alpn_protocols = alpn.to_vec();
            Arc::new(config)
        };
        let stream = TlsConnector::from(config).connect(name, socket).await?;
        Ok(Connection::Tls(Box::new(stream)))
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
