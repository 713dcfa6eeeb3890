//! `godwit route`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::control::Target;
use crate::failure::Failure;
use crate::output::{self, Json};
use crate::table::{Align, Table};

/// Maximum number of routes per request.
const REQUEST_ROUTES: usize = 4096;

/// Change or list the routes of a function in a running godwit.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: RouteCommand,
}

#[derive(Subcommand)]
enum RouteCommand {
    /// Add routes, or change the next hop of existing ones.
    Add(AddArguments),
    /// Delete routes. Their addresses then use the next shorter prefixes.
    Delete(DeleteArguments),
    /// List routes and their next hops.
    List(ListArguments),
}

#[derive(Args)]
struct AddArguments {
    #[command(flatten)]
    target: Target,
    /// File with lines `PREFIX NEXT_HOP`; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prefix", "next_hop"])]
    file: Option<PathBuf>,
    /// Prefix, such as 192.0.2.0/24.
    #[arg(required_unless_present = "file")]
    prefix: Option<String>,
    /// Configured name of the next hop. If the function follows the kernel: `via ADDRESS`, and
    /// optionally `port PORT`.
    #[arg(required_unless_present = "file", num_args = 1..=4)]
    next_hop: Vec<String>,
}

#[derive(Args)]
struct DeleteArguments {
    #[command(flatten)]
    target: Target,
    /// Prefixes of routes.
    #[arg(required = true, value_name = "PREFIX")]
    prefixes: Vec<String>,
}

#[derive(Args)]
struct ListArguments {
    #[command(flatten)]
    target: Target,
    /// Write the list as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only the route of packets to this address.
    #[arg(long, conflicts_with = "prefix")]
    address: Option<String>,
    /// Only this route.
    prefix: Option<String>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        RouteCommand::Add(AddArguments { target, file, prefix, next_hop }) => {
            let routes = match file {
                Some(file) => read(file)?,
                None => vec![added(prefix.as_deref().unwrap_or_default(), next_hop)?],
            };
            change(target, "add", "added", &routes)
        }
        RouteCommand::Delete(DeleteArguments { target, prefixes }) => {
            let routes: Vec<Value> = prefixes.iter().map(|prefix| prefix.as_str().into()).collect();
            change(target, "delete", "deleted", &routes)
        }
        RouteCommand::List(ListArguments { target, json, address, prefix }) => {
            let json = Json::open(json.as_deref())?;
            let named = prefix.as_ref().or(address.as_ref()).map_or("", String::as_str);
            let mut request = target.request(kinds(named), "list");
            for (key, value) in [("address", address), ("prefix", prefix)] {
                if let Some(value) = value {
                    request[key] = value.as_str().into();
                }
            }
            let list = target.socket.connect()?.send(&request)?;
            if list["routes"] == 0 {
                match (prefix, address) {
                    (Some(prefix), _) => return Err(Failure::User(format!("there is no route for {prefix}"))),
                    (_, Some(address)) => return Err(Failure::User(format!("no route covers {address}"))),
                    _ => {}
                }
            }
            output::print_text(&json, &text(&list))?;
            json.write(&list)
        }
    }
}

/// Returns the function kinds that support a route for an address or a prefix.
fn kinds(prefix: &str) -> &'static [&'static str] {
    match (prefix.contains(':'), prefix.is_empty()) {
        (true, _) => &["ipv6"],
        (false, false) => &["ipv4"],
        (false, true) => &["ipv4", "ipv6"],
    }
}

/// Parses the arguments `PREFIX NEXT_HOP` or `PREFIX via ADDRESS [port PORT]`.
fn added(prefix: &str, words: &[String]) -> Result<Value, Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [next_hop] => Ok(json!({ "prefix": prefix, "next_hop": next_hop })),
        ["via", gateway] => Ok(json!({ "prefix": prefix, "via": gateway })),
        ["via", gateway, "port", port] => Ok(json!({ "prefix": prefix, "via": gateway, "port": port })),
        _ => Err(Failure::User("expected PREFIX NEXT_HOP, or PREFIX via ADDRESS [port PORT]".to_owned())),
    }
}

