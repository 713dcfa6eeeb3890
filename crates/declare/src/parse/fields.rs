//! Reads the fields of keys, rows and structs.

use crate::Error;
use crate::declaration::Record;
use crate::head::{check_field_name, check_name};
use crate::types::{Field, FieldType};

use super::section::Section;

/// Reads the TOML tables `[structs.NAME]`. Their fields have the form `name = "TYPE: meaning"`, in
/// memory order.
pub(super) fn records(root: &mut Section<'_>) -> Result<Vec<Record>, Error> {
    let mut records: Vec<Record> = Vec::new();
    for (name, mut section) in root.sections("structs")? {
        let line = section.line();
        check_name(&name, "struct").map_err(|error| Error::at(line, error))?;
        let text = section.require_text("text")?;
        let known: Vec<String> = records.iter().map(|record| record.name.clone()).collect();
        let fields = fields(&mut section, "fields", &known)?;
        let has_default = section.flag("default")?;
        if fields.is_empty() {
            return section.refuse(format!("structs.{name} has no fields"));
        }
        section.finish()?;
        records.push(Record { name, text, fields, has_default });
    }
    Ok(records)
}

/// Reads a TOML table of fields, each in the form `name = "TYPE"` or `name = "TYPE: meaning"`.
pub(super) fn fields(section: &mut Section<'_>, key: &'static str, records: &[String]) -> Result<Vec<Field>, Error> {
    let Some(mut section) = section.section(key)? else { return Ok(Vec::new()) };
    let mut fields = Vec::new();
    for entry in section.entries() {
        let (name, line) = (entry.name.clone(), entry.line);
        check_field_name(&name, "field").map_err(|error| Error::at(line, error))?;
        let text = entry.text(&name)?;
        let (kind, meaning) = text.split_once(':').unwrap_or((&text, ""));
        let kind = FieldType::parse(kind.trim(), records)
            .map_err(|error| Error::at(line, format!("field `{name}`: {error}")))?;
        fields.push(Field { name, kind, text: meaning.trim().to_owned() });
    }
    Ok(fields)
}

/// Reads the fields of a table's key or row. Each field must be a single value.
pub(super) fn scalars(section: &mut Section<'_>, key: &'static str) -> Result<Vec<Field>, Error> {
    let line = section.line();
    let fields = fields(section, key, &[])?;
    match fields.iter().find(|field| !matches!(field.kind, FieldType::Scalar(_))) {
        Some(field) => Err(Error { line, message: format!("field `{}`: keys and rows have no arrays", field.name) }),
        None => Ok(fields),
    }
}
