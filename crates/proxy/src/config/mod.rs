//! Configuration of `godwit proxy`, read from a TOML file.
//!
//! ```toml
//! workers = 2
//! control = "/run/godwit-proxy.sock"
//!
//! [[signer.key]]
//! name = "shop"
//! certificate = "shop.pem"
//! key = "shop.key"
//!
//! [[proxy]]
//! name = "front"
//! listen = "0.0.0.0:443"
//! mode = "http"
//! keys = ["shop"]
//! upstream = [{ address = "10.0.0.5:8080" }]
//! ```

mod check;
mod error;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

pub use error::ConfigError;

/// Whole configuration. Paths are relative to the folder of the file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Number of worker threads. Default: the number of cores.
    #[serde(default)]
    pub workers: Option<usize>,
    /// Whether worker `n` runs on core `n` only.
    #[serde(default)]
    pub pin: bool,
    /// Path of the control socket.
    #[serde(default)]
    pub control: Option<PathBuf>,
    /// User to change to when all sockets are open and all keys are loaded.
    #[serde(default)]
    pub user: Option<String>,
    /// File of the access log. `-` is standard output.
    #[serde(default)]
    pub access_log: Option<PathBuf>,
    /// Longest time in which connections may end after a stop, in seconds.
    #[serde(default = "drain_s")]
    pub drain_s: f64,
    /// Signing engine and keys.
    pub signer: Signer,
    /// Proxies.
    pub proxy: Vec<Proxy>,
}

fn drain_s() -> f64 {
    30.0
}

/// Signing engine and keys.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signer {
    /// Process of the keys.
    #[serde(default)]
    pub process: Process,
    /// Whether eight lanes are used if crypto_mb is installed.
    #[serde(default = "yes")]
    pub lanes: bool,
    /// File of crypto_mb. Default: the search path of the loader.
    #[serde(default)]
    pub crypto_mb: Option<PathBuf>,
    /// Largest number of signatures in flight of a worker. Further handshakes are refused.
    #[serde(default = "jobs_max")]
    pub jobs_max: usize,
    /// Keys.
    pub key: Vec<Key>,
}

fn yes() -> bool {
    true
}

fn jobs_max() -> usize {
    4096
}

/// Process that holds the private keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Process {
    /// The process of the proxy.
    #[default]
    Inside,
}

/// Private key and its certificate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Name, which proxies refer to.
    pub name: String,
    /// Certificate chain in PEM form.
    pub certificate: PathBuf,
    /// Private key in PEM form.
    pub key: PathBuf,
    /// OCSP response in DER form.
    #[serde(default)]
    pub ocsp: Option<PathBuf>,
}

/// One proxy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Name in counters, logs and messages.
    pub name: String,
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Work of the proxy.
    pub mode: Mode,
    /// Names of keys. The first one serves clients with an unknown server name.
    pub keys: Vec<String>,
    /// Groups of the key exchange, in order of preference.
    #[serde(default = "groups")]
    pub groups: Vec<Group>,
    /// Whether TLS 1.2 is accepted.
    #[serde(default = "yes")]
    pub tls12: bool,
    /// Protocols of ALPN. Default: `h2` and `http/1.1` in mode `http`, none in mode `tcp`.
    #[serde(default)]
    pub alpn: Option<Vec<String>>,
    /// Whether sessions can be resumed.
    #[serde(default = "yes")]
    pub tickets: bool,
    /// Request for client certificates.
    #[serde(default)]
    pub client_certificates: Option<ClientCertificates>,
    /// Servers behind the proxy.
    pub upstream: Vec<Upstream>,
    /// Choice of the server for a connection (`tcp`) or a request (`http`).
    #[serde(default)]
    pub balance: Balance,
    /// TLS to the servers. Without this table, connections to servers are not encrypted.
    #[serde(default)]
    pub upstream_tls: Option<UpstreamTls>,
    /// Health checks.
    #[serde(default)]
    pub health: Option<Health>,
    /// Whether a PROXY header of version 2 precedes the bytes to a server (mode `tcp`).
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Address of a listener without TLS, which redirects to this proxy (mode `http`).
    #[serde(default)]
    pub redirect: Option<SocketAddr>,
    /// Folder with ACME challenges, which the redirect listener serves (mode `http`).
    #[serde(default)]
    pub acme: Option<PathBuf>,
    /// Limits.
    #[serde(default)]
    pub limits: Limits,
    /// Timeouts.
    #[serde(default)]
    pub timeouts: Timeouts,
}

fn groups() -> Vec<Group> {
    vec![Group::X25519MlKem768, Group::X25519, Group::P256]
}

