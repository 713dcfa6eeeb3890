//! The port: sockets of all workers, the XDP program, and an interface that may go and come back.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use godwit_packet::{ArenaHandle, Region};

use super::config::{Attach, Base, Config};
use super::filter::{Counted, Filter, QUEUES_MAX};
use super::interface::{Interface, State, addresses};
use super::queue::{ReceiveQueue, TransmitQueue};
use super::socket::{self, Inbound, Outbound, Plan, Socket};
use crate::live::{Arrivals, LiveContext, LivePort, SharedCounters};
use crate::{Error, PortCounters, QueueContext, Receive, Transmit};

/// How often the machine's addresses are looked at.
const ADDRESSES_INTERVAL: Duration = Duration::from_secs(1);

/// What does not change while the port is open.
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) slot_bytes: usize,
    pub(super) frame_bytes_max: usize,
    headroom_bytes: usize,
    arena: ArenaHandle,
}

/// What workers and the control thread share.
pub(super) struct Shared {
    pub(super) settings: Settings,
    /// Nothing more is taken.
    pub(super) stopped: AtomicBool,
    /// Longest packet that the interface sends, without the Ethernet header.
    pub(super) mtu: AtomicUsize,
    /// Frames that stayed with the kernel.
    pub(super) left_to_kernel: AtomicU64,
}

/// What a worker's two queues and the control thread share.
pub(super) struct Pair {
    /// The worker's.
    pub(super) region: Range<usize>,
    /// Whether it is the first worker's, who counts what is of the port as a whole.
    pub(super) is_first: bool,
    /// Which socket is the queues' own by now; another number: there is a new one.
    pub(super) generation: AtomicU32,
    pub(super) received: SharedCounters,
    pub(super) sent: SharedCounters,
    sockets: Mutex<Sockets>,
}

#[derive(Default)]
struct Sockets {
    current: Option<Arc<Socket>>,
    /// Halves that the queues have not fetched yet.
    inbound: Option<Inbound>,
    outbound: Option<Outbound>,
    /// What earlier sockets missed.
    missed: u64,
}

impl Pair {
    pub(super) fn take_inbound(&self) -> Result<(Arc<Socket>, Inbound, u32), Error> {
        let mut sockets = lock(&self.sockets);
        let generation = self.generation.load(Ordering::Relaxed);
        match (sockets.current.clone(), sockets.inbound.take()) {
            (Some(socket), Some(inbound)) => Ok((socket, inbound, generation)),
            _ => Err(Error::Port("a receive queue can be opened once".to_owned())),
        }
    }

    pub(super) fn take_outbound(&self) -> Result<(Arc<Socket>, Outbound, u32), Error> {
        let mut sockets = lock(&self.sockets);
        let generation = self.generation.load(Ordering::Relaxed);
        match (sockets.current.clone(), sockets.outbound.take()) {
            (Some(socket), Some(outbound)) => Ok((socket, outbound, generation)),
            _ => Err(Error::Port("a transmit queue can be opened once".to_owned())),
        }
    }

    /// Packets that the kernel had no buffer or no place in the ring for.
    pub(super) fn missed(&self) -> u64 {
        let sockets = lock(&self.sockets);
        sockets.missed + sockets.current.as_deref().map_or(0, missed)
    }

    fn replace(&self, (socket, inbound, outbound): (Socket, Inbound, Outbound)) {
        let mut sockets = lock(&self.sockets);
        sockets.missed += sockets.current.as_deref().map_or(0, missed);
        sockets.current = Some(Arc::new(socket));
        (sockets.inbound, sockets.outbound) = (Some(inbound), Some(outbound));
        self.generation.fetch_add(1, Ordering::Release);
    }
}

fn missed(socket: &Socket) -> u64 {
    let statistics = socket.statistics();
    statistics.rx_dropped + statistics.rx_ring_full
}

