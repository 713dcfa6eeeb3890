//! A device: attached, configured, started once all workers have given it buffers, and closed.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use godwit_packet::{Region, SYMMETRIC_KEY};

use super::ffi::{self, PortPlan, PortState, RawPool, Stats};
use super::interface::{self, PacketSockets, Under};
use super::pool::Pool;
use super::queue::{ReceiveQueue, TransmitQueue};
use super::{Checksum, Config, eal};
use crate::live::{LiveContext, LivePort, SharedCounters};
use crate::{Error, PortCounters, QueueContext, Receive, Transmit};

/// What net_af_xdp takes at once for the ring that the kernel fills from, whatever the size of its own.
const FILL_RING: usize = 4096;
/// The Ethernet header, which an MTU does not count.
const HEADER_BYTES: usize = 14;
/// Longest time that packets in transmit rings get to leave before the device is stopped.
const LEAVE: Duration = Duration::from_millis(10);

/// Attaching, starting and closing devices, one at a time: not all of DPDK expects otherwise.
static CHANGING: Mutex<()> = Mutex::new(());

fn change() -> MutexGuard<'static, ()> {
    CHANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Buffers of each worker that are in the device's hands.
pub(super) fn buffers(config: &Config) -> usize {
    let fill = if config.is_af_xdp() { FILL_RING } else { 0 };
    usize::from(interface::receive_places(config)) + usize::from(config.transmit_ring) + fill + 1024
}

/// An open device, and the pools that its queues take buffers from.
pub(super) struct Port {
    device: String,
    number: u16,
    plan: Plan,
    buffers: u32,
    pub(super) frame_bytes_max: usize,
    pub(super) drop_bad_checksums: bool,
    /// Longest frame that may leave; not known of devices that are no interfaces of the kernel.
    pub(super) sent_bytes_max: AtomicUsize,
    pub(super) pools: Vec<Arc<Pool>>,
    state: Mutex<State>,
    pub(super) stopped: AtomicBool,
    pub(super) counters: Vec<[SharedCounters; 2]>,
    /// Dropped behind the device: the driver still uses the program when it closes.
    under: Option<Under>,
}

struct Plan {
    queues: u16,
    config: Config,
}

struct State {
    found: PortState,
    /// Workers that have given buffers.
    ready: usize,
    started: bool,
    /// Whether the link was up, and how fast, in Mbps.
    link: Option<(bool, u32)>,
    /// MTU of the interface that it stands on, where there is one.
    mtu: Option<usize>,
    notices: Vec<String>,
    sockets: PacketSockets,
    /// What the device counted, at the end.
    last: Stats,
}

