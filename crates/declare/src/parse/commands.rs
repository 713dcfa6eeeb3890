//! Reads the commands that a function implements in Rust.

use crate::Error;
use crate::declaration::{Column, Command, CommandArgument};
use crate::error::suggest;
use crate::head::check_name;

use super::section::Section;

/// Reads the TOML table `[commands]`: the command-line word of the function, and one table per
/// command.
pub(super) fn read(root: &mut Section<'_>) -> Result<(Option<String>, Vec<Command>), Error> {
    let Some(mut section) = root.section("commands")? else { return Ok((None, Vec::new())) };
    let alias = section.text("alias")?;
    let mut commands = Vec::new();
    for entry in section.entries() {
        let (name, line) = (entry.name.clone(), entry.line);
        check_name(&name, "command").map_err(|error| Error::at(line, error))?;
        let path = format!("commands.{name}");
        commands.push(command(name, section.section_of(entry, path)?)?);
    }
    Ok((alias, commands))
}

fn command(name: String, mut section: Section<'_>) -> Result<Command, Error> {
    let line = section.line();
    let text = section.require_text("text")?;
    let request = section.text("request")?.unwrap_or_else(|| name.clone());
    let noun = section.texts("noun")?.unwrap_or_default();
    let noun = match &noun[..] {
        [one, many] => (one.clone(), many.clone()),
        [] => ("row".to_owned(), "rows".to_owned()),
        _ => return section.refuse(format!("commands.{name}: `noun` must be [singular, plural]")),
    };
    let columns = section.texts("columns")?.unwrap_or_default();
    let columns = columns.iter().map(|column| {
        let (key, absent) = column.split_once('=').unwrap_or((column, "?"));
        Column { key: key.to_owned(), absent: absent.to_owned() }
    });
    let command = Command {
        request,
        text,
        rows: section.text("rows")?,
        words: section.texts("words")?.unwrap_or_default(),
        plain: section.flag("plain")?,
        stanza: section.text("stanza")?,
        file: section.flag("file")?,
        secret: section.flag("secret")?,
        done: section.text("done")?.unwrap_or_default(),
        noun,
        columns: columns.collect(),
        list: section.text("list")?,
        total: section.text("total")?,
        page: section.texts("page")?.unwrap_or_default(),
        lines: section.flag("lines")?,
        arguments: section
            .texts("options")?
            .unwrap_or_default()
            .iter()
            .map(|text| argument(text, line))
            .collect::<Result<_, _>>()?,
        name,
    };
    section.finish()?;
    Ok(command)
}

/// Reads a command option in the format `[row.]NAME[!][=DEFAULT] text|number|flag: meaning`. The
/// prefix `row.` applies the option to each row, and `!` marks a required option.
fn argument(text: &str, line: usize) -> Result<CommandArgument, Error> {
    let refuse = |message: String| Error { line, message };
    let (left, meaning) =
        text.split_once(':').ok_or_else(|| refuse(format!("option `{text}`: write \"NAME KIND: meaning\"")))?;
    let (name, kind) =
        left.trim().split_once(' ').ok_or_else(|| refuse(format!("option `{left}`: write \"NAME KIND: meaning\"")))?;
    let (name, in_row) = name.strip_prefix("row.").map_or((name, false), |name| (name, true));
    let (name, default) = name.split_once('=').unwrap_or((name, ""));
    let (name, required) = name.strip_suffix('!').map_or((name, false), |name| (name, true));
    let (number, flag) = match kind.trim() {
        "text" => (false, false),
        "number" => (true, false),
        "flag" => (false, true),
        other => {
            let hint = suggest(other, &["text", "number", "flag"]);
            return Err(refuse(format!("option `{name}`: unknown kind `{other}`: {hint}")));
        }
    };
    check_name(name, "option").map_err(|error| Error::at(line, error))?;
    Ok(CommandArgument {
        name: name.to_owned(),
        text: meaning.trim().to_owned(),
        number,
        flag,
        in_row,
        required,
        default: default.to_owned(),
    })
}
