//! Generates the tables of a function's documentation page.

use std::fmt::Write as _;

use crate::declaration::{Declaration, ParamShape, Shape};
use crate::types::Field;

/// Returns Markdown tables of a function's verdicts, drop reasons and counters.
pub fn contract(declaration: &Declaration) -> String {
    let name = &declaration.name;
    let mut text = String::from("| verdict | meaning |\n|---|---|\n");
    for (number, verdict) in declaration.verdicts.iter().enumerate() {
        let _ = writeln!(text, "| `{}` ({number}) | {} |", verdict.name, verdict.text);
    }
    if !declaration.drops.is_empty() {
        text += "\n| drop reason | counter | meaning |\n|---|---|---|\n";
        for (number, drop) in declaration.drops.iter().enumerate() {
            let _ = writeln!(text, "| `{0}` ({number}) | `{name}_dropped_{0}` | {1} |", drop.name, drop.text);
        }
    }
    let counters = super::counters(declaration);
    if !counters.is_empty() {
        text += "\n| counter | unit | meaning |\n|---|---|---|\n";
        for (counter, unit, sentence) in counters {
            let _ = writeln!(text, "| `{name}_{counter}` | {unit} | {sentence} |");
        }
    }
    text
}

/// Returns Markdown tables that describe a function's parameters and tables.
pub fn configuration(declaration: &Declaration) -> String {
    let mut text = String::new();
    if !declaration.params.is_empty() {
        text += "| key | type | default | meaning |\n|---|---|---|---|\n";
        for param in &declaration.params {
            let kind = match param.shape {
                ParamShape::Scalar(scalar) => scalar.name(),
                ParamShape::Prefix4 => "prefix4".to_owned(),
                ParamShape::Prefix6 => "prefix6".to_owned(),
                ParamShape::List(scalar, max) => format!("list of at most {max} {}", scalar.name()),
            };
            let kind = param.range.map_or(kind.clone(), |(low, high)| format!("{kind}, {low} to {high}"));
            let default = param.default.as_ref().map_or("required".to_owned(), |default| format!("`{default}`"));
            let _ = writeln!(text, "| `params.{}` | {kind} | {default} | {} |", param.name, param.text);
        }
    }
    if !declaration.tables.is_empty() {
        text += if text.is_empty() { "" } else { "\n" };
        text += "| table | shape | columns of the file | capacity | meaning |\n|---|---|---|---|---|\n";
        for table in &declaration.tables {
            let columns = columns(table.shape, &table.key, &table.row).join("`, `");
            let columns = format!("`{columns}`");
            let _ = writeln!(
                text,
                "| `tables.{}` | {} | {columns} | {} | {} |",
                table.name,
                table.shape.name(),
                table.capacity,
                table.text
            );
        }
    }
    text
}

/// Returns the names of the columns in the file of a table.
pub fn columns(shape: Shape, key: &[Field], row: &[Field]) -> Vec<String> {
    let first: &[&str] = match shape {
        Shape::Lpm4 | Shape::Lpm6 => &["prefix"],
        Shape::Array => &["index"],
        Shape::Acl => &["priority"],
        Shape::Maglev => &["name"],
        Shape::Strings => &["pattern"],
        Shape::Exact | Shape::Meter => &[],
    };
    let fields = key.iter().chain(row).map(|field| field.name.clone());
    first.iter().map(|column| (*column).to_owned()).chain(fields).collect()
}

/// Returns a complete Markdown page for a function that has no page in the repository.
pub fn page(declaration: &Declaration) -> String {
    let mut text =
        format!("# {}\n\n{}\n\n## Contract\n\n{}", declaration.name, declaration.summary, contract(declaration));
    if !declaration.spec.is_empty() {
        let _ = write!(text, "\nSpecification: {}.\n", declaration.spec.trim_end_matches('.'));
    }
    let configuration = configuration(declaration);
    if !configuration.is_empty() {
        text += &format!("\n## Configuration\n\n{configuration}");
    }
    if let Some(flows) = &declaration.flows {
        let _ = write!(
            text,
            "\n## Flows\n\n`{}`, at most {}. {}\n\n| timer | seconds |\n|---|---|\n",
            flows.name, flows.capacity, flows.text
        );
        for (timer, seconds) in &flows.timers {
            let _ = writeln!(text, "| `{timer}` | {seconds} |");
        }
    }
    text
}