impl Port {
    pub(super) fn open(config: &Config, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error> {
        let device = config.name().to_owned();
        if context.slot_bytes.is_none() {
            return Err(Error::config(
                "layout",
                "dense",
                "a DPDK device needs buffers of one size: use layout = \"slots\"",
            ));
        }
        if let Some(mtu) = config.mtu
            && usize::from(mtu) + HEADER_BYTES > context.frame_bytes_max
        {
            let most = format!("frames of it are longer than frame_bytes_max = {}", context.frame_bytes_max);
            return Err(Error::config("mtu", mtu, most));
        }
        eal::start(config.eal.as_deref(), config.is_pci())?;
        let (number, sockets) = probe(config)?;
        let mut under = Under::of(config);
        let unowned = under.as_mut().and_then(|under| under.attach_program(config).err());
        // Where that does not work the driver does it.
        let promiscuous = config.promiscuous && !under.as_mut().is_some_and(Under::make_promiscuous);
        // From here on it is closed by being dropped.
        let mut attached = Attached { number, mapped: Vec::new() };
        let found = state(&device, number)?;
        let queues = context.workers as u16;
        if found.queues_max < queues {
            let reason = format!(
                "it has {} pair{} of queues, and there are {queues} workers, each of which needs its own",
                found.queues_max,
                if found.queues_max == 1 { "" } else { "s" }
            );
            return Err(Error::Device { device, what: "the device has too few queues".into(), reason });
        }
        let pools = Pool::of_all(context, found.socket)?;
        if let Some(pool) = pools.first() {
            let (address, bytes) = pool.memory();
            // SAFETY: the arena, which the pools keep mapped until the device is closed.
            let result = unsafe { ffi::gw_dpdk_dma_map(number, address, bytes) };
            if result != 0 {
                return Err(ffi::failed(&device, "mapping the arena for DMA", result));
            }
            attached.mapped.push((address as usize, bytes));
        }
        std::mem::forget(attached);
        let mut notices = numa(&device, found.socket, context);
        notices.extend(unowned);
        // The driver will set what is configured.
        let mtu = under.as_ref().and_then(|under| config.mtu.map(usize::from).or(Some(under.state()?.mtu)));
        let state =
            State { found, ready: 0, started: false, link: None, mtu, notices, sockets, last: Stats::default() };
        let port = Self {
            device,
            number,
            plan: Plan { queues, config: Config { promiscuous, ..config.clone() } },
            buffers: buffers(config) as u32,
            frame_bytes_max: context.frame_bytes_max,
            drop_bad_checksums: config.checksum == Checksum::Drop,
            sent_bytes_max: AtomicUsize::new(mtu.map_or(usize::MAX, |mtu| mtu + HEADER_BYTES)),
            pools,
            state: Mutex::new(state),
            stopped: AtomicBool::new(false),
            counters: (0..context.workers).map(|_| Default::default()).collect(),
            under,
        };
        Ok(Arc::new(OpenPort(Arc::new(port))))
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Buffers for a worker's queue; the last worker's start the device, whose driver fills its rings then.
    fn supply(&self, worker: usize, region: &mut Region) -> Result<(), Error> {
        let given = self.pools[worker].post(region, self.buffers);
        if given < self.buffers {
            let reason = format!("worker {worker} has {given} buffers for it, and it needs {}", self.buffers);
            return Err(Error::Device {
                device: self.device.clone(),
                what: "[arena] packets is too small".into(),
                reason,
            });
        }
        let mut state = self.state();
        state.ready += 1;
        if state.ready == self.pools.len() { self.start(&mut state) } else { Ok(()) }
    }

    /// An error of the device.
    #[cold]
    pub(super) fn fault(&self, reason: String) -> Error {
        Error::Device { device: self.device.clone(), what: "the device failed".into(), reason }
    }

    fn start(&self, state: &mut State) -> Result<(), Error> {
        let Plan { queues, config } = &self.plan;
        let plan = PortPlan {
            queues: *queues,
            receive_ring: interface::receive_places(config),
            transmit_ring: config.transmit_ring,
            mtu: config.mtu.unwrap_or(0),
            promiscuous: config.promiscuous,
            checksum: config.checksum != Checksum::None,
            key: SYMMETRIC_KEY.as_ptr(),
            key_bytes: SYMMETRIC_KEY.len() as u32,
        };
        let pools: Vec<*mut RawPool> = self.pools.iter().map(|pool| pool.raw()).collect();
        let mut step = std::ptr::null();
        let _changing = change();
        // SAFETY: a device that is attached and not started; one pool for each queue, which `self` keeps until the device is closed.
        let mut result =
            unsafe { ffi::gw_dpdk_configure(self.number, &plan, pools.as_ptr(), &mut state.found, &mut step) };
        if result == 0 {
            // SAFETY: as above, and it is configured.
            result = unsafe { ffi::gw_dpdk_start(self.number, &plan, &mut state.found, &mut step) };
        }
        if result != 0 {
            // SAFETY: the shim sets it to strings of its own.
            let step = unsafe { ffi::text(step) };
            return Err(ffi::failed(&self.device, &step, result));
        }
        state.started = true;
        if *queues > 1 && !state.found.hashes {
            state.notices.push(format!(
                "{} ({}) does not spread packets by a symmetric hash: which worker gets a packet is up to what is behind the device, and both \
                 directions of a flow may have different ones",
                self.device,
                ffi::field(&state.found.driver)
            ));
        }
        if self.drop_bad_checksums && !state.found.checksum {
            state
                .notices
                .push(format!("{} cannot check checksums: packets with wrong ones are not dropped", self.device));
        }
        Ok(())
    }

    /// Takes over how the interface under the device is. Whether it is up.
    fn follow(&self, under: &Under, state: &mut State, notices: &mut Vec<String>) -> bool {
        let found = under.state();
        let mtu = found.map(|found| found.mtu);
        if let Some(mtu) = mtu {
            self.sent_bytes_max.store(mtu + HEADER_BYTES, Ordering::Relaxed);
            if state.mtu.is_some_and(|before| before != mtu) {
                notices.push(format!("{}: the MTU of its interface is {mtu}", self.device));
            }
            state.mtu = Some(mtu);
        }
        found.is_some_and(|found| found.is_running)
    }

    fn stats(&self, state: &mut State) -> Stats {
        let mut stats = Stats::default();
        // SAFETY: an attached device; it writes one Stats.
        if unsafe { ffi::gw_dpdk_stats(self.number, &mut stats) } == 0 {
            state.last = stats;
        }
        state.last
    }
}

/// A device as the control thread has it.
struct OpenPort(Arc<Port>);

impl LivePort for OpenPort {
    fn attach(&self, worker: usize, region: &mut Region) -> Result<(), Error> {
        self.0.supply(worker, region)
    }

    fn receiver(&self, context: QueueContext, _region: &mut Region) -> Result<Box<dyn Receive>, Error> {
        self.0.pools[context.worker].received_into.store(true, Ordering::Relaxed);
        Ok(Box::new(ReceiveQueue::new(Arc::clone(&self.0), context)))
    }

    fn transmitter(&self, worker: usize) -> Result<Box<dyn Transmit>, Error> {
        Ok(Box::new(TransmitQueue::new(Arc::clone(&self.0), worker)))
    }

    fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    fn attend(&self) -> Vec<String> {
        let Port { device, number, .. } = &*self.0;
        let mut state = self.0.state();
        let mut notices = std::mem::take(&mut state.notices);
        let mut speed = u32::MAX;
        let link = match &self.0.under {
            _ if !state.started => None,
            Some(under) => Some((self.0.follow(under, &mut state, &mut notices), speed)),
            // SAFETY: an attached device; it writes one number.
            None => match unsafe { ffi::gw_dpdk_link(*number, &mut speed) } {
                up @ (0 | 1) => Some((up == 1, speed)),
                _ => None,
            },
        };
        if link != state.link {
            match (state.link, link) {
                // Up from the start is as it should be.
                (None, Some((true, _))) => {}
                (_, Some((true, mbps))) if mbps < u32::MAX => {
                    notices.push(format!("{device}: link is up, {mbps} Mbps"))
                }
                (_, Some((true, _))) => notices.push(format!("{device}: link is up")),
                (_, Some((false, _))) => notices.push(format!("{device}: link is down")),
                (_, None) => {}
            }
            state.link = link;
        }
        notices
    }

    fn counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        self.0.counters.iter().flatten().for_each(|queue| sum += queue.read());
        let mut state = self.0.state();
        let stats = self.0.stats(&mut state);
        sum.missed += stats.missed + state.sockets.missed();
        sum.faulty += stats.receive_errors;
        sum.unsent += stats.transmit_errors;
        sum
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.state().started {
            std::thread::sleep(LEAVE);
        }
        let mapped = self.pools.first().map(|pool| pool.memory());
        let mapped = mapped.map(|(address, bytes)| (address as usize, bytes)).into_iter().collect();
        drop(Attached { number: self.number, mapped });
    }
}

/// A device that is closed when dropped.
struct Attached {
    number: u16,
    mapped: Vec<(usize, usize)>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _changing = change();
        for &(address, bytes) in &self.mapped {
            // SAFETY: mapped before.
            unsafe { ffi::gw_dpdk_dma_unmap(self.number, address as *mut _, bytes) };
        }
        // SAFETY: attached, and its queues are gone: each has a clone of the Arc.
        unsafe { ffi::gw_dpdk_close(self.number) };
    }
}

