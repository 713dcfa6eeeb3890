//! A C-to-C compiler that hides the latency of memory in batches of independent look-ups, after G-Opt (Kalia, Zhou,
//! Kaminsky, Andersen, *Raising the Bar for Using GPUs in Software Packet Processing*, NSDI 2015, section 3.2).
//!
//! Its input is C with a batch loop and annotations before the accesses that likely miss every cache. Its output
//! computes the same, but at each annotation a look-up prefetches, saves where it is, and lets the next one go on; one
//! that ends is replaced at once by the next of the batch. What cannot be transformed is refused with file and line.
//!
//! The passes, one file each: `source` reads the text and its macros, `unit` parses, `reach` finds what is expensive,
//! `batch` the loops, `depend` refuses look-ups that depend on each other, `address` finds variables that cannot move,
//! `emit` writes.
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

/// What a caller may say beside the text.
#[derive(Clone, Debug, Default)]
pub struct Options<'a> {
    /// The file's name in refusals, unless `#line` says another.
    pub name: &'a str,
    /// Where `#include "..."` begins to look; `None`: nothing is included.
    pub folder: Option<&'a Path>,
    /// Functions whose outermost loops are the batch loops; empty: those with a `foreach`, else the outermost `for`
    /// loops that reach an annotation.
    pub functions: &'a [String],
}

/// Transforms all batch loops of a text.
///
/// # Errors
/// The first thing in the text that gopt cannot transform, or that has nothing to transform.
pub fn transform(text: &str, options: &Options<'_>) -> Result<String, Refusal> {
    let source = Source::new(options.name, text, options.folder);
    passes(&source, options.functions).map_err(|fault| source.refusal(fault))
}

/// The functions of a text that reach an annotation: those for which a batch loop around a call is worth transforming.
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
        return refuse(0, "the parser does not work with this grammar");
    };
    let unit = Unit::new(source, tree.root_node());
    let apart = batch::apart(&unit, functions)?;
    let reach = reach::Reach::new(&unit, &apart)?;
    let batches = batch::find(&unit, &reach, &apart)?;
    let Some(first) = batches.first() else {
        return refuse(0, "there is no batch loop with expensive accesses in this file");
    };
    let addresses = address::Addresses::new(&unit, &reach, tree.root_node());
    let mut written = Vec::new();
    for (at, batch) in batches.iter().enumerate() {
        if !reach.switch_in(&batch.function, batch.body.start_byte(), batch.body.end_byte()) {
            return refuse(batch.node.start_byte(), "this batch loop has no expensive access");
        }
        batch::leaves(&unit, batch)?;
        batch::entered(&unit, batch)?;
        reach.refuse_recursion(&unit, batch.body, &mut vec![batch.function.clone()])?;
        depend::check(&unit, &reach, batch)?;
        let number = batches[..at].iter().filter(|other| other.function == batch.function).count();
        written.push(emit::transformed(&unit, &addresses, batch, number)?);
    }
    let begin = unit.functions.get(&first.function).map_or(0, |function| function.node.start_byte());
    // Specifiers that were blanked for the parse stand before the function on its line.
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
