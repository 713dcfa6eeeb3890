//! Control commands that change and list the entries of one table: `add`, `remove` and `list`.

use serde_json::{Value, json};

use super::entry::{Change, Format};
use super::image::{Declared, State};
use super::shapes::refusal;
use crate::request::refuse_unknown;
use crate::{Error, Running};

/// Maximum number of entries in a reply to the command `list`.
const LISTED_MAX: usize = 10_000;

impl Declared {
    /// Runs a control command. If one of several changes fails, the command stops, and the reply
    /// names the failed entry.
    pub(crate) fn command(&self, request: &Value, running: &dyn Running) -> Result<Value, Error> {
        refuse_unknown(request, &[("add", &["table", "rows"]), ("remove", &["table", "rows"]), ("list", &["table"])])?;
        let (image, mut tables) = self.parts();
        let wanted = request.get("table").and_then(Value::as_str).unwrap_or_default();
        let known: Vec<String> = tables.iter().map(|table| table.name.clone()).collect();
        let Some(table) = tables.iter_mut().find(|table| table.name == wanted) else {
            return Err(refusal(match known.is_empty() {
                true => "the function has no tables, so it takes no commands".to_owned(),
                false => format!("\"table\" must be one of `{}`", known.join("`, `")),
            }));
        };
        let changes = match request.get("command").and_then(Value::as_str) {
            Some("list") => return Ok(list(table)),
            Some("add") => rows(request)?.iter().map(|row| added(&table.format, row)).collect::<Result<Vec<_>, _>>()?,
            Some("remove") => rows(request)?.iter().map(|row| removed(table, row)).collect::<Result<Vec<_>, _>>()?,
            _ => return Err(refusal("a table takes the commands add, remove and list")),
        };
        let new = changes.iter().filter(|(key, row)| row.is_some() && !table.entries.contains_key(key)).count();
        if table.entries.len() + new > table.capacity {
            let message =
                format!("table `{}` holds at most {} entries: raise its `capacity`", table.name, table.capacity);
            return Err(refusal(message));
        }
        let result = table.content.change(image, &changes, running);
        let done = result.as_ref().map_or_else(|(done, _)| *done, |()| changes.len());
        for (key, row) in changes.into_iter().take(done) {
            match row {
                Some(row) => table.entries.insert(key, row),
                None => table.entries.remove(&key),
            };
        }
        match result {
            Ok(()) => Ok(json!({ "changed": done })),
            Err((0, error)) => Err(error),
            Err((done, error)) => Err(refusal(format!("after {done} changes: {error}"))),
        }
    }
}

/// Returns the rows of a request. Each row is a list of words.
fn rows(request: &Value) -> Result<Vec<Vec<&str>>, Error> {
    let refuse = || refusal("the command needs \"rows\": [[\"VALUE\", \"COLUMN=VALUE\", ...], ...]");
    let rows = request.get("rows").and_then(Value::as_array).filter(|rows| !rows.is_empty()).ok_or_else(refuse)?;
    rows.iter().map(words).collect::<Option<_>>().ok_or_else(refuse)
}

fn words(row: &Value) -> Option<Vec<&str>> {
    row.as_array()?.iter().map(Value::as_str).collect()
}

/// Returns the text of each column in a command. A word such as `name=text` sets the column `name`.
/// Any other word sets the next column.
fn texts<'a>(columns: &[String], words: &[&'a str]) -> Result<Vec<&'a str>, Error> {
    let mut texts: Vec<Option<&str>> = vec![None; columns.len()];
    let mut next = 0;
    for word in words {
        let named = word
            .split_once('=')
            .and_then(|(name, value)| Some((columns.iter().position(|column| column == name)?, value)));
        let (index, value) = named.unwrap_or((next, word));
        next = index + 1;
        match texts.get_mut(index) {
            Some(text @ None) => *text = Some(value),
            Some(Some(_)) => return Err(refusal(format!("column `{}` has two values", columns[index]))),
            None => {
                return Err(refusal(format!(
                    "`{}` is one value too many: the columns are {}",
                    word.escape_debug(),
                    columns.join(", ")
                )));
            }
        }
    }
    let missing = |(text, column): (Option<&'a str>, &String)| {
        text.ok_or_else(|| refusal(format!("column `{column}` is missing: the columns are {}", columns.join(", "))))
    };
    texts.into_iter().zip(columns).map(missing).collect()
}

fn added(format: &Format, words: &[&str]) -> Result<Change, Error> {
    let (key, row) = format.entry(&texts(format.columns(), words)?).map_err(Error::in_command)?;
    Ok((key, Some(row)))
}

fn removed(table: &State, words: &[&str]) -> Result<Change, Error> {
    let key = table.format.parse_key(&texts(table.format.key_names(), words)?).map_err(Error::in_command)?;
    match table.entries.contains_key(&key) {
        true => Ok((key, None)),
        false => Err(refusal(format!("table `{}` has no entry {}", table.name, words.join(" ")))),
    }
}

fn list(table: &State) -> Value {
    let entries = table.entries.iter().take(LISTED_MAX);
    let rows: Vec<Vec<String>> = entries.map(|(key, row)| table.format.texts(key, row)).collect();
    json!({ "columns": table.format.columns(), "rows": rows, "total": table.entries.len() })
}
