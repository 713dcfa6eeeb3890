//! Output: the input with its batch loops replaced.

use crate::check::Permissions;
use crate::choose::{self, Batch};
use crate::emit;
use crate::error::{Pass, refuse};
use crate::lexer::{self, Kind};
use crate::reach::Reach;
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Span, Stmt, StmtKind};
use crate::syntax::walk::{self, Node};
use crate::{Options, Output};

/// Replacement of a range of the input.
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

/// Transforms all batch loops of a file.
pub(crate) fn output(unit: &Unit, options: &Options<'_>, permissions: &Permissions) -> Pass<Output> {
    let (batches, reach) = choose::choose(unit, options.functions, permissions)?;
    let mut edits = Vec::new();
    let mut loops = Vec::new();
    let mut functions: Vec<(DeclId, Vec<usize>)> = Vec::new();
    for (index, batch) in batches.iter().enumerate() {
        match functions.last_mut() {
            Some((function, all)) if *function == batch.site.function => all.push(index),
            _ => functions.push((batch.site.function, vec![index])),
        }
        let (file, line) = unit.expanded.position(batch.site.span().first);
        loops.push((file.to_owned(), line));
    }
    let mut prologue = emit::PROLOGUE.to_owned();
    if options.auto {
        prologue += emit::auto::PROLOGUE;
    }
    for (function, all) in &functions {
        let members: Vec<(usize, &Batch<'_>)> = all.iter().map(|index| (*index, &batches[*index])).collect();
        let prologue = std::mem::take(&mut prologue);
        edit_function(unit, &reach, *function, &members, prologue, options.auto, &mut edits)?;
    }
    edits.sort_by_key(|edit| edit.start);
    let source = &unit.expanded.source;
    let mut text = String::new();
    let mut at = 0;
    for edit in &edits {
        text.push_str(&source[at..edit.start]);
        text.push_str(&edit.text);
        at = edit.end;
        if options.line_directives && edit.end > edit.start {
            let line = source[..at].matches('\n').count() + 1;
            text.push_str(&format!("\n#line {line} \"{}\"\n", options.name));
        }
    }
    text.push_str(&source[at..]);
    if options.line_directives {
        text.insert_str(0, &format!("#line 1 \"{}\"\n", options.name));
    }
    Ok(Output { text: without_pragmas(&text), loops })
}

/// Adds the edits of the batch loops of a function. `before` is text to insert before the function,
/// and `auto` states whether the output accepts `GOPT_GROUP=auto`.
fn edit_function(
    unit: &Unit,
    reach: &Reach,
    function: DeclId,
    batches: &[(usize, &Batch<'_>)],
    mut before: String,
    auto: bool,
    edits: &mut Vec<Edit>,
) -> Pass<()> {
    let expanded = &unit.expanded;
    let span = unit.functions[&function].span;
    let places: Vec<_> = batches.iter().map(|(_, batch)| place(unit, batch.site.span())).collect();
    let begin = expanded.tokens[span.first].from.map(|from| from as usize);
    if begin.is_none() && expanded.tokens[span.first].file != 0 {
        let (file, _) = expanded.position(span.first);
        let at = batches[0].1.site.span().first;
        return refuse(
            at,
            format!("the batch loop is in the included file {file}: transform it, and include the output"),
        );
    }
    let whole = begin.is_none() || places.iter().any(Option::is_none);
    let mut replaced: Vec<(Span, String)> = Vec::new();
    for ((number, batch), place) in batches.iter().zip(&places) {
        let site = batch.site.span();
        let as_written = place.filter(|_| !whole && !undefined_foreach(unit));
        let text = as_written.map_or_else(|| lines(unit, site), |(start, end)| expanded.source[start..end].to_owned());
        let body = batch.site.body.span;
        let part = lines(unit, body);
        let labels = labels(unit, batch.site.body);
        let plain = emit::Plain { text: &text, body: &part, labels: &labels, auto };
        let emitted = emit::transformed(unit, reach, &batch.site, &batch.header, &batch.legal, *number, plain)?;
        before += &emitted.before;
        replaced.push((site, emitted.text));
    }
    let begin = begin.unwrap_or_else(|| enclosing_start(unit, span));
    if whole {
        // The loop or its function comes from a macro, so the function is written in expanded form.
        let end = enclosing_end(unit, span);
        let mut text = String::new();
        let mut at = span.first;
        for (site, written) in &replaced {
            text += &lines(unit, Span { first: at, end: site.first });
            text += &format!("\n{written}\n");
            at = site.end;
        }
        text += &lines(unit, Span { first: at, end: span.end });
        edits.push(Edit { start: begin, end, text: format!("{before}{text}\n") });
        return Ok(());
    }
    edits.push(Edit { start: begin, end: begin, text: line_break(expanded.source.as_str(), begin) + &before });
    for ((_, written), place) in replaced.into_iter().zip(places) {
        let Some((start, end)) = place else { continue };
        edits.push(Edit { start, end, text: written });
    }
    Ok(())
}

/// Returns the labels in a statement.
fn labels(unit: &Unit, statement: &Stmt) -> Vec<String> {
    let mut names = Vec::new();
    walk::statement(unit, statement, &mut |node| {
        if let Node::Stmt(Stmt { kind: StmtKind::Label(name, _), .. }) = node {
            names.push(name.clone());
        }
        true
    });
    names
}

fn line_break(source: &str, at: usize) -> String {
    if at == 0 || source[..at].ends_with('\n') { String::new() } else { "\n".to_owned() }
}

/// Returns a statement's source range, if no macro hides its ends.
fn place(unit: &Unit, span: Span) -> Option<(usize, usize)> {
    let first = unit.expanded.tokens.get(span.first)?.from? as usize;
    let end = unit.expanded.tokens.get(span.end - 1)?.to? as usize;
    (first < end && braces_match(&unit.expanded.source[first..end])).then_some((first, end))
}

/// Returns whether opening and closing brackets balance in a part of the source.
fn braces_match(text: &str) -> bool {
    let mut depth = 0_i64;
    for token in lexer::tokens(text).iter().filter(|token| token.kind == Kind::Punctuation) {
        match token.text {
            "{" | "(" => depth += 1,
            "}" | ")" => depth -= 1,
            _ => {}
        }
    }
    // Alternatives under `#if` may open a bracket twice.
    depth == 0 || text.contains("\n#")
}

fn undefined_foreach(unit: &Unit) -> bool {
    !unit.expanded.macros.contains_key(crate::front::FOREACH)
}

/// Returns the source place before a function that comes from a macro.
fn enclosing_start(unit: &Unit, span: Span) -> usize {
    let tokens = &unit.expanded.tokens;
    (0..=span.first).rev().find_map(|at| tokens[at].from).map_or(0, |from| from as usize)
}

/// Returns the place in the source after a function.
fn enclosing_end(unit: &Unit, span: Span) -> usize {
    let tokens = &unit.expanded.tokens;
    if let Some(to) = tokens.get(span.end - 1).and_then(|token| token.to) {
        return to as usize;
    }
    let next = tokens[span.end.min(tokens.len())..].iter().find_map(|token| token.from);
    let source = &unit.expanded.source;
    let limit = next.map_or(source.len(), |next| next as usize);
    let words = lexer::tokens(&source[..limit]);
    words.iter().rev().find(|word| word.kind != Kind::Directive).map_or(limit, lexer::Token::end)
}

/// Returns the tokens of a range with the line breaks of the expanded text.
fn lines(unit: &Unit, span: Span) -> String {
    let mut text = String::new();
    for at in span.first..span.end {
        if at > span.first {
            let break_line = unit.expanded.on_new_line(at);
            text.push_str(if break_line {
                "\n"
            } else if unit.expanded.spaced(at) {
                " "
            } else {
                ""
            });
        }
        let word = unit.expanded.word(at);
        if word.starts_with('#') {
            text.push_str(&format!("\n{word}\n"));
        } else {
            text.push_str(word);
        }
    }
    text
}

/// Returns a text without gopt's pragmas, which compilers do not know.
fn without_pragmas(text: &str) -> String {
    let mut result = String::new();
    for line in text.split_inclusive('\n') {
        let words: Vec<&str> = line.trim_start().trim_start_matches('#').split_whitespace().take(2).collect();
        if line.trim_start().starts_with('#') && words == ["pragma", "gopt"] {
            result.push('\n');
        } else {
            result.push_str(line);
        }
    }
    result
}
