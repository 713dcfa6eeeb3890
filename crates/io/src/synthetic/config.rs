//! Configuration of a port of the kind `synthetic`, which generates packets.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::headers::Shape;
use super::probe::{PROBE_BYTES, Probes};
use super::program::Program;
use super::units::{Mac, Prefix, Rate, Size, Span};
use crate::Error;

/// Maximum number of configured flows.
const FLOWS_MAX: usize = 1 << 24;

/// Maximum length of a frame in bytes. A packet buffer cannot hold a longer frame.
const FRAME_BYTES_MAX: u16 = 16128;

/// Configuration of a port with `kind = "synthetic"`, which generates packets. All keys have
/// defaults.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Length of frames in bytes, without the frame check sequence (FCS). A length that is too
    /// short for the headers is increased.
    pub size: Size,
    /// Number of different flows. If it is 0, every packet has random addresses and ports.
    pub flows: usize,
    /// IP version of the packets.
    pub ip: IpVersion,
    /// Transport protocol of the packets.
    pub protocol: Transport,
    /// Prefix of the random source addresses. The default is 10.0.0.0/8 for IPv4 and fd00::/8 for
    /// IPv6.
    pub source: Option<Prefix>,
    /// Prefix of the random destination addresses. The default is 10.0.0.0/8 for IPv4 and fd00::/8
    /// for IPv6.
    pub destination: Option<Prefix>,
    /// List from which destination addresses are selected at random. It replaces the key
    /// `destination`.
    pub destinations: Vec<IpAddr>,
    /// Range of source ports.
    pub source_port: Span,
    /// Range of destination ports.
    pub destination_port: Span,
    /// Source MAC address.
    pub source_mac: Mac,
    /// Destination MAC address.
    pub destination_mac: Mac,
    /// Content of the payload.
    pub payload: PayloadKind,
    /// File with one pattern per line, for `payload = "pattern"`.
    pub patterns: Option<PathBuf>,
    /// Fraction of packets that contain a pattern, from 0 to 1, if `payload = "pattern"`. The
    /// default 0.3 is from the thesis on adaptive scheduling (University of Crete, 2020, chapter
    /// 4).
    pub match_ratio: f64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Rate at which packets are generated.
    pub rate: Rate,
    /// Path of a load program, a file that describes how the traffic changes over time. It replaces
    /// the keys `rate` and `size`.
    pub load: Option<PathBuf>,
    /// Maximum number of waiting packets per worker, if a rate is set. If more packets wait, the
    /// port discards the oldest packets and counts them as missed. With 0, the port discards no
    /// packets.
    pub queue_packets: u32,
    /// Number of packets to generate, or 0 for no limit.
    pub packets: u64,
    /// Selects the arrival time of the packets.
    pub time: Time,
    /// Selects the worker at which a packet arrives.
    pub spread: Spread,
    /// Whether the port computes a digest of all packets that are sent to it.
    pub digest: bool,
    /// Whether each generated packet contains its sequence number and the time of its generation.
    /// When the port sends such packets, it updates its statistics of loss, order and latency.
    pub probe: bool,
    /// State that all ports with `probe = true` share during one run of the program.
    #[serde(skip)]
    pub probes: Option<Probes>,
}

/// IP version of generated packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpVersion {
    /// IPv4 without options.
    V4,
    /// IPv6 without extension headers.
    V6,
}

/// Transport protocol of generated packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Packets are UDP datagrams.
    Udp,
    /// Packets are TCP segments with the ACK flag. All segments have the sequence number 0.
    Tcp,
}

/// Selects the content of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PayloadKind {
    /// Random bytes. The first four bytes differ between packets. All other bytes are copied from a
    /// 64 KiB block of random data.
    Random,
    /// The payload consists of zeros.
    Zero,
    /// Random bytes, with a pattern at a random position in some packets. All patterns that fit
    /// into the payload are equally likely. Short patterns may also occur by chance.
    Pattern,
    /// Bytes that were already in the packet buffer. The payload is not written, so a benchmark
    /// does not measure the time for it.
    ///
    /// This value requires UDP over IPv4 without a checksum (RFC 768). The packets differ between
    /// runs.
    Stale,
}

