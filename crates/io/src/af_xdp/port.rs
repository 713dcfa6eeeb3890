//! An open `af_xdp` port, with one AF_XDP socket per worker and an XDP program. The network
//! interface may disappear and come back while the port is open.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use godwit_packet::{ArenaHandle, Region};

use super::config::{Attach, Config, Take};
use super::filter::{Filter, FilterCounters, QUEUES_MAX};
use super::interface::{Interface, State, addresses};
use super::queue::{ReceiveQueue, TransmitQueue};
use super::socket::{self, ReceiveRings, Socket, SocketConfig, TransmitRings};
use crate::live::{Arrivals, LiveContext, LivePort, Notice, SharedCounters};
use crate::{Error, PortCounters, QueueContext, Receive, Transmit};

/// Interval between checks for changed IP addresses.
const ADDRESSES_INTERVAL: Duration = Duration::from_secs(1);

/// Settings that do not change while the port is open.
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) slot_bytes: usize,
    pub(super) frame_bytes_max: usize,
    headroom_bytes: usize,
    arena: ArenaHandle,
}

/// State of the port for the workers and the control thread.
pub(super) struct Shared {
    pub(super) settings: Settings,
    /// Whether the port was stopped. It then takes no more frames.
    pub(super) stopped: AtomicBool,
    /// MTU of the interface in bytes: the maximum length of a packet without the Ethernet header.
    pub(super) mtu: AtomicUsize,
    /// Whether the interface is up and has a carrier. Otherwise, the port refuses packets, because
    /// the driver would drop them but report them as sent.
    pub(super) is_up: AtomicBool,
    /// MAC address of the interface, in the lower 48 bits.
    pub(super) mac: AtomicU64,
    /// Number of frames that the XDP program left to the kernel.
    pub(super) left_to_kernel: AtomicU64,
}

/// State that the control thread shares with both sides of a queue pair.
pub(super) struct Pair {
    /// Byte range of the worker in the packet memory.
    pub(super) region: Range<usize>,
    /// Whether this is the first worker, which alone reports the counters of the whole port.
    pub(super) is_first: bool,
    /// Number of the current socket. It increases when the port replaces the socket. The receive
    /// queue and the transmit queue then switch to the new socket.
    pub(super) generation: AtomicU32,
    pub(super) received: SharedCounters,
    pub(super) sent: SharedCounters,
    sockets: Mutex<Sockets>,
}

#[derive(Default)]
struct Sockets {
    current: Option<Arc<Socket>>,
    /// Rings of the current socket, until the receive queue or the transmit queue takes them.
    receive_rings: Option<ReceiveRings>,
    transmit_rings: Option<TransmitRings>,
    /// Number of packets that earlier sockets of this queue lost.
    missed: u64,
}

impl Pair {
    pub(super) fn take_receive_rings(&self) -> Result<(Arc<Socket>, ReceiveRings, u32), Error> {
        let mut sockets = lock(&self.sockets);
        let generation = self.generation.load(Ordering::Relaxed);
        match (sockets.current.clone(), sockets.receive_rings.take()) {
            (Some(socket), Some(receive_rings)) => Ok((socket, receive_rings, generation)),
            _ => Err(Error::Port("a receive queue can be opened only once".to_owned())),
        }
    }

    pub(super) fn take_transmit_rings(&self) -> Result<(Arc<Socket>, TransmitRings, u32), Error> {
        let mut sockets = lock(&self.sockets);
        let generation = self.generation.load(Ordering::Relaxed);
        match (sockets.current.clone(), sockets.transmit_rings.take()) {
            (Some(socket), Some(transmit_rings)) => Ok((socket, transmit_rings, generation)),
            _ => Err(Error::Port("a transmit queue can be opened only once".to_owned())),
        }
    }

    /// Returns the number of packets that the kernel dropped because the fill ring was empty or the
    /// RX ring was full.
    pub(super) fn missed(&self) -> u64 {
        let sockets = lock(&self.sockets);
        sockets.missed + sockets.current.as_deref().map_or(0, missed)
    }

