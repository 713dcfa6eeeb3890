//! `ndn`: forwards Interests of Named Data Networking by the longest matching prefix of their names.

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

use crate::{BuildContext, Contract, Drop, Error, Function, Kind, Running, Verdict};

pub use config::Config;
pub use names::{NAME_BYTES_MAX, Names, parse as parse_names};
pub use shape::{Probes, probes};
pub use uri::{parse as parse_uri, show as show_uri};

use commands::Control;

/// The Interest has its new headers and hop limit, and goes out by the chosen port; `Outcome::value` is the index of
/// the next hop.
pub const VERDICT_FORWARD: u8 = 0;
/// The table says that the name is of this machine; `Outcome::value` is the index of the next hop.
pub const VERDICT_LOCAL: u8 = 1;
/// A Data packet.
pub const VERDICT_DATA: u8 = 2;
/// An NDN packet that is neither Interest nor Data as a whole.
pub const VERDICT_OTHER: u8 = 3;
/// The frame carries no NDN.
pub const VERDICT_NOT_NDN: u8 = 4;

/// The frame ends too early.
pub const DROP_TRUNCATED: u8 = 0;
/// The packet contradicts itself, or the specification.
pub const DROP_MALFORMED: u8 = 1;
/// A checksum is wrong.
pub const DROP_CHECKSUM: u8 = 2;
/// The hop limit forbids another hop.
pub const DROP_HOP_LIMIT: u8 = 3;
/// The Interest has no nonce.
pub const DROP_NO_NONCE: u8 = 4;
/// No prefix of the name is in the table.
pub const DROP_NO_ROUTE: u8 = 5;
/// The table says so.
pub const DROP_BLACKHOLE: u8 = 6;
/// There is no room for the headers.
pub const DROP_NO_ROOM: u8 = 7;

/// The contract block of `kernels/ndn/`, as data.
pub const CONTRACT: Contract = Contract {
    kind: "ndn",
    summary: "Forwards Interests of Named Data Networking by the longest matching prefix of their names.",
    kernel: godwit_kernels::NDN,
    verdicts: &[
        Verdict {
            name: "forward",
            sentence: "A prefix of the name is in the table; hop limit and headers are rewritten.",
            chooses_port: true,
        },
        Verdict { name: "local", sentence: "The table says that the name is of this machine.", chooses_port: false },
        Verdict {
            name: "data",
            sentence: "A Data packet; nothing but its outermost TLV is looked at.",
            chooses_port: false,
        },
        Verdict {
            name: "other",
            sentence: "A fragment, a Nack or an idle packet of NDNLPv2, or a packet of an unknown type.",
            chooses_port: false,
        },
        Verdict {
            name: "not_ndn",
            sentence: "Neither EtherType 0x8624 nor UDP to the port of NDN, or that in a fragment, behind extension headers or behind two VLAN tags.",
            chooses_port: false,
        },
    ],
    drops: &[
        Drop { name: "truncated", sentence: "The frame, or the datagram, ends before the length that it states." },
        Drop {
            name: "malformed",
            sentence: "A header or a TLV is not as the specification says, or an element that is critical is unknown.",
        },
        Drop { name: "checksum", sentence: "The checksum of IPv4 or UDP is wrong, or is missing over IPv6." },
        Drop { name: "hop_limit", sentence: "HopLimit is 0, or would be 0 behind this hop." },
        Drop { name: "no_nonce", sentence: "The Interest came over a link without a Nonce." },
        Drop { name: "no_route", sentence: "No prefix of the name is in the table." },
        Drop { name: "blackhole", sentence: "The table says that the Interest is to be dropped." },
        Drop { name: "no_room", sentence: "There is no headroom for the headers of the next hop." },
    ],
    variants: &["names"],
    in_order: false,
    reads_bytes: Contract::ALL,
    writes_bytes: Contract::ALL,
    headroom_bytes: 48,
    tailroom_bytes: 0,
    tailroom_saved: [0; 16],
    counters: &[],
    spec: "NDN Packet Format Specification 0.3; NDNLPv2",
};

/// The registration.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Where NDN is listened for over UDP, unless configured.
pub const UDP_PORT: u16 = 6363;

/// What is done with Interests of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// They go to another station.
    Forward {
        /// By this port.
        port: u16,
        /// The station's address.
        destination: MacAddress,
        /// The port's own address.
        source: MacAddress,
        /// What they travel in.
        carrier: Carrier,
    },
    /// They are for this machine.
    Local,
    /// They are dropped.
    Blackhole,
}

