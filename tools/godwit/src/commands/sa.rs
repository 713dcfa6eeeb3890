//! `godwit sa`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::control::{Connection, Target};
use crate::failure::Failure;
use crate::log;
use crate::output::{self, Json};
use crate::secret::{self, Secret};
use crate::table::{self, Align, Table};

/// Approximate maximum length of the SAs in a request, in bytes. Each request succeeds or fails as
/// a whole.
const REQUEST_BYTES: usize = 256 << 10;

/// Change or list the security associations and policies of an `ipsec` function in a running
/// godwit.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: SaCommand,
}

#[derive(Subcommand)]
enum SaCommand {
    /// Add the SAs of a file.
    Add(FileArguments),
    /// Replace running SAs with the SAs of the same names in a file.
    Replace(FileArguments),
    /// Delete SAs and wipe their keys.
    Delete(NameArguments),
    /// List SAs with their counters. Keys are never shown.
    List(ListArguments),
    /// List the policies in evaluation order, or replace all policies.
    Policies(PolicyArguments),
}

#[derive(Args)]
struct FileArguments {
    #[command(flatten)]
    target: Target,
    /// TOML file with `[[sa]]` stanzas; - is standard input. The keys are those of
    /// `[[function.sa]]` in a configuration.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

#[derive(Args)]
struct NameArguments {
    #[command(flatten)]
    target: Target,
    /// Names of SAs.
    #[arg(required = true)]
    names: Vec<String>,
}

#[derive(Args)]
struct ListArguments {
    #[command(flatten)]
    target: Target,
    /// Write the list as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Names of SAs. Default: all.
    names: Vec<String>,
}

#[derive(Args)]
struct PolicyArguments {
    #[command(flatten)]
    target: Target,
    /// TOML file with `[[policy]]` stanzas, which replace all policies; - is standard input. The
    /// keys are those of `[[function.policy]]` in a configuration. Without this option, the
    /// policies are listed.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write the list as JSON; - is standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    json: Option<PathBuf>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        SaCommand::Add(arguments) => change(arguments, "add", "added"),
        SaCommand::Replace(arguments) => change(arguments, "replace", "replaced"),
        SaCommand::Delete(NameArguments { target, names }) => {
            send(target, &mut target.socket.connect()?, "delete", "sa", names.clone().into())?;
            output::print(&format!("{} deleted\n", plural(names.len())))
        }
        SaCommand::List(ListArguments { target, json, names }) => {
            let json = Json::open(json.as_deref())?;
            let names = if names.is_empty() { Value::Null } else { names.clone().into() };
            let list = send(target, &mut target.socket.connect()?, "list", "sa", names)?;
            output::print_text(&json, &associations(&list))?;
            json.write(&list)
        }
        SaCommand::Policies(PolicyArguments { target, file: Some(file), .. }) => {
            let stanzas = read(file, "policy")?.iter_mut().map(|policy| policy.0.take()).collect();
            send(target, &mut target.socket.connect()?, "policies", "policy", Value::Array(stanzas))?;
            output::print("the policies are replaced\n")
        }
        SaCommand::Policies(PolicyArguments { target, file: None, json }) => {
            let json = Json::open(json.as_deref())?;
            let list = send(target, &mut target.socket.connect()?, "policies", "policy", Value::Null)?;
            output::print_text(&json, &policies(&list))?;
            json.write(&list)
        }
    }
}

/// Sends a request to the function. `values` are stored under `key`, unless they are null.
fn send(
    target: &Target,
    connection: &mut Connection,
    command: &str,
    key: &str,
    values: Value,
) -> Result<Value, Failure> {
    let mut request = Secret(target.request(&["ipsec"], command));
    if !values.is_null() {
        request.0[key] = values;
    }
    connection.send(&request.0)
}

fn plural(count: usize) -> String {
    format!("{count} {}", if count == 1 { "SA" } else { "SAs" })
}

/// Sends the SAs of a file, in requests of limited length.
fn change(arguments: &FileArguments, command: &str, done: &str) -> Result<(), Failure> {
    let FileArguments { target, file } = arguments;
    let sas = read(file, "sa")?;
    let mut connection = target.socket.connect()?;
    let (mut batch, mut batch_bytes, mut sent) = (Vec::new(), 0, 0);
    let count = sas.len();
    for (index, mut sa) in sas.into_iter().enumerate() {
        batch_bytes += secret::line(&sa.0).len();
        batch.push(sa.0.take());
        if batch_bytes >= REQUEST_BYTES || index + 1 == count {
            let batch_len = batch.len();
            let result = send(target, &mut connection, command, "sa", std::mem::take(&mut batch).into());
            let result = result.map_err(|error| match sent {
                0 => error,
                _ => Failure::User(format!("{error}; {} of the file were already {done}", plural(sent))),
            })?;
            for warning in result["warnings"].as_array().into_iter().flatten() {
                log::line(format_args!("godwit: warning: {}", warning.as_str().unwrap_or_default()));
            }
            sent += batch_len;
            batch_bytes = 0;
        }
    }
    output::print(&format!("{} {done}\n", plural(sent)))
}

