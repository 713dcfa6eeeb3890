//! Settings of an acceptor, and their conversion to a rustls configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::{self, Ticketer, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use crate::{Certificates, Error};

/// Group of a key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// X25519 with ML-KEM-768 (draft-ietf-tls-ecdhe-mlkem).
    X25519MlKem768,
    /// X25519 (RFC 7748).
    X25519,
    /// P-256 (SP 800-186).
    P256,
    /// P-384 (SP 800-186).
    P384,
}

impl Group {
    fn exchange(self) -> &'static dyn SupportedKxGroup {
        match self {
            Self::X25519MlKem768 => kx_group::X25519MLKEM768,
            Self::X25519 => kx_group::X25519,
            Self::P256 => kx_group::SECP256R1,
            Self::P384 => kx_group::SECP384R1,
        }
    }
}

/// Request for client certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients are not asked.
    #[default]
    None,
    /// The server requests a client certificate. It accepts clients without one, but rejects
    /// invalid certificates.
    Optional {
        /// File with the accepted authorities in PEM form.
        authorities: PathBuf,
    },
    /// Clients must have a valid certificate.
    Required {
        /// File with the accepted authorities in PEM form.
        authorities: PathBuf,
    },
}

/// Settings of an acceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether TLS 1.2 is accepted in addition to TLS 1.3.
    pub tls12: bool,
    /// Groups of the key exchange, in order of preference.
    pub groups: Vec<Group>,
    /// Protocol names for ALPN, in order of preference (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    /// Request for client certificates.
    pub client_certificates: ClientCertificates,
    /// Whether sessions can be resumed with tickets.
    pub tickets: bool,
    /// Longest time of a handshake.
    pub handshake_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tls12: true,
            groups: vec![Group::X25519MlKem768, Group::X25519, Group::P256],
            alpn: Vec::new(),
            client_certificates: ClientCertificates::None,
            tickets: true,
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// Creates the rustls configuration that all threads share. It contains the session ticket
    /// keys, which change every six hours.
    pub(crate) fn server_config(&self, certificates: Arc<Certificates>) -> Result<ServerConfig, Error> {
        let provider = CryptoProvider {
            kx_groups: self.groups.iter().map(|group| group.exchange()).collect(),
            ..aws_lc_rs::default_provider()
        };
        let provider = Arc::new(provider);
        let versions: &[&SupportedProtocolVersion] =
            if self.tls12 { &[&version::TLS13, &version::TLS12] } else { &[&version::TLS13] };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
        let builder = builder.map_err(Error::Settings)?;
        let builder = match &self.client_certificates {
            ClientCertificates::None => builder.with_no_client_auth(),
            ClientCertificates::Optional { authorities } => {
                builder.with_client_cert_verifier(verifier(authorities, provider, true)?)
            }
            ClientCertificates::Required { authorities } => {
                builder.with_client_cert_verifier(verifier(authorities, provider, false)?)
            }
        };
        let mut config = builder.with_cert_resolver(certificates);
        config.alpn_protocols.clone_from(&self.alpn);
        // Session tickets contain the whole session, so the server stores nothing per client.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if self.tickets {
            config.ticketer = Ticketer::new().map_err(Error::Settings)?;
        } else {
            config.send_tls13_tickets = 0;
        }
        Ok(config)
    }
}

/// Returns a verifier of client certificates.
fn verifier(file: &Path, provider: Arc<CryptoProvider>, optional: bool) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let refuse = |reason: String| Error::Authorities { file: file.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(file).map_err(|error| refuse(error.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
        roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(refuse("contains no certificate in PEM form".to_owned()));
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| refuse(error.to_string()))
}