/// What carries an Interest to its next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Ethernet, under an EtherType of its own.
    Ethernet,
    /// UDP over IPv4.
    Udp4 {
        /// Own address and port.
        source: (Ipv4Addr, u16),
        /// Those of the other end.
        destination: (Ipv4Addr, u16),
    },
    /// UDP over IPv6.
    Udp6 {
        /// Own address and port.
        source: (Ipv6Addr, u16),
        /// Those of the other end.
        destination: (Ipv6Addr, u16),
    },
}

impl NextHop {
    /// Bytes in front of the NDN packet that Ethernet has not.
    fn carrier_bytes(&self) -> u16 {
        match self {
            Self::Forward { carrier: Carrier::Udp4 { .. }, .. } => 28,
            Self::Forward { carrier: Carrier::Udp6 { .. }, .. } => 48,
            _ => 0,
        }
    }
}

/// What a table is made of.
#[derive(Debug)]
pub struct Parts {
    /// Names and their next hops, by index; of equal names the last one counts.
    pub names: Names,
    /// What the indexes mean: a name, and what is done.
    pub next_hops: Vec<(String, NextHop)>,
    /// Names of all ports, for next hops that come later.
    pub ports: Vec<String>,
    /// The UDP port of NDN.
    pub udp_port: u16,
    /// How many names can be added while packets flow.
    pub spare_names: usize,
    /// How many next hops can be added.
    pub spare_next_hops: usize,
    /// Key of the hash; a secret. None: at random.
    pub key: Option<[u64; 2]>,
    /// Components of guides, see `kernels/ndn/image.h`; none: what is best for these names.
    pub guide: Option<u32>,
}

impl Parts {
    /// These names, and what else is usual.
    pub fn new(names: Names, next_hops: Vec<(String, NextHop)>) -> Self {
        let spare_names = names.len() / 8 + 4096;
        let (ports, udp_port, spare_next_hops) = (Vec::new(), UDP_PORT, 256);
        Self { names, next_hops, ports, udp_port, spare_names, spare_next_hops, key: None, guide: None }
    }
}

/// The configured function.
pub struct Ndn {
    image: Arc<Image>,
    udp_port: u16,
    headroom_bytes: u16,
    control: Mutex<Control>,
    /// What `ref` looks at, made when it first runs: nothing else needs it, and it is larger than the table.
    fib: RwLock<Option<reference::Fib>>,
}

impl Ndn {
    /// A table of these names.
    ///
    /// # Errors
    /// [`Error::Memory`] where the machine has too little, [`Error::Value`] for more than a table takes.
    ///
    /// # Panics
    /// When a name has a next hop that is not there.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let udp_port = parts.udp_port;
        let headroom_bytes = parts.next_hops.iter().map(|(_, hop)| hop.carrier_bytes()).max().unwrap_or(0);
        let control = Control::new(parts)?;
        Ok(Self {
            image: Arc::clone(control.image()),
            udp_port,
            headroom_bytes,
            control: Mutex::new(control),
            fib: RwLock::new(None),
        })
    }

    /// How many names there are.
    pub fn names(&self) -> u64 {
        self.control().len()
    }

    /// Components of guides.
    pub fn guide(&self) -> u32 {
        self.control().guide()
    }

    /// The next hop of the longest prefix of a name, found without the table image.
    pub fn lookup_ref(&self, name: &[u8]) -> Option<u32> {
        self.with_fib(|fib| fib.lookup_bytes(name))
    }

    /// Nobody panics while he has it: what happens to it is done or refused beforehand.
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

fn build(stanza: Spanned<DeTable<'_>>, site: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    Ok(Arc::new(Ndn::new(config.resolve(site)?)?))
}

impl Function for Ndn {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&*self.image).into()
    }

    fn headroom_bytes(&self) -> u16 {
        self.headroom_bytes
    }

    fn command(&self, request: &Value, running: &dyn Running) -> Result<Value, Error> {
        let mut control = self.control();
        let said = commands::run(&mut control, request, running, self.headroom_bytes);
        // Made anew from what there is now, if `ref` runs again.
        *self.fib.write().unwrap_or_else(PoisonError::into_inner) = None;
        said
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, _variant: u8, _parameter: u64) -> Outcome {
        self.with_fib(|fib| reference::run_ref(buffer, descriptor, fib, self.udp_port))
    }
}

#[cfg(test)]
mod tests;
