//! A network device of DPDK. It is configured when the port is opened. It starts after all workers
//! have given packet buffers to it.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use godwit_packet::{Region, SYMMETRIC_KEY};
use godwit_wire::MacAddress;

use super::ffi::{self, PortConfig, PortState, RawPool, Stats};
use super::interface::{self, KernelInterface, PacketSockets};
use super::pool::Pool;
use super::queue::{ReceiveQueue, TransmitQueue};
use super::{Checksum, Config, eal};
use crate::live::{LiveContext, LivePort, Notice, SharedCounters};
use crate::{Error, PortCounters, QueueContext, Receive, Transmit};

/// Number of buffers that the driver net_af_xdp puts into the fill ring, for any ring size.
const FILL_RING: usize = 4096;
/// Length of the Ethernet header in bytes. The MTU does not count this header.
const HEADER_BYTES: usize = 14;
/// Maximum time for the device to send the packets in its transmit rings before it is stopped.
const DRAIN_TIME: Duration = Duration::from_millis(10);

/// Lock that is held while a device is attached, started or closed. DPDK does not permit these
/// calls in several threads at once.
static CHANGE_LOCK: Mutex<()> = Mutex::new(());

fn lock_changes() -> MutexGuard<'static, ()> {
    CHANGE_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn buffers(config: &Config) -> usize {
    let fill = if config.is_af_xdp() { FILL_RING } else { 0 };
    usize::from(interface::receive_entries(config)) + usize::from(config.transmit_ring) + fill + 1024
}

/// An open network device of DPDK, with the buffer pools of its queues.
pub(super) struct Port {
    device: String,
    number: u16,
    settings: Settings,
    buffers: u32,
    pub(super) frame_bytes_max: usize,
    pub(super) drop_bad_checksums: bool,
    /// Maximum length of a sent frame in bytes. There is no limit if the device uses no kernel
    /// network interface.
    pub(super) sent_bytes_max: AtomicUsize,
    pub(super) pools: Vec<Arc<Pool>>,
    state: Mutex<State>,
    pub(super) stopped: AtomicBool,
    /// MAC address of the device.
    pub(super) mac: MacAddress,
    pub(super) counters: Vec<[SharedCounters; 2]>,
    /// The kernel interface, with its XDP program. The field is declared after the device and
    /// dropped later, because the driver uses the program until the device is closed.
    kernel_interface: Option<KernelInterface>,
}

struct Settings {
    queues: u16,
    config: Config,
}

