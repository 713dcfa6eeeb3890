//! Reads the verdicts, drop reasons and counters of a declaration.

use crate::declaration::{CounterDeclaration, Declaration, DropDeclaration, VerdictDeclaration};
use crate::head::check_name;
use crate::{Contract, Error};

use super::section::Section;

/// Names of the counters that each function has.
const COUNTERS_OF_ALL: &[&str] = &["packets", "bytes", "settled", "bins", "busy_ns"];
/// Maximum number of elements of an array of counters.
const ARRAY_MAX: u64 = 65_536;

/// Reads the TOML table `[verdicts]`. Each value is a sentence, or a table with the keys `text`,
/// `port` and `value`.
pub(super) fn verdicts(root: &mut Section<'_>) -> Result<Vec<VerdictDeclaration>, Error> {
    let Some(mut section) = root.section("verdicts")? else { return Ok(Vec::new()) };
    let mut verdicts = Vec::new();
    for entry in section.entries() {
        let (name, line) = (entry.name.clone(), entry.line);
        check_name(&name, "verdict").map_err(|error| Error::at(line, error))?;
        let path = format!("verdicts.{name}");
        if !entry.is_table() {
            let text = sentence(entry.text(&path)?, line)?;
            verdicts.push(VerdictDeclaration { name, text, chooses_port: false, value: String::new() });
            continue;
        }
        let mut table = section.section_of(entry, path)?;
        let text = sentence(table.require_text("text")?, line)?;
        let chooses_port = table.flag("port")?;
        let value = table.text("value")?.unwrap_or_default();
        table.finish()?;
        verdicts.push(VerdictDeclaration { name, text, chooses_port, value });
    }
    Ok(verdicts)
}

/// Reads the TOML table `[drops]`. Each value is a sentence.
pub(super) fn drops(root: &mut Section<'_>) -> Result<Vec<DropDeclaration>, Error> {
    let Some(mut section) = root.section("drops")? else { return Ok(Vec::new()) };
    let mut drops = Vec::new();
    for entry in section.entries() {
        let (name, line) = (entry.name.clone(), entry.line);
        check_name(&name, "drop reason").map_err(|error| Error::at(line, error))?;
        let text = sentence(entry.text(&format!("drops.{name}"))?, line)?;
        drops.push(DropDeclaration { name, text });
    }
    Ok(drops)
}

/// Reads the TOML table `[counters]`. Each value is a table with the keys `unit` and `text`. An
/// array of counters also has the keys `verdict` and `size`.
pub(super) fn counters(root: &mut Section<'_>) -> Result<Vec<CounterDeclaration>, Error> {
    let mut counters = Vec::new();
    for (name, mut section) in root.sections("counters")? {
        let line = section.line();
        check_name(&name, "counter").map_err(|error| Error::at(line, error))?;
        let unit = section.text("unit")?.unwrap_or_else(|| "packets".to_owned());
        let text = sentence(section.require_text("text")?, line)?;
        let verdict = section.text("verdict")?;
        let size = section.number("size", ARRAY_MAX)?;
        let array = match (verdict, size.and_then(|size| u32::try_from(size).ok())) {
            (None, None) => None,
            (Some(verdict), Some(size)) if size > 0 => Some((verdict, size)),
            _ => return section.refuse(format!("counters.{name}: an array needs `verdict` and `size`")),
        };
        section.finish()?;
        counters.push(CounterDeclaration { name, unit, text, array });
    }
    Ok(counters)
}

/// Checks that no declared counter has the name of a counter that every function has. Also checks
/// that the counters fit into a worker's memory.
pub(super) fn check_counters(declaration: &Declaration) -> Result<(), Error> {
    let refuse = |message: String| Err(Error { line: declaration.line, message });
    for counter in &declaration.counters {
        let name = counter.name.as_str();
        if COUNTERS_OF_ALL.contains(&name) || name.starts_with("verdict_") || name.starts_with("dropped_") {
            return refuse(format!("counters.{name}: each function has a counter of this name: choose another name"));
        }
    }
    match declaration.kernel_counters() > Contract::KERNEL_COUNTERS_MAX {
        true => refuse(format!("a function has at most {} counters", Contract::KERNEL_COUNTERS_MAX)),
        false => Ok(()),
    }
}

/// Checks that a function with flows has no counters, because the functions that keep flows cannot
/// count.
pub(super) fn check_flows(declaration: &Declaration) -> Result<(), Error> {
    if declaration.flows.is_some() && declaration.kernel_counters() > 0 {
        let message = "a function has `[counters]` or `[flows]`: `find`, `miss` and `update` cannot count".to_owned();
        return Err(Error { line: declaration.line, message });
    }
    Ok(())
}

/// Checks that a text can be printed in a documentation table.
fn sentence(text: String, line: usize) -> Result<String, Error> {
    if text.is_empty() || text.contains(['|', '\n']) || text.contains("/*") {
        let message = "a meaning is one line of text without `|` and `/*`".to_owned();
        return Err(Error { line, message });
    }
    Ok(text)
}
