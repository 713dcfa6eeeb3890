//! A C-to-C compiler that hides memory latency in batches of independent lookups, after G-Opt
//! (Kalia, Zhou, Kaminsky, Andersen, *Raising the Bar for Using GPUs in Software Packet
//! Processing*, NSDI 2015, section 3.2).
//!
//! The input is C with a batch loop. Annotations precede the accesses that are likely to miss every
//! cache. The output computes the same results. At each annotation, a lookup prefetches the address
//! and saves its state, and another lookup continues. When a lookup ends, the next one of the batch
//! starts immediately. gopt refuses input that it cannot transform, with file and line.
//!
//! Each pass is one module:
//!
//! | module | task |
//! |---|---|
//! | `source` | reads the text and its macros |
//! | `unit` | parses the text |
//! | `reach` | finds functions with expensive accesses |
//! | `batch` | finds batch loops |
//! | `depend` | refuses lookups that depend on each other |
//! | `address` | finds variables whose address must not change |
//! | `emit` | writes the output |
#![forbid(unsafe_code)]

mod address;
mod batch;
mod depend;
mod emit;
mod lexer;
mod macros;
mod reach;
mod refusal;
mod scope;
mod source;
mod unit;

use std::collections::BTreeSet;
use std::path::Path;

pub use refusal::Refusal;

use refusal::{Pass, refuse};
use source::Source;
use unit::Unit;

/// Options of a transformation.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// Name of the file in refusals. A `#line` directive overrides it.
    pub name: &'a str,
    /// Folder of files in `#include "..."`. With `None`, included files are not read.
    pub folder: Option<&'a Path>,
    /// Functions whose outermost loops are the batch loops. If empty, every `foreach` is a batch
    /// loop. Without `foreach`, the batch loops are the outermost `for` loops that reach an
    /// annotation.
    pub functions: &'a [String],
}

/// Transforms all batch loops of a text.
///
/// # Errors
/// If the text contains C that gopt cannot transform, or no batch loop.
pub fn transform(text: &str, options: &Options<'_>) -> Result<String, Refusal> {
    let source = Source::new(options.name, text, options.folder);
    passes(&source, options.functions).map_err(|fault| source.refusal(fault))
}

/// Returns the functions of a text that contain an annotation, or call such a function. A batch
/// loop around a call of one of them can be transformed.
pub fn expensive(text: &str, options: &Options<'_>) -> BTreeSet<String> {
    let source = Source::new(options.name, text, options.folder);
    let Some(tree) = parse(&source) else { return BTreeSet::new() };
    let unit = Unit::new(&source, tree.root_node());
    reach::Reach::new(&unit, &BTreeSet::new()).map(|reach| reach.expensive).unwrap_or_default()
}

fn parse(source: &Source) -> Option<tree_sitter::Tree> {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_c::LANGUAGE.into()).ok()?;
    parser.parse(&source.plain, None)
}

fn passes(source: &Source, functions: &[String]) -> Pass<String> {
    let Some(tree) = parse(source) else {
        return refuse(0, "the parser does not support its C grammar: this is a bug of gopt");
    };
    let unit = Unit::new(source, tree.root_node());
    let apart = batch::apart(&unit, functions)?;
    let reach = reach::Reach::new(&unit, &apart)?;
    let batches = batch::find(&unit, &reach, &apart)?;
    let Some(first) = batches.first() else {
        return refuse(0, "the file contains no batch loop with expensive accesses");
    };
    let addresses = address::Addresses::new(&unit, &reach, tree.root_node());
    let mut written = Vec::new();
    for (index, batch) in batches.iter().enumerate() {
        if !reach.switch_in(&batch.function, batch.body.start_byte(), batch.body.end_byte()) {
            return refuse(batch.node.start_byte(), "this batch loop has no expensive access");
        }
        batch::leaves(&unit, batch)?;
        batch::entered(&unit, batch)?;
        reach.refuse_recursion(&unit, batch.body, &mut vec![batch.function.clone()])?;
        depend::check(&unit, &reach, batch)?;
        let number = batches[..index].iter().filter(|other| other.function == batch.function).count();
        written.push(emit::transformed(&unit, &addresses, batch, number)?);
    }
    let begin = unit.functions.get(&first.function).map_or(0, |function| function.node.start_byte());
    // Specifiers that were blanked for the parse precede the function on the same line.
    let begin = source.text[..begin].rfind('\n').map_or(0, |line| line + 1);
    let mut text = String::from(&source.text[..begin]);
    text.push_str(emit::PROLOGUE);
    let mut at = begin;
    for (batch, written) in batches.iter().zip(written) {
        text.push_str(&source.text[at..batch.node.start_byte()]);
        text.push_str(&written);
        at = batch.node.end_byte();
    }
    text.push_str(&source.text[at..]);
    Ok(text)
}