    fn replace(&self, (socket, receive_rings, transmit_rings): (Socket, ReceiveRings, TransmitRings)) {
        let mut sockets = lock(&self.sockets);
        sockets.missed += sockets.current.as_deref().map_or(0, missed);
        sockets.current = Some(Arc::new(socket));
        (sockets.receive_rings, sockets.transmit_rings) = (Some(receive_rings), Some(transmit_rings));
        self.generation.fetch_add(1, Ordering::Release);
    }
}

fn missed(socket: &Socket) -> u64 {
    let statistics = socket.statistics();
    statistics.rx_dropped + statistics.rx_ring_full
}

/// State of the interface and the XDP program, for the control thread.
struct Monitor {
    interface: Interface,
    /// Last known state of the interface, or `None` while the interface does not exist.
    state: Option<State>,
    /// XDP program, or `None` if the port only sends packets.
    filter: Option<Filter>,
    addresses_at: Instant,
    /// Last known value of the kernel's transmit drop counter.
    dropped: u64,
    /// Number of transmit drops at the interface since the port was opened.
    unsent: u64,
    /// Last failure that was reported to the operator. The port does not report it again.
    failure: Option<String>,
    notices: Vec<Notice>,
    no_socket: u64,
    /// Log text that tells where the XDP program runs and whether frames are copied.
    mode: String,
}

/// An open port of the kind `af_xdp`.
pub(super) struct Port {
    shared: Arc<Shared>,
    pairs: Vec<Arc<Pair>>,
    monitor: Mutex<Monitor>,
}

impl Port {
    pub(super) fn open(config: &Config, context: &LiveContext<'_>) -> Result<Arc<Self>, Error> {
        let interface = Interface::find(&config.interface)?;
        let name = &config.interface;
        let state = interface.state().map_err(|source| Error::system(format!("read the state of {name}"), source))?;
        check_queues(&interface, config, context)?;
        let slot_bytes = context.slot_bytes.ok_or_else(|| Error::Port("the arena has no slots".to_owned()))?;
        let shared = Arc::new(Shared {
            settings: Settings {
                config: config.clone(),
                slot_bytes,
                frame_bytes_max: context.frame_bytes_max,
                headroom_bytes: context.headroom_bytes,
                arena: context.arena.clone(),
            },
            stopped: AtomicBool::new(false),
            mtu: AtomicUsize::new(state.mtu),
            is_up: AtomicBool::new(state.is_running),
            mac: AtomicU64::new(bits(state.mac)),
            left_to_kernel: AtomicU64::new(0),
        });
        let pair = |region: &Range<usize>| {
            Arc::new(Pair {
                region: region.clone(),
                is_first: region.start == 0,
                generation: AtomicU32::new(0),
                received: SharedCounters::default(),
                sent: SharedCounters::default(),
                sockets: Mutex::default(),
            })
        };
        let pairs: Vec<_> = context.regions.iter().map(pair).collect();
        let dropped = interface.send_drops();
        let mut monitor = Monitor {
            interface,
            dropped,
            unsent: 0,
            state: Some(state),
            filter: if context.receives { Some(Filter::load(config)?) } else { None },
            addresses_at: Instant::now(),
            failure: None,
            notices: Vec::new(),
            no_socket: 0,
            mode: String::new(),
        };
        if context.receives && state.mtu + 14 > context.frame_bytes_max {
            let sentence = format!(
                "{name} has an MTU of {}, so frames of up to {} bytes arrive. Frames longer than [arena] \
                 frame_bytes_max = {} are dropped and counted as oversized",
                state.mtu,
                state.mtu + 14,
                context.frame_bytes_max
            );
            monitor.notices.push(("port_limited", sentence));
        }
        if !state.is_running {
            monitor.notices.push(("link_down", format!("{name} is down")));
        }
        monitor.connect(&shared, &pairs, state)?;
        Ok(Arc::new(Self { shared, pairs, monitor: Mutex::new(monitor) }))
    }
}

