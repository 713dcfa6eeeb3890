//! Implements features that the DPDK drivers `net_af_packet` and `net_af_xdp` lack. These drivers
//! use a kernel interface.
//!
//! Neither driver notices changes of the MTU or the link state of the interface. Both drivers set
//! the promiscuous mode, which stays set after the process is killed. The XDP program of
//! `net_af_xdp` also stays attached.
//!
//! The rings of `net_af_packet` always have 512 frames, independent of the configuration. In DPDK
//! 22.11, `net_af_packet` does not count packets that are lost because its rings are full.
//! `net_af_xdp` does not count packets that are lost because its receive ring is full.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::net::if_::if_nametoindex;

use super::{Config, ffi};
use crate::Error;
use crate::af_xdp::interface::{Interface, State};

/// Default block size in the rings of the driver net_af_packet, in bytes. A block holds two frames
/// of FRAME_BYTES.
const BLOCK_BYTES: usize = 4096;
const FRAME_BYTES: usize = 2048;

/// Number of buffers that the driver net_af_xdp gives to the kernel, for any ring size.
const FILLED_AT_ONCE: u16 = 2048;

/// Returns the number of entries of the receive ring. With net_af_xdp, the ring has an entry for
/// each buffer that the kernel may fill. The kernel then drops packets only if no buffer is free,
/// and it counts these packets.
pub(super) fn receive_entries(config: &Config) -> u16 {
    if config.is_af_xdp() { config.receive_ring.max(FILLED_AT_ONCE) } else { config.receive_ring }
}

/// Returns the DPDK argument string that attaches the device. For the driver net_af_packet, it
/// contains the configured ring size.
pub(super) fn arguments(config: &Config) -> String {
    let device = &config.device;
    if !config.is_af_packet() || argument(device, "framecnt").is_some() {
        return device.clone();
    }
    let number = |name, otherwise| argument(device, name).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let block_frames = number("blocksz", BLOCK_BYTES) / number("framesz", FRAME_BYTES).max(1);
    // The driver uses one size for both rings. The kernel accepts only rings of whole blocks.
    let frames = usize::from(config.receive_ring.max(config.transmit_ring));
    format!("{device},framecnt={}", frames.next_multiple_of(block_frames.max(1)))
}

/// Returns the value of an argument of a device.
fn argument<'a>(device: &'a str, name: &str) -> Option<&'a str> {
    device.split(',').skip(1).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// Kernel interface of a DPDK device with the driver net_af_packet or net_af_xdp.
pub(super) struct KernelInterface {
    name: String,
    interface: Interface,
    /// File descriptor that keeps the XDP program attached.
    program: Option<OwnedFd>,
    /// File descriptor that keeps the interface in promiscuous mode.
    promiscuous: Option<OwnedFd>,
}

impl KernelInterface {
    /// Finds the kernel interface of a DPDK device. Returns `None` if the device has another driver
    /// or the interface does not exist. The driver itself reports a missing interface.
    pub(super) fn of_device(config: &Config) -> Option<Self> {
        let name = argument(&config.device, "iface").filter(|_| config.is_af_packet() || config.is_af_xdp())?;
        Some(Self { name: name.to_owned(), interface: Interface::find(name).ok()?, program: None, promiscuous: None })
    }

    /// Attaches the XDP program that the driver would otherwise attach. The kernel detaches the
    /// program when the process ends. Does nothing if the driver needs no program.
    ///
    /// # Errors
    /// Returns an error if the program cannot be attached. The driver then attaches the program,
    /// which may stay attached after the process ends.
    pub(super) fn attach_program(&mut self, config: &Config) -> Result<(), Error> {
        if !config.is_af_xdp() || argument(&config.device, "xdp_prog").is_some() {
            return Ok(());
        }
        let Self { name, .. } = self;
        let index = if_nametoindex(name.as_str()).map_err(|error| Error::Port(error.to_string()))?;
        // SAFETY: the argument is the number of an interface. The call creates a file descriptor
        // and keeps no memory.
        let result = unsafe { ffi::gw_dpdk_xdp_link(index) };
        if result < 0 {
            let reason = match -result {
                libc::EBUSY | libc::EEXIST => "another program is attached".to_owned(),
                _ => ffi::reason(result),
            };
            return Err(Error::Port(format!(
                "{}: the XDP program on {name} has no owner ({reason}) and remains if Godwit is killed: `ip link set {name} xdp off` detaches it",
                config.name()
            )));
        }
        // SAFETY: the file descriptor was just created and has no other owner.
        self.program = Some(unsafe { OwnedFd::from_raw_fd(result) });
        Ok(())
    }