fn change(target: &Target, command: &str, done: &str, routes: &[Value]) -> Result<(), Failure> {
    let mut connection = target.socket.connect()?;
    let first = routes.first().and_then(|route| route.as_str().or_else(|| route["prefix"].as_str()));
    let kinds = kinds(first.unwrap_or_default());
    let mut sent = 0;
    for part in routes.chunks(REQUEST_ROUTES) {
        let mut request = target.request(kinds, command);
        request["route"] = part.into();
        connection.send(&request).map_err(|error| match sent {
            0 => error,
            _ => Failure::User(format!("{error}; {} of the file were already {done}", plural(sent))),
        })?;
        sent += part.len();
    }
    output::print(&format!("{} {done}\n", plural(sent)))
}

fn plural(count: usize) -> String {
    format!("{count} {}", if count == 1 { "route" } else { "routes" })
}

/// Reads the routes of a file.
fn read(path: &Path) -> Result<Vec<Value>, Failure> {
    let origin = path.display();
    let text =
        if path == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    let text = text.map_err(|error| Failure::User(format!("cannot read {origin}: {error}")))?;
    let mut routes = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let words: Vec<&str> = line.split(['#', ';']).next().unwrap_or_default().split_whitespace().collect();
        match words[..] {
            [] => {}
            [prefix, next_hop] => routes.push(json!({ "prefix": prefix, "next_hop": next_hop })),
            _ => return Err(Failure::User(format!("{origin}:{number}: expected PREFIX NEXT_HOP"))),
        }
    }
    match routes.is_empty() {
        true => Err(Failure::User(format!("{origin}: the file contains no route"))),
        false => Ok(routes),
    }
}

/// Returns a table with one row per route. An unknown field is empty.
fn text(list: &Value) -> String {
    let columns = ["route", "next hop", "leads", "port", "MTU", "source MAC", "destination MAC"];
    let keys = ["prefix", "next_hop", "leads", "port", "mtu", "source_mac", "destination_mac"];
    let mut table = Table::new(&columns.map(|title| (title, Align::Left)));
    let routes = list["route"].as_array().map(Vec::as_slice).unwrap_or_default();
    for route in routes {
        let cell = |key: &str| match &route[key] {
            Value::Null => String::new(),
            Value::String(word) => word.clone(),
            number => number.to_string(),
        };
        table.row(keys.map(cell).to_vec());
    }
    let mut text = table.text();
    if let Some(count) = list["routes"].as_u64().filter(|count| *count > routes.len() as u64) {
        text += &format!("and {} more\n", count - routes.len() as u64);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_hop_is_a_name_or_a_gateway() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let route = |text: &str| added("10.0.0.0/8", &words(text)).ok();
        assert_eq!(route("wan"), Some(json!({ "prefix": "10.0.0.0/8", "next_hop": "wan" })));
        assert_eq!(route("via"), Some(json!({ "prefix": "10.0.0.0/8", "next_hop": "via" })));
        assert_eq!(route("via 192.0.2.1"), Some(json!({ "prefix": "10.0.0.0/8", "via": "192.0.2.1" })));
        let with_port = json!({ "prefix": "10.0.0.0/8", "via": "192.0.2.1", "port": "wan" });
        assert_eq!(route("via 192.0.2.1 port wan"), Some(with_port));
        for wrong in ["via 192.0.2.1 dev wan", "via 192.0.2.1 port", "wan lan"] {
            assert_eq!(route(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn routes_are_a_table_with_names_of_ports() {
        let list = json!({ "routes": 3, "route": [
            { "prefix": "0.0.0.0/0", "next_hop": "up", "leads": "to a station", "port": "wan" },
            { "prefix": "10.0.0.0/8", "leads": "to this machine" },
        ] });
        let lines: Vec<String> = text(&list).lines().map(str::to_owned).collect();
        assert!(lines[1].starts_with("  0.0.0.0/0   up        to a station     wan"), "{lines:?}");
        assert!(lines[2].starts_with("  10.0.0.0/8            to this machine"), "{lines:?}");
        assert_eq!(lines[3], "and 1 more");
    }
}
