//! Reads the function chain from the `[[chain]]` stanzas and from the chain files that they name.
//! The chain determines the next function for each verdict of a function.

use std::path::{Path, PathBuf};

use godwit_chain::{Chain, Edge, Function, Port, Verdict, Warning};
use serde::Deserialize;

use super::document::{Document, Stanza};
use super::error::ConfigError;
use super::functions::FunctionConfig;
use super::ports::PortConfig;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainKeys {
    from: String,
    class: Option<String>,
    verdict: Option<String>,
    to: String,
}

enum Origin {
    /// A `[[chain]]` stanza with this index.
    Stanza(usize),
    /// Path of a chain file, and a line number in it.
    Line(PathBuf, usize),
}

/// Parses a chain file, which defines one edge per line (Hummingbird, section 3). The columns are
/// the packet type, the current function and the next function.
fn read_file(path: &Path, text: &str, edges: &mut Vec<(Edge, Origin)>) -> Result<(), ConfigError> {
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let columns: Vec<&str> = line.split(',').map(str::trim).collect();
        let [packets, from, to] = columns[..] else {
            let message =
                format!("{} columns instead of three: packet type, current function, next function", columns.len());
            return Err(ConfigError::of_file(path, number, &message));
        };
        if from.is_empty() || to.is_empty() {
            return Err(ConfigError::of_file(
                path,
                number,
                "the second and the third column must each name a function or a port",
            ));
        }
        let (class, verdict) = packets.split_once(':').map_or((packets, ""), |(class, verdict)| (class, verdict));
        let named = |name: &str| (!matches!(name, "" | "*")).then(|| name.trim().to_owned());
        let edge = Edge { from: from.to_owned(), class: named(class), verdict: named(verdict), to: to.to_owned() };
        edges.push((edge, Origin::Line(path.to_owned(), number)));
    }
    Ok(())
}

fn read_edges<'a>(
    document: &Document<'a>,
    stanzas: &mut [Stanza<'a>],
    directory: &Path,
) -> Result<Vec<(Edge, Origin)>, ConfigError> {
    let mut edges = Vec::new();
    for (number, stanza) in stanzas.iter_mut().enumerate() {
        if !stanza.has("file") {
            let ChainKeys { from, class, verdict, to } = document.read(stanza, &["file"])?;
            edges.push((Edge { from, class, verdict, to }, Origin::Stanza(number)));
            continue;
        }
        stanza.refuse_unknown(document, &["file"])?;
        let file = stanza.require_text(document, "file")?;
        let path = directory.join(file.get_ref());
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| {
            document.refuse(file.span(), format!("cannot read the chain in {}: {error}", path.display()))
        })?;
        read_file(&path, &text, &mut edges)?;
    }
    Ok(edges)
}

/// Returns a port in the form that a chain needs.
pub(super) fn port(port: &PortConfig) -> Port {
    Port { name: port.name.clone(), receives: port.kind.receives(), transmits: port.kind.transmits() }
}

/// Returns a function in the form that a chain needs.
pub(super) fn function(entry: &FunctionConfig) -> Function {
    let contract = entry.function.contract();
    let verdict = |verdict: &godwit_function::Verdict| Verdict {
        name: verdict.name.to_owned(),
        chooses_port: verdict.chooses_port,
    };
    let verdicts = contract.verdicts.iter().map(verdict).collect();
    Function { name: entry.name.clone(), kind: contract.kind.to_owned(), verdicts }
}

pub(super) fn read<'a>(
    document: &Document<'a>,
    mut stanzas: Vec<Stanza<'a>>,
    directory: &Path,
    ports: &[PortConfig],
    functions: &[FunctionConfig],
    classes: &[String],
    warnings: &mut Vec<String>,
) -> Result<Chain, ConfigError> {
    if stanzas.is_empty() {
        return Err(document.refuse(0..0, "there is no chain: add at least one [[chain]] that starts at a port"));
    }
    let (edges, origins): (Vec<Edge>, Vec<Origin>) = read_edges(document, &mut stanzas, directory)?.into_iter().unzip();

    let chain = Chain::new(ports.iter().map(port).collect(), functions.iter().map(function).collect(), classes, &edges)
        .map_err(|error| {
            let number = match &origins[error.edge()] {
                Origin::Line(path, line) => return ConfigError::of_file(path, *line, &error.to_string()),
                Origin::Stanza(number) => *number,
            };
            let stanza = &stanzas[number];
            let at = error.key().map_or(stanza.span(), |key| stanza.span_of(key));
            document.refuse(at, &error)
        })?;
    for warning in chain.warnings() {
        warnings.push(match warning {
            Warning::EdgeCovered { edge, .. } => match &origins[*edge] {
                Origin::Stanza(number) => document.warn(stanzas[*number].span(), warning),
                Origin::Line(path, line) => format!("{}:{line}: {warning}", path.display()),
            },
            _ => warning.to_string(),
        });
    }
    Ok(chain)
}