    /// Sets the interface to promiscuous mode until this value is dropped. The kernel ends the mode
    /// when the process ends. Returns whether the mode could be set.
    pub(super) fn make_promiscuous(&mut self) -> bool {
        let Ok(index) = if_nametoindex(self.name.as_str()) else { return false };
        // SAFETY: socket() creates a file descriptor and accesses no memory. The socket has no
        // protocol, so it receives nothing.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return false;
        }
        // SAFETY: the file descriptor was just created and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let request = libc::packet_mreq {
            mr_ifindex: index as c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let bytes = size_of_val(&request) as libc::socklen_t;
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
        // SAFETY: the kernel reads `bytes` bytes, which is the size of `request`.
        let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const request).cast(), bytes) };
        self.promiscuous = (done == 0).then_some(socket);
        self.promiscuous.is_some()
    }

    pub(super) fn state(&self) -> Option<State> {
        self.interface.state().ok()
    }
}

/// Packet sockets that the driver of a device opened. The kernel counts the packets that each
/// socket lost because its ring was full.
#[derive(Default)]
pub(super) struct PacketSockets {
    sockets: Vec<OwnedFd>,
    missed: u64,
}

impl PacketSockets {
    /// Returns the packet sockets that this process has opened since `earlier`, an older list of
    /// its sockets.
    pub(super) fn opened_since(earlier: &[OwnedFd]) -> Self {
        let known: Vec<_> = earlier.iter().filter_map(inode).collect();
        let is_new = |socket: &OwnedFd| inode(socket).is_some_and(|inode| !known.contains(&inode));
        Self { sockets: packet_sockets().into_iter().filter(is_new).collect(), missed: 0 }
    }

    /// Returns the number of packets that were lost because a ring was full.
    pub(super) fn missed(&mut self) -> u64 {
        for socket in &self.sockets {
            // SAFETY: statistics of zero are a valid value.
            let mut statistics: libc::tpacket_stats = unsafe { std::mem::zeroed() };
            // The kernel resets this counter each time it is read.
            if option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut statistics) {
                self.missed += u64::from(statistics.tp_drops);
            }
        }
        self.missed
    }
}

/// Returns duplicates of all packet sockets of this process.
pub(super) fn packet_sockets() -> Vec<OwnedFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<c_int>().ok());
    let copy = |number| {
        // SAFETY: fcntl() creates a file descriptor and accesses no memory. It refuses a number
        // that is not open any more.
        let copied = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
        // SAFETY: the file descriptor was just created and has no other owner.
        (copied >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copied) })
    };
    let is_packet = |socket: &OwnedFd| {
        let mut domain: c_int = 0;
        option(socket, libc::SOL_SOCKET, libc::SO_DOMAIN, &mut domain) && domain == libc::AF_PACKET
    };
    let numbers: Vec<c_int> = numbers.collect();
    numbers.into_iter().filter_map(copy).filter(is_packet).collect()
}

fn inode(socket: &OwnedFd) -> Option<u64> {
    nix::sys::stat::fstat(socket).ok().map(|found| found.st_ino)
}

/// Reads a socket option. Returns whether this succeeded.
fn option<T: Copy>(socket: &OwnedFd, level: c_int, name: c_int, value: &mut T) -> bool {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which is the size of `value`. Callers use
    // integers and structs of integers.
    unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, std::ptr::from_mut(value).cast(), &mut bytes) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(device: &str, rings: [u16; 2]) -> String {
        let config: Config = toml::from_str(&format!("device = \"{device}\"")).unwrap();
        arguments(&Config { receive_ring: rings[0], transmit_ring: rings[1], ..config })
    }

    #[test]
    fn rings_of_net_af_packet_have_the_configured_size() {
        assert_eq!(completed("net_af_packet0,iface=a", [1024, 33]), "net_af_packet0,iface=a,framecnt=1024");
        assert_eq!(completed("net_af_packet0,iface=a", [33, 32]), "net_af_packet0,iface=a,framecnt=34");
        let large = "net_af_packet0,iface=a,blocksz=65536,framesz=4096";
        assert_eq!(completed(large, [1000, 32]), format!("{large},framecnt=1008"));
        for device in ["net_af_packet0,iface=a,framecnt=64", "net_af_xdp0,iface=a", "net_null0"] {
            assert_eq!(completed(device, [1024, 1024]), device);
        }
    }

    #[test]
    fn receive_ring_of_net_af_xdp_covers_all_filled_buffers() {
        let entries = |device: &str| receive_entries(&toml::from_str(&format!("device = \"{device}\"")).unwrap());
        assert_eq!((entries("net_af_xdp0,iface=a"), entries("net_af_packet0,iface=a")), (2048, 1024));
    }

    #[test]
    fn arguments_are_found_by_their_full_name() {
        assert_eq!(argument("net_af_xdp0, iface=gw0,xdp_prog=/x", "iface"), Some("gw0"));
        assert_eq!(argument("net_af_xdp0,interface=gw0", "iface"), None);
        assert_eq!(argument("iface=gw0", "iface"), None);
    }
}
