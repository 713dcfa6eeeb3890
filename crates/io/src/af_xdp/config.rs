//! Configuration of an `af_xdp` port.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;

use super::filter::RULES_MAX;
use super::interface::Interface;
use super::port::Port;
use crate::Error;
use crate::live::{ArenaNeeds, Live, LiveContext, LivePort};
use crate::synthetic::Prefix;

/// Headroom that XDP reserves in front of a frame, in bytes.
pub(super) const XDP_HEADROOM_BYTES: usize = 256;
/// Minimum and maximum buffer size in the UMEM, in bytes. The size is a power of two.
const CHUNK_BYTES: (usize, usize) = (2048, 4096);

/// Configuration of a port with `kind = "af_xdp"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the interface.
    pub interface: String,
    /// Selects whether the kernel copies frames, or the driver accesses the packet memory directly.
    #[serde(default)]
    pub copy: Copy,
    /// Selects where the XDP program runs.
    #[serde(default)]
    pub attach: Attach,
    /// Whether the worker thread runs the receive code of the driver (busy polling). Otherwise, the
    /// driver processes received packets after an interrupt.
    #[serde(default)]
    pub busy_poll: bool,
    /// Number of entries of each worker's fill ring and RX ring. It is a power of two.
    #[serde(default = "ring_packets")]
    pub rx_packets: u32,
    /// Number of entries of each worker's TX ring and completion ring. It is a power of two.
    #[serde(default = "ring_packets")]
    pub tx_packets: u32,
    /// Selects the frames that the workers receive if no filter rule matches.
    #[serde(default)]
    pub take: Take,
    /// Whether workers process frames to other MAC addresses. Without this key, a router drops
    /// them, and all other chains process them.
    #[serde(default)]
    pub promiscuous: Option<bool>,
    /// Filter rules, which take precedence over `take`. The first rule that matches a frame
    /// applies.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

fn ring_packets() -> u32 {
    2048
}

/// Selects whether the kernel copies frames, or the driver accesses the packet memory directly
/// (zero-copy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Copy {
    /// The driver accesses the packet memory directly (zero-copy), if it can. Otherwise, the kernel
    /// copies frames.
    #[default]
    Auto,
    /// The kernel always copies frames between the driver's memory and the packet memory.
    Always,
    /// The driver must access the packet memory directly (zero-copy). Otherwise, opening the port
    /// fails.
    Never,
}

/// Selects where the XDP program of the port runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// The XDP program runs in the driver if the driver supports XDP. Otherwise, it runs in the
    /// kernel's network stack.
    #[default]
    Auto,
    /// The XDP program runs in the driver. Otherwise, opening the port fails.
    Native,
    /// The XDP program runs after the driver, in the kernel's network stack. This is slower, but
    /// every interface supports it.
    Generic,
}

/// Selects the frames that the workers receive if no filter rule matches. The kernel processes all
/// other frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Take {
    /// Workers receive no frames.
    None,
    /// Workers receive all frames.
    All,
    /// Workers receive all IPv4 and IPv6 frames.
    Ip,
    /// Frames that a router must forward. The destination MAC address is the address of the
    /// interface. The destination IP address does not belong to this machine, and is not a
    /// multicast, broadcast or link-local address.
    #[default]
    Routed,
}

/// Decision of a filter rule about the frames that match it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// A worker receives the frames.
    Take,
    /// The kernel processes the frames.
    Pass,
}

/// Rule that selects frames by their headers. A frame must match all conditions of the rule. An
/// absent condition matches every frame.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Decision about the frames that match.
    pub action: Action,
    /// Protocol number from the Protocol field of IPv4 or the Next Header field of IPv6.
    #[serde(default)]
    pub protocol: Option<Protocol>,
    /// Prefix that contains the source address.
    #[serde(default)]
    pub source: Option<Prefix>,
    /// Prefix that contains the destination address.
    #[serde(default)]
    pub destination: Option<Prefix>,
    /// Range that contains the source port.
    #[serde(default)]
    pub source_ports: Option<Ports>,
    /// Range that contains the destination port.
    #[serde(default)]
    pub destination_ports: Option<Ports>,
}

/// IP protocol, which is configured by its name or its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Term")]
pub enum Protocol {
    /// The protocol with this number.
    Number(u8),
    /// UDP that carries ESP and not IKE: the SPI after the UDP header is not zero (RFC 3948,
    /// section 2). A rule without ports matches only UDP to port 4500.
    EspInUdp,
}

