//! Drivers that stand on an interface of the kernel, `net_af_packet` and `net_af_xdp`: what they leave to who uses them.
//!
//! Neither follows the interface's MTU and link, and the promiscuous mode that they set outlives a process that is killed, as does the XDP program of `net_af_xdp`.
//! `net_af_packet` has rings of 512 frames whatever is asked for and, in DPDK 22.11, does not say what found no room in them; `net_af_xdp` does not say what found no room
//! in its receive ring.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::net::if_::if_nametoindex;

use super::{Config, ffi};
use crate::af_xdp::interface::{Interface, State};

/// Bytes of a block and of a frame in the rings of net_af_packet, where its arguments do not say.
const BLOCK_BYTES: usize = 4096;
const FRAME_BYTES: usize = 2048;

/// What net_af_xdp gives the kernel to fill, whatever the size of its rings.
const FILLED_AT_ONCE: u16 = 2048;

/// Places of the receive ring: with net_af_xdp at least one for each buffer that the kernel may fill, so that it is buffers that are wanting and never places, and all that is
/// missed is counted.
pub(super) fn receive_places(config: &Config) -> u16 {
    if config.is_af_xdp() { config.receive_ring.max(FILLED_AT_ONCE) } else { config.receive_ring }
}

/// The device and its arguments, completed: rings of net_af_packet as long as the configuration wants them.
pub(super) fn arguments(config: &Config) -> String {
    let device = &config.device;
    if !config.is_af_packet() || argument(device, "framecnt").is_some() {
        return device.clone();
    }
    let number = |name, otherwise| argument(device, name).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let frames_a_block = number("blocksz", BLOCK_BYTES) / number("framesz", FRAME_BYTES).max(1);
    // One number for both rings; the kernel takes whole blocks only.
    let frames = usize::from(config.receive_ring.max(config.transmit_ring));
    format!("{device},framecnt={}", frames.next_multiple_of(frames_a_block.max(1)))
}

/// The value of an argument of a device.
fn argument<'a>(device: &'a str, name: &str) -> Option<&'a str> {
    device.split(',').skip(1).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// The interface under a device.
pub(super) struct Under {
    name: String,
    interface: Interface,
    /// Keeps the XDP program attached.
    program: Option<OwnedFd>,
    /// Keeps the interface promiscuous.
    promiscuous: Option<OwnedFd>,
}

impl Under {
    /// `None` where the device is none of these drivers', or its interface is not there, which the driver itself will say.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let name = argument(&config.device, "iface").filter(|_| config.is_af_packet() || config.is_af_xdp())?;
        Some(Self { name: name.to_owned(), interface: Interface::find(name).ok()?, program: None, promiscuous: None })
    }

    /// Attaches the XDP program that the driver would, so that it is gone when this process is, however that ends. Nothing where the driver needs none.
    ///
    /// # Errors
    /// A sentence: it is the driver that will attach it, and it may stay.
    pub(super) fn attach_program(&mut self, config: &Config) -> Result<(), String> {
        if !config.is_af_xdp() || argument(&config.device, "xdp_prog").is_some() {
            return Ok(());
        }
        let Self { name, .. } = self;
        let index = if_nametoindex(name.as_str()).map_err(|error| error.to_string())?;
        // SAFETY: a number of an interface; makes a descriptor and keeps no memory.
        let result = unsafe { ffi::gw_dpdk_xdp_link(index) };
        if result < 0 {
            let reason = match -result {
                libc::EBUSY | libc::EEXIST => "one is attached already".to_owned(),
                _ => ffi::reason(result),
            };
            return Err(format!(
                "{}: the XDP program on {name} has no owner ({reason}) and stays when Godwit is killed: `ip link set {name} xdp off` detaches it",
                config.name()
            ));
        }
        // SAFETY: a descriptor that was made just now and that nobody else has.
        self.program = Some(unsafe { OwnedFd::from_raw_fd(result) });
        Ok(())
    }

    /// Has the interface take frames for others too, for as long as this lives, however the process ends. Whether it does.
    pub(super) fn make_promiscuous(&mut self) -> bool {
        let Ok(index) = if_nametoindex(self.name.as_str()) else { return false };
        // SAFETY: makes a descriptor and touches no memory. It is for no protocol, so it receives nothing.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return false;
        }
        // SAFETY: a descriptor that was made just now and that nobody else has.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let request = libc::packet_mreq {
            mr_ifindex: index as c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let bytes = size_of_val(&request) as libc::socklen_t;
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
        // SAFETY: the kernel reads `bytes` bytes, which are those of `request`.
        let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const request).cast(), bytes) };
        self.promiscuous = (done == 0).then_some(socket);
        self.promiscuous.is_some()
    }

    /// How the interface is; `None` where it is gone.
    pub(super) fn state(&self) -> Option<State> {
        self.interface.state().ok()
    }
}

