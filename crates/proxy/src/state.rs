//! State that all workers share. A configuration reload replaces it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use godwit_sign::Key;
use godwit_tls::{Certificates, ClientCertificates, Group, KeyFiles, RustlsAcceptor, Settings};
use tokio::sync::watch;

use crate::Error;
use crate::config::{self, Config, Mode};
use crate::counters::Counters;
use crate::log::AccessLog;
use crate::upstream::Upstreams;
use crate::upstream::connect::Connector;

/// State of one proxy under one configuration.
pub(crate) struct ProxyState {
    pub(crate) config: config::Proxy,
    pub(crate) acceptor: RustlsAcceptor,
    pub(crate) certificates: Arc<Certificates>,
    settings: Settings,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) connector: Connector,
}

/// State of all proxies under one configuration.
pub(crate) struct Generation {
    /// Number of the configuration, counted from 1.
    pub(crate) number: u64,
    pub(crate) proxies: Vec<Arc<ProxyState>>,
}

/// State of the program, which tells connections when to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    /// Number of the current configuration. Connections with an earlier configuration end after
    /// their current request.
    pub(crate) generation: u64,
    pub(crate) stop: Stop,
}

/// Progress of a stop of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Connections are accepted.
    No,
    /// No connection is accepted. Requests in progress continue.
    Drain,
    /// The time to drain is over.
    Now,
}

/// Context of a connection.
pub(crate) struct Link {
    pub(crate) proxy: Arc<ProxyState>,
    /// Number of the configuration that accepted the connection.
    pub(crate) generation: u64,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) pool: std::rc::Rc<crate::http::pool::Pool>,
    pub(crate) log: Option<AccessLog>,
    /// Counters of the worker, by the index of the proxy.
    counters: Arc<[Counters]>,
    index: usize,
}

impl Link {
    pub(crate) fn new(proxy: Arc<ProxyState>, generation: u64, worker: &crate::worker::Worker, index: usize) -> Self {
        Self {
            proxy,
            generation,
            phase: worker.phase.clone(),
            pool: std::rc::Rc::clone(&worker.pool),
            log: worker.log.clone(),
            counters: Arc::clone(&worker.counters),
            index,
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters[self.index]
    }

    /// Returns the index of the proxy in the configuration.
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

impl ProxyState {
    /// Reads keys and certificates, and resolves server addresses. `old` is the previous state of
    /// this proxy. Its session tickets stay valid if the TLS settings are equal. `held` are the
    /// public keys of a separate signer process.
    pub(crate) fn new(
        config: &Config,
        proxy: &config::Proxy,
        old: Option<&Self>,
        held: Option<&[Arc<Key>]>,
    ) -> Result<Self, Error> {
        let tls = |source| Error::Tls { proxy: proxy.name.clone(), source };
        let named = |name: &String| config.signer.key.iter().find(|key| key.name == *name);
        let files: Vec<KeyFiles> = proxy
            .keys
            .iter()
            .filter_map(named)
            .map(|key| KeyFiles { certificate: key.certificate.clone(), key: key.key.clone(), ocsp: key.ocsp.clone() })
            .collect();
        let now = SystemTime::now();
        let certificates = match held {
            None => Certificates::load(&files, now),
            Some(keys) => Certificates::load_held(&files, keys, now),
        };
        let certificates = Arc::new(certificates.map_err(tls)?);
        let settings = settings(proxy);
        // Session tickets stay valid if the TLS settings are equal. Client authorities are always
        // read again.
        let acceptor = match old.filter(|old| old.settings == settings) {
            Some(old) => old.acceptor.with_certificates(&settings, Arc::clone(&certificates)),
            None => RustlsAcceptor::new(&settings, Arc::clone(&certificates)),
        };
        Ok(Self {
            acceptor: acceptor.map_err(tls)?,
            certificates,
            settings,
            upstreams: Arc::new(Upstreams::new(proxy, old.map(|old| &*old.upstreams))?),
            connector: Connector::new(proxy)?,
            config: proxy.clone(),
        })
    }

    pub(crate) fn idle(&self) -> Duration {
        config::seconds(self.config.timeouts.idle_s)
    }
}

fn settings(proxy: &config::Proxy) -> Settings {
    let group = |group: &config::Group| match group {
        config::Group::X25519MlKem768 => Group::X25519MlKem768,
        config::Group::X25519 => Group::X25519,
        config::Group::P256 => Group::P256,
        config::Group::P384 => Group::P384,
    };
    let default = match proxy.mode {
        Mode::Tcp => vec![],
        Mode::Http => vec!["h2".to_owned(), "http/1.1".to_owned()],
    };
    let client_certificates = match &proxy.client_certificates {
        None => ClientCertificates::None,
        Some(config::ClientCertificates { authorities, required: true }) => {
            ClientCertificates::Required { authorities: authorities.clone() }
        }
        Some(config::ClientCertificates { authorities, .. }) => {
            ClientCertificates::Optional { authorities: authorities.clone() }
        }
    };
    Settings {
        tls12: proxy.tls12,
        groups: proxy.groups.iter().map(group).collect(),
        alpn: proxy.alpn.clone().unwrap_or(default).into_iter().map(String::into_bytes).collect(),
        client_certificates,
        tickets: proxy.tickets,
        handshake_timeout: config::seconds(proxy.timeouts.handshake_s),
    }
}
