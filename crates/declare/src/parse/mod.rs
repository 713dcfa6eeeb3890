//! Reads and checks a declaration.

mod commands;
mod fields;
mod meter;
mod outcomes;
mod section;
mod state;
mod test;

use crate::declaration::{Constant, Declaration, Extent, Form, HostUse};
use crate::error::suggest;
use crate::head::{self, Head};
use crate::{Error, RecordLayout};
use section::Section;

/// Maximum number of verdicts, drop reasons or variants. Each is numbered in one byte, whose values
/// from 128 on are reserved.
const NUMBERS_MAX: usize = 128;

impl Declaration {
    /// Reads and checks the declaration at the head of a C file.
    ///
    /// # Errors
    /// Returns the first problem, with its line in the file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let head = head::find(text)?;
        let root = Section::root(&head)?;
        let declaration = read(&head, root)?;
        check(&declaration)?;
        Ok(declaration)
    }
}

fn read(head: &Head<'_>, mut root: Section<'_>) -> Result<Declaration, Error> {
    let magic = match root.text_at("magic")? {
        None => u32::from_le_bytes(default_magic(head.name)),
        Some((text, line)) => match <[u8; 4]>::try_from(text.as_bytes()) {
            Ok(bytes) => u32::from_le_bytes(bytes),
            Err(_) => return Err(Error { line, message: "`magic` must have four ASCII characters".to_owned() }),
        },
    };
    let records = fields::records(&mut root)?;
    let declaration = Declaration {
        name: head.name.to_owned(),
        line: head.line,
        summary: root.require_text("summary")?,
        spec: root.text("spec")?.unwrap_or_default(),
        number: root.number("number", 127)?.and_then(|number| u8::try_from(number).ok()),
        has_kernel: !root.has("kernel") || root.flag("kernel")?,
        magic,
        reads: extent(&mut root, "reads")?,
        writes: extent(&mut root, "writes")?,
        headroom_bytes: room(&mut root, "headroom")?,
        tailroom_bytes: room(&mut root, "tailroom")?,
        in_order: root.flag("in_order")?,
        host: host(&mut root)?,
        form: form(&mut root)?,
        variants: variants(&mut root, head.name)?,
        verdicts: outcomes::verdicts(&mut root)?,
        drops: outcomes::drops(&mut root)?,
        counters: outcomes::counters(&mut root)?,
        constants: constants(&mut root)?,
        records,
        params: state::params(&mut root)?,
        tables: state::tables(&mut root)?,
        flows: state::flows(&mut root)?,
        resources: state::resources(&mut root)?,
        alias: None,
        commands: Vec::new(),
        test: test::read(&mut root, head.name)?,
    };
    let (alias, commands) = commands::read(&mut root)?;
    root.finish()?;
    Ok(Declaration { alias, commands, ..declaration })
}

/// Returns the default magic number of a table image: the first four characters of the function's
/// name in upper case, padded with spaces.
fn default_magic(name: &str) -> [u8; 4] {
    let mut magic = [b' '; 4];
    for (byte, letter) in magic.iter_mut().zip(name.bytes()) {
        *byte = letter.to_ascii_uppercase();
    }
    magic
}

fn extent(root: &mut Section<'_>, key: &'static str) -> Result<Extent, Error> {
    let Some(entry) = root.any(key) else { return Ok(Extent::Bytes(0)) };
    let line = entry.line;
    match entry.literal(key)?.as_str() {
        "all" => Ok(Extent::All),
        text => match text.parse::<u16>() {
            Ok(bytes) if bytes < u16::MAX => Ok(Extent::Bytes(bytes)),
            _ => Err(Error { line, message: format!("`{key}` must be a number of bytes below 65535, or \"all\"") }),
        },
    }
}

fn room(root: &mut Section<'_>, key: &'static str) -> Result<u16, Error> {
    // A buffer has at most 16,320 bytes.
    Ok(root.number(key, 4096)?.and_then(|bytes| u16::try_from(bytes).ok()).unwrap_or(0))
}

fn host(root: &mut Section<'_>) -> Result<HostUse, Error> {
    let line = root.line();
    let mut host = HostUse::default();
    for word in root.texts("host")?.unwrap_or_default() {
        match word.as_str() {
            "reads_previous" => host.reads_previous = true,
            "reads_times" => host.reads_times = true,
            "continues_on_device" => host.continues_on_device = true,
            _ => {
                let hint = suggest(&word, &["reads_previous", "reads_times", "continues_on_device"]);
                return Err(Error { line, message: format!("unknown word `{word}` in `host`: {hint}") });
            }
        }
    }
    Ok(host)
}

fn form(root: &mut Section<'_>) -> Result<Form, Error> {
    match root.text_at("form")? {
        None => Ok(Form::Lane),
        Some((text, line)) => match text.as_str() {
            "lane" => Ok(Form::Lane),
            "group" => Ok(Form::Group),
            "team" => Ok(Form::Team),
            _ => Err(Error {
                line,
                message: format!("unknown form `{text}`: {}", suggest(&text, &["lane", "group", "team"])),
            }),
        },
    }
}