/// Attaches the device: its number, and the packet sockets that its driver has opened.
fn probe(config: &Config) -> Result<(u16, PacketSockets), Error> {
    let device = config.name();
    let arguments = CString::new(interface::arguments(config))
        .map_err(|_| Error::config("device", &config.device, "holds a zero byte"))?;
    let mut ports = [0; 2];
    let _changing = change();
    let others = interface::packet_sockets();
    // SAFETY: the environment is up; room for two numbers.
    let found = unsafe { ffi::gw_dpdk_probe(arguments.as_ptr(), ports.as_mut_ptr(), 2) };
    match found {
        1 => Ok((ports[0], PacketSockets::beside(&others))),
        2.. => Err(Error::Device {
            device: device.to_owned(),
            what: "it is several ports".into(),
            reason: "say which one by DPDK's argument `representor=` or `mac=`".into(),
        }),
        error => Err(ffi::failed(device, "DPDK does not find it, or no driver takes it", error)),
    }
}

fn state(device: &str, number: u16) -> Result<PortState, Error> {
    let mut found = std::mem::MaybeUninit::zeroed();
    // SAFETY: an attached device; the state is plain data, of which all zeroes is a value.
    let (result, found) = unsafe {
        let result = ffi::gw_dpdk_state(number, found.as_mut_ptr());
        (result, found.assume_init())
    };
    if result == 0 { Ok(found) } else { Err(ffi::failed(device, "asking the device what it is", result)) }
}

/// Says so where device, memory and cores are of different NUMA nodes.
fn numa(device: &str, socket: i32, context: &LiveContext<'_>) -> Vec<String> {
    let Ok(socket) = usize::try_from(socket) else { return Vec::new() };
    let mut notices = Vec::new();
    if let Some(node) = crate::numa::node_of_memory(context.arena.base().as_ptr() as usize)
        && node != socket
    {
        notices.push(format!(
            "{device} is of NUMA node {socket}, and the arena of node {node}: each packet crosses between them"
        ));
    }
    let elsewhere: Vec<String> = crate::numa::nodes_of_cores()
        .into_iter()
        .filter(|&(_, node)| node != socket)
        .map(|(core, _)| core.to_string())
        .collect();
    if !elsewhere.is_empty() {
        notices.push(format!(
            "{device} is of NUMA node {socket}, and of the cores that workers may use {} are not: keep to those of its node (taskset, or \
             CPUAffinity= of the unit)",
            elsewhere.join(", ")
        ));
    }
    notices
}

/// What DPDK itself has counted of a device that is attached: received and sent packets.
pub(super) fn counted(device: &str) -> Option<[u64; 2]> {
    let name = CString::new(device).ok()?;
    let mut stats = Stats::default();
    // SAFETY: a device's name, looked up; writes one Stats where there is such a device.
    let result = unsafe { ffi::gw_dpdk_stats_of(name.as_ptr(), &mut stats) };
    (result == 0).then_some([stats.received_packets, stats.sent_packets])
}
