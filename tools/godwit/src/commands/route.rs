//! `godwit route`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::control::Target;
use crate::failure::Failure;
use crate::output::{self, Json};

/// Maximum number of routes per request.
const REQUEST_ROUTES: usize = 4096;

/// Change or list the routes of a function of a running godwit.
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
    /// Configured name of the next hop.
    #[arg(required_unless_present = "file")]
    next_hop: Option<String>,
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
                None => vec![json!({ "prefix": prefix, "next_hop": next_hop })],
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
            output::print_text(&json, &text(&list))?;
            json.write(&list)
        }
    }
}

/// Returns the kinds of functions that may have a route for an address or a prefix.
fn kinds(prefix: &str) -> &'static [&'static str] {
    match (prefix.contains(':'), prefix.is_empty()) {
        (true, _) => &["ipv6"],
        (false, false) => &["ipv4"],
        (false, true) => &["ipv4", "ipv6"],
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

/// Returns one line per route: its prefix and its other fields.
fn text(list: &Value) -> String {
    let mut text = String::new();
    let routes = list["route"].as_array().map(Vec::as_slice).unwrap_or_default();
    for route in routes {
        text += route["prefix"].as_str().unwrap_or("?");
        for (key, value) in route.as_object().into_iter().flatten().filter(|(key, _)| *key != "prefix") {
            match value.as_str() {
                Some(word) => text += &format!("  {key} {word}"),
                None => text += &format!("  {key} {value}"),
            }
        }
        text.push('\n');
    }
    if let Some(count) = list["routes"].as_u64().filter(|count| *count > routes.len() as u64) {
        text += &format!("and {} more\n", count - routes.len() as u64);
    }
    text
}
