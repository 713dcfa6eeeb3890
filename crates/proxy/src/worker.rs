//! A worker is a thread with its own async runtime, listeners and signing service.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use godwit_tls::{Accepted, Acceptor, Failure};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};

use crate::config::Mode;
use crate::counters::Counters;
use crate::http;
use crate::log::AccessLog;
use crate::state::{Generation, Link, Phase, Stop};
use crate::{signing, tcp, upstream};

/// Interval at which a worker publishes its signing counters.
const PUBLISH: Duration = Duration::from_millis(50);
/// Pause after an accept failed for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);

/// Data that another thread prepares to start a worker.
pub(crate) struct Seed {
    pub(crate) index: usize,
    /// CPU core on which the worker runs.
    pub(crate) core: Option<usize>,
    /// Listeners with TLS, one for each proxy.
    pub(crate) listeners: Vec<StdListener>,
    /// Listeners without TLS, for the proxies that have one.
    pub(crate) redirects: Vec<Option<StdListener>>,
    pub(crate) generation: Arc<ArcSwap<Generation>>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) counters: Arc<[Counters]>,
    pub(crate) signed: Arc<Mutex<godwit_sign::Counters>>,
    pub(crate) log: Option<AccessLog>,
}

/// State of a running worker.
pub(crate) struct Worker {
    pub(crate) generation: Arc<ArcSwap<Generation>>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) counters: Arc<[Counters]>,
    pub(crate) pool: Rc<http::pool::Pool>,
    pub(crate) log: Option<AccessLog>,
}

/// Runs a worker until the program stops.
pub(crate) fn run(seed: Seed, signer: signing::Seed) -> std::io::Result<()> {
    if let Some(core) = seed.core {
        let mut cores = nix::sched::CpuSet::new();
        // If the core does not exist, the thread stays unpinned.
        let _ = cores.set(core).and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cores));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, work(seed, signer))
}

async fn work(seed: Seed, signer: signing::Seed) -> std::io::Result<()> {
    let service = Rc::new(signer.service()?);
    let signing = Rc::clone(&service);
    spawn_local(async move { signing.run().await });
    let Seed { index, listeners, redirects, generation, phase, counters, signed, log, .. } = seed;
    let publish = move || {
        if let Ok(mut published) = signed.lock() {
            *published = service.counters();
        }
    };
    let worker = Rc::new(Worker { generation, phase, counters, pool: Rc::default(), log });
    let connections = Rc::new(());
    for (proxy, listener) in listeners.into_iter().enumerate() {
        let listener = TcpListener::from_std(listener)?;
        spawn_local(accept(Rc::clone(&worker), Rc::clone(&connections), proxy, listener));
    }
    for (proxy, listener) in redirects.into_iter().enumerate() {
        if let Some(listener) = listener {
            let listener = TcpListener::from_std(listener)?;
            spawn_local(http::redirect::accept(Rc::clone(&worker), Rc::clone(&connections), proxy, listener));
        }
    }
    if index == 0 {
        for proxy in 0..worker.counters.len() {
            spawn_local(check_health(Rc::clone(&worker), proxy));
        }
    }
    // The worker ends when its listeners are closed and no connection is left. After `Stop::Now`,
    // it briefly waits for connections to update their counters.
    let mut phase = worker.phase.clone();
    loop {
        publish();
        let stop = phase.borrow_and_update().stop;
        if stop > Stop::No && Rc::strong_count(&connections) == 1 {
            break;
        }
        let _ = tokio::time::timeout(PUBLISH, phase.changed()).await;
        if stop == Stop::Now {
            tokio::task::yield_now().await;
        }
    }
    publish();
    Ok(())
}

async fn check_health(worker: Rc<Worker>, index: usize) {
    loop {
        let generation = worker.generation.load_full();
        let proxy = &generation.proxies[index];
        match &proxy.config.health {
            Some(health) => {
                upstream::health::check_all(proxy, health).await;
                tokio::time::sleep(upstream::health::interval(health)).await;
            }
            // A later configuration may add health checks.
            None => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

/// Waits until a stop begins.
pub(crate) async fn draining(phase: &mut watch::Receiver<Phase>, at_least: Stop) {
    // A closed channel also means that the program stops.
    let _ = phase.wait_for(|phase| phase.stop >= at_least).await;
}

/// Accepts connections of one proxy.
async fn accept(worker: Rc<Worker>, connections: Rc<()>, index: usize, listener: TcpListener) {
    let mut phase = worker.phase.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = draining(&mut phase, Stop::Drain) => return,
        };
        let Ok((socket, client)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let generation = worker.generation.load();
        let link = Link::new(Arc::clone(&generation.proxies[index]), generation.number, &worker, index);
        let counters = link.counters();
        counters.accepted.increment();
        let present = counters.handshaking.get() + counters.open.get();
        if present >= link.proxy.config.limits.connections as u64 {
            counters.refused_limit.increment();
            continue;
        }
        let connections = Rc::clone(&connections);
        spawn_local(async move {
            serve(link, socket, client).await;
            drop(connections);
        });
    }
}

/// Runs the handshake of a connection, and serves it.
async fn serve(link: Link, socket: TcpStream, client: SocketAddr) {
    let link = Rc::new(link);
    let mut phase = link.phase.clone();
    let counters = link.counters();
    // Switch off Nagle's algorithm, which would delay small records. A socket without a local
    // address is already closed.
    let local = match (socket.set_nodelay(true), socket.local_addr()) {
        (Ok(()), Ok(local)) => local,
        _ => return counters.handshake_failed_closed.increment(),
    };
    counters.handshaking.increment();
    let result = tokio::select! {
        result = link.proxy.acceptor.accept(socket) => result,
        () = draining(&mut phase, Stop::Now) => Err(Failure::Timeout),
    };
    counters.handshaking.decrement();
    let accepted = match result {
        Ok(accepted) => accepted,
        Err(failure) => return count_failure(counters, failure),
    };
    counters.handshakes.increment();
    if accepted.resumed {
        counters.handshakes_resumed.increment();
    }
    counters.open.increment();
    let ended = tokio::select! {
        () = serve_mode(&link, accepted, client, local) => true,
        () = draining(&mut phase, Stop::Now) => false,
    };
    if !ended {
        counters.closed_drain.increment();
    }
    counters.open.decrement();
    counters.closed.increment();
}

async fn serve_mode<S>(link: &Rc<Link>, accepted: Accepted<S>, client: SocketAddr, local: SocketAddr)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match link.proxy.config.mode {
        Mode::Tcp => tcp::serve(link, accepted, client, local).await,
        Mode::Http => http::serve(link, accepted, client).await,
    }
}

fn count_failure(counters: &Counters, failure: Failure) {
    let counter = match failure {
        Failure::Closed => &counters.handshake_failed_closed,
        Failure::Timeout => &counters.handshake_failed_timeout,
        Failure::Protocol => &counters.handshake_failed_protocol,
        Failure::Alert => &counters.handshake_failed_alert,
        Failure::ClientCertificate => &counters.handshake_failed_client_certificate,
        Failure::Signing => &counters.handshake_failed_signing,
    };
    counter.increment();
}