/// Work of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Decrypted bytes go to the server unchanged.
    Tcp,
    /// Requests of HTTP/1.1 and HTTP/2 go to the servers as HTTP/1.1.
    Http,
}

/// Group of a key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// X25519 with ML-KEM-768.
    X25519MlKem768,
    /// X25519.
    X25519,
    /// P-256.
    P256,
    /// P-384.
    P384,
}

/// Request for client certificates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    /// Accepted authorities in PEM form.
    pub authorities: PathBuf,
    /// Whether clients without a certificate are refused.
    #[serde(default = "yes")]
    pub required: bool,
}

/// Server behind a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Host and port. A host name is resolved at start and at reload.
    pub address: String,
}

/// Choice of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// One server after another.
    #[default]
    RoundRobin,
    /// The server with the fewest connections (`tcp`) or requests (`http`).
    LeastConnections,
    /// Chosen by a hash of the client's address. Most clients keep their server when servers are
    /// added or fail.
    Hash,
}

/// TLS to the servers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamTls {
    /// Accepted authorities in PEM form.
    pub authorities: PathBuf,
    /// Name in the certificates of the servers. Default: the host of their address.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// Health checks of servers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// Path of the request, whose status must be 2xx. Without a path, a connection suffices.
    #[serde(default)]
    pub path: Option<String>,
    /// Interval between checks, in seconds.
    #[serde(default = "every_s")]
    pub every_s: f64,
    /// Longest time of a check, in seconds.
    #[serde(default = "check_s")]
    pub timeout_s: f64,
}

fn every_s() -> f64 {
    2.0
}

fn check_s() -> f64 {
    1.0
}

/// Limits of a proxy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest number of connections of a worker. Further connections are closed.
    pub connections: usize,
    /// Largest size of a request's header, in bytes. HTTP/1.1 needs at least 8192.
    pub header_bytes: usize,
    /// Largest number of fields in a request's header.
    pub header_fields: usize,
    /// Largest size of a request's body, in bytes.
    pub body_bytes: u64,
    /// Largest number of concurrent requests of an HTTP/2 connection.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 65_536, header_bytes: 32 << 10, header_fields: 100, body_bytes: 100 << 20, streams: 128 }
    }
}

/// Timeouts of a proxy, in seconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Longest time of a TLS handshake.
    pub handshake_s: f64,
    /// Longest time of a request's header, and of the wait for the next request.
    pub header_s: f64,
    /// Longest time without a byte in either direction (mode `tcp`, WebSocket, bodies).
    pub idle_s: f64,
    /// Longest time of a connection set-up to a server.
    pub connect_s: f64,
    /// Longest time until the header of a response.
    pub response_s: f64,
    /// Time for which an unused connection to a server is kept.
    pub keep_alive_s: f64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { handshake_s: 10.0, header_s: 15.0, idle_s: 300.0, connect_s: 3.0, response_s: 60.0, keep_alive_s: 60.0 }
    }
}

/// Converts seconds of a checked configuration.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

impl Config {
    /// Reads and checks a configuration file. Keys and certificates are not read.
    ///
    /// # Errors
    /// Returns the first error, with the file and the line.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, &path.display().to_string(), folder)
    }

    /// Parses and checks a configuration. `origin` names it in errors, and paths are relative to
    /// `folder`.
    ///
    /// # Errors
    /// Returns the first error, with the line.
    pub fn parse(text: &str, origin: &str, folder: &Path) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text[..start].matches('\n').count() + 1;
            ConfigError::at(origin, line, error.message())
        })?;
        config.resolve(folder);
        check::check(&config, text, origin)?;
        Ok(config)
    }

    /// Reads and checks all keys, certificates and authorities, and resolves all servers.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check_files(&self) -> Result<(), crate::Error> {
        self.proxy.iter().try_for_each(|proxy| crate::state::ProxyState::new(self, proxy, None).map(drop))
    }

    /// Makes paths absolute or relative to the current folder.
    fn resolve(&mut self, folder: &Path) {
        let join = |path: &mut PathBuf| {
            if path != Path::new("-") {
                *path = folder.join(&*path);
            }
        };
        self.control.iter_mut().chain(&mut self.access_log).chain(&mut self.signer.crypto_mb).for_each(join);
        for key in &mut self.signer.key {
            [&mut key.certificate, &mut key.key].into_iter().chain(&mut key.ocsp).for_each(join);
        }
        for proxy in &mut self.proxy {
            proxy.acme.iter_mut().for_each(join);
            proxy.client_certificates.iter_mut().for_each(|request| join(&mut request.authorities));
            proxy.upstream_tls.iter_mut().for_each(|tls| join(&mut tls.authorities));
        }
    }
}