/// Checks that the interface has one queue per worker. Worker i receives from queue i, so a queue
/// without a worker would lose its packets.
fn check_queues(interface: &Interface, config: &Config, context: &LiveContext<'_>) -> Result<(), Error> {
    let (receive, transmit) = interface.queues();
    let (name, workers) = (&config.interface, context.workers);
    if workers > QUEUES_MAX {
        return Err(Error::Port(format!(
            "an af_xdp port has at most {QUEUES_MAX} queues, but {workers} workers are configured"
        )));
    }
    let is_mismatch = if context.receives { receive != workers || transmit < workers } else { transmit < workers };
    if !is_mismatch {
        return Ok(());
    }
    let plural = |count: usize, noun: &str| if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
    Err(Error::config(
        "interface",
        name,
        format!(
            "it has {} and {}, but {} need one of each: run `ethtool -L {name} combined {workers}` (or \
             `rx {workers} tx {workers}`), or set workers = {}",
            plural(receive, "receive queue"),
            plural(transmit, "transmit queue"),
            plural(workers, "worker"),
            receive.min(transmit)
        ),
    ))
}

impl Monitor {
    fn connect(&mut self, shared: &Shared, pairs: &[Arc<Pair>], state: State) -> Result<(), Error> {
        let Settings { config, slot_bytes, headroom_bytes, arena, .. } = &shared.settings;
        let mut is_zero_copy = true;
        for (queue, pair) in pairs.iter().enumerate() {
            let socket_config = SocketConfig {
                arena,
                region: pair.region.clone(),
                slot_bytes: *slot_bytes,
                headroom_bytes: *headroom_bytes,
                interface: &config.interface,
                index: state.index,
                queue,
                copy: config.copy,
                busy_poll: config.busy_poll,
                rx_packets: config.rx_packets,
                tx_packets: config.tx_packets,
            };
            let opened = socket::open(&socket_config)?;
            is_zero_copy &= opened.0.is_zero_copy;
            if let Some(filter) = &mut self.filter {
                filter.set_socket(queue, opened.0.fd())?;
            }
            pair.replace(opened);
        }
        let copies = if is_zero_copy { "zero-copy" } else { "the kernel copies" };
        let queues = pairs.len();
        let (name, plural) = (&config.interface, if queues == 1 { "queue" } else { "queues" });
        match &mut self.filter {
            Some(filter) => {
                filter.set_mac(state.mac)?;
                filter.set_addresses(addresses())?;
                let is_native = filter.attach(name, state.index, config.attach)?;
                if !is_native && config.attach == Attach::Auto {
                    let sentence = "the driver has no native XDP, so the XDP program runs after it, which is slower";
                    let sentence = format!("{name}: {sentence} (attach = \"generic\" turns this warning off)");
                    self.notices.push(("port_limited", sentence));
                }
                let mode = if is_native { "native" } else { "generic" };
                self.mode = format!("{mode} XDP, {copies}, {queues} {plural}");
            }
            None => self.mode = format!("{copies}, {queues} {plural}"),
        }
        Ok(())
    }

