//! A C-to-C compiler that hides memory latency in batches of independent lookups, after G-Opt
//! (Kalia, Zhou, Kaminsky, Andersen, *Raising the Bar for Using GPUs in Software Packet
//! Processing*, NSDI 2015, section 3.2).
//!
//! The input is C with a batch loop. Markers precede the accesses that are likely to miss every
//! cache. The output computes the same results. At each marker, a lookup prefetches the address
//! and saves its state, and another lookup continues. When a lookup ends, the next one of the batch
//! starts immediately. gopt refuses input that it cannot prove legal, with file and line.
//!
//! Each pass is one module:
//!
//! | module | task |
//! |---|---|
//! | `front` | expands the text with the user's compiler |
//! | `syntax` | parses the expanded text |
//! | `reach` | finds functions with markers |
//! | `batch` | finds loops, and what changes from one iteration to the next |
//! | `check` | refuses lookups that may depend on each other |
//! | `choose` | chooses the batch loops |
//! | `address` | finds variables whose address must not change |
//! | `emit` | writes the output |
//! | `suggest` | proposes markers |
#![forbid(unsafe_code)]

mod address;
mod batch;
mod check;
mod choose;
mod emit;
mod error;
mod flow;
mod front;
mod lexer;
mod output;
mod reach;
mod suggest;
mod syntax;

use std::collections::BTreeSet;
use std::path::Path;

pub use error::{Error, Refusal};
pub use front::Compiler;

use check::Permissions;
use error::Fault;
use front::Expanded;
use syntax::Unit;

/// Options of a transformation.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// File name in messages. A `#line` directive overrides it.
    pub name: &'a str,
    /// Folder of files in `#include "..."`.
    pub folder: Option<&'a Path>,
    /// C compiler that expands the text.
    pub compiler: Compiler,
    /// Functions whose outermost loops are the batch loops. If it is empty, gopt chooses the loops.
    pub functions: &'a [String],
    /// Names of markers, in addition to the known ones.
    pub markers: &'a [String],
    /// Functions without visible bodies that have no side effects.
    pub pure: &'a [String],
    /// Functions whose calls may change their order.
    pub unordered: &'a [String],
    /// Whether floating-point sums may change their order.
    pub reassociate: bool,
    /// Whether the output accepts `GOPT_GROUP=auto`, which selects the group size by measurement.
    pub auto: bool,
    /// Whether `#line` directives in the output refer to input lines.
    pub line_directives: bool,
}

/// Result of a transformation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Transformed text.
    pub text: String,
    /// Transformed loops: file and line.
    pub loops: Vec<(String, usize)>,
}

/// Transforms all batch loops of a text.
///
/// # Errors
/// Returns an error if the text contains C that gopt cannot transform or has no batch loop, or if
/// the compiler fails.
pub fn transform(text: &str, options: &Options<'_>) -> Result<Output, Error> {
    let expanded = Expanded::new(options.name, text, options.folder, options.markers, &options.compiler)?;
    let mut unit = Unit::new(expanded);
    let permissions = Permissions {
        pure: options.pure.to_vec(),
        unordered: options.unordered.to_vec(),
        reassociate: options.reassociate,
    };
    let refused = |unit: &Unit, fault: &Fault| {
        let refusal = unit.expanded.refusal(fault);
        if fault.is_without_marker { Error::WithoutMarker(refusal) } else { Error::Refusal(refusal) }
    };
    reach::parse(&mut unit, options.functions).map_err(|fault| refused(&unit, &fault))?;
    output::output(&unit, options, &permissions).map_err(|fault| refused(&unit, &fault))
}

/// Proposed markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// Unified diff that adds the markers. It is empty without proposals.
    pub patch: String,
    /// Text with the markers.
    pub text: String,
    /// Line in the text, and address, of each marker.
    pub places: Vec<(usize, String)>,
    /// Refusals of loops whose markers were left out.
    pub refused: Vec<String>,
}

/// Proposes markers for accesses in loops whose address depends on another access. Omits the
/// markers of functions whose loops are refused.
///
/// # Errors
/// Returns an error if the compiler fails, or if the text contains C that gopt cannot parse.
pub fn suggest(text: &str, options: &Options<'_>) -> Result<Suggestion, Error> {
    let expanded = Expanded::new(options.name, text, options.folder, options.markers, &options.compiler)?;
    let mut unit = Unit::new(expanded);
    let functions: Vec<String> = unit
        .functions
        .values()
        .filter(|one| unit.expanded.position(one.span.first).0 == options.name)
        .map(|one| one.name.clone())
        .collect();
    reach::parse(&mut unit, &functions).map_err(|fault| Error::Refusal(unit.expanded.refusal(&fault)))?;
    let all = suggest::proposals(&unit);
    let refusal = |proposals: &[suggest::Proposal]| transform(&suggest::marked(&unit, proposals).text, options).err();
    let mut refused = Vec::new();
    let mut kept = Vec::new();
    if refusal(&all).is_none() {
        kept = all;
    } else {
        for group in all.chunk_by(|one, two| one.function == two.function) {
            let tried = [&kept[..], group].concat();
            match refusal(&tried) {
                None => kept = tried,
                Some(error) => refused.push(error.to_string()),
            }
        }
    }
    let marked = suggest::marked(&unit, &kept);
    let patch = if marked.places.is_empty() { String::new() } else { suggest::patch(options.name, text, &marked) };
    Ok(Suggestion { patch, text: marked.text, places: marked.places, refused })
}

/// Returns the functions of a text that contain a marker or call such a function. gopt can
/// transform a batch loop around a call to one of them.
///
/// # Errors
/// Returns an error if the compiler fails.
pub fn expensive(text: &str, options: &Options<'_>) -> Result<BTreeSet<String>, Error> {
    let expanded = Expanded::new(options.name, text, options.folder, options.markers, &options.compiler)?;
    let mut unit = Unit::new(expanded);
    reach::parse(&mut unit, &[]).map_err(|fault| Error::Refusal(unit.expanded.refusal(&fault)))?;
    let mut reach = reach::Reach::new(&unit);
    loop {
        let known = |id: &&syntax::ast::DeclId| !reach.expensive.contains(id) && !reach.switches(**id).is_empty();
        let grown: Vec<_> = reach.uses.keys().filter(known).copied().collect();
        if grown.is_empty() {
            break;
        }
        reach.expensive.extend(grown);
    }
    Ok(reach.expensive.iter().map(|id| unit.declaration(*id).name.clone()).collect())
}