struct State {
    found: PortState,
    /// Number of workers that have given buffers to the device.
    ready: usize,
    started: bool,
    /// Link state that was last reported to the operator: whether the link is up, and its speed in
    /// Mbps.
    link: Option<(bool, u32)>,
    /// MTU of the device's kernel interface, or `None` if the device uses no kernel interface.
    mtu: Option<usize>,
    notices: Vec<Notice>,
    sockets: PacketSockets,
    /// Counters that were last read from the device. They remain readable after the device is
    /// closed.
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
            let reason = format!("its frames are longer than frame_bytes_max = {}", context.frame_bytes_max);
            return Err(Error::config("mtu", mtu, reason));
        }
        eal::start(config.eal.as_deref(), config.is_pci())?;
        let (number, sockets) = probe(config)?;
        let mut kernel_interface = KernelInterface::of_device(config);
        let unowned =
            kernel_interface.as_mut().and_then(|kernel_interface| kernel_interface.attach_program(config).err());
        // Promiscuous mode that is set here ends with the process. If this fails, the driver sets
        // the mode.
        let promiscuous = config.promiscuous.unwrap_or(true)
            && !kernel_interface.as_mut().is_some_and(KernelInterface::make_promiscuous);
        // From here on, a return with an error closes the device.
        let mut attached = Attached { number, mapped: Vec::new() };
        let found = state(&device, number)?;
        let queues = context.workers as u16;
        if found.queues_max < queues {
            let reason = format!(
                "it has {} pair{} of queues, but each of the {queues} workers needs one",
                found.queues_max,
                if found.queues_max == 1 { "" } else { "s" }
            );
            return Err(Error::Device { device, what: "the device has too few queues".into(), reason });
        }
        let pools = Pool::for_workers(context, found.socket)?;
        if let Some(pool) = pools.first() {
            let (address, bytes) = pool.memory();
            // SAFETY: the memory is the arena, which the pools keep mapped until the device is
            // closed.
            let result = unsafe { ffi::gw_dpdk_dma_map(number, address, bytes) };
            if result != 0 {
                return Err(ffi::failed(&device, "cannot map the arena for DMA", result));
            }
            attached.mapped.push((address as usize, bytes));
        }
        std::mem::forget(attached);
        let mut notices = numa_notices(&device, found.socket, context);
        notices.extend(unowned.map(|error| ("port_limited", error.to_string())));
        // The driver changes the MTU of the device to the configured value.
        let mtu = kernel_interface
            .as_ref()
            .and_then(|kernel_interface| config.mtu.map(usize::from).or(Some(kernel_interface.state()?.mtu)));
        let mac = MacAddress(found.mac);
        let state =
            State { found, ready: 0, started: false, link: None, mtu, notices, sockets, last: Stats::default() };
        let port = Self {
            device,
            number,
            settings: Settings { queues, config: Config { promiscuous: Some(promiscuous), ..config.clone() } },
            buffers: buffers(config) as u32,
            frame_bytes_max: context.frame_bytes_max,
            drop_bad_checksums: config.checksum == Checksum::Drop,
            sent_bytes_max: AtomicUsize::new(mtu.map_or(usize::MAX, |mtu| mtu + HEADER_BYTES)),
            pools,
            state: Mutex::new(state),
            stopped: AtomicBool::new(false),
            mac,
            counters: (0..context.workers).map(|_| Default::default()).collect(),
            kernel_interface,
        };
        Ok(Arc::new(OpenPort(Arc::new(port))))
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives packet buffers of a worker to the device. The call for the last worker starts the
    /// device.
    fn supply_buffers(&self, worker: usize, region: &mut Region) -> Result<(), Error> {
        let given = self.pools[worker].post(region, self.buffers);
        if given < self.buffers {
            let reason =
                format!("the device needs {} buffers of worker {worker}, which has only {given}", self.buffers);
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

    /// Creates an error for the device.
    #[cold]
    pub(super) fn fault(&self, reason: String) -> Error {
        Error::Device { device: self.device.clone(), what: "the device failed".into(), reason }
    }

    fn start(&self, state: &mut State) -> Result<(), Error> {
        let Settings { queues, config } = &self.settings;
        let port_config = PortConfig {
            queues: *queues,
            receive_ring: interface::receive_entries(config),
            transmit_ring: config.transmit_ring,
            mtu: config.mtu.unwrap_or(0),
            promiscuous: config.promiscuous.unwrap_or(true),
            checksum: config.checksum != Checksum::None,
            key: SYMMETRIC_KEY.as_ptr(),
            key_bytes: SYMMETRIC_KEY.len() as u32,
        };
        let pools: Vec<*mut RawPool> = self.pools.iter().map(|pool| pool.raw()).collect();
        let mut step = std::ptr::null();
        let _lock = lock_changes();
        // SAFETY: the device is attached and not started. There is one pool per queue, and `self`
        // keeps the pools until the device is closed.
        let mut result =
            unsafe { ffi::gw_dpdk_configure(self.number, &port_config, pools.as_ptr(), &mut state.found, &mut step) };
        if result == 0 {
            // SAFETY: as above, and the device is configured.
            result = unsafe { ffi::gw_dpdk_start(self.number, &port_config, &mut state.found, &mut step) };
        }
        if result != 0 {
            // SAFETY: the shim sets `step` to a constant string.
            let step = unsafe { ffi::text(step) };
            return Err(ffi::failed(&self.device, &step, result));
        }
        state.started = true;
        if *queues > 1 && !state.found.hashes {
            let sentence = format!(
                "{} ({}) does not distribute packets by a symmetric hash: the two directions of a flow may go to \
                 different workers",
                self.device,
                ffi::field(&state.found.driver)
            );
            state.notices.push(("port_limited", sentence));
        }
        if self.drop_bad_checksums && !state.found.checksum {
            let sentence =
                format!("{} cannot check checksums: packets with wrong checksums are not dropped", self.device);
            state.notices.push(("port_limited", sentence));
        }
        Ok(())
    }

    /// Reads the state of the kernel interface that the device uses, and updates the MTU. Returns
    /// whether the interface is up.
    fn update_mtu(&self, kernel_interface: &KernelInterface, state: &mut State, notices: &mut Vec<Notice>) -> bool {
        let found = kernel_interface.state();
        let mtu = found.map(|found| found.mtu);
        if let Some(mtu) = mtu {
            self.sent_bytes_max.store(mtu + HEADER_BYTES, Ordering::Relaxed);
            if state.mtu.is_some_and(|before| before != mtu) {
                notices.push(("mtu_changed", format!("{}: the MTU of its interface is {mtu}", self.device)));
            }
            state.mtu = Some(mtu);
        }
        found.is_some_and(|found| found.is_running)
    }

    fn stats(&self, state: &mut State) -> Stats {
        let mut stats = Stats::default();
        // SAFETY: the device is attached, and the call writes one Stats.
        if unsafe { ffi::gw_dpdk_stats(self.number, &mut stats) } == 0 {
            state.last = stats;
        }
        state.last
    }
}

/// Access to a device for the control thread.
struct OpenPort(Arc<Port>);

impl LivePort for OpenPort {
    fn attach(&self, worker: usize, region: &mut Region) -> Result<(), Error> {
        self.0.supply_buffers(worker, region)
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

    fn attend(&self) -> Vec<Notice> {
        let Port { device, number, .. } = &*self.0;
        let mut state = self.0.state();
        let mut notices = std::mem::take(&mut state.notices);
        let mut speed = u32::MAX;
        let link = match &self.0.kernel_interface {
            _ if !state.started => None,
            Some(kernel_interface) => Some((self.0.update_mtu(kernel_interface, &mut state, &mut notices), speed)),
            // SAFETY: the device is attached, and the call writes one number.
            None => match unsafe { ffi::gw_dpdk_link(*number, &mut speed) } {
                up @ (0 | 1) => Some((up == 1, speed)),
                _ => None,
            },
        };
        if link != state.link {
            match (state.link, link) {
                // A link that is up when the port is opened needs no message.
                (None, Some((true, _))) => {}
                (_, Some((true, mbps))) if mbps < u32::MAX => {
                    notices.push(("link_up", format!("{device}: link is up, {mbps} Mbps")))
                }
                (_, Some((true, _))) => notices.push(("link_up", format!("{device}: link is up"))),
                (_, Some((false, _))) => notices.push(("link_down", format!("{device}: link is down"))),
                (_, None) => {}
            }
            state.link = link;
        }
        notices
    }

    fn is_up(&self) -> Option<bool> {
        self.0.state().link.map(|(is_up, _)| is_up)
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
            std::thread::sleep(DRAIN_TIME);
        }
        let mapped = self.pools.first().map(|pool| pool.memory());
        let mapped = mapped.map(|(address, bytes)| (address as usize, bytes)).into_iter().collect();
        drop(Attached { number: self.number, mapped });
    }
}

/// An attached DPDK device, which is closed on drop.
struct Attached {
    number: u16,
    mapped: Vec<(usize, usize)>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _lock = lock_changes();
        for &(address, bytes) in &self.mapped {
            // SAFETY: the memory was mapped by `gw_dpdk_dma_map`.
            unsafe { ffi::gw_dpdk_dma_unmap(self.number, address as *mut _, bytes) };
        }
        // SAFETY: the device is attached, and its queues no longer exist, because each of them has
        // a clone of the Arc.
        unsafe { ffi::gw_dpdk_close(self.number) };
    }
}