/// Reads the `[[name]]` stanzas of a file. Error messages never quote the file, because it may
/// contain keys.
fn read(path: &Path, name: &str) -> Result<Vec<Secret>, Failure> {
    let origin = path.display();
    let text = secret::read(path).map_err(|error| Failure::User(format!("cannot read {origin}: {error}")))?;
    // The table borrows its strings from `text`, so no copies of keys exist.
    let table = DeTable::parse(&text).map_err(|error| {
        let before = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..before].iter().filter(|&&byte| byte == b'\n').count();
        Failure::User(format!("{origin}:{line}: invalid TOML"))
    })?;
    let table = table.get_ref();
    // A stanza from a configuration has the prefix `function.`.
    let nested = table.get("function").and_then(|function| function.get_ref().as_table());
    let stanzas = table.get(name).or_else(|| nested?.get(name)).and_then(|stanzas| stanzas.get_ref().as_array());
    let other = table.keys().chain(nested.into_iter().flat_map(|table| table.keys()));
    if let Some(key) = other.map(|key| &**key.get_ref()).find(|key| *key != name && *key != "function") {
        let message = format!("{origin}: unknown key `{key}`: the file may contain only [[{name}]] stanzas");
        return Err(Failure::User(message));
    }
    let Some(stanzas) = stanzas.filter(|stanzas| !stanzas.is_empty()) else {
        return Err(Failure::User(format!("{origin}: the file contains no [[{name}]]")));
    };
    let value = |stanza: &Spanned<DeValue<'_>>| json(stanza.get_ref()).map(Secret);
    let values: Option<Vec<Secret>> = stanzas.iter().map(value).collect();
    values.ok_or_else(|| {
        Failure::User(format!("{origin}: a [[{name}]] contains a value without a form in JSON, such as a date"))
    })
}

/// Converts a TOML value to JSON. Returns `None` for dates, infinities and NaN, which JSON lacks.
fn json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::String(text.clone().into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok()?.into(),
        DeValue::Float(number) => number.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64)?.into(),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Datetime(_) => return None,
        DeValue::Array(values) => values.iter().map(|value| json(value.get_ref())).collect::<Option<_>>()?,
        DeValue::Table(table) => {
            let pairs = table.iter().map(|(key, value)| Some((key.get_ref().to_string(), json(value.get_ref())?)));
            Value::Object(pairs.collect::<Option<_>>()?)
        }
    })
}

/// Returns a table with one row per SA.
fn associations(list: &Value) -> String {
    let left = ["SA", "direction", "SPI", "source", "destination", "mode", "suite"].map(|title| (title, Align::Left));
    let right = ["sequence", "packets", "bytes", "dropped"].map(|title| (title, Align::Right));
    let mut table = Table::new(&[&left[..], &right[..], &[("state", Align::Left), ("", Align::Left)]].concat());
    for sa in list["sa"].as_array().into_iter().flatten() {
        let word = |key: &str| sa[key].as_str().unwrap_or("?").to_owned();
        let number = |key: &str| sa[key].as_u64().map_or_else(|| "?".to_owned(), table::grouped);
        let drops = sa.as_object().into_iter().flatten().filter(|(key, _)| key.starts_with("dropped_"));
        let dropped: u64 = drops.filter_map(|(_, count)| count.as_u64()).sum();
        table.row(vec![
            word("name"),
            word("direction"),
            format!("{:#x}", sa["spi"].as_u64().unwrap_or(0)),
            word("source"),
            word("destination"),
            word("mode"),
            word("suite"),
            number("sequence"),
            number("packets"),
            number("bytes"),
            table::grouped(dropped),
            word("state"),
            details(sa),
        ]);
    }
    table.text()
}

/// Returns the optional SA properties: its configuration and its drop reasons.
fn details(sa: &Value) -> String {
    let mut details = Vec::new();
    for (key, value) in sa.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("esn", Value::Bool(true)) => details.push("extended sequence numbers".to_owned()),
            ("replay_window", window) => details.push(format!("window {window}")),
            ("policies", count) => {
                details.push(if *count == 1 { "1 policy".into() } else { format!("{count} policies") })
            }
            ("udp_encapsulation", ports) => {
                details.push(format!("UDP {} to {}", ports["source_port"], ports["destination_port"]));
            }
            ("lifetime", limits) => {
                let limits = limits.as_object().into_iter().flatten();
                details.extend(limits.map(|(name, limit)| format!("{} {limit}", name.replace('_', " "))));
            }
            (key, count) if count.as_u64() > Some(0) => {
                details.extend(key.strip_prefix("dropped_").map(|reason| format!("dropped, {reason}: {count}")));
            }
            _ => {}
        }
    }
    details.join(", ")
}

/// Returns a table with one row per policy, in order of evaluation.
fn policies(list: &Value) -> String {
    let left = ["action", "source", "destination", "protocol", "source ports", "destination ports", "SA"];
    let mut table = Table::new(&[&[("", Align::Right)][..], &left.map(|title| (title, Align::Left))].concat());
    let keys = ["action", "source", "destination", "protocol", "source_ports", "destination_ports", "sa"];
    for (number, policy) in (1..).zip(list["policy"].as_array().into_iter().flatten()) {
        let cell = |key: &str| match &policy[key] {
            Value::Null if key == "sa" => String::new(),
            Value::Null => "any".to_owned(),
            Value::String(word) => word.clone(),
            number => number.to_string(),
        };
        table.row(std::iter::once(number.to_string()).chain(keys.map(cell)).collect());
    }
    table.text()
}