/// What only the control thread needs.
struct Attended {
    interface: Interface,
    /// `None` while the interface is gone.
    state: Option<State>,
    /// `None` where nothing is received.
    filter: Option<Filter>,
    addresses_at: Instant,
    /// Said already, so that it is said once.
    failure: Option<String>,
    notices: Vec<String>,
    no_socket: u64,
    /// How frames come and go, for people.
    mode: String,
}

/// See the module.
pub(super) struct Port {
    shared: Arc<Shared>,
    pairs: Vec<Arc<Pair>>,
    attended: Mutex<Attended>,
}

impl Port {
    pub(super) fn open(config: &Config, context: &LiveContext<'_>) -> Result<Arc<Self>, Error> {
        let interface = Interface::find(&config.interface)?;
        let name = &config.interface;
        let state =
            interface.state().map_err(|source| Error::system(format!("ask for the state of {name}"), source))?;
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
        let mut attended = Attended {
            interface,
            state: Some(state),
            filter: if context.receives { Some(Filter::load(config)?) } else { None },
            addresses_at: Instant::now(),
            failure: None,
            notices: Vec::new(),
            no_socket: 0,
            mode: String::new(),
        };
        if context.receives && state.mtu + 14 > context.frame_bytes_max {
            attended.notices.push(format!(
                "{name} has an MTU of {}, so frames of up to {} bytes come, and [arena] frame_bytes_max = {} takes no longer ones: they \
                 are counted as oversized",
                state.mtu,
                state.mtu + 14,
                context.frame_bytes_max
            ));
        }
        if !state.is_running {
            attended.notices.push(format!("{name} is down"));
        }
        attended.connect(&shared, &pairs, state)?;
        Ok(Arc::new(Self { shared, pairs, attended: Mutex::new(attended) }))
    }
}

/// Worker i's queue is the interface's queue i, and no queue may be without a worker.
fn check_queues(interface: &Interface, config: &Config, context: &LiveContext<'_>) -> Result<(), Error> {
    let (receive, transmit) = interface.queues();
    let (name, workers) = (&config.interface, context.workers);
    if workers > QUEUES_MAX {
        return Err(Error::Port(format!("{workers} workers: an af_xdp port has at most {QUEUES_MAX} queues")));
    }
    let is_wrong = if context.receives { receive != workers || transmit < workers } else { transmit < workers };
    if !is_wrong {
        return Ok(());
    }
    let plural = |count: usize, what: &str| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    Err(Error::config(
        "interface",
        name,
        format!(
            "it has {} and {}, and each of {} owns one of each: `ethtool -L {name} combined {workers}` (or `rx {workers} tx {workers}`) sets \
             them, or set workers = {}",
            plural(receive, "receive queue"),
            plural(transmit, "transmit queue"),
            plural(workers, "worker"),
            receive.min(transmit)
        ),
    ))
}

