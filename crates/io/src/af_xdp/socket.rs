//! One AF_XDP socket: a worker's region as its UMEM, bound to a queue of an interface.

use std::ffi::{c_int, c_void};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use godwit_packet::ArenaHandle;

use super::config::{Copy, XDP_HEADROOM_BYTES};
use super::ring::{Consumer, Place, Producer};
use crate::Error;

/// How long a queue is waited for that a socket just closed still has: the kernel gives it back later.
const BUSY_LIMIT: Duration = Duration::from_secs(2);
/// Of asm-generic/socket.h, newer than some headers.
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;
/// Microseconds of busy polling a system call; any number but 0 turns it on.
const BUSY_POLL_US: c_int = 20;
/// Packets of a busy poll.
const BUSY_POLL_PACKETS: c_int = 64;

/// Of linux/if_xdp.h, newer than some headers: packets that the kernel sends in one call, in copy mode.
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
const KICK_PACKETS: u32 = 256;

/// What a socket is to be.
pub(super) struct Plan<'a> {
    pub(super) arena: &'a ArenaHandle,
    /// The worker's.
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

/// The descriptor, which both halves have.
pub(super) struct Socket {
    fd: OwnedFd,
    /// The kernel reaches the arena while the socket lives.
    _arena: ArenaHandle,
    pub(super) is_zero_copy: bool,
}

/// The rings of a receive queue.
pub(super) struct Inbound {
    pub(super) fill: Producer<u64>,
    pub(super) received: Consumer<libc::xdp_desc>,
}

/// The rings of a transmit queue.
pub(super) struct Outbound {
    pub(super) send: Producer<libc::xdp_desc>,
    pub(super) completed: Consumer<u64>,
}

/// Makes a socket and binds it. Addresses in its rings count from the start of the region.
pub(super) fn open(plan: &Plan<'_>) -> Result<(Socket, Inbound, Outbound), Error> {
    let at = |what: &str| format!("{what} on queue {} of {}", plan.queue, plan.interface);
    // SAFETY: makes a descriptor and touches no memory.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EPERM) => Error::Port("no right to open an AF_XDP socket: it takes CAP_NET_RAW".to_owned()),
            Some(libc::EAFNOSUPPORT) => Error::Port("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)".to_owned()),
            _ => Error::system(at("open an AF_XDP socket"), error),
        });
    }
    // SAFETY: a descriptor that was made just now and that nobody else has.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let chunks = plan.region.len() / plan.slot_bytes;
    let umem = libc::xdp_umem_reg {
        addr: plan.arena.base().as_ptr().addr() as u64 + plan.region.start as u64,
        len: (chunks * plan.slot_bytes) as u64,
        chunk_size: plan.slot_bytes as u32,
        headroom: plan.headroom_bytes.saturating_sub(XDP_HEADROOM_BYTES) as u32,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(&fd, libc::XDP_UMEM_REG, &umem).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM) => Error::Port(format!(
            "the kernel does not lock {} MiB of the arena in memory: it takes CAP_IPC_LOCK, or a larger limit (`ulimit -l`)",
            umem.len >> 20
        )),
        Some(libc::EFAULT) => Error::Port(
            "the kernel cannot reach the arena, which is memory of a device's driver: place functions on devices that do not \
             bring their own memory, or use mode = \"launch\""
                .to_owned(),
        ),
        _ => Error::system(at("register the arena"), error),
    })?;
    let rings = [
        (libc::XDP_UMEM_FILL_RING, plan.rx_packets),
        (libc::XDP_UMEM_COMPLETION_RING, plan.tx_packets),
        (libc::XDP_RX_RING, plan.rx_packets),
        (libc::XDP_TX_RING, plan.tx_packets),
    ];
    for (option, entries) in rings {
        set(&fd, option, &entries).map_err(|error| Error::system(at("make rings"), error))?;
    }
    // Without it (before Linux 6.17) the kernel sends 32 in a call.
    let _ = set(&fd, XDP_MAX_TX_SKB_BUDGET, &plan.tx_packets.min(KICK_PACKETS));
    // SAFETY: all zeros are offsets.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get(&fd, libc::XDP_MMAP_OFFSETS, &mut offsets).map_err(|error| Error::system(at("ask for rings"), error))?;
    let place = |offsets, page_offset, entries| Place { offsets, page_offset, entries };
    let (rx, tx) = (plan.rx_packets, plan.tx_packets);
    let map = || -> io::Result<(Inbound, Outbound)> {
        let inbound = Inbound {
            fill: Producer::map(fd.as_fd(), &place(offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING as i64, rx))?,
            received: Consumer::map(fd.as_fd(), &place(offsets.rx, libc::XDP_PGOFF_RX_RING, rx))?,
        };
        let completion = place(offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, tx);
        let outbound = Outbound {
            send: Producer::map(fd.as_fd(), &place(offsets.tx, libc::XDP_PGOFF_TX_RING, tx))?,
            completed: Consumer::map(fd.as_fd(), &completion)?,
        };
        Ok((inbound, outbound))
    };
    let (inbound, outbound) = map().map_err(|error| Error::system(at("map rings"), error))?;
    if plan.busy_poll {
        let options =
            [(SO_PREFER_BUSY_POLL, 1), (libc::SO_BUSY_POLL, BUSY_POLL_US), (SO_BUSY_POLL_BUDGET, BUSY_POLL_PACKETS)];
        for (option, value) in options {
            set_at(&fd, libc::SOL_SOCKET, option, &value)
                .map_err(|error| Error::system(at("turn on busy polling (Linux 5.11 or later)"), error))?;
        }
    }
    bind(&fd, plan)?;
    // SAFETY: all zeros are options.
    let mut options: libc::xdp_options = unsafe { std::mem::zeroed() };
    get(&fd, libc::XDP_OPTIONS, &mut options).map_err(|error| Error::system(at("ask for the mode"), error))?;
    let is_zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
    Ok((Socket { fd, _arena: plan.arena.clone(), is_zero_copy }, inbound, outbound))
}