/// Selects the arrival time of generated packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Time {
    /// Time of the system clock. If the rate is limited, it is the time at which the packet was
    /// due. Otherwise, it is the time at which the packet's batch was generated.
    Clock,
    /// Time computed from the rate, without a clock. With `rate = "max"`, packets are 1 ns apart.
    /// The times are the same in every run.
    Schedule,
}

/// Selects the worker at which generated packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// Each packet arrives at the worker that owns its state, such as an SA.
    Owner,
    /// The flow hash selects the worker, as in a NIC that does not know SAs. The workers then pass
    /// packets to the worker that owns their state.
    Flow,
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
            load: None,
            queue_packets: 0,
            packets: 0,
            time: Time::Clock,
            spread: Spread::Owner,
            digest: false,
            probe: false,
            probes: None,
        }
    }
}

impl Config {
    /// Makes relative paths absolute. `directory` is the folder that contains the configuration
    /// file.
    pub fn resolve(&mut self, directory: &Path) {
        for path in [&mut self.patterns, &mut self.load].into_iter().flatten() {
            *path = directory.join(&*path);
        }
    }

    /// Returns the length of the headers in bytes. Frames of a fixed length cannot be shorter.
    pub fn headers_bytes(&self) -> u16 {
        Shape::of(self).headers_bytes() as u16
    }

    /// Checks the load program, if there is one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not a load program. The error names the
    /// file, and the step or the line.
    pub fn check_load(&self) -> Result<(), Error> {
        Program::read(self).map(|_| ())
    }

    /// Checks the configuration without accessing a file.
    ///
    /// # Errors
    /// Returns [`Error::Config`] with the name of the key that has an invalid value.
    pub fn validate(&self) -> Result<(), Error> {
        let headers_bytes = self.headers_bytes();
        let (min, max) = self.size.bounds();
        if matches!(self.size, Size::Fixed(_) | Size::Uniform { .. }) && min < headers_bytes {
            return Err(Error::config("size", min, format!("the headers alone need {headers_bytes} bytes")));
        }
        let probe_bytes = headers_bytes + PROBE_BYTES as u16 + 1;
        if self.probe && min < probe_bytes {
            return Err(Error::config(
                "size",
                min,
                format!("packets with probe = true need at least {probe_bytes} bytes"),
            ));
        }
        if max > FRAME_BYTES_MAX {
            return Err(Error::config("size", max, format!("must be at most {FRAME_BYTES_MAX}")));
        }
        if self.flows > FLOWS_MAX {
            return Err(Error::config("flows", self.flows, format!("must be at most {FLOWS_MAX}; 0 for random")));
        }
        if self.load.is_some() && self.rate != Rate::Max {
            return Err(Error::config("rate", "a rate", "`load` sets the rates; omit `rate`"));
        }
        if !(0.0..=1.0).contains(&self.match_ratio) {
            return Err(Error::config("match_ratio", self.match_ratio, "must be 0 to 1"));
        }
        if (self.payload == PayloadKind::Pattern) != self.patterns.is_some() {
            let value = self.patterns.as_ref().map_or("nothing".into(), |path| path.display().to_string());
            return Err(Error::config("patterns", value, "`patterns` and payload = \"pattern\" require each other"));
        }
        if self.payload == PayloadKind::Stale {
            let error = |key, value: String, reason| Err(Error::config(key, value, reason));
            if self.ip != IpVersion::V4 || self.protocol != Transport::Udp {
                let reason = "only UDP over IPv4 works without a checksum (RFC 768; RFC 8200, section 8.1)";
                return error("payload", "\"stale\"".to_owned(), reason);
            }
            for (key, enabled) in [("digest", self.digest), ("probe", self.probe)] {
                if enabled {
                    return error(key, "true".to_owned(), "payload = \"stale\" differs between runs");
                }
            }
        }
        let is_v4 = self.ip == IpVersion::V4;
        for (key, prefix) in [("source", self.source), ("destination", self.destination)] {
            if let Some(prefix) = prefix.filter(|prefix| prefix.address.is_ipv4() != is_v4) {
                return Err(Error::config(key, prefix.address, "does not have the IP version of the key `ip`"));
            }
        }
        if let Some(address) = self.destinations.iter().find(|address| address.is_ipv4() != is_v4) {
            return Err(Error::config("destinations", address, "does not have the IP version of the key `ip`"));
        }
        Ok(())
    }
}