impl Attended {
    /// Binds a socket to each queue, then has the program take frames.
    fn connect(&mut self, shared: &Shared, pairs: &[Arc<Pair>], state: State) -> Result<(), Error> {
        let Settings { config, slot_bytes, headroom_bytes, arena, .. } = &shared.settings;
        let mut is_zero_copy = true;
        for (queue, pair) in pairs.iter().enumerate() {
            let plan = Plan {
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
            let opened = socket::open(&plan)?;
            is_zero_copy &= opened.0.is_zero_copy;
            if let Some(filter) = &mut self.filter {
                filter.set_socket(queue, opened.0.fd())?;
            }
            pair.replace(opened);
        }
        let copies = if is_zero_copy { "zero copy" } else { "the kernel copies" };
        let queues = pairs.len();
        let (name, plural) = (&config.interface, if queues == 1 { "queue" } else { "queues" });
        match &mut self.filter {
            Some(filter) => {
                filter.set_mac(state.mac)?;
                filter.set_addresses(addresses())?;
                let is_native = filter.attach(name, state.index, config.attach)?;
                if !is_native && config.attach == Attach::Auto {
                    let sentence = "its driver has no XDP, so the program runs behind it, which is slower";
                    self.notices.push(format!("{name}: {sentence} (attach = \"generic\" says that this is meant)"));
                }
                let mode = if is_native { "native" } else { "generic" };
                self.mode = format!("{mode} XDP, {copies}, {queues} {plural}");
            }
            None => self.mode = format!("{copies}, {queues} {plural}"),
        }
        Ok(())
    }

    /// Looks at the interface, and after it where it has changed.
    fn look(&mut self, shared: &Shared, pairs: &[Arc<Pair>]) {
        let name = &shared.settings.config.interface;
        let Ok(interface) = Interface::find(name) else {
            if self.state.take().is_some() {
                self.notices.push(format!("{name} is gone; packets for it are refused until it is back"));
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
                    self.notices.push(format!("{name} is back: {}", self.mode));
                }
                Err(error) => {
                    let sentence = format!("{name} is back, and cannot be used: {error}");
                    if self.failure.as_ref() != Some(&sentence) {
                        self.notices.push(sentence.clone());
                        self.failure = Some(sentence);
                    }
                    return;
                }
            }
        } else if let (Some(before), Some(filter)) = (before, &mut self.filter)
            && before.mac != state.mac
            && let Err(error) = filter.set_mac(state.mac)
        {
            self.notices.push(error.to_string());
        }
        if before.is_some_and(|before| before.is_running) != state.is_running {
            self.notices.push(format!("{name} is {}", if state.is_running { "up" } else { "down" }));
        }
        if before.is_some_and(|before| before.mtu != state.mtu) {
            self.notices.push(format!("the MTU of {name} is {}", state.mtu));
        }
        shared.mtu.store(state.mtu, Ordering::Relaxed);
        self.state = Some(state);
    }
}

impl LivePort for Port {
    fn receiver(&self, context: QueueContext, region: &mut Region) -> Result<Box<dyn Receive>, Error> {
        let pair = Arc::clone(&self.pairs[context.worker]);
        let queue = ReceiveQueue::new(Arc::clone(&self.shared), pair, Arrivals::new(context), region)?;
        Ok(Box::new(queue))
    }

    fn transmitter(&self, worker: usize) -> Result<Box<dyn Transmit>, Error> {
        let pair = Arc::clone(&self.pairs[worker]);
        Ok(Box::new(TransmitQueue::new(Arc::clone(&self.shared), pair)?))
    }

    fn stop(&self) {
        if self.shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        if let Some(filter) = &mut lock(&self.attended).filter {
            filter.detach();
            self.shared.left_to_kernel.store(filter.counted().passed, Ordering::Relaxed);
        }
        self.shared.stopped.store(true, Ordering::Release);
    }

    fn attend(&self) -> Vec<String> {
        let mut attended = lock(&self.attended);
        attended.look(&self.shared, &self.pairs);
        let is_due = attended.addresses_at.elapsed() >= ADDRESSES_INTERVAL;
        if is_due && self.shared.settings.config.take == Base::Routed {
            attended.addresses_at = Instant::now();
            if let Some(Err(error)) = attended.filter.as_mut().map(|filter| filter.set_addresses(addresses())) {
                attended.notices.push(error.to_string());
            }
        }
        if let Some(filter) = &attended.filter {
            let Counted { passed, no_socket } = filter.counted();
            self.shared.left_to_kernel.store(passed, Ordering::Relaxed);
            if is_due && no_socket > attended.no_socket {
                attended.no_socket = no_socket;
                attended.notices.push(format!(
                    "{no_socket} frames came by queues of {} that no worker owns, and stayed with the kernel",
                    self.shared.settings.config.interface
                ));
            }
        }
        std::mem::take(&mut attended.notices)
    }

    fn counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        for pair in &self.pairs {
            sum += pair.received.read();
            sum += pair.sent.read();
            sum.missed += pair.missed();
        }
        sum.left_to_kernel = self.shared.left_to_kernel.load(Ordering::Relaxed);
        sum
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panicking thread leaves behind is whole: values are replaced at once.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
