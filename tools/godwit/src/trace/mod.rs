//! Packet traces: options that select packets, and outputs.

mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use godwit_engine::pcap::{Annotated, Annotation};
use godwit_engine::trace::Found;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::{self, Json};

/// Selects packets to trace. A packet must match all given options. The options have the same
/// meaning as the keys of `[[class]]`. Commas separate several values.
#[derive(Args, Default, PartialEq)]
#[command(next_help_heading = "Selection of packets")]
pub(crate) struct Selection {
    /// Stop after this number of packets. Default: 10.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Only packets that are dropped.
    #[arg(long)]
    dropped: bool,
    /// Only packets from these ports.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    port: Vec<String>,
    /// Only packets of these classes. Packets that match no rule have the class `default`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    class: Vec<String>,
    /// Protocols: a name such as udp, or a number.
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
    /// Returns the request to the engine. `frames` tells whether the reply must contain frames.
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
            // Only protocols can be numbers. All other values are text.
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

/// Outputs of a trace besides standard output, and the packets so far.
pub(crate) struct Sinks {
    json: Json,
    pcap: Option<Annotated>,
    packets: Vec<Value>,
    chosen: u64,
    missed: u64,
}

impl Sinks {
    /// Opens the outputs.
    ///
    /// # Errors
    /// If a path is not writable.
    pub(crate) fn open(json: Option<&Path>, pcap: Option<&PathBuf>) -> Result<Self, Failure> {
        let pcap = pcap.map(|path| Annotated::create(path)).transpose().map_err(Failure::user)?;
        Ok(Self { json: Json::open(json)?, pcap, packets: Vec::new(), chosen: 0, missed: 0 })
    }

    /// Returns whether an output needs frames.
    pub(crate) fn need_frames(&self) -> bool {
        self.pcap.is_some()
    }

    /// Prints and stores the packets of `found`, which is a reply from the engine.
    pub(crate) fn add(&mut self, found: &mut Value) -> Result<(), Failure> {
        let count = |key: &str| found[key].as_u64().unwrap_or(0);
        (self.chosen, self.missed) = (count("chosen"), count("missed"));
        let Value::Array(packets) = found["packets"].take() else { return Ok(()) };
        for packet in packets {
            let text = text::packet(&packet);
            output::print_text(&self.json, &format!("{text}\n"))?;
            if let Some(pcap) = &mut self.pcap {
                write_frames(pcap, &packet, &text)?;
            }
            self.packets.push(packet);
        }
        Ok(())
    }

    /// Writes a complete trace to all outputs.
    pub(crate) fn write(mut self, found: &Found) -> Result<(), Failure> {
        let found = serde_json::to_value(found);
        self.add(&mut found.map_err(|error| Failure::Bug(format!("a trace cannot be written as JSON: {error}")))?)?;
        self.finish()
    }

    /// Prints the number of packets and completes all outputs.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let packets = |count: u64| format!("{count} {}", if count == 1 { "packet" } else { "packets" });
        let mut end = format!("{} traced", packets(self.packets.len() as u64));
        if self.missed > 0 {
            end += &format!("; {} more matched, but too many were traced at the same time", packets(self.missed));
        }
        output::print_text(&self.json, &format!("{end}\n"))?;
        if let Some(pcap) = self.pcap.take() {
            pcap.finish().map_err(Failure::user)?;
        }
        self.json.write(&json!({ "packets": self.packets, "chosen": self.chosen, "missed": self.missed }))
    }
}

/// Writes the frame on arrival, and the frames that left.
fn write_frames(pcap: &mut Annotated, packet: &Value, text: &str) -> Result<(), Failure> {
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
        append(&left["frame"], &left["port"], false, at_ns, &format!("packet {number} on departure"))?;
    }
    Ok(())
}

/// Decodes hexadecimal digits.
fn frame(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap_or_default().as_bytes().chunks(2);
    let byte = |pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    digits.filter_map(byte).collect()
}
