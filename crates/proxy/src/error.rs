//! Errors of the proxy. Failed connections and failed requests are counted instead.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Error during the start or a configuration reload. The operator must fix the cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] crate::ConfigError),
    /// A key, a certificate or a TLS setting is refused.
    #[error("proxy `{proxy}`: {source}")]
    Tls {
        /// Name of the proxy.
        proxy: String,
        /// Reason.
        source: godwit_tls::Error,
    },
    /// The signing engine cannot start.
    #[error(transparent)]
    Signer(#[from] godwit_sign::Error),
    /// The signer in another process cannot be used.
    #[error("[signer] {0}")]
    Remote(#[from] godwit_sign::remote::RemoteError),
    /// The configured library crypto_mb cannot be used.
    #[error("[signer] crypto_mb: {0}")]
    Lanes(godwit_sign::LanesError),
    /// An address cannot be used.
    #[error("proxy `{proxy}`: cannot listen on {address}: {source}")]
    Listen {
        /// Name of the proxy.
        proxy: String,
        /// Address.
        address: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The name of a server cannot be resolved.
    #[error("proxy `{proxy}`: upstream `{address}` cannot be resolved: {reason}")]
    Resolve {
        /// Name of the proxy.
        proxy: String,
        /// Configured address.
        address: String,
        /// Reason.
        reason: String,
    },
    /// A file with authorities is refused.
    #[error("proxy `{proxy}`: {}: {reason}", file.display())]
    Authorities {
        /// Name of the proxy.
        proxy: String,
        /// File.
        file: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The control socket or the access log cannot be opened.
    #[error("{}: {source}", file.display())]
    File {
        /// File.
        file: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The proxy refused a control request for this reason.
    #[error("{0}")]
    Request(String),
    /// A reload changes a setting that is fixed at the start.
    #[error("a reload cannot change {0}: restart the proxy")]
    Fixed(&'static str),
    /// A thread cannot be started.
    #[error("cannot start a worker: {0}")]
    Thread(std::io::Error),
}
