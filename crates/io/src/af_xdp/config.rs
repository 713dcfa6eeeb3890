//! What the operator writes of an `af_xdp` port.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;

use super::filter::RULES_MAX;
use super::interface::Interface;
use super::port::Port;
use crate::Error;
use crate::live::{ArenaNeeds, Live, LiveContext, LivePort};
use crate::synthetic::Prefix;

/// What XDP keeps free in front of a frame.
pub(super) const XDP_HEADROOM_BYTES: usize = 256;
/// Chunks of a UMEM: a power of two between these.
const CHUNK_BYTES: (usize, usize) = (2048, 4096);

/// A port of `kind = "af_xdp"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the interface.
    pub interface: String,
    /// Who copies.
    #[serde(default)]
    pub copy: Copy,
    /// Where the XDP program runs.
    #[serde(default)]
    pub attach: Attach,
    /// Whether workers run the driver's receive work themselves, in the place of interrupts.
    #[serde(default)]
    pub busy_poll: bool,
    /// Buffers that the kernel has to write arriving frames into, for each worker: a power of two.
    #[serde(default = "ring_packets")]
    pub rx_packets: u32,
    /// Packets that may wait to be sent, for each worker: a power of two.
    #[serde(default = "ring_packets")]
    pub tx_packets: u32,
    /// What is taken of that which no rule decides.
    #[serde(default)]
    pub take: Base,
    /// The first that fits a frame decides.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

fn ring_packets() -> u32 {
    2048
}

/// Who copies frames between the driver's memory and the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Copy {
    /// Nobody, where the driver can do without; else the kernel.
    #[default]
    Auto,
    /// The kernel.
    Always,
    /// Nobody; an error where the driver cannot do without.
    Never,
}

/// Where the XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// In the driver where that can, else in the kernel's stack.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's stack, behind the driver: slower, on every interface.
    Generic,
}

/// What is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// Nothing.
    None,
    /// Every frame.
    All,
    /// IPv4 and IPv6.
    Ip,
    /// IPv4 and IPv6 that this machine is to forward: frames for the interface's own Ethernet address, whose destination is neither an address of
    /// this machine nor multicast, broadcast or link-local.
    #[default]
    Routed,
}

/// What a rule says of frames that fit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A worker gets them.
    Take,
    /// They stay with the kernel.
    Pass,
}

/// Which frames a rule fits. A key that is not there fits any.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What becomes of them.
    pub action: Verdict,
    /// Protocol number of IP.
    #[serde(default)]
    pub protocol: Option<Protocol>,
    /// Source addresses.
    #[serde(default)]
    pub source: Option<Prefix>,
    /// Destination addresses.
    #[serde(default)]
    pub destination: Option<Prefix>,
    /// Source ports.
    #[serde(default)]
    pub source_ports: Option<Ports>,
    /// Destination ports.
    #[serde(default)]
    pub destination_ports: Option<Ports>,
}

/// A protocol of IP, by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Term")]
pub struct Protocol(pub u8);

/// A port, or ports from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Term")]
pub struct Ports(pub u16, pub u16);

/// As it is written.
#[derive(Deserialize)]
#[serde(untagged)]
enum Term {
    Number(u64),
    Text(String),
}

/// As `[[class]]` names them.
const PROTOCOLS: [(&str, u8); 8] =
    [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmpv6", 58), ("sctp", 132), ("udp-lite", 136), ("esp", 50), ("ah", 51)];

impl TryFrom<Term> for Protocol {
    type Error = String;

    fn try_from(term: Term) -> Result<Self, String> {
        match term {
            Term::Number(number) => u8::try_from(number)
                .map(Self)
                .map_err(|_| format!("{number} is no protocol number: it must be 0 to 255")),
            Term::Text(text) => {
                PROTOCOLS.iter().find(|(name, _)| *name == text).map(|(_, number)| Self(*number)).ok_or_else(|| {
                    format!("there is no protocol `{text}`: {}", PROTOCOLS.map(|(name, _)| name).join(", "))
                })
            }
        }
    }
}

impl TryFrom<Term> for Ports {
    type Error = String;

    fn try_from(term: Term) -> Result<Self, String> {
        let text = match term {
            Term::Number(number) => number.to_string(),
            Term::Text(text) => text,
        };
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self(first, last)),
            _ => Err(format!("`{text}` is not a port such as 80, or ports such as \"1024-65535\"")),
        }
    }
}

impl Rule {
    /// Whether ports can be asked of what it fits, and addresses are of one family.
    fn validate(&self) -> Result<(), Error> {
        let has_ports = self.protocol.is_none_or(|Protocol(number)| matches!(number, 6 | 17 | 132 | 136));
        if !has_ports && (self.source_ports.is_some() || self.destination_ports.is_some()) {
            let reason = "ports go only with protocols that have some: tcp, udp, sctp, udp-lite";
            return Err(Error::config("rules", "a rule with ports", reason));
        }
        let families = [self.source, self.destination].map(|prefix| prefix.map(|prefix| prefix.address.is_ipv4()));
        if let [Some(source), Some(destination)] = families
            && source != destination
        {
            return Err(Error::config("rules", "a rule", "`source` and `destination` are of different IP versions"));
        }
        Ok(())
    }

    /// 4, 6, or 0 for either.
    pub(super) fn family(&self) -> u8 {
        match self.source.or(self.destination).map(|prefix| prefix.address) {
            None => 0,
            Some(IpAddr::V4(_)) => 4,
            Some(IpAddr::V6(_)) => 6,
        }
    }
}

impl Live for Config {
    fn needs(&self) -> ArenaNeeds {
        let buffers = (self.rx_packets + self.tx_packets) as usize;
        ArenaNeeds {
            headroom_bytes: XDP_HEADROOM_BYTES,
            slot_bytes: Some(CHUNK_BYTES),
            buffers,
            ..ArenaNeeds::default()
        }
    }

    fn validate(&self) -> Result<(), Error> {
        if self.interface.is_empty() || self.interface.len() > 15 {
            return Err(Error::config("interface", &self.interface, "a name of an interface has 1 to 15 characters"));
        }
        for (key, packets) in [("rx_packets", self.rx_packets), ("tx_packets", self.tx_packets)] {
            if !packets.is_power_of_two() || !(64..=32768).contains(&packets) {
                return Err(Error::config(key, packets, "must be a power of two, 64 to 32768"));
            }
        }
        if self.copy == Copy::Never && self.attach == Attach::Generic {
            return Err(Error::config("copy", "never", "generic XDP runs behind the driver, which has copied by then"));
        }
        if self.rules.len() > RULES_MAX {
            return Err(Error::config("rules", self.rules.len(), format!("at most {RULES_MAX} rules")));
        }
        self.rules.iter().try_for_each(Rule::validate)
    }

    fn check(&self) -> Result<(), Error> {
        Interface::find(&self.interface).map(drop)
    }

    fn open(&self, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error> {
        Port::open(self, context).map(|port| port as Arc<dyn LivePort>)
    }
}
