//! Text form of a traced packet: one line for the packet, and one line per step.

use std::fmt::Write as _;

use godwit_engine::config::protocol_name;
use serde_json::Value;

/// Formats a traced packet. `packet` has the format of `docs/trace.md`.
pub(super) fn packet(packet: &Value) -> String {
    let mut text = format!(
        "packet {}  {}  {} bytes  worker {}\n",
        packet["number"],
        flow(packet),
        packet["length"],
        packet["worker"]
    );
    let mut line = |time: &str, step: &str| {
        let _ = writeln!(text, "{time:>12}  {step}");
    };
    for step in packet["steps"].as_array().into_iter().flatten() {
        let at_us = step["at_ns"].as_u64().unwrap_or(0) as f64 / 1000.0;
        line(&format!("{at_us:.1} us"), &sentence(step, word(&packet["port"])));
    }
    if let Some(count) = packet["steps_left_out"].as_u64() {
        line("", &format!("and {count} more steps"));
    }
    if packet["fate"] == "in_flight" {
        line("", "still in flight when the trace ended");
    }
    text
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// Returns the flow of a packet, such as `10.0.0.1:1024 > 10.0.0.2:53 udp`, or the EtherType of a
/// packet that is not IP.
fn flow(packet: &Value) -> String {
    let Some(protocol) = packet["protocol"].as_u64() else {
        return format!("EtherType {:#06x}", packet["ethertype"].as_u64().unwrap_or(0));
    };
    let name = u8::try_from(protocol).ok().and_then(protocol_name);
    let protocol = name.map_or_else(|| format!("protocol {protocol}"), str::to_owned);
    let end = |address: &str, port: &str| {
        let (address, port) = (word(&packet[address]), packet[port].as_u64().unwrap_or(0));
        match (port, address.contains(':')) {
            (0, _) => address.to_owned(),
            (_, true) => format!("[{address}]:{port}"),
            (_, false) => format!("{address}:{port}"),
        }
    };
    format!("{} > {} {protocol}", end("source", "source_port"), end("destination", "destination_port"))
}

/// Returns the destination of a packet after a step.
fn next(next: &Value) -> String {
    match next {
        Value::Object(to) => match to.iter().next() {
            Some((kind, Value::Array(ports))) if kind == "flood" => {
                format!(
                    "to all ports of {} except the ingress port",
                    ports.iter().map(word).collect::<Vec<_>>().join(", ")
                )
            }
            Some((kind, name)) => format!("to {kind} {}", word(name)),
            None => "nowhere".to_owned(),
        },
        other if other == "drop" => "to `drop`".to_owned(),
        _ => "for which the chain has no edge".to_owned(),
    }
}

/// Describes a step in words. `port` is the ingress port of the packet.
fn sentence(step: &Value, port: &str) -> String {
    let field = |key: &str| word(&step[key]);
    let number = |key: &str| step[key].as_u64().unwrap_or(0);
    let (function, device) = (field("function"), field("device"));
    match field("step") {
        "received" => format!("received by {port}, class {}, {}", field("class"), next(&step["next"])),
        "created" => format!("created by {function}, class {}", field("class")),
        "made_of" => format!("created by {function} from packet {}", number("packet")),
        "split" => format!("{function} creates packet {} from it", number("packet")),
        "held" => format!("{function} holds it until further packets arrive"),
        "joined" => format!("{function} joins it with {} held packets: {} bytes", number("held"), number("length")),
        "prepared" => match step["variant"].as_str() {
            Some(variant) => format!("{function} prepares it for {variant}"),
            None => format!("{function} completes it on the host"),
        },
        "binned" => format!("{function}: in a bin of {device}, {}", field("variant")),
        "submitted" => format!(
            "to {device}: chunk {}, bin {} of {}, one of {} packets in the bin and {} in the chunk",
            number("chunk"),
            number("bin"),
            number("bins"),
            number("bin_packets"),
            number("chunk_packets")
        ),
        "not_taken" => format!("{device} does not accept the chunk"),
        "returned" => format!("back from {device}"),
        "verdict" => {
            let continued = if step["on_device"] == true { ", on the device" } else { "" };
            format!("{function} returns {}: {}{continued}", field("verdict"), next(&step["next"]))
        }
        "copied" => format!("copied for port {}", field("port")),
        "copy_dropped" => format!("no copy for port {}: {} ({})", field("port"), field("reason"), field("counter")),
        "sent" => format!("sent by {}, {} bytes", field("port"), number("length")),
        "handed_over" => format!("given to the sender thread of port {}, {} bytes", field("port"), number("length")),
        "sent_or_refused" => format!(
            "given to port {}, {} bytes; the port refused {} of these {} packets and does not report which",
            field("port"),
            number("length"),
            number("refused"),
            number("packets")
        ),
        "dropped" => format!("dropped: {} ({})", field("reason"), field("counter")),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_step_is_a_line() {
        let traced = json!({
            "number": 3, "worker": 1, "port": "lan", "length": 60, "ethertype": 0x0800, "fate": "dropped",
            "source": "2001:db8::1", "destination": "2001:db8::2", "protocol": 17, "source_port": 1024, "destination_port": 53,
            "steps": [
                { "at_ns": 250, "step": "received", "class": "default", "next": { "function": "route" } },
                { "at_ns": 1_500_000, "step": "verdict", "function": "route", "verdict": "forward", "next": "drop", "on_device": false },
                { "at_ns": 1_500_100, "step": "dropped", "counter": "engine_dropped_chain", "reason": "No edge." },
            ],
        });
        let expected = "packet 3  [2001:db8::1]:1024 > [2001:db8::2]:53 udp  60 bytes  worker 1\n\
            \x20     0.2 us  received by lan, class default, to function route\n\
            \x20  1500.0 us  route returns forward: to `drop`\n\
            \x20  1500.1 us  dropped: No edge. (engine_dropped_chain)\n";
        assert_eq!(packet(&traced), expected);
        let arp =
            json!({ "number": 1, "worker": 0, "length": 60, "ethertype": 0x0806, "steps": [], "fate": "in_flight" });
        assert_eq!(packet(&arp).lines().next(), Some("packet 1  EtherType 0x0806  60 bytes  worker 0"));
    }
}
