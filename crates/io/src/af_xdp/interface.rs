//! What the kernel says of an interface.

use std::ffi::{c_char, c_int, c_ulong};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;

use crate::Error;

/// Of linux/ethtool.h.
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// An interface that is there.
pub(crate) struct Interface {
    name: String,
    index: u32,
    /// Any socket will do for asking.
    socket: OwnedFd,
}

/// How an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) index: u32,
    /// Up, and with a carrier.
    pub(crate) is_running: bool,
    pub(crate) mtu: usize,
    pub(super) mac: [u8; 6],
}

impl Interface {
    /// # Errors
    /// There is no such interface, or it is no Ethernet.
    pub(crate) fn find(name: &str) -> Result<Self, Error> {
        let index = if_nametoindex(name).map_err(|_| Error::config("interface", name, "there is no such interface"))?;
        // SAFETY: makes a descriptor and touches no memory.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(Error::system("open a socket", io::Error::last_os_error()));
        }
        // SAFETY: a descriptor that was made just now and that nobody else has.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let found = Self { name: name.to_owned(), index, socket };
        let mut request = found.request();
        let kind = found.ask(libc::SIOCGIFHWADDR, &mut request).map(|()| {
            // SAFETY: the kernel filled in an address, and all bit patterns are one.
            unsafe { request.ifr_ifru.ifru_hwaddr.sa_family }
        });
        match kind {
            Ok(libc::ARPHRD_ETHER) => Ok(found),
            Ok(_) => Err(Error::config("interface", name, "is no Ethernet interface")),
            Err(source) => Err(Error::system(format!("ask for the address of {name}"), source)),
        }
    }

    /// How it is now.
    pub(crate) fn state(&self) -> io::Result<State> {
        let mut request = self.request();
        self.ask(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: the kernel filled in the flags.
        let flags = c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        let mut request = self.request();
        self.ask(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the kernel filled in the MTU.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu } as usize;
        let mut request = self.request();
        self.ask(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: the kernel filled in an Ethernet address, as `find` saw.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
        let mac = std::array::from_fn(|byte| address[byte] as u8);
        let running = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(State { index: self.index, is_running: flags & running == running, mtu, mac })
    }

    /// Receive and transmit queues. An interface that does not say has one.
    pub(super) fn queues(&self) -> (usize, usize) {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut channels).cast();
        match self.ask(libc::SIOCETHTOOL, &mut request) {
            Ok(()) => {
                let queues = |queues: u32| (queues + channels.combined).max(1) as usize;
                (queues(channels.receive), queues(channels.transmit))
            }
            Err(_) => (1, 1),
        }
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: all zeros are an ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays zero: names have at most 15 characters.
        for (to, &from) in request.ifr_name[..15].iter_mut().zip(self.name.as_bytes()) {
            *to = from as c_char;
        }
        request
    }

    fn ask(&self, command: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the kernel reads and writes this ifreq, and with SIOCETHTOOL what it points to, which `queues` keeps alive.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), command as _, request) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// All addresses of this machine, sorted.
pub(super) fn addresses() -> Vec<IpAddr> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let address = |of: nix::ifaddrs::InterfaceAddress| {
        let address = of.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    };
    let mut addresses: Vec<IpAddr> = all.filter_map(address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