fn variants(root: &mut Section<'_>, name: &str) -> Result<Vec<String>, Error> {
    let line = root.line();
    let variants = root.texts("variants")?.unwrap_or_else(|| vec![name.to_owned()]);
    let refuse = |message: String| Err(Error { line, message });
    if variants.is_empty() || variants.len() > NUMBERS_MAX {
        return refuse(format!("`variants` must have 1 to {NUMBERS_MAX} names"));
    }
    for (index, variant) in variants.iter().enumerate() {
        head::check_name(variant, "variant").map_err(|error| Error::at(line, error))?;
        if variants[..index].contains(variant) {
            return refuse(format!("two variants are named `{variant}`"));
        }
    }
    Ok(variants)
}

fn constants(root: &mut Section<'_>) -> Result<Vec<Constant>, Error> {
    let mut constants = Vec::new();
    let Some(mut section) = root.section("constants")? else { return Ok(constants) };
    for entry in section.entries() {
        let (name, line) = (entry.name.clone(), entry.line);
        let text = entry.text(&format!("constants.{name}"))?;
        let refuse = || Error { line, message: format!("constants.{name}: write \"TYPE = NUMBER: meaning\"") };
        let (left, meaning) = text.split_once(':').ok_or_else(refuse)?;
        let (kind, value) = left.split_once('=').ok_or_else(refuse)?;
        let (kind, value) = (kind.trim(), value.trim());
        let number = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(&digits.replace('_', ""), 16),
            None => value.replace('_', "").parse(),
        };
        if !["u8", "u16", "u32", "u64", "usize"].contains(&kind) {
            return Err(refuse());
        }
        head::check_name(&name, "constant").map_err(|error| Error::at(line, error))?;
        let value = number.map_err(|_| refuse())?;
        constants.push(Constant { name, kind: kind.to_owned(), value, text: meaning.trim().to_owned() });
    }
    Ok(constants)
}

/// Checks the rules that concern several parts of a declaration.
fn check(declaration: &Declaration) -> Result<(), Error> {
    let refuse = |message: String| Err(Error { line: declaration.line, message });
    if declaration.verdicts.is_empty() {
        return refuse("a function needs at least one verdict: add `[verdicts]`".to_owned());
    }
    if declaration.verdicts.len() > NUMBERS_MAX || declaration.drops.len() > NUMBERS_MAX {
        return refuse(format!("a function has at most {NUMBERS_MAX} verdicts and {NUMBERS_MAX} drop reasons"));
    }
    if declaration.writes.bytes() > declaration.reads.bytes() {
        return refuse("`writes` exceeds `reads`: a device copies back only bytes that it has received".to_owned());
    }
    if (declaration.headroom_bytes > 0 || declaration.tailroom_bytes > 0)
        && declaration.has_kernel
        && declaration.writes != Extent::All
        && !declaration.has_own_image()
        && declaration.number.is_none()
    {
        return refuse("a function with `headroom` or `tailroom` moves bytes: it needs `writes = \"all\"`".to_owned());
    }
    if declaration.has_own_image() && !(declaration.tables.is_empty() && declaration.params.is_empty()) {
        return refuse(
            "a struct named `image` excludes `[tables]` and `[params]`, whose image Godwit builds".to_owned(),
        );
    }
    unique_names(declaration)?;
    outcomes::check_counters(declaration)?;
    for counter in &declaration.counters {
        if let Some((verdict, _)) = &counter.array
            && declaration.verdict(verdict).is_none()
        {
            let known: Vec<&str> = declaration.verdicts.iter().map(|verdict| verdict.name.as_str()).collect();
            return refuse(format!(
                "counters.{}: unknown verdict `{verdict}`: {}",
                counter.name,
                suggest(verdict, &known)
            ));
        }
    }
    state::check(declaration)?;
    meter::check(declaration)?;
    outcomes::check_flows(declaration)?;
    // A struct with padding has no valid layout, so this call returns an error.
    for record in &declaration.records {
        RecordLayout::of(record, &declaration.records).map_err(|error| Error::at(declaration.line, error))?;
    }
    Ok(())
}

/// Returns an error if two names give the same C macro.
fn unique_names(declaration: &Declaration) -> Result<(), Error> {
    let verdicts = declaration.verdicts.iter().map(|verdict| (verdict.name.clone(), "verdict"));
    let drops = declaration.drops.iter().map(|drop| (declaration.drop_macro(&drop.name), "drop reason"));
    let constants = declaration.constants.iter().map(|constant| (constant.name.clone(), "constant"));
    let variants = declaration.variants.iter().map(|variant| (format!("variant_{variant}"), "variant"));
    let fixed = [("number".to_owned(), "kernel number"), ("magic".to_owned(), "magic number")];
    let mut seen: Vec<(String, &str)> = Vec::new();
    for (name, what) in verdicts.chain(drops).chain(constants).chain(variants).chain(fixed) {
        if let Some((_, other)) = seen.iter().find(|(known, _)| *known == name) {
            let message = format!("`{name}` names a {other} and a {what}: both would be one macro in C");
            return Err(Error { line: declaration.line, message });
        }
        seen.push((name, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