fn bind(fd: &OwnedFd, plan: &Plan<'_>) -> Result<(), Error> {
    let copy = match plan.copy {
        Copy::Auto => 0,
        Copy::Always => libc::XDP_COPY,
        Copy::Never => libc::XDP_ZEROCOPY,
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: copy | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: plan.index,
        sxdp_queue_id: plan.queue as u32,
        sxdp_shared_umem_fd: 0,
    };
    let start = Instant::now();
    loop {
        // SAFETY: the kernel reads the address, of its size.
        let bound = unsafe {
            libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_xdp>() as libc::socklen_t)
        };
        if bound == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        let at = format!("queue {} of {}", plan.queue, plan.interface);
        match error.raw_os_error() {
            Some(libc::EBUSY) if start.elapsed() < BUSY_LIMIT => std::thread::sleep(Duration::from_millis(10)),
            Some(libc::EBUSY) => return Err(Error::Port(format!("{at} is in use by another AF_XDP socket"))),
            Some(libc::EOPNOTSUPP) if plan.copy == Copy::Never => {
                let reason = format!("the driver of {} has no zero copy: use \"auto\"", plan.interface);
                return Err(Error::config("copy", "never", reason));
            }
            _ => return Err(Error::system(format!("bind to {at}"), error)),
        }
    }
}

impl Socket {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Has the kernel send what the TX ring holds: in copy mode it does so in this call, some packets at a time.
    pub(super) fn kick_send(&self) -> io::Result<()> {
        // SAFETY: no memory is named.
        let sent =
            unsafe { libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Has the driver look for frames, and at the fill ring.
    pub(super) fn kick_receive(&self) {
        // SAFETY: no memory is named. What it says is of no use: frames show in the ring.
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

    /// What the kernel lost, and what it found wrong.
    pub(super) fn statistics(&self) -> libc::xdp_statistics {
        // SAFETY: all zeros are statistics.
        let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        // An interface that is gone has nothing more to say.
        let _ = get(&self.fd, libc::XDP_STATISTICS, &mut statistics);
        statistics
    }
}

fn set<T>(fd: &OwnedFd, option: c_int, value: &T) -> io::Result<()> {
    set_at(fd, libc::SOL_XDP, option, value)
}

fn set_at<T>(fd: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads the value, of its size.
    let said = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if said == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `T` is a struct of integers, which the kernel may fill in part.
fn get<T>(fd: &OwnedFd, option: c_int, value: &mut T) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most so many bytes into the value.
    let said = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, std::ptr::from_mut(value).cast(), &raw mut bytes)
    };
    if said == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