/// Attaches the configured device. Returns DPDK's number of the device, and the packet sockets that
/// its driver opened.
fn probe(config: &Config) -> Result<(u16, PacketSockets), Error> {
    let device = config.name();
    let arguments = CString::new(interface::arguments(config))
        .map_err(|_| Error::config("device", &config.device, "contains a zero byte"))?;
    let mut ports = [0; 2];
    let _lock = lock_changes();
    let earlier = interface::packet_sockets();
    // SAFETY: the EAL is initialized, and `ports` has room for two numbers.
    let found = unsafe { ffi::gw_dpdk_probe(arguments.as_ptr(), ports.as_mut_ptr(), 2) };
    match found {
        1 => Ok((ports[0], PacketSockets::opened_since(&earlier))),
        2.. => Err(Error::Device {
            device: device.to_owned(),
            what: "the device has several ports".into(),
            reason: "select one with the DPDK argument `representor=` or `mac=`".into(),
        }),
        error => Err(ffi::failed(device, "DPDK does not find the device or has no driver for it", error)),
    }
}

fn state(device: &str, number: u16) -> Result<PortState, Error> {
    let mut found = std::mem::MaybeUninit::zeroed();
    // SAFETY: the device is attached. The state is plain data for which zeros are valid.
    let (result, found) = unsafe {
        let result = ffi::gw_dpdk_state(number, found.as_mut_ptr());
        (result, found.assume_init())
    };
    if result == 0 { Ok(found) } else { Err(ffi::failed(device, "cannot read the state of the device", result)) }
}

/// Returns warnings for the operator if the device, the packet memory and the cores are on
/// different NUMA nodes.
fn numa_notices(device: &str, socket: i32, context: &LiveContext<'_>) -> Vec<Notice> {
    let Ok(socket) = usize::try_from(socket) else { return Vec::new() };
    let mut notices = Vec::new();
    if let Some(node) = crate::numa::node_of_memory(context.arena.base().as_ptr() as usize)
        && node != socket
    {
        let sentence = format!(
            "{device} is on NUMA node {socket}, but the arena is on node {node}: each packet crosses between them"
        );
        notices.push(("port_limited", sentence));
    }
    let remote: Vec<String> = crate::numa::nodes_of_cores()
        .into_iter()
        .filter(|&(_, node)| node != socket)
        .map(|(core, _)| core.to_string())
        .collect();
    if !remote.is_empty() {
        let sentence = format!(
            "{device} is on NUMA node {socket}, but workers may run on cores of other nodes: {}. Restrict them to \
             the cores of node {socket} (taskset, or CPUAffinity= of the systemd unit)",
            remote.join(", ")
        );
        notices.push(("port_limited", sentence));
    }
    notices
}

/// Returns the numbers of packets that DPDK has received and sent on an attached device.
pub(super) fn packet_counts(device: &str) -> Option<[u64; 2]> {
    let name = CString::new(device).ok()?;
    let mut stats = Stats::default();
    // SAFETY: the name is a string. The call writes one Stats if a device with this name exists.
    let result = unsafe { ffi::gw_dpdk_stats_of(name.as_ptr(), &mut stats) };
    (result == 0).then_some([stats.received_packets, stats.sent_packets])
}
