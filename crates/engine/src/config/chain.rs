//! `[[chain]]`.

use godwit_chain::{Chain, Edge, Function, Port, Verdict, Warning};
use serde::Deserialize;

use super::document::{Document, Stanza};
use super::{ConfigError, FunctionConfig, PortConfig};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainKeys {
    from: String,
    class: Option<String>,
    verdict: Option<String>,
    to: String,
}

pub(super) fn read<'a>(
    document: &Document<'a>,
    mut stanzas: Vec<Stanza<'a>>,
    ports: &[PortConfig],
    functions: &[FunctionConfig],
    classes: &[String],
    warnings: &mut Vec<String>,
) -> Result<Chain, ConfigError> {
    if stanzas.is_empty() {
        return Err(document.refuse(0..0, "there is no chain: at least one [[chain]] says where packets of a port go"));
    }
    let edges = stanzas.iter_mut().map(|stanza| {
        let ChainKeys { from, class, verdict, to } = document.read(stanza, &[])?;
        Ok(Edge { from, class, verdict, to })
    });
    let edges: Vec<Edge> = edges.collect::<Result<_, ConfigError>>()?;

    let port = |port: &PortConfig| Port {
        name: port.name.clone(),
        receives: port.kind.receives(),
        transmits: port.kind.transmits(),
    };
    let function = |function: &FunctionConfig| {
        let contract = function.function.contract();
        let verdict = |verdict: &godwit_function::Verdict| Verdict {
            name: verdict.name.to_owned(),
            chooses_port: verdict.chooses_port,
        };
        Function {
            name: function.name.clone(),
            kind: contract.kind.to_owned(),
            verdicts: contract.verdicts.iter().map(verdict).collect(),
        }
    };
    let chain = Chain::new(ports.iter().map(port).collect(), functions.iter().map(function).collect(), classes, &edges)
        .map_err(|error| {
            let stanza = &stanzas[error.edge()];
            let at = error.key().map_or(stanza.span(), |key| stanza.span_of(key));
            document.refuse(at, &error)
        })?;
    for warning in chain.warnings() {
        warnings.push(match warning {
            Warning::EdgeCovered { edge, .. } => document.warn(stanzas[*edge].span(), warning),
            _ => warning.to_string(),
        });
    }
    Ok(chain)
}
