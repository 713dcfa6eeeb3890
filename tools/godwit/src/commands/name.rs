//! `godwit name`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::control::{Connection, Target};
use crate::failure::Failure;
use crate::output::{self, Json};

/// Maximum number of names per request. Each request succeeds or fails as a whole.
const REQUEST_NAMES: usize = 4096;
/// Approximate maximum total length of the names in a request, in bytes.
const REQUEST_BYTES: usize = 512 << 10;

/// Change or list the names and next hops of an `ndn` function in a running godwit.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: NameCommand,
}

#[derive(Subcommand)]
enum NameCommand {
    /// Add names, or change their next hop.
    Add(AddArguments),
    /// Delete names.
    Delete(DeleteArguments),
    /// List names with their next hops.
    List(ListArguments),
    /// Add next hops, or change existing ones.
    NextHop(NextHopArguments),
}

#[derive(Args)]
struct AddArguments {
    #[command(flatten)]
    target: Target,
    /// File with lines `NAME NEXT_HOP`; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prefix", "next_hop"])]
    file: Option<PathBuf>,
    /// Name, as an NDN URI.
    #[arg(required_unless_present = "file", requires = "next_hop")]
    prefix: Option<String>,
    /// Configured name of the next hop.
    next_hop: Option<String>,
}

#[derive(Args)]
struct DeleteArguments {
    #[command(flatten)]
    target: Target,
    /// Names, as NDN URIs.
    #[arg(required = true)]
    prefix: Vec<String>,
}

#[derive(Args)]
struct ListArguments {
    #[command(flatten)]
    target: Target,
    /// Only names that begin with this one.
    #[arg(long, value_name = "PREFIX", conflicts_with = "prefix")]
    below: Option<String>,
    /// Write the list as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these names. Default: the first 10000 names.
    prefix: Vec<String>,
}

#[derive(Args)]
struct NextHopArguments {
    #[command(flatten)]
    target: Target,
    /// TOML file with `[[next_hop]]` stanzas; - is standard input. The keys are those of
    /// `[[function.next_hop]]` in a configuration.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        NameCommand::Add(arguments) => add(arguments),
        NameCommand::Delete(DeleteArguments { target, prefix }) => {
            let result = send(target, &mut target.socket.connect()?, "delete", json!({ "prefix": prefix }))?;
            output::print(&format!("{} deleted\n", plural(&result["deleted"])))
        }
        NameCommand::List(arguments) => list(arguments),
        NameCommand::NextHop(NextHopArguments { target, file }) => {
            let stanzas = read_next_hops(file)?;
            let result = send(target, &mut target.socket.connect()?, "next_hop", json!({ "next_hop": stanzas }))?;
            let count = result["next_hops"].as_u64().unwrap_or(0);
            output::print(&format!("{count} next {} set\n", if count == 1 { "hop" } else { "hops" }))
        }
    }
}

/// Sends a request with these fields to the function.
fn send(target: &Target, connection: &mut Connection, command: &str, fields: Value) -> Result<Value, Failure> {
    let mut request = target.request(&["ndn"], command);
    for (key, value) in fields.as_object().into_iter().flatten() {
        request[key] = value.clone();
    }
    connection.send(&request)
}

fn plural(count: &Value) -> String {
    let count = count.as_u64().unwrap_or(0);
    format!("{count} {}", if count == 1 { "name" } else { "names" })
}

fn read(path: &Path) -> Result<String, Failure> {
    let text =
        if path == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    text.map_err(|error| Failure::User(format!("cannot read {}: {error}", path.display())))
}

fn add(arguments: &AddArguments) -> Result<(), Failure> {
    let AddArguments { target, file, prefix, next_hop } = arguments;
    let routes = match (file, prefix, next_hop) {
        (Some(file), ..) => read_names(file)?,
        (None, Some(prefix), Some(next_hop)) => vec![(prefix.clone(), next_hop.clone())],
        _ => return Err(Failure::User("a name and its next hop are missing: give both, or --file FILE".to_owned())),
    };
    let mut connection = target.socket.connect()?;
    let (mut batch, mut bytes, mut sent) = (Vec::new(), 0, 0);
    let count = routes.len();
    for (index, (prefix, next_hop)) in routes.into_iter().enumerate() {
        bytes += prefix.len() + next_hop.len() + 32;
        batch.push(json!({ "prefix": prefix, "next_hop": next_hop }));
        if batch.len() == REQUEST_NAMES || bytes >= REQUEST_BYTES || index + 1 == count {
            let batch_len = batch.len();
            let result = send(target, &mut connection, "add", json!({ "route": std::mem::take(&mut batch) }));
            result.map_err(|error| match sent {
                0 => error,
                _ => Failure::User(format!("{error}; {} of the file were already added", plural(&sent.into()))),
            })?;
            (sent, bytes) = (sent + batch_len, 0);
        }
    }
    output::print(&format!("{} added\n", plural(&sent.into())))
}

/// Reads lines of the form `NAME NEXT_HOP`. Unlike in a configured file, the next hop is required.
fn read_names(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let mut routes = Vec::new();
    for (line, text) in (1..).zip(read(path)?.lines()) {
        let mut words = text.split_ascii_whitespace().take_while(|word| !word.starts_with(['#', ';']));
        let Some(prefix) = words.next() else { continue };
        match (words.next(), words.next()) {
            (Some(next_hop), None) => routes.push((prefix.to_owned(), next_hop.to_owned())),
            _ => {
                let message = format!("{}:{line}: expected NAME NEXT_HOP", path.display());
                return Err(Failure::User(message));
            }
        }
    }
    if routes.is_empty() {
        return Err(Failure::User(format!("{}: the file contains no name", path.display())));
    }
    Ok(routes)
}

fn read_next_hops(path: &Path) -> Result<Vec<Value>, Failure> {
    let origin = path.display();
    let table: toml::Table = read(path)?
        .parse()
        .map_err(|error: toml::de::Error| Failure::User(format!("{origin}: {}", error.message())))?;
    // A stanza from a configuration has the prefix `function.`.
    let nested = table.get("function").and_then(toml::Value::as_table);
    let stanzas = table.get("next_hop").or_else(|| nested?.get("next_hop")).and_then(toml::Value::as_array);
    let Some(stanzas) = stanzas.filter(|stanzas| !stanzas.is_empty()) else {
        return Err(Failure::User(format!("{origin}: the file contains no [[next_hop]]")));
    };
    let values = stanzas.iter().map(serde_json::to_value).collect::<Result<_, _>>();
    values.map_err(|_| {
        Failure::User(format!("{origin}: a [[next_hop]] contains a value without a form in JSON, such as a date"))
    })
}

fn list(arguments: &ListArguments) -> Result<(), Failure> {
    let ListArguments { target, below, json, prefix } = arguments;
    let json = Json::open(json.as_deref())?;
    let request = match (below, prefix.is_empty()) {
        (Some(below), _) => json!({ "below": below }),
        (None, true) => json!({}),
        (None, false) => json!({ "prefix": prefix }),
    };
    let list = send(target, &mut target.socket.connect()?, "list", request)?;
    let mut text = String::new();
    for route in list["route"].as_array().into_iter().flatten() {
        let word = |key: &str| route[key].as_str().unwrap_or("?").to_owned();
        text += &format!("{}  {}\n", word("prefix"), word("next_hop"));
    }
    text += &format!("{} in the table\n", plural(&list["names"]));
    output::print_text(&json, &text)?;
    json.write(&list)
}