    /// Checks whether the interface has changed. If a new interface with the same name exists, the
    /// port creates new sockets on it.
    fn check_interface(&mut self, shared: &Shared, pairs: &[Arc<Pair>]) {
        let name = &shared.settings.config.interface;
        let Ok(interface) = Interface::find(name) else {
            shared.is_up.store(false, Ordering::Relaxed);
            if self.state.take().is_some() {
                let sentence = format!("{name} has disappeared; packets for it are refused until it is back");
                self.notices.push(("interface_gone", sentence));
            }
            return;
        };
        let Ok(state) = interface.state() else { return };
        let before = self.state;
        if before.is_none_or(|before| before.index != state.index) {
            if shared.stopped.load(Ordering::Relaxed) {
                return;
            }
            self.interface = interface;
            match self.connect(shared, pairs, state) {
                Ok(()) => {
                    self.failure = None;
                    self.notices.push(("interface_back", format!("{name} is back: {}", self.mode)));
                }
                Err(error) => {
                    let sentence = format!("{name} is back but cannot be used: {error}");
                    if self.failure.as_ref() != Some(&sentence) {
                        self.notices.push(("port_failed", sentence.clone()));
                        self.failure = Some(sentence);
                    }
                    return;
                }
            }
        } else if let (Some(before), Some(filter)) = (before, &mut self.filter)
            && before.mac != state.mac
            && let Err(error) = filter.set_mac(state.mac)
        {
            self.notices.push(("port_failed", error.to_string()));
        }
        if before.is_some_and(|before| before.is_running) != state.is_running {
            let (event, state) = if state.is_running { ("link_up", "up") } else { ("link_down", "down") };
            self.notices.push((event, format!("{name} is {state}")));
        }
        if before.is_some_and(|before| before.mtu != state.mtu) {
            self.notices.push(("mtu_changed", format!("the MTU of {name} is {}", state.mtu)));
        }
        shared.mtu.store(state.mtu, Ordering::Relaxed);
        shared.mac.store(bits(state.mac), Ordering::Relaxed);
        shared.is_up.store(state.is_running, Ordering::Relaxed);
        self.state = Some(state);
    }

    /// Returns the number of transmit drops at the interface since the port was opened.
    fn count_drops(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.dropped, self.interface.send_drops());
        // The counter of a new interface starts at zero.
        self.unsent += if self.dropped >= before { self.dropped - before } else { self.dropped };
        self.unsent
    }
}

impl LivePort for Port {
    fn receiver(&self, context: QueueContext, region: &mut Region) -> Result<Box<dyn Receive>, Error> {
        let pair = Arc::clone(&self.pairs[context.worker]);
        let queue = ReceiveQueue::new(Arc::clone(&self.shared), pair, Arrivals::new(context), region)?;
        Ok(Box::new(queue))
    }

    fn is_up(&self) -> Option<bool> {
        Some(self.shared.is_up.load(Ordering::Relaxed))
    }

    fn transmitter(&self, worker: usize) -> Result<Box<dyn Transmit>, Error> {
        let pair = Arc::clone(&self.pairs[worker]);
        Ok(Box::new(TransmitQueue::new(Arc::clone(&self.shared), pair)?))
    }

    fn stop(&self) {
        if self.shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        if let Some(filter) = &mut lock(&self.monitor).filter {
            filter.detach();
            self.shared.left_to_kernel.store(filter.counters().passed, Ordering::Relaxed);
        }
        self.shared.stopped.store(true, Ordering::Release);
    }

    fn attend(&self) -> Vec<Notice> {
        let mut monitor = lock(&self.monitor);
        monitor.check_interface(&self.shared, &self.pairs);
        let is_due = monitor.addresses_at.elapsed() >= ADDRESSES_INTERVAL;
        if is_due && self.shared.settings.config.take == Take::Routed {
            monitor.addresses_at = Instant::now();
            if let Some(Err(error)) = monitor.filter.as_mut().map(|filter| filter.set_addresses(addresses())) {
                monitor.notices.push(("port_failed", error.to_string()));
            }
        }
        if let Some(filter) = &monitor.filter {
            let FilterCounters { passed, no_socket } = filter.counters();
            self.shared.left_to_kernel.store(passed, Ordering::Relaxed);
            if is_due && no_socket > monitor.no_socket {
                monitor.no_socket = no_socket;
                let sentence = format!(
                    "{no_socket} frames arrived on queues of {} that have no worker, and were left to the kernel",
                    self.shared.settings.config.interface
                );
                monitor.notices.push(("queue_without_worker", sentence));
            }
        }
        std::mem::take(&mut monitor.notices)
    }

    fn counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        for pair in &self.pairs {
            sum += pair.received.read();
            sum += pair.sent.read();
            sum.missed += pair.missed();
        }
        sum.left_to_kernel = self.shared.left_to_kernel.load(Ordering::Relaxed);
        sum.unsent += lock(&self.monitor).count_drops();
        sum
    }
}

/// Returns a MAC address as a number of 48 bits.
fn bits([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind a poisoned lock is valid, because each value is replaced as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
