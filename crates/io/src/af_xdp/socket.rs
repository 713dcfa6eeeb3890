//! One AF_XDP socket, which is bound to one queue of an interface. The worker's packet buffers are
//! its UMEM, the memory that the socket shares with the kernel.

use std::ffi::{c_int, c_void};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use godwit_packet::ArenaHandle;

use super::config::{Copy, XDP_HEADROOM_BYTES};
use super::ring::{Consumer, Producer, RingLayout};
use crate::Error;

/// Maximum time to wait until an interface queue is free. The kernel releases a queue some time
/// after its socket was closed.
const BUSY_LIMIT: Duration = Duration::from_secs(2);
/// Socket option SO_PREFER_BUSY_POLL of asm-generic/socket.h. Older headers do not contain it.
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;
/// Duration of busy polling in one system call, in microseconds. Any value except 0 turns busy
/// polling on.
const BUSY_POLL_US: c_int = 20;
/// Maximum number of packets that one busy poll processes.
const BUSY_POLL_PACKETS: c_int = 64;

/// Socket option XDP_MAX_TX_SKB_BUDGET of linux/if_xdp.h, which older headers do not contain. It
/// limits the number of packets that the kernel sends per system call in copy mode.
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
const KICK_PACKETS: u32 = 256;

/// Parameters for creating an AF_XDP socket.
pub(super) struct SocketConfig<'a> {
    pub(super) arena: &'a ArenaHandle,
    /// Byte range of the worker in the packet memory.
    pub(super) region: Range<usize>,
    pub(super) slot_bytes: usize,
    pub(super) headroom_bytes: usize,
    pub(super) interface: &'a str,
    pub(super) index: u32,
    pub(super) queue: usize,
    pub(super) copy: Copy,
    pub(super) busy_poll: bool,
    pub(super) rx_packets: u32,
    pub(super) tx_packets: u32,
}

/// AF_XDP socket that the receive queue and the transmit queue of a worker share.
pub(super) struct Socket {
    fd: OwnedFd,
    /// Keeps the packet memory mapped while the kernel accesses it.
    _arena: ArenaHandle,
    pub(super) is_zero_copy: bool,
}

pub(super) struct ReceiveRings {
    pub(super) fill: Producer<u64>,
    pub(super) received: Consumer<libc::xdp_desc>,
}

pub(super) struct TransmitRings {
    pub(super) send: Producer<libc::xdp_desc>,
    pub(super) completed: Consumer<u64>,
}

/// Creates an AF_XDP socket and binds it to a queue. Buffer addresses in the rings are offsets from
/// the start of the worker's memory.
pub(super) fn open(config: &SocketConfig<'_>) -> Result<(Socket, ReceiveRings, TransmitRings), Error> {
    let on_queue = |operation: &str| format!("{operation} on queue {} of {}", config.queue, config.interface);
    // SAFETY: socket() creates a file descriptor and accesses no memory.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EPERM) => {
                Error::Port("no permission to open an AF_XDP socket: CAP_NET_RAW is required".to_owned())
            }
            Some(libc::EAFNOSUPPORT) => {
                Error::Port("this kernel does not support AF_XDP (CONFIG_XDP_SOCKETS)".to_owned())
            }
            _ => Error::system(on_queue("open an AF_XDP socket"), error),
        });
    }
    // SAFETY: the file descriptor was just created and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let chunks = config.region.len() / config.slot_bytes;
    let umem = libc::xdp_umem_reg {
        addr: config.arena.base().as_ptr().addr() as u64 + config.region.start as u64,
        len: (chunks * config.slot_bytes) as u64,
        chunk_size: config.slot_bytes as u32,
        headroom: config.headroom_bytes.saturating_sub(XDP_HEADROOM_BYTES) as u32,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(&fd, libc::XDP_UMEM_REG, &umem).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM) => Error::Port(format!(
            "the kernel refused to lock {} MiB of the arena in memory: CAP_IPC_LOCK or a larger limit (`ulimit -l`) is required",
            umem.len >> 20
        )),
        Some(libc::EFAULT) => Error::Port(
            "the kernel cannot access the arena, because the driver of a device allocated it: place functions on \
             devices that do not allocate the arena, or use mode = \"launch\""
                .to_owned(),
        ),
        _ => Error::system(on_queue("register the arena"), error),
    })?;
    let rings = [
        (libc::XDP_UMEM_FILL_RING, config.rx_packets),
        (libc::XDP_UMEM_COMPLETION_RING, config.tx_packets),
        (libc::XDP_RX_RING, config.rx_packets),
        (libc::XDP_TX_RING, config.tx_packets),
    ];
    for (option, entries) in rings {
        set(&fd, option, &entries).map_err(|error| Error::system(on_queue("create rings"), error))?;
    }
    // The kernel has this option since Linux 6.17. Without the option, the kernel sends at most 32
    // packets per system call.
    let _ = set(&fd, XDP_MAX_TX_SKB_BUDGET, &config.tx_packets.min(KICK_PACKETS));
    // SAFETY: offsets of zero are a valid value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get(&fd, libc::XDP_MMAP_OFFSETS, &mut offsets)
        .map_err(|error| Error::system(on_queue("read the layout of the rings"), error))?;
    let layout = |offsets, page_offset, entries| RingLayout { offsets, page_offset, entries };
    let (rx, tx) = (config.rx_packets, config.tx_packets);
    let map = || -> io::Result<(ReceiveRings, TransmitRings)> {
        let receive_rings = ReceiveRings {
            fill: Producer::map(fd.as_fd(), &layout(offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING as i64, rx))?,
            received: Consumer::map(fd.as_fd(), &layout(offsets.rx, libc::XDP_PGOFF_RX_RING, rx))?,
        };
        let completion = layout(offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, tx);
        let transmit_rings = TransmitRings {
            send: Producer::map(fd.as_fd(), &layout(offsets.tx, libc::XDP_PGOFF_TX_RING, tx))?,
            completed: Consumer::map(fd.as_fd(), &completion)?,
        };
        Ok((receive_rings, transmit_rings))
    };
    let (receive_rings, transmit_rings) = map().map_err(|error| Error::system(on_queue("map rings"), error))?;
    if config.busy_poll {
        let options =
            [(SO_PREFER_BUSY_POLL, 1), (libc::SO_BUSY_POLL, BUSY_POLL_US), (SO_BUSY_POLL_BUDGET, BUSY_POLL_PACKETS)];
        for (option, value) in options {
            set_at(&fd, libc::SOL_SOCKET, option, &value)
                .map_err(|error| Error::system(on_queue("turn on busy polling (Linux 5.11 or later)"), error))?;
        }
    }
    bind(&fd, config)?;
    // SAFETY: options of zero are a valid value.
    let mut options: libc::xdp_options = unsafe { std::mem::zeroed() };
    get(&fd, libc::XDP_OPTIONS, &mut options).map_err(|error| Error::system(on_queue("read the mode"), error))?;
    let is_zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
    Ok((Socket { fd, _arena: config.arena.clone(), is_zero_copy }, receive_rings, transmit_rings))
}

