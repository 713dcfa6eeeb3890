//! The function `ndn` forwards Interests of Named Data Networking (NDN) by longest name prefix.

mod commands;
mod config;
#[doc(hidden)]
pub mod fuzz;
mod hash;
mod names;
mod reference;
mod shape;
mod table;
mod uri;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Image, ImageRef};
use godwit_wire::MacAddress;
use serde_json::Value;
use toml::Spanned;
use toml::de::DeTable;

use crate::sizes::Sizes;
use crate::{BuildContext, Contract, Error, Function, Kind, Operate, Properties, Running};

pub use config::Config;

/// Properties, verdicts and drop reasons of the function, as declared in `kernels/ndn/ndn.h`.
pub use godwit_kernels::declared::ndn::*;
pub use names::{NAME_BYTES_MAX, Names, parse as parse_names};
pub use shape::{Probes, probes};
pub use uri::{parse as parse_uri, show as show_uri};

use commands::Control;

/// Registration of the function kind `ndn`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Default UDP port of NDN.
pub const UDP_PORT: u16 = 6363;

/// Next hop of Interest packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Interest packets are forwarded to another station.
    Forward {
        /// Egress port.
        port: u16,
        /// MAC address of the station.
        destination: MacAddress,
        /// MAC address of the egress port.
        source: MacAddress,
        /// Protocol that carries the NDN packet.
        carrier: Carrier,
    },
    /// Delivers Interests to the operating system.
    Local,
    /// Interest packets are dropped.
    Blackhole,
}

/// Protocol that carries an NDN packet to its next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// NDN packets are carried directly over Ethernet, with their own EtherType.
    Ethernet,
    /// UDP over IPv4.
    Udp4 {
        /// Source address and port.
        source: (Ipv4Addr, u16),
        /// Destination address and port.
        destination: (Ipv4Addr, u16),
    },
    /// UDP over IPv6.
    Udp6 {
        /// Source address and port.
        source: (Ipv6Addr, u16),
        /// Destination address and port.
        destination: (Ipv6Addr, u16),
    },
}

impl NextHop {
    /// Returns the number of header bytes between the Ethernet header and the NDN packet.
    fn carrier_bytes(&self) -> u16 {
        match self {
            Self::Forward { carrier: Carrier::Udp4 { .. }, .. } => 28,
            Self::Forward { carrier: Carrier::Udp6 { .. }, .. } => 48,
            _ => 0,
        }
    }
}

/// Contents and capacity of a table.
#[derive(Debug)]
pub struct Parts {
    /// Names with the indices of their next hops. If a name occurs several times, the last entry
    /// applies.
    pub names: Names,
    /// Next hops with their names, by index.
    pub next_hops: Vec<(String, NextHop)>,
    /// Names of all ports, for next hops that are added later.
    pub ports: Vec<String>,
    /// UDP port of NDN.
    pub udp_port: u16,
    /// Number of names that can be added while packets flow.
    pub spare_names: usize,
    /// Number of next hops that can be added while packets flow.
    pub spare_next_hops: usize,
    /// Secret key of the hash. With `None`, the key is random.
    pub key: Option<[u64; 2]>,
    /// Number of name components in each guide. A guide is a name prefix, and its record lists the
    /// lengths of all names that begin with it (see `kernels/ndn/find.h`). With `None`, the
    /// function chooses the best number.
    pub guide: Option<u32>,
}

impl Parts {
    /// Creates a table description with default capacities.
    pub fn new(names: Names, next_hops: Vec<(String, NextHop)>) -> Self {
        let spare_names = names.len() / 8 + 4096;
        let (ports, udp_port, spare_next_hops) = (Vec::new(), UDP_PORT, 256);
        Self { names, next_hops, ports, udp_port, spare_names, spare_next_hops, key: None, guide: None }
    }
}

/// Configured function of kind `ndn`.
pub struct Ndn {
    image: Arc<Image>,
    udp_port: u16,
    headroom_bytes: u16,
    control: Mutex<Control>,
    sizes: Sizes<1>,
    /// Table of the reference implementation, created on first use because it takes much memory.
    fib: RwLock<Option<reference::Fib>>,
}

impl Ndn {
    /// Creates a forwarding function from the names and next hops in `parts`.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if memory is insufficient, and [`Error::Value`] if the table is
    /// too large.
    ///
    /// # Panics
    /// Panics if the next hop of a name does not exist.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let udp_port = parts.udp_port;
        let headroom_bytes = parts.next_hops.iter().map(|(_, hop)| hop.carrier_bytes()).max().unwrap_or(0);
        let control = Control::new(parts)?;
        Ok(Self {
            image: Arc::clone(control.image()),
            udp_port,
            headroom_bytes,
            control: Mutex::new(control),
            sizes: Sizes::new(["names"]),
            fib: RwLock::new(None),
        })
    }

    /// Returns the number of names.
    pub fn names(&self) -> u64 {
        self.control().len()
    }

    /// Returns the number of name components in a guide. A guide is a name prefix whose record
    /// lists the lengths of longer names.
    pub fn guide(&self) -> u32 {
        self.control().guide()
    }

    /// Returns the next hop index for the longest prefix of a name. The search uses the table of
    /// the reference implementation, not the kernel's table.
    pub fn lookup_ref(&self, name: &[u8]) -> Option<u32> {
        self.with_fib(|fib| fib.lookup_bytes(name))
    }

    /// Locks the state of the control commands. After a panic in a command, the state is still
    /// consistent, so a poisoned lock is safe to use.
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_fib<R>(&self, look: impl FnOnce(&reference::Fib) -> R) -> R {
        if let Some(fib) = &*self.fib.read().unwrap_or_else(PoisonError::into_inner) {
            return look(fib);
        }
        let control = self.control();
        let mut fib = self.fib.write().unwrap_or_else(PoisonError::into_inner);
        look(fib.get_or_insert_with(|| reference::Fib::new(control.names(), control.next_hops())))
    }
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    Ok(Arc::new(Ndn::new(config.resolve(context)?)?))
}

impl Function for Ndn {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&*self.image).into()
    }

    fn properties(&self) -> Properties {
        Properties { headroom_bytes: self.headroom_bytes, ..Properties::of(&CONTRACT) }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        self.with_fib(|fib| reference::run_ref(buffer, descriptor, fib, self.udp_port))
    }
}

impl Operate for Ndn {
    fn tables(&self) -> Vec<(String, u64)> {
        self.sizes.read(&self.control, |control| [control.len() as usize])
    }

    fn command(&self, request: &Value, running: &dyn Running) -> Result<Value, Error> {
        let mut control = self.control();
        let result = commands::run(&mut control, request, running, self.headroom_bytes);
        // The command may have changed the names, so the reference table is out of date. The next
        // run of the reference implementation creates a new one.
        *self.fib.write().unwrap_or_else(PoisonError::into_inner) = None;
        result
    }
}

#[cfg(test)]
mod tests;
