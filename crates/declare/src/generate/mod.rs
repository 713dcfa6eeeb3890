//! Generates C code, Rust code and documentation from a declaration.

mod accessors;
mod counters;
mod flows;
pub mod header;
pub mod page;
pub mod rust;
pub mod schema;

use crate::Contract;
pub use flows::entries as flow_entries;
pub(crate) use flows::row_layout;

use crate::ImageLayout;
use crate::declaration::Declaration;

/// Returns the prefix of the names that a function has in C.
fn prefix(declaration: &Declaration) -> String {
    format!("gw_{}", declaration.name)
}

/// Returns the prefix of the macros that a function has in C.
fn upper(declaration: &Declaration) -> String {
    format!("GW_{}", declaration.name.to_ascii_uppercase())
}

/// Returns the contract of a function that is loaded when Godwit starts. Its strings are never
/// freed, because a process loads few functions.
pub fn contract(declaration: &Declaration, number: Option<u8>) -> &'static Contract {
    fn text(text: &str) -> &'static str {
        Box::leak(text.to_owned().into_boxed_str())
    }
    let verdicts = declaration.verdicts.iter().map(|verdict| crate::Verdict {
        name: text(&verdict.name),
        sentence: text(&verdict.text),
        chooses_port: verdict.chooses_port,
    });
    let drops = declaration.drops.iter().map(|drop| crate::Drop { name: text(&drop.name), sentence: text(&drop.text) });
    let counters = counters(declaration).into_iter().map(|(name, unit, sentence)| crate::Counter {
        name: text(&name),
        unit: text(&unit),
        sentence: text(&sentence),
    });
    let variants = declaration.variants.iter().map(|variant| text(variant));
    Box::leak(Box::new(Contract {
        kind: text(&declaration.name),
        summary: text(&declaration.summary),
        kernel: number.filter(|_| declaration.has_kernel),
        verdicts: Box::leak(verdicts.collect::<Vec<_>>().into_boxed_slice()),
        drops: Box::leak(drops.collect::<Vec<_>>().into_boxed_slice()),
        variants: Box::leak(variants.collect::<Vec<_>>().into_boxed_slice()),
        in_order: declaration.needs_order(),
        host: declaration.host_use(),
        reads_bytes: declaration.reads.bytes(),
        writes_bytes: declaration.writes.bytes(),
        headroom_bytes: declaration.headroom_bytes,
        tailroom_bytes: declaration.tailroom_bytes,
        counters: Box::leak(counters.collect::<Vec<_>>().into_boxed_slice()),
        kernel_counters: ImageLayout::of(declaration).counters,
        spec: text(&declaration.spec),
    }))
}

/// Returns the name, unit and meaning of each counter, including those of flows.
fn counters(declaration: &Declaration) -> Vec<(String, String, String)> {
    let declared = declaration.counters.iter();
    let mut counters: Vec<_> = declared.map(|c| (c.name.clone(), c.unit.clone(), c.text.clone())).collect();
    if let Some(flows) = &declaration.flows {
        let counter = |name: &str, text: &str| (format!("{}_{name}", flows.name), "flows".to_owned(), text.to_owned());
        counters.push(counter("active", "Flows that exist now."));
        counters.push(counter("created", "Flows created."));
        counters.push(counter("expired", "Flows removed because their timer ended."));
        counters.push(counter("refused", "Flows not created because the table, a limit or a resource was exhausted."));
    }
    counters
}
