//! `godwit mac`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::control::Target;
use crate::failure::Failure;
use crate::output::{self, Json};

/// Change or list the MAC addresses of an `l2` function in a running godwit.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: MacCommand,
}

#[derive(Subcommand)]
enum MacCommand {
    /// Add static addresses. Learned addresses become static.
    Add(AddArguments),
    /// Delete learned or static addresses.
    Delete(DeleteArguments),
    /// Delete all learned addresses.
    Flush(FlushArguments),
    /// List addresses, sorted by VLAN.
    List(ListArguments),
}

#[derive(Args)]
struct AddArguments {
    #[command(flatten)]
    target: Target,
    /// VLAN, 1 to 4094.
    #[arg(long, default_value_t = 1)]
    vlan: u16,
    /// Name of the stations' port.
    #[arg(long)]
    port: String,
    /// Ethernet addresses.
    #[arg(required = true)]
    addresses: Vec<String>,
}

#[derive(Args)]
struct DeleteArguments {
    #[command(flatten)]
    target: Target,
    /// VLAN, 1 to 4094.
    #[arg(long, default_value_t = 1)]
    vlan: u16,
    /// Ethernet addresses.
    #[arg(required = true)]
    addresses: Vec<String>,
}

#[derive(Args)]
struct Filter {
    /// Only addresses of this VLAN.
    #[arg(long)]
    vlan: Option<u16>,
    /// Only addresses of this port.
    #[arg(long)]
    port: Option<String>,
}

#[derive(Args)]
struct FlushArguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    filter: Filter,
    /// Delete static addresses too.
    #[arg(long = "static")]
    with_static: bool,
}

#[derive(Args)]
struct ListArguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    filter: Filter,
    /// Write the list as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        MacCommand::Add(AddArguments { target, vlan, port, addresses }) => {
            let mac = addresses.iter().map(|mac| json!({ "vlan": vlan, "mac": mac, "port": port }));
            let result = send(target, "add", json!({ "mac": mac.collect::<Vec<_>>() }))?;
            output::print(&format!("{} added\n", result["added"]))
        }
        MacCommand::Delete(DeleteArguments { target, vlan, addresses }) => {
            let mac = addresses.iter().map(|mac| json!({ "vlan": vlan, "mac": mac }));
            let result = send(target, "delete", json!({ "mac": mac.collect::<Vec<_>>() }))?;
            output::print(&format!("{} deleted\n", result["deleted"]))
        }
        MacCommand::Flush(FlushArguments { target, filter, with_static }) => {
            let mut request = filter.request();
            request["static"] = (*with_static).into();
            let result = send(target, "flush", request)?;
            output::print(&format!("{} flushed\n", result["flushed"]))
        }
        MacCommand::List(ListArguments { target, filter, json }) => {
            let json = Json::open(json.as_deref())?;
            let list = list(target, filter)?;
            output::print_text(&json, &text(&list))?;
            json.write(&json!({ "mac": list }))
        }
    }
}

/// Sends a request with these fields to the function.
fn send(target: &Target, command: &str, fields: Value) -> Result<Value, Failure> {
    let mut request = target.request(&["l2"], command);
    for (key, value) in fields.as_object().into_iter().flatten() {
        request[key] = value.clone();
    }
    target.socket.connect()?.send(&request)
}

impl Filter {
    fn request(&self) -> Value {
        let mut request = json!({});
        if let Some(vlan) = self.vlan {
            request["vlan"] = vlan.into();
        }
        if let Some(port) = &self.port {
            request["port"] = port.as_str().into();
        }
        request
    }
}

/// Returns all matching addresses, page by page. Addresses that change during the listing may be
/// missing.
fn list(target: &Target, filter: &Filter) -> Result<Vec<Value>, Failure> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let mut request = filter.request();
        if let Some(last) = all.last() {
            request["after"] = json!({ "vlan": last["vlan"], "mac": last["mac"] });
        }
        let mut page = send(target, "list", request)?;
        let Some(macs) = page["mac"].as_array_mut() else { return Ok(all) };
        all.append(macs);
        if page["left"].as_u64().unwrap_or(0) == 0 {
            return Ok(all);
        }
    }
}

/// Returns one line per address: VLAN, address and port in the format of a static address file, and
/// a comment with the address state.
fn text(list: &[Value]) -> String {
    let line = |mac: &Value| {
        let [address, port] = ["mac", "port"].map(|key| mac[key].as_str().unwrap_or("?"));
        let state = match mac["silent_s"].as_u64() {
            None => "static".to_owned(),
            Some(silent_s) => format!("silent for {silent_s} s"),
        };
        format!("{} {address} {port}  # {state}\n", mac["vlan"])
    };
    list.iter().map(line).collect()
}
