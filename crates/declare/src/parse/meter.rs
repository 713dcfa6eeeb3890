//! Checks the tables of shape `meter`.

use crate::declaration::{Declaration, MeterUnit, Shape, Table};
use crate::error::suggest;
use crate::types::{Field, FieldType, Scalar};
use crate::{Error, RecordLayout};

use super::section::Section;

/// Five-tuple fields that the key of a meter can contain, with their types.
const FIELDS: &[(&str, &[Scalar])] = &[
    ("source", &[Scalar::Ipv4, Scalar::Ipv6]),
    ("destination", &[Scalar::Ipv4, Scalar::Ipv6]),
    ("source_port", &[Scalar::Unsigned(16)]),
    ("destination_port", &[Scalar::Unsigned(16)]),
    ("protocol", &[Scalar::Unsigned(8)]),
];
/// Maximum number of entries. A change copies all entries.
const CAPACITY_MAX: u32 = 65_536;

/// Reads what the rates of a meter limit.
pub(super) fn unit(section: &mut Section<'_>) -> Result<MeterUnit, Error> {
    match section.text_at("unit")? {
        None => Ok(MeterUnit::Bits),
        Some((text, line)) => match text.as_str() {
            "bits" => Ok(MeterUnit::Bits),
            "packets" => Ok(MeterUnit::Packets),
            _ => {
                let hint = suggest(&text, &["bits", "packets"]);
                Err(Error { line, message: format!("unknown unit `{text}`: {hint}") })
            }
        },
    }
}

/// Returns the fields of a row: the rate and both bursts.
pub(super) fn row() -> Vec<Field> {
    let field = |name: &str, bits| {
        let kind = FieldType::Scalar(Scalar::Unsigned(bits));
        Field { name: name.to_owned(), kind, text: String::new() }
    };
    vec![field("rate", 64), field("burst", 32), field("excess", 32)]
}

/// Returns a message if a meter cannot have this key or capacity.
pub(super) fn refusal(key: &[Field], capacity: u32) -> Option<String> {
    if capacity > CAPACITY_MAX {
        return Some(format!("`capacity` of a meter is at most {CAPACITY_MAX}"));
    }
    for field in key {
        let Some((name, kinds)) = FIELDS.iter().find(|(name, _)| *name == field.name) else {
            let known: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
            return Some(format!("a meter has no key field `{}`: {}", field.name, suggest(&field.name, &known)));
        };
        if !kinds.iter().any(|kind| field.kind == FieldType::Scalar(*kind)) {
            let kinds: Vec<String> = kinds.iter().map(|kind| format!("`{}`", kind.name())).collect();
            return Some(format!("the type of `{name}` is {}", kinds.join(" or ")));
        }
    }
    debug_assert_eq!(RecordLayout::padded(&row()).bytes, 16);
    None
}

/// Checks that a function has at most one meter, because only one key can select a packet's worker.
pub(super) fn check(declaration: &Declaration) -> Result<(), Error> {
    let is_meter = |table: &&Table| table.shape == Shape::Meter;
    let meters = declaration.tables.iter().filter(is_meter).count();
    let refuse = |message: &str| Err(Error { line: declaration.line, message: message.to_owned() });
    if meters > 1 {
        return refuse("a function has at most one meter, because the key of a meter selects the worker of a packet");
    }
    if meters == 1 && declaration.flows.is_some() {
        return refuse("a function has a meter or `[flows]`: both would set the parameter of the kernel");
    }
    Ok(())
}