/// The packet sockets of a device, which count what found no room.
#[derive(Default)]
pub(super) struct PacketSockets {
    sockets: Vec<OwnedFd>,
    missed: u64,
}

impl PacketSockets {
    /// Those that this process has and that are not among `others`.
    pub(super) fn beside(others: &[OwnedFd]) -> Self {
        let known: Vec<_> = others.iter().filter_map(inode).collect();
        let is_new = |socket: &OwnedFd| inode(socket).is_some_and(|inode| !known.contains(&inode));
        Self { sockets: packet_sockets().into_iter().filter(is_new).collect(), missed: 0 }
    }

    /// Packets so far for which there was no room.
    pub(super) fn missed(&mut self) -> u64 {
        for socket in &self.sockets {
            // SAFETY: all zeros are statistics.
            let mut statistics: libc::tpacket_stats = unsafe { std::mem::zeroed() };
            // The kernel counts from zero after each question.
            if option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut statistics) {
                self.missed += u64::from(statistics.tp_drops);
            }
        }
        self.missed
    }
}

/// All packet sockets of this process, by descriptors of our own.
pub(super) fn packet_sockets() -> Vec<OwnedFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<c_int>().ok());
    let copy = |number| {
        // SAFETY: makes a descriptor and touches no memory; a number that is none any more is refused.
        let copied = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
        // SAFETY: a descriptor that was made just now and that nobody else has.
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

/// Asks a socket for an option. Whether it answered.
fn option<T: Copy>(socket: &OwnedFd, level: c_int, name: c_int, value: &mut T) -> bool {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which are those of `value`; callers ask for integers and structs of integers.
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
    fn rings_of_net_af_packet_are_as_long_as_configured() {
        assert_eq!(completed("net_af_packet0,iface=a", [1024, 33]), "net_af_packet0,iface=a,framecnt=1024");
        assert_eq!(completed("net_af_packet0,iface=a", [33, 32]), "net_af_packet0,iface=a,framecnt=34");
        let large = "net_af_packet0,iface=a,blocksz=65536,framesz=4096";
        assert_eq!(completed(large, [1000, 32]), format!("{large},framecnt=1008"));
        // What is said is not said again, and others have no such rings.
        for device in ["net_af_packet0,iface=a,framecnt=64", "net_af_xdp0,iface=a", "net_null0"] {
            assert_eq!(completed(device, [1024, 1024]), device);
        }
    }

    #[test]
    fn a_receive_ring_of_net_af_xdp_takes_all_that_may_arrive() {
        let places = |device: &str| receive_places(&toml::from_str(&format!("device = \"{device}\"")).unwrap());
        assert_eq!((places("net_af_xdp0,iface=a"), places("net_af_packet0,iface=a")), (2048, 1024));
    }

    #[test]
    fn arguments_are_found_by_their_whole_name() {
        assert_eq!(argument("net_af_xdp0, iface=gw0,xdp_prog=/x", "iface"), Some("gw0"));
        assert_eq!(argument("net_af_xdp0,interface=gw0", "iface"), None);
        assert_eq!(argument("iface=gw0", "iface"), None);
    }
}
