//! Starts, reloads and stops all proxies.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::config::{self, Config, Mode};
use crate::counters::{COUNTERS, Counters};
use crate::log::AccessLog;
use crate::report::{ProxyReport, Report, UpstreamReport};
use crate::state::{Generation, Phase, ProxyState, Stop};
use crate::worker::{self, Seed};
use crate::{Error, listen, signing};

/// Time for the last connections to update their counters after all connections were told to end.
const LAST: Duration = Duration::from_secs(5);

/// Handle to the running proxies. If it is dropped without [`Running::stop`], the proxies continue
/// to run.
pub struct Running {
    config: Mutex<Config>,
    generation: Arc<ArcSwap<Generation>>,
    phase: watch::Sender<Phase>,
    workers: Vec<JoinHandle<std::io::Result<()>>>,
    /// Counters by worker, then by proxy.
    counters: Vec<Arc<[Counters]>>,
    signed: Vec<Arc<Mutex<godwit_sign::Counters>>>,
    addresses: Vec<(SocketAddr, Option<SocketAddr>)>,
    log: Option<(AccessLog, JoinHandle<()>)>,
    lanes: String,
    started: Instant,
}

impl Running {
    /// Loads all keys, opens all sockets and starts the workers.
    ///
    /// # Errors
    /// Returns an error if any of these steps fails. No worker runs after an error.
    pub fn start(config: Config) -> Result<Self, Error> {
        let workers = config.workers.unwrap_or_else(cores);
        let held = signing::held(&config.signer)?;
        let proxies: Vec<Arc<ProxyState>> = config
            .proxy
            .iter()
            .map(|proxy| ProxyState::new(&config, proxy, None, held.as_deref()).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let keys: Vec<_> = proxies.iter().flat_map(|proxy| proxy.certificates.keys()).collect();
        let (signers, lanes) = signing::seeds(&config.signer, workers, &keys)?;
        let log = config.access_log.as_deref().map(open_log).transpose()?;
        let mut sockets: Vec<_> =
            config.proxy.iter().map(|proxy| listeners(proxy, workers)).collect::<Result<Vec<_>, _>>()?;
        let addresses =
            sockets.iter().map(|(tls, plain)| (address(tls), plain.first().map(|_| address(plain)))).collect();

        let generation = Arc::new(ArcSwap::from_pointee(Generation { number: 1, proxies }));
        let (phase, receiver) = watch::channel(Phase { generation: 1, stop: Stop::No });
        let mut running = Self {
            config: Mutex::new(config.clone()),
            generation: Arc::clone(&generation),
            phase,
            workers: Vec::new(),
            counters: Vec::new(),
            signed: Vec::new(),
            addresses,
            log,
            lanes,
            started: Instant::now(),
        };
        for (index, signer) in signers.into_iter().enumerate() {
            let counters: Arc<[Counters]> = config.proxy.iter().map(|_| Counters::default()).collect();
            let signed = Arc::new(Mutex::new(godwit_sign::Counters::default()));
            let seed = Seed {
                index,
                core: config.pin.then_some(index),
                listeners: sockets.iter_mut().filter_map(|(tls, _)| tls.pop()).collect(),
                redirects: sockets.iter_mut().map(|(_, plain)| plain.pop()).collect(),
                generation: Arc::clone(&generation),
                phase: receiver.clone(),
                counters: Arc::clone(&counters),
                signed: Arc::clone(&signed),
                log: running.log.as_ref().map(|(log, _)| log.clone()),
            };
            let thread = std::thread::Builder::new().name(format!("proxy-{index}"));
            running.workers.push(thread.spawn(move || worker::run(seed, signer)).map_err(Error::Thread)?);
            running.counters.push(counters);
            running.signed.push(signed);
        }
        Ok(running)
    }

    /// Returns the address of each proxy's TLS listener, and of its plaintext listener if there is
    /// one.
    pub fn addresses(&self) -> &[(SocketAddr, Option<SocketAddr>)] {
        &self.addresses
    }

    /// Replaces the configuration. New connections use the new configuration immediately. Old HTTP
    /// connections end after their requests in progress. Old TCP connections continue with the old
    /// configuration.
    ///
    /// # Errors
    /// If an error is returned, the old configuration stays in use.
    pub fn reload(&self, config: Config) -> Result<u64, Error> {
        let mut current = self.config.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        check_fixed(&current, &config)?;
        let old = self.generation.load_full();
        let held = signing::held(&config.signer)?;
        let create = |(proxy, old): (&config::Proxy, &Arc<ProxyState>)| {
            ProxyState::new(&config, proxy, Some(old), held.as_deref()).map(Arc::new)
        };
        let proxies = config.proxy.iter().zip(&old.proxies).map(create).collect::<Result<_, _>>()?;
        let number = old.number + 1;
        self.generation.store(Arc::new(Generation { number, proxies }));
        self.phase.send_modify(|phase| phase.generation = number);
        if let Some((log, _)) = &self.log {
            log.reopen();
        }
        *current = config;
        Ok(number)
    }

    /// Returns the state of all proxies.
    pub fn report(&self) -> Report {
        let generation = self.generation.load_full();
        let mut signer = godwit_sign::Counters::default();
        for signed in &self.signed {
            signer.add(&signed.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        }
        let proxy = |(index, proxy): (usize, &Arc<ProxyState>)| {
            let mut counters: BTreeMap<&'static str, u64> = COUNTERS.iter().map(|(name, _)| (*name, 0)).collect();
            for worker in &self.counters {
                for ((name, _), value) in COUNTERS.iter().zip(worker[index].values()) {
                    *counters.entry(name).or_default() += value;
                }
            }
            let (listen, redirect) = self.addresses[index];
            let upstream = |server: &crate::upstream::Server| UpstreamReport {
                address: server.name.clone(),
                healthy: server.is_healthy(),
                active: server.active(),
            };
            ProxyReport {
                name: proxy.config.name.clone(),
                mode: if proxy.config.mode == Mode::Tcp { "tcp" } else { "http" },
                listen: listen.to_string(),
                redirect: redirect.map(|address| address.to_string()),
                not_after: proxy.certificates.not_after().map_or(0, |end| end.as_secs()),
                counters,
                upstreams: proxy.upstreams.servers.iter().map(upstream).collect(),
            }
        };
        Report {
            elapsed_s: self.started.elapsed().as_secs_f64(),
            workers: self.workers.len(),
            generation: generation.number,
            lanes: self.lanes.clone(),
            signer,
            proxies: generation.proxies.iter().enumerate().map(proxy).collect(),
        }
    }

    /// Returns whether a worker thread has ended, which is a bug while the proxies run.
    pub fn has_failed(&self) -> bool {
        self.workers.iter().any(JoinHandle::is_finished)
    }

    /// Stops the proxies and returns the final report. New connections are refused. Open
    /// connections may finish until the configured time has passed, or until `stop_now` returns
    /// true.
    pub fn stop(mut self, stop_now: &dyn Fn() -> bool) -> Report {
        let drain = config::seconds(self.config.lock().map_or(1.0, |config| config.drain_s));
        self.phase.send_modify(|phase| phase.stop = Stop::Drain);
        let wait = |limit: Duration, early: &dyn Fn() -> bool| {
            let started = Instant::now();
            while started.elapsed() < limit && !early() && !self.workers.iter().all(JoinHandle::is_finished) {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        wait(drain, stop_now);
        self.phase.send_modify(|phase| phase.stop = Stop::Now);
        wait(LAST, &|| false);
        let report = self.report();
        for worker in self.workers.drain(..).filter(JoinHandle::is_finished) {
            // If a worker has panicked, the report is incomplete. The worker has already printed a
            // message.
            let _ = worker.join();
        }
        if let Some((log, thread)) = self.log.take() {
            drop(log);
            let _ = thread.join();
        }
        report
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

type Listeners = (Vec<std::net::TcpListener>, Vec<std::net::TcpListener>);

fn listeners(proxy: &config::Proxy, workers: usize) -> Result<Listeners, Error> {
    let open = |address: SocketAddr| {
        listen::listen(address, workers).map_err(|source| Error::Listen { proxy: proxy.name.clone(), address, source })
    };
    Ok((open(proxy.listen)?, proxy.redirect.map(open).transpose()?.unwrap_or_default()))
}

/// Returns the local address of the listeners.
fn address(listeners: &[std::net::TcpListener]) -> SocketAddr {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    listeners.first().and_then(|listener| listener.local_addr().ok()).unwrap_or(unknown)
}

fn open_log(path: &Path) -> Result<(AccessLog, JoinHandle<()>), Error> {
    AccessLog::open(path).map_err(|source| Error::File { file: path.to_owned(), source })
}

/// Checks that a reload changes no setting that is fixed at the start.
fn check_fixed(old: &Config, new: &Config) -> Result<(), Error> {
    let fixed = |proxy: &config::Proxy| (proxy.name.clone(), proxy.listen, proxy.redirect, proxy.mode);
    let list = |config: &Config| config.proxy.iter().map(fixed).collect::<Vec<_>>();
    let problem = if (old.workers, old.pin) != (new.workers, new.pin) {
        "`workers` and `pin`"
    } else if list(old) != list(new) {
        "the number, names, modes and addresses of proxies"
    } else if (&old.control, &old.access_log, &old.user) != (&new.control, &new.access_log, &new.user) {
        "`control`, `access_log` and `user`"
    } else if new.signer != (config::Signer { key: new.signer.key.clone(), ..old.signer.clone() }) {
        "[signer], except its keys"
    } else {
        return Ok(());
    };
    Err(Error::Fixed(problem))
}