fn bind(fd: &OwnedFd, config: &SocketConfig<'_>) -> Result<(), Error> {
    let copy = match config.copy {
        Copy::Auto => 0,
        Copy::Always => libc::XDP_COPY,
        Copy::Never => libc::XDP_ZEROCOPY,
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: copy | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: config.index,
        sxdp_queue_id: config.queue as u32,
        sxdp_shared_umem_fd: 0,
    };
    let start = Instant::now();
    loop {
        // SAFETY: the kernel reads the address, whose size is passed with it.
        let bound = unsafe {
            libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_xdp>() as libc::socklen_t)
        };
        if bound == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        let queue = format!("queue {} of {}", config.queue, config.interface);
        match error.raw_os_error() {
            Some(libc::EBUSY) if start.elapsed() < BUSY_LIMIT => std::thread::sleep(Duration::from_millis(10)),
            Some(libc::EBUSY) => return Err(Error::Port(format!("{queue} is in use by another AF_XDP socket"))),
            Some(libc::EOPNOTSUPP) if config.copy == Copy::Never => {
                let reason =
                    format!("the driver of {} does not support zero-copy: use copy = \"auto\"", config.interface);
                return Err(Error::config("copy", "never", reason));
            }
            _ => return Err(Error::system(format!("bind to {queue}"), error)),
        }
    }
}

impl Socket {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Makes the kernel send the packets in the TX ring. In copy mode, the kernel sends a limited
    /// number of packets per call.
    pub(super) fn kick_send(&self) -> io::Result<()> {
        // SAFETY: the call passes no memory.
        let sent =
            unsafe { libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes the driver process received frames and take buffers from the fill ring.
    pub(super) fn kick_receive(&self) {
        // SAFETY: the call passes no memory. The result is not needed, because frames appear in the
        // RX ring.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut::<c_void>(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Returns the kernel's counts of lost packets and invalid descriptors for this socket.
    pub(super) fn statistics(&self) -> libc::xdp_statistics {
        // SAFETY: statistics of zero are a valid value.
        let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        // The call fails if the interface no longer exists. The counters then stay zero.
        let _ = get(&self.fd, libc::XDP_STATISTICS, &mut statistics);
        statistics
    }
}

fn set<T>(fd: &OwnedFd, option: c_int, value: &T) -> io::Result<()> {
    set_at(fd, libc::SOL_XDP, option, value)
}

fn set_at<T>(fd: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads the value, whose size is passed with it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads a socket option into `value`. The kernel may write only a part of `value`, so `T` must be
/// a struct of integers.
fn get<T>(fd: &OwnedFd, option: c_int, value: &mut T) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to the value.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, std::ptr::from_mut(value).cast(), &raw mut bytes)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
