//! Packet traces: which packets, and where what is said of them goes.

mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use godwit_engine::pcap::{Annotated, Annotation};
use godwit_engine::trace::Found;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::{self, Json};

/// Which packets are traced: those that fit all that is given, as the keys of `[[class]]` do. A list is written with commas.
#[derive(Args, Default, PartialEq)]
#[command(next_help_heading = "Which packets")]
pub(crate) struct Selection {
    /// Stop after this many packets; 10 if absent.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Only packets that are dropped.
    #[arg(long)]
    dropped: bool,
    /// Only packets that come by these ports.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    port: Vec<String>,
    /// Only packets of these classes; the class of those that no rule fits is `default`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    class: Vec<String>,
    /// Such as udp, or a number.
    #[arg(long, value_name = "PROTOCOLS", value_delimiter = ',')]
    protocol: Vec<String>,
    /// Source addresses or prefixes.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    source: Vec<String>,
    /// Destination addresses or prefixes.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    destination: Vec<String>,
    /// Source ports, such as 53 or 1024-65535.
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    source_ports: Vec<String>,
    /// Destination ports.
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    destination_ports: Vec<String>,
}

impl Selection {
    /// As the engine takes it; `frames`: whether frames are wanted too.
    pub(crate) fn request(&self, frames: bool) -> Value {
        let mut filter = Map::new();
        for (key, terms) in [
            ("port", &self.port),
            ("class", &self.class),
            ("protocol", &self.protocol),
            ("source", &self.source),
            ("destination", &self.destination),
            ("source_ports", &self.source_ports),
            ("destination_ports", &self.destination_ports),
        ] {
            // Protocols may be numbers; all else is text, whatever it looks like.
            let value = |term: &String| match term.parse::<u32>() {
                Ok(number) if key == "protocol" => number.into(),
                _ => Value::from(term.as_str()),
            };
            if !terms.is_empty() {
                filter.insert(key.to_owned(), terms.iter().map(value).collect());
            }
        }
        let mut request = json!({ "dropped": self.dropped, "frames": frames, "filter": filter });
        if let Some(count) = self.count {
            request["count"] = count.into();
        }
        request
    }
}

/// Where what is found goes, besides standard output.
pub(crate) struct Sinks {
    json: Json,
    pcap: Option<Annotated>,
    packets: Vec<Value>,
    chosen: u64,
    missed: u64,
}

impl Sinks {
    /// Places that cannot be written are told at once.
    pub(crate) fn open(json: Option<&Path>, pcap: Option<&PathBuf>) -> Result<Self, Failure> {
        let pcap = pcap.map(|path| Annotated::create(path)).transpose().map_err(Failure::user)?;
        Ok(Self { json: Json::open(json)?, pcap, packets: Vec::new(), chosen: 0, missed: 0 })
    }

    /// Whether frames are wanted.
    pub(crate) fn want_frames(&self) -> bool {
        self.pcap.is_some()
    }

    /// Tells of packets that were found. `found`: what the engine says.
    pub(crate) fn take(&mut self, found: &mut Value) -> Result<(), Failure> {
        let count = |key: &str| found[key].as_u64().unwrap_or(0);
        (self.chosen, self.missed) = (count("chosen"), count("missed"));
        let Value::Array(packets) = found["packets"].take() else { return Ok(()) };
        for packet in packets {
            let text = text::packet(&packet);
            output::print_beside(&self.json, &format!("{text}\n"))?;
            if let Some(pcap) = &mut self.pcap {
                write(pcap, &packet, &text)?;
            }
            self.packets.push(packet);
        }
        Ok(())
    }

    /// Tells of all that there is.
    pub(crate) fn tell(mut self, found: &Found) -> Result<(), Failure> {
        let found = serde_json::to_value(found);
        self.take(&mut found.map_err(|error| Failure::Bug(format!("a trace cannot be written as JSON: {error}")))?)?;
        self.finish()
    }

    /// There is no more.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let packets = |count: u64| format!("{count} {}", if count == 1 { "packet" } else { "packets" });
        let mut end = format!("{} traced", packets(self.packets.len() as u64));
        if self.missed > 0 {
            end += &format!("; {} more fitted, and were too many to be followed at once", packets(self.missed));
        }
        output::print_beside(&self.json, &format!("{end}\n"))?;
        if let Some(pcap) = self.pcap.take() {
            pcap.finish().map_err(Failure::user)?;
        }
        self.json.write(&json!({ "packets": self.packets, "chosen": self.chosen, "missed": self.missed }))
    }
}

/// The packet as it came, and as it left.
fn write(pcap: &mut Annotated, packet: &Value, text: &str) -> Result<(), Failure> {
    let time_ns = packet["time_ns"].as_u64().unwrap_or(0);
    let number = &packet["number"];
    let mut append = |value: &Value, interface: &Value, inbound, time_ns, comment: &str| {
        let frame = frame(value);
        let interface = interface.as_str().unwrap_or_default();
        pcap.packet(&Annotation { interface, inbound, time_ns, frame: &frame, comment }).map_err(Failure::user)
    };
    append(&packet["frame"], &packet["port"], true, time_ns, text.trim_end())?;
    for left in packet["left"].as_array().into_iter().flatten() {
        let at_ns = time_ns + left["at_ns"].as_u64().unwrap_or(0);
        append(&left["frame"], &left["port"], false, at_ns, &format!("packet {number}, as it left"))?;
    }
    Ok(())
}

/// Bytes from hexadecimal digits.
fn frame(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap_or_default().as_bytes().chunks(2);
    let byte = |pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    digits.filter_map(byte).collect()
}
