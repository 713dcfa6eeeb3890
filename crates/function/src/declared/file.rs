//! Parses files with table entries. Each line holds comma-separated values, and the first line
//! names the columns.

use std::collections::HashMap;
use std::path::Path;

use godwit_declare::Table;

use super::entry::{Format, Key, Row};
use crate::{Error, config};

/// Reads the entries of a table from a file. Skips empty lines and lines that begin with `#`.
pub(super) fn read(directory: &Path, name: &Path, table: &Table, format: &Format) -> Result<Vec<(Key, Row)>, Error> {
    let (path, bytes) = config::read_file(directory, name)?;
    let refuse = |line: usize, message: String| Error::Line { path: path.clone(), line, message };
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        refuse(1 + before.iter().filter(|byte| **byte == b'\n').count(), "the line is not UTF-8 text".to_owned())
    })?;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let expected = format.columns().join(",");
    let Some((number, header)) = lines.next() else {
        return Err(refuse(1, format!("the first line must name the columns: {expected}")));
    };
    let order = order(header, format).map_err(|error| refuse(number, error.to_string()))?;
    let mut entries = Vec::new();
    let mut lines_of: HashMap<Key, usize> = HashMap::new();
    for (number, line) in lines {
        // A pattern may contain commas.
        let values: Vec<&str> = match order.len() {
            1 => vec![line],
            _ => line.split(',').map(str::trim).collect(),
        };
        if values.len() != order.len() {
            let message =
                format!("the line has {} values, and {} columns are expected: {expected}", values.len(), order.len());
            return Err(refuse(number, message));
        }
        let texts: Vec<&str> = order.iter().map(|column| values[*column]).collect();
        let (key, row) = format.entry(&texts).map_err(|error| refuse(number, error.to_string()))?;
        if let Some(other) = lines_of.insert(key.clone(), number) {
            return Err(refuse(number, format!("line {other} has the same key: remove one of the lines")));
        }
        entries.push((key, row));
        if entries.len() > table.capacity as usize {
            let message =
                format!("the file has more entries than the capacity of table `{}`, {}", table.name, table.capacity);
            return Err(refuse(number, message));
        }
    }
    Ok(entries)
}

/// Returns the position of each table column in the lines of the file. `header` is the line that
/// names the columns.
fn order(header: &str, format: &Format) -> Result<Vec<usize>, Error> {
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let expected = format.columns();
    if let Some(unknown) = names.iter().find(|name| !expected.iter().any(|column| column == *name)) {
        let (unknown, expected) = (unknown.escape_debug(), expected.join(","));
        return Err(Error::value(format!("there is no column `{unknown}`: the columns are {expected}")));
    }
    let position = |column: &String| match names.iter().filter(|name| *name == column).count() {
        1 => Ok(names.iter().position(|name| name == column).unwrap_or_default()),
        0 => Err(Error::value(format!("column `{column}` is missing: the columns are {}", expected.join(",")))),
        _ => Err(Error::value(format!("column `{column}` appears twice"))),
    };
    expected.iter().map(position).collect()
}
