//! Reads the state of a network interface from the kernel.

use std::ffi::{c_char, c_int, c_ulong};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;

use crate::Error;

/// Command ETHTOOL_GCHANNELS of linux/ethtool.h, which reads the number of queues of an interface.
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels` of linux/ethtool.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// An existing Ethernet interface.
pub(crate) struct Interface {
    name: String,
    index: u32,
    /// Socket for ioctl requests. Any kind of socket can be used.
    socket: OwnedFd,
}

/// State of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) index: u32,
    /// Whether the interface is up and has a carrier.
    pub(crate) is_running: bool,
    pub(crate) mtu: usize,
    pub(super) mac: [u8; 6],
}

impl Interface {
    /// Finds an interface by its name.
    ///
    /// # Errors
    /// Returns an error if the interface does not exist or is not an Ethernet interface.
    pub(crate) fn find(name: &str) -> Result<Self, Error> {
        let index =
            if_nametoindex(name).map_err(|_| Error::config("interface", name, "the interface does not exist"))?;
        // SAFETY: socket() creates a file descriptor and accesses no memory.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(Error::system("open a socket", io::Error::last_os_error()));
        }
        // SAFETY: the file descriptor was just created and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let interface = Self { name: name.to_owned(), index, socket };
        let mut request = interface.request();
        let kind = interface.ioctl(libc::SIOCGIFHWADDR, &mut request).map(|()| {
            // SAFETY: the kernel wrote an address to this field, and every bit pattern is a valid
            // address.
            unsafe { request.ifr_ifru.ifru_hwaddr.sa_family }
        });
        match kind {
            Ok(libc::ARPHRD_ETHER) => Ok(interface),
            Ok(_) => Err(Error::config("interface", name, "is not an Ethernet interface")),
            Err(source) => Err(Error::system(format!("read the address of {name}"), source)),
        }
    }

    /// Returns the current state of the interface.
    pub(crate) fn state(&self) -> io::Result<State> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: the kernel wrote the flags to this field.
        let flags = c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the kernel wrote the MTU to this field.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu } as usize;
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: the kernel wrote an Ethernet address to this field. `find` has checked its type.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
        let mac = std::array::from_fn(|byte| address[byte] as u8);
        let running = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(State { index: self.index, is_running: flags & running == running, mtu, mac })
    }

    /// Returns the number of packets that the interface dropped instead of sending, or 0 if the
    /// interface does not exist.
    pub(super) fn send_drops(&self) -> u64 {
        // The file /proc/thread-self/net/dev lists the interfaces of the thread's network
        // namespace. The directory /sys may show another namespace.
        let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        send_drops_of(&self.name, &text).unwrap_or_default()
    }

    /// Returns the numbers of receive queues and transmit queues. Both are 1 if the driver does not
    /// report them.
    pub(super) fn queues(&self) -> (usize, usize) {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut channels).cast();
        match self.ioctl(libc::SIOCETHTOOL, &mut request) {
            Ok(()) => {
                let queues = |queues: u32| (queues + channels.combined).max(1) as usize;
                (queues(channels.receive), queues(channels.transmit))
            }
            Err(_) => (1, 1),
        }
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: an ifreq of zeros is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The name has at most 15 characters. The last byte of the array stays zero and ends the
        // string.
        for (to, &from) in request.ifr_name[..15].iter_mut().zip(self.name.as_bytes()) {
            *to = from as c_char;
        }
        request
    }

    fn ioctl(&self, command: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the kernel reads and writes this ifreq. With SIOCETHTOOL it also accesses the
        // struct that the ifreq points to, which `queues` keeps alive.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), command as _, request) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns the number of packets that an interface dropped instead of sending. `text` has the
/// format of /proc/net/dev (proc_pid_net(5)).
fn send_drops_of(name: &str, text: &str) -> Option<u64> {
    /// Index of the counter of dropped transmit packets. It follows eight receive counters and
    /// three transmit counters (`bytes`, `packets` and `errs`).
    const DROP: usize = 8 + 3;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().nth(DROP)?.parse().ok()
}

/// Returns all IP addresses of this machine, sorted.
pub(super) fn addresses() -> Vec<IpAddr> {
    let Ok(entries) = getifaddrs() else { return Vec::new() };
    let address = |entry: nix::ifaddrs::InterfaceAddress| {
        let address = entry.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    };
    let mut addresses: Vec<IpAddr> = entries.filter_map(address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_line_of_the_interface() {
        let text = "Inter-|   Receive                            |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls\n\
            eth10:      1       2    3    4    5     6          7         8        9      10   11   99   13    14\n  \
            eth1:      1       2    3    4    5     6          7         8        9      10   11   12   13    14\n";
        assert_eq!(send_drops_of("eth1", text), Some(12));
        assert_eq!(send_drops_of("eth10", text), Some(99));
        assert_eq!((send_drops_of("eth", text), send_drops_of("eth1", "")), (None, None));
    }
}
