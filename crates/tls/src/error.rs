//! Configuration errors. Failed handshakes are only counted ([`crate::Failure`]).

use std::path::PathBuf;

/// Error in the settings of an acceptor.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or its certificate is refused.
    #[error(transparent)]
    Key(#[from] godwit_sign::Error),
    /// The certificate of a key cannot be parsed.
    #[error("{}: is not a valid certificate ({source})", file.display())]
    Certificate {
        /// File of the certificate.
        file: PathBuf,
        /// Reason.
        source: webpki::Error,
    },
    /// No certificate is configured.
    #[error("a proxy needs at least one key: add [[key]] with `certificate` and `key`")]
    NoCertificates,
    /// The OCSP response is refused.
    #[error("{}: {reason}", file.display())]
    Ocsp {
        /// File of the response.
        file: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The authorities of client certificates are refused.
    #[error("{}: {reason}", file.display())]
    Authorities {
        /// File of the authorities.
        file: PathBuf,
        /// Reason.
        reason: String,
    },
    /// rustls refuses the settings.
    #[error("TLS settings: {0}")]
    Settings(rustls::Error),
}
