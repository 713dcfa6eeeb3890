//! Settings of the inspector, named as in `suricata.yaml`.

use crate::Error;
use crate::eve::Kinds;
use crate::proto::HttpOptions;
use crate::rules::Variables;
use crate::rules::number::parse_number;
use crate::stream::{Options as StreamOptions, OverlapPolicy, Urgent};

/// Settings of an inspector.
#[derive(Debug, Clone)]
pub struct Settings {
    /// TCP streams.
    pub stream: StreamOptions,
    /// Whether TCP, UDP and ICMP checksums are checked. Packets with a wrong checksum are excluded
    /// from reassembly.
    pub checksums: bool,
    /// Number of new stream bytes after which rules inspect the stream, for each direction.
    pub chunk_bytes: [u32; 2],
    /// Maximum number of flows.
    pub flows_max: usize,
    /// HTTP parser.
    pub http: HttpOptions,
    /// Whether inline mode drops TCP packets that are invalid in the current connection state.
    pub drop_invalid: bool,
    /// Variables of rule headers.
    pub variables: Variables,
    /// Whether alert records include the payload and the packet.
    pub record_payload: bool,
    /// Whether file records include MD5, SHA-1 and SHA-256 digests.
    pub hash_files: bool,
    /// Memory for the bytes of all streams.
    pub stream_memory_bytes: u64,
    /// Whether packets pass uninspected while stream memory is used up. If false, inline mode drops
    /// these packets.
    pub fail_open: bool,
    /// Kinds of records that are written.
    pub records: Kinds,
    /// Ports on which DNS is expected.
    pub dns_ports: Vec<u16>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stream: StreamOptions::default(),
            checksums: true,
            chunk_bytes: [2560, 2560],
            flows_max: 1 << 16,
            http: HttpOptions::default(),
            drop_invalid: true,
            variables: Variables::default(),
            record_payload: false,
            hash_files: false,
            stream_memory_bytes: 256 << 20,
            fail_open: true,
            records: Kinds::default(),
            dns_ports: vec![53],
        }
    }
}

/// Names of settings that have an effect.
const NAMES: &[&str] = &[
    "stream.inline",
    "stream.midstream",
    "stream.async-oneside",
    "stream.checksum-validation",
    "stream.drop-invalid",
    "stream.reassembly.urgent.policy",
    "stream.reassembly.depth",
    "stream.reassembly.memcap",
    "stream.reassembly.toserver-chunk-size",
    "stream.reassembly.toclient-chunk-size",
    "host-os-policy",
    "flow.max-flows",
    "outputs.eve-log.types.alert.payload",
    "outputs.eve-log.types.files.force-hash",
    "app-layer.protocols.dns.detection-ports.dp",
    "app-layer.protocols.http.libhtp.default-config.response-body-decompress-layer-limit",
    "app-layer.protocols.http.libhtp.default-config.compression-bomb-limit",
    "app-layer.protocols.http.libhtp.default-config.decompression-time-limit",
    "app-layer.protocols.http.libhtp.default-config.response-body-limit",
];

const PREFIXES: &[&str] = &["vars.address-groups.", "vars.port-groups."];

impl Settings {
    /// Changes one setting.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let bad = |expected| Error::SettingValue { name: name.to_owned(), value: value.to_owned(), expected };
        let switch = || match value {
            "yes" | "true" | "on" | "1" => Ok(true),
            "no" | "false" | "off" | "0" => Ok(false),
            _ => Err(bad("yes or no")),
        };
        let number = || parse_number(value).ok_or(bad("a number, with kb, mb or gb"));
        match name {
            "stream.inline" => self.stream.inline = value != "auto" && switch()?,
            "stream.midstream" => self.stream.midstream = switch()?,
            "stream.async-oneside" => self.stream.async_oneside = switch()?,
            "stream.checksum-validation" => self.checksums = switch()?,
            "stream.drop-invalid" => self.drop_invalid = switch()?,
            "stream.reassembly.urgent.policy" => {
                self.stream.urgent = match value {
                    "inline" => Urgent::Inline,
                    "oob" => Urgent::OutOfBand,
                    _ => return Err(bad("inline or oob")),
                };
            }
            "stream.reassembly.memcap" => self.stream_memory_bytes = number()?,
            "stream.reassembly.depth" => self.stream.depth = number()?,
            "stream.reassembly.toserver-chunk-size" => self.chunk_bytes[0] = number()? as u32,
            "stream.reassembly.toclient-chunk-size" => self.chunk_bytes[1] = number()? as u32,
            "host-os-policy" => {
                self.stream.policy =
                    OverlapPolicy::from_name(value).ok_or(bad("a policy, such as bsd, linux or windows"))?;
            }
            "outputs.eve-log.types.alert.payload" => self.record_payload = switch()?,
            "outputs.eve-log.types.files.force-hash" => self.hash_files = switch()?,
            "app-layer.protocols.dns.detection-ports.dp" => {
                let ports: Option<Vec<u16>> = value.split(',').map(|port| port.trim().parse().ok()).collect();
                self.dns_ports = ports.ok_or(bad("ports, with commas"))?;
            }
            "flow.max-flows" => self.flows_max = number()? as usize,
            _ if name.ends_with("response-body-decompress-layer-limit") => self.http.layers_max = number()? as u32,
            _ if name.ends_with("compression-bomb-limit") => self.http.bomb_bytes = number()? as usize,
            _ if name.ends_with("decompression-time-limit") => self.http.time_limit_micros = number()? as u32,
            _ if name.ends_with("default-config.response-body-limit") => {
                number()?;
            }
            _ => return self.set_variable(name, value),
        }
        Ok(())
    }

    fn set_variable(&mut self, name: &str, value: &str) -> Result<(), Error> {
        if let Some(variable) = name.strip_prefix(PREFIXES[0]) {
            self.variables.set_address(variable, value);
            return Ok(());
        }
        if let Some(variable) = name.strip_prefix(PREFIXES[1]) {
            self.variables.set_port(variable, value);
            return Ok(());
        }
        let nearest = NAMES.iter().copied().find(|known| known.rsplit('.').next() == name.rsplit('.').next());
        Err(Error::UnknownSetting { name: name.to_owned(), nearest })
    }
}
