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

/// Configuration of the program. Relative paths start at the folder of the configuration file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Number of worker threads. The default is the number of CPU cores.
    #[serde(default)]
    pub workers: Option<usize>,
    /// Whether worker `n` runs only on CPU core `n`.
    #[serde(default)]
    pub pin: bool,
    /// Path of the control socket.
    #[serde(default)]
    pub control: Option<PathBuf>,
    /// User to which the process switches after all sockets are open and all keys are loaded.
    #[serde(default)]
    pub user: Option<String>,
    /// File of the access log. The path `-` means standard output.
    #[serde(default)]
    pub access_log: Option<PathBuf>,
    /// Maximum time to wait for open connections after a stop request, in seconds.
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
    /// Process that holds the private keys.
    #[serde(default)]
    pub process: Process,
    /// Path of the Unix socket on which `godwit signer` listens.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// User of `godwit signer` after it has loaded all keys.
    #[serde(default)]
    pub user: Option<String>,
    /// Whether to sign in SIMD lanes if the library crypto_mb is installed.
    #[serde(default = "yes")]
    pub lanes: bool,
    /// File of the library crypto_mb. Without this setting, the dynamic loader searches for it.
    #[serde(default)]
    pub crypto_mb: Option<PathBuf>,
    /// Maximum number of pending signatures per worker. Further handshakes are refused.
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
    /// The process of the proxy itself holds the keys.
    #[default]
    Inside,
    /// The process of `godwit signer` holds the keys.
    Separate,
}

/// Private key and its certificate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Name of the key, to which proxies refer.
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
    /// Name of the proxy in counters, logs and messages.
    pub name: String,
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Kind of traffic that the proxy forwards.
    pub mode: Mode,
    /// Names of the keys that this proxy uses. Clients with an unknown server name get the first
    /// one.
    pub keys: Vec<String>,
    /// Key exchange groups that the proxy accepts, in order of preference.
    #[serde(default = "groups")]
    pub groups: Vec<Group>,
    /// Whether TLS 1.2 is accepted.
    #[serde(default = "yes")]
    pub tls12: bool,
    /// Application protocols that the proxy offers (ALPN). In mode `http`, the default is `h2` and
    /// `http/1.1`. In mode `tcp`, it is no protocol.
    #[serde(default)]
    pub alpn: Option<Vec<String>>,
    /// Whether clients can resume earlier sessions.
    #[serde(default = "yes")]
    pub tickets: bool,
    /// Settings for client certificates.
    #[serde(default)]
    pub client_certificates: Option<ClientCertificates>,
    /// Servers behind the proxy.
    pub upstream: Vec<Upstream>,
    /// Method that selects a server for each connection (mode `tcp`) or each request (mode `http`).
    #[serde(default)]
    pub balance: Balance,
    /// TLS settings for server connections. Without this table, these connections are not
    /// encrypted.
    #[serde(default)]
    pub upstream_tls: Option<UpstreamTls>,
    /// Health checks.
    #[serde(default)]
    pub health: Option<Health>,
    /// Whether the proxy sends a PROXY protocol header of version 2 to the server (mode `tcp`).
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Address of a listener without TLS, which redirects clients to this proxy (mode `http`).
    #[serde(default)]
    pub redirect: Option<SocketAddr>,
    /// Folder with ACME challenge responses, which the listener without TLS serves (mode `http`).
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

/// Kind of traffic that a proxy forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Decrypted bytes go to the server unchanged.
    Tcp,
    /// The proxy accepts HTTP/1.1 and HTTP/2. It forwards all requests in HTTP/1.1.
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

/// Settings for client certificates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    /// File with the accepted authorities in PEM form.
    pub authorities: PathBuf,
    /// Whether clients without a certificate are refused.
    #[serde(default = "yes")]
    pub required: bool,
}

/// Server behind a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Host and port of the server. Host names are resolved at the start and at each reload.
    pub address: String,
}

/// Method that selects a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Selects the servers one after another.
    #[default]
    RoundRobin,
    /// Selects the server with the fewest active connections (mode `tcp`) or requests (mode
    /// `http`).
    LeastConnections,
    /// Selects the server by a hash of the client's address. Most clients keep their server when
    /// servers are added or fail.
    Hash,
}

/// Settings for TLS between the proxy and the servers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamTls {
    /// Accepted authorities in PEM form.
    pub authorities: PathBuf,
    /// Host name that server certificates must contain. The default is the host in each server's
    /// address.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// Health checks of servers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// Path that the health check requests. The response status must be 2xx. Without a path, a
    /// successful connection is enough.
    #[serde(default)]
    pub path: Option<String>,
    /// Interval between checks, in seconds.
    #[serde(default = "every_s")]
    pub every_s: f64,
    /// Maximum time of a health check, in seconds.
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
    /// Maximum number of connections per worker. Excess connections are closed.
    pub connections: usize,
    /// Maximum size of a request header, in bytes. HTTP/1.1 needs at least 8192.
    pub header_bytes: usize,
    /// Maximum number of fields in a request header.
    pub header_fields: usize,
    /// Largest size of a request's body, in bytes.
    pub body_bytes: u64,
    /// Maximum number of concurrent requests on an HTTP/2 connection.
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
    /// Maximum time to receive a request header, or to wait for the next request.
    pub header_s: f64,
    /// Maximum time without a byte in either direction. It applies to mode `tcp`, WebSockets and
    /// message bodies.
    pub idle_s: f64,
    /// Maximum time to establish a connection to a server.
    pub connect_s: f64,
    /// Maximum time until the response header arrives.
    pub response_s: f64,
    /// Time for which an unused connection to a server is kept.
    pub keep_alive_s: f64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { handshake_s: 10.0, header_s: 15.0, idle_s: 300.0, connect_s: 3.0, response_s: 60.0, keep_alive_s: 60.0 }
    }
}

/// Converts seconds from a checked configuration.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

impl Config {
    /// Reads and checks a configuration file, but not the keys and certificates that it names.
    ///
    /// # Errors
    /// Returns the first error that it finds, with the file name and the line.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, &path.display().to_string(), folder)
    }

    /// Parses and checks a configuration. Error messages name its source as `origin`. Relative
    /// paths start at `folder`.
    ///
    /// # Errors
    /// Returns the first error that it finds, with its line.
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

    /// Reads and checks all key, certificate and authority files, and resolves all server
    /// addresses. If a signer process holds the keys, it must be running.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check_files(&self) -> Result<(), crate::Error> {
        let held = crate::signing::held(&self.signer)?;
        let check = |proxy| crate::state::ProxyState::new(self, proxy, None, held.as_deref()).map(drop);
        self.proxy.iter().try_for_each(check)
    }

    /// Makes paths absolute or relative to the current folder.
    fn resolve(&mut self, folder: &Path) {
        let join = |path: &mut PathBuf| {
            if path != Path::new("-") {
                *path = folder.join(&*path);
            }
        };
        self.control
            .iter_mut()
            .chain(&mut self.access_log)
            .chain(&mut self.signer.crypto_mb)
            .chain(&mut self.signer.socket)
            .for_each(join);
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