/// Value of the key `protocol` for [`Protocol::EspInUdp`].
const ESP_IN_UDP: &str = "esp-in-udp";

/// Range of TCP, UDP, SCTP or UDP-Lite ports: the first and the last port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Term")]
pub struct Ports(pub u16, pub u16);

#[derive(Deserialize)]
#[serde(untagged)]
enum Term {
    Number(u64),
    Text(String),
}

/// Names and numbers of IP protocols, as in `[[class]]`.
const PROTOCOLS: [(&str, u8); 8] =
    [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmpv6", 58), ("sctp", 132), ("udp-lite", 136), ("esp", 50), ("ah", 51)];

impl TryFrom<Term> for Protocol {
    type Error = Error;

    fn try_from(term: Term) -> Result<Self, Error> {
        match term {
            Term::Number(number) => u8::try_from(number)
                .map(Self::Number)
                .map_err(|_| Error::Value(format!("{number} is not a protocol number: it must be 0 to 255"))),
            Term::Text(text) if text == ESP_IN_UDP => Ok(Self::EspInUdp),
            Term::Text(text) => {
                let found = PROTOCOLS.iter().find(|(name, _)| *name == text);
                found.map(|(_, number)| Self::Number(*number)).ok_or_else(|| {
                    let known = PROTOCOLS.map(|(name, _)| name).join(", ");
                    Error::Value(format!("unknown protocol `{text}`: expected one of {known}, {ESP_IN_UDP}"))
                })
            }
        }
    }
}

impl TryFrom<Term> for Ports {
    type Error = Error;

    fn try_from(term: Term) -> Result<Self, Error> {
        let text = match term {
            Term::Number(number) => number.to_string(),
            Term::Text(text) => text,
        };
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self(first, last)),
            _ => Err(Error::Value(format!(
                "`{text}` is not a port such as 80 or a range of ports such as \"1024-65535\""
            ))),
        }
    }
}

impl Rule {
    /// Checks that the rule is consistent. Port numbers require a protocol with ports. All
    /// addresses must have one IP version.
    fn validate(&self) -> Result<(), Error> {
        let has_ports = match self.protocol {
            None | Some(Protocol::EspInUdp) => true,
            Some(Protocol::Number(number)) => matches!(number, 6 | 17 | 132 | 136),
        };
        if !has_ports && (self.source_ports.is_some() || self.destination_ports.is_some()) {
            let reason = "only the protocols tcp, udp, sctp and udp-lite have ports";
            return Err(Error::config("rules", "a rule with ports", reason));
        }
        let families = [self.source, self.destination].map(|prefix| prefix.map(|prefix| prefix.address.is_ipv4()));
        if let [Some(source), Some(destination)] = families
            && source != destination
        {
            return Err(Error::config("rules", "a rule", "`source` and `destination` have different IP versions"));
        }
        Ok(())
    }

    /// Returns the IP version of the rule's addresses (4 or 6), or 0 without addresses.
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
            return Err(Error::config("interface", &self.interface, "the name of an interface has 1 to 15 characters"));
        }
        for (key, packets) in [("rx_packets", self.rx_packets), ("tx_packets", self.tx_packets)] {
            if !packets.is_power_of_two() || !(64..=32768).contains(&packets) {
                return Err(Error::config(key, packets, "must be a power of two, 64 to 32768"));
            }
        }
        if self.copy == Copy::Never && self.attach == Attach::Generic {
            return Err(Error::config(
                "copy",
                "never",
                "generic XDP always copies: use copy = \"auto\" or attach = \"native\"",
            ));
        }
        if self.rules.len() > RULES_MAX {
            return Err(Error::config("rules", self.rules.len(), format!("at most {RULES_MAX} rules")));
        }
        self.rules.iter().try_for_each(Rule::validate)
    }

    fn hardware(&self) -> Option<String> {
        Some(format!("interface {}", self.interface))
    }

    fn check(&self) -> Result<(), Error> {
        Interface::find(&self.interface).map(drop)
    }

    fn promiscuous(&self) -> Option<bool> {
        self.promiscuous
    }

    fn open(&self, context: &LiveContext<'_>) -> Result<Arc<dyn LivePort>, Error> {
        Port::open(self, context).map(|port| port as Arc<dyn LivePort>)
    }
}
