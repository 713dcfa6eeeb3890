//! Report about a running proxy, with its counters, servers and certificates.

use std::collections::BTreeMap;

use serde::Serialize;

/// Report of all proxies.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Time since the start, in seconds.
    pub elapsed_s: f64,
    /// Number of workers.
    pub workers: usize,
    /// Number of the current configuration. It starts at 1 and increases with each reload.
    pub generation: u64,
    /// Name and version of the library crypto_mb, or the reason why it is not used.
    pub lanes: String,
    /// Counters of the signing engine, summed over all workers.
    pub signer: godwit_sign::Counters,
    /// Proxies, in the order of the configuration.
    pub proxies: Vec<ProxyReport>,
}

/// Report of one proxy.
#[derive(Clone, Debug, Serialize)]
pub struct ProxyReport {
    /// Configured name.
    pub name: String,
    /// Mode of the proxy, `tcp` or `http`.
    pub mode: &'static str,
    /// Address of the listener.
    pub listen: String,
    /// Address of the listener without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<String>,
    /// Expiry time of the certificate that expires first, in seconds since 1970.
    pub not_after: u64,
    /// Counters of the proxy, summed over all workers.
    pub counters: BTreeMap<&'static str, u64>,
    /// Servers, in the order of the configuration.
    pub upstreams: Vec<UpstreamReport>,
}

/// State of a server.
#[derive(Clone, Debug, Serialize)]
pub struct UpstreamReport {
    /// Configured address.
    pub address: String,
    /// Whether the last health check succeeded.
    pub healthy: bool,
    /// Number of connections or requests in progress.
    pub active: usize,
}

impl Report {
    /// Returns whether the counters account for every connection, handshake, request and signature.
    /// The counters are exact only after the workers have stopped.
    pub fn is_conserved(&self) -> bool {
        self.signer.is_conserved() && self.proxies.iter().all(ProxyReport::is_conserved)
    }
}

impl ProxyReport {
    fn is_conserved(&self) -> bool {
        let sum = |names: &[&str]| names.iter().map(|name| self.counters.get(name).copied().unwrap_or(0)).sum::<u64>();
        let failed: Vec<&str> =
            self.counters.keys().copied().filter(|name| name.starts_with("handshake_failed_")).collect();
        sum(&["accepted"]) == sum(&["refused_limit", "handshaking", "handshakes"]) + sum(&failed)
            && sum(&["handshakes"]) == sum(&["open", "closed"])
            && sum(&["requests"]) == sum(&["requests_in_flight", "responses", "requests_aborted"])
    }
}
