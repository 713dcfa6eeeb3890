//! `godwit function`

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::control::Socket;
use crate::failure::Failure;
use crate::output::{self, Json};

/// Number of rows in one request.
const ROWS_AT_ONCE: usize = 1000;

/// Change or list a table that a function of a running godwit declares.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
    /// Configured name of the function.
    name: String,
    /// Name of the table.
    table: String,
    command: TableCommand,
    /// Values of one row, in column order or as COLUMN=VALUE. `remove` needs only the key columns.
    words: Vec<String>,
    /// File of rows. The first line names the columns, and commas separate values.
    #[arg(long, value_name = "FILE", conflicts_with = "words")]
    file: Option<PathBuf>,
    /// Write the list as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TableCommand {
    /// Add rows. A row replaces the row with the same key.
    Add,
    /// Remove rows.
    Remove,
    /// List the rows.
    List,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { socket, name, table, command, words, file, json } = arguments;
    let mut connection = socket.connect()?;
    let request = |command: &str| json!({ "function": name, "table": table, "command": command });
    let command = match command {
        TableCommand::List => {
            let json = Json::open(json.as_deref())?;
            let list = connection.send(&request("list"))?;
            output::print_text(&json, &text(&list))?;
            return json.write(&list);
        }
        TableCommand::Add => "add",
        TableCommand::Remove => "remove",
    };
    let rows = match file {
        Some(file) => rows(file)?,
        None if words.is_empty() => {
            return Err(Failure::User("a row is missing: give its values, or --file".to_owned()));
        }
        None => vec![words.clone()],
    };
    let mut changed = 0;
    for rows in rows.chunks(ROWS_AT_ONCE) {
        let mut request = request(command);
        request["rows"] = json!(rows);
        changed += connection.send(&request)?["changed"].as_u64().unwrap_or(0);
    }
    output::print(&format!("{changed} changed\n"))
}

/// Reads a file of rows.
fn rows(path: &Path) -> Result<Vec<Vec<String>>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::User(format!("{}: {error}", path.display())))?;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().map_or(Vec::new(), |(_, line)| line.split(',').map(str::trim).collect());
    let row = |(number, line): (usize, &str)| {
        let values: Vec<&str> = line.split(',').map(str::trim).collect();
        if values.len() != columns.len() {
            let (found, expected) = (values.len(), columns.len());
            let message =
                format!("{}:{number}: {found} values, and the first line names {expected} columns", path.display());
            return Err(Failure::User(message));
        }
        Ok(columns.iter().zip(values).map(|(column, value)| format!("{column}={value}")).collect())
    };
    lines.map(row).collect()
}

/// Returns the list as a table.
fn text(list: &Value) -> String {
    let words = |row: &Value| -> Vec<String> {
        row.as_array().into_iter().flatten().map(|word| word.as_str().unwrap_or_default().to_owned()).collect()
    };
    let rows = list["rows"].as_array().into_iter().flatten().map(words);
    let lines: Vec<Vec<String>> = std::iter::once(words(&list["columns"])).chain(rows).collect();
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text += "\n";
    }
    let (shown, total) = (lines.len() as u64 - 1, list["total"].as_u64().unwrap_or(0));
    if shown < total {
        text += &format!("{shown} of {total} rows\n");
    }
    text
}
