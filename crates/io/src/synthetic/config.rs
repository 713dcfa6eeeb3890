//! What the operator writes of a synthetic port.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::headers::Shape;
use super::probe::{PROBE_BYTES, Probes};
use super::units::{Mac, Prefix, Rate, Size, Span};
use crate::Error;

/// Most flows whose headers are kept ready.
const FLOWS_MAX: usize = 1 << 24;

/// Longest frame that any buffer takes, bytes.
const FRAME_BYTES_MAX: u16 = 16128;

/// A port of `kind = "synthetic"`. All keys have defaults.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Length of frames, bytes without FCS. A frame of a mix that is too short for its headers is as long as they are.
    pub size: Size,
    /// Number of different flows; 0: addresses and ports are random in every packet.
    pub flows: usize,
    /// IP version.
    pub ip: IpVersion,
    /// Transport protocol.
    pub protocol: Transport,
    /// Where source addresses are drawn from, uniformly. Default 10.0.0.0/8 or fd00::/8.
    pub source: Option<Prefix>,
    /// Where destination addresses are drawn from, uniformly. Default 10.0.0.0/8 or fd00::/8.
    pub destination: Option<Prefix>,
    /// Destinations to draw from, uniformly, instead of `destination`.
    pub destinations: Vec<IpAddr>,
    /// Source ports.
    pub source_port: Span,
    /// Destination ports.
    pub destination_port: Span,
    /// Ethernet source.
    pub source_mac: Mac,
    /// Ethernet destination.
    pub destination_mac: Mac,
    /// What stands behind the headers.
    pub payload: PayloadKind,
    /// With `payload = "pattern"`: file with one pattern a line.
    pub patterns: Option<PathBuf>,
    /// With `payload = "pattern"`: share of packets that carry a pattern, 0 to 1. Default 0.3, the share of matching
    /// traffic of the thesis on adaptive scheduling (University of Crete, 2020, chapter 4).
    pub match_ratio: f64,
    /// Another seed gives other packets of the same kind.
    pub seed: u64,
    /// How fast packets are offered.
    pub rate: Rate,
    /// With a rate: how many packets may wait per worker, as in a NIC's ring, before the oldest are counted as missed.
    /// 0: all wait, none is missed, and content never depends on time.
    pub queue_packets: u32,
    /// Stop after this many packets; 0: never.
    pub packets: u64,
    /// What packets say of their time of arrival.
    pub time: Time,
    /// Whether what is sent to this port is digested.
    pub digest: bool,
    /// Whether packets say which they are and when they were made, and what is sent to this port is searched for that.
    pub probe: bool,
    /// What the packets of one run have in common; whoever opens the port makes it.
    #[serde(skip)]
    pub probes: Option<Probes>,
}

/// IP version of generated packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpVersion {
    /// IPv4, without options.
    V4,
    /// IPv6, without extension headers.
    V6,
}

/// Transport protocol of generated packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP: segments with ACK set, all of sequence number 0.
    Tcp,
}

/// What stands behind the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PayloadKind {
    /// Random bytes: four of the packet's own, then a piece of a random pool of 64 KiB.
    Random,
    /// Zeros.
    Zero,
    /// Random bytes, and in some packets a pattern at a random place. Of the patterns, those that fit are equally likely; where none
    /// fits there is none. A short pattern may also occur by accident.
    Pattern,
    /// What the buffer holds already: nothing is written behind the headers, so that a bench measures what is behind the
    /// port and not how fast cores write to memory, which with a NIC they do not. UDP over IPv4 only, without checksum
    /// (RFC 768). Packets carry what others left, and are not the same in every run.
    Stale,
}

/// What generated packets say of their time of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Time {
    /// Clock: with a rate when the packet was due, else when its batch was made.
    Clock,
    /// Time that the packet is due after the first, without any clock; 1 ns apart at `rate = "max"`. The same in every run.
    Schedule,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            size: Size::Fixed(60),
            flows: 1024,
            ip: IpVersion::V4,
            protocol: Transport::Udp,
            source: None,
            destination: None,
            destinations: Vec::new(),
            source_port: Span { min: 1024, max: u16::MAX },
            destination_port: Span { min: 1024, max: u16::MAX },
            source_mac: Mac([2, 0, 0, 0, 0, 1]),
            destination_mac: Mac([2, 0, 0, 0, 0, 2]),
            payload: PayloadKind::Random,
            patterns: None,
            match_ratio: 0.3,
            seed: 1,
            rate: Rate::Max,
            queue_packets: 0,
            packets: 0,
            time: Time::Clock,
            digest: false,
            probe: false,
            probes: None,
        }
    }
}

impl Config {
    /// Makes relative paths relative to `directory`, that of the configuration file.
    pub fn resolve(&mut self, directory: &Path) {
        if let Some(patterns) = &mut self.patterns {
            *patterns = directory.join(&*patterns);
        }
    }

    /// Checks what can be checked without touching a file.
    ///
    /// # Errors
    /// [`Error::Config`], naming the key at fault.
    pub fn validate(&self) -> Result<(), Error> {
        let headers_bytes = Shape::of(self).headers_bytes() as u16;
        let (min, max) = self.size.bounds();
        if matches!(self.size, Size::Fixed(_) | Size::Uniform { .. }) && min < headers_bytes {
            return Err(Error::config("size", min, format!("the headers alone have {headers_bytes} bytes")));
        }
        let probe_bytes = headers_bytes + PROBE_BYTES as u16 + 1;
        if self.probe && min < probe_bytes {
            return Err(Error::config(
                "size",
                min,
                format!("packets with probe = true have at least {probe_bytes} bytes"),
            ));
        }
        if max > FRAME_BYTES_MAX {
            return Err(Error::config("size", max, format!("must be at most {FRAME_BYTES_MAX}")));
        }
        if self.flows > FLOWS_MAX {
            return Err(Error::config("flows", self.flows, format!("must be at most {FLOWS_MAX}; 0 for random")));
        }
        if !(0.0..=1.0).contains(&self.match_ratio) {
            return Err(Error::config("match_ratio", self.match_ratio, "must be 0 to 1"));
        }
        if (self.payload == PayloadKind::Pattern) != self.patterns.is_some() {
            let value = self.patterns.as_ref().map_or("nothing".into(), |path| path.display().to_string());
            return Err(Error::config("patterns", value, "goes with payload = \"pattern\", and only with it"));
        }
        if self.payload == PayloadKind::Stale {
            let refuse = |key, value: String, reason| Err(Error::config(key, value, reason));
            if self.ip != IpVersion::V4 || self.protocol != Transport::Udp {
                let reason = "only UDP over IPv4 can do without a checksum (RFC 768; RFC 8200, section 8.1)";
                return refuse("payload", "\"stale\"".to_owned(), reason);
            }
            for (key, asked) in [("digest", self.digest), ("probe", self.probe)] {
                if asked {
                    return refuse(key, "true".to_owned(), "payload = \"stale\" is not the same in every run");
                }
            }
        }
        let wants_v4 = self.ip == IpVersion::V4;
        for (key, prefix) in [("source", self.source), ("destination", self.destination)] {
            if let Some(prefix) = prefix.filter(|prefix| prefix.address.is_ipv4() != wants_v4) {
                return Err(Error::config(key, prefix.address, "is not of the IP version that `ip` says"));
            }
        }
        if let Some(address) = self.destinations.iter().find(|address| address.is_ipv4() != wants_v4) {
            return Err(Error::config("destinations", address, "is not of the IP version that `ip` says"));
        }
        Ok(())
    }
}
