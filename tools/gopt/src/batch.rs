//! Fourth pass: finds the batch loops. Each iteration of a batch loop is a lookup.

use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::lexer::tokens;
use crate::reach::Reach;
use crate::refusal::{Pass, refuse};
use crate::source::ANNOTATIONS;
use crate::unit::{Function, Unit, children, declarators, declared_name, walk};

/// Batch loop, which gopt transforms.
pub(crate) struct Batch<'t> {
    /// Function that contains the loop.
    pub(crate) function: String,
    pub(crate) node: Node<'t>,
    pub(crate) body: Node<'t>,
    /// Name of the loop index.
    pub(crate) index: String,
    pub(crate) header: Header,
}

/// Parts of the head of a batch loop, as C.
pub(crate) struct Header {
    /// Initialiser: a statement or a declaration, without `;`.
    pub(crate) first: String,
    pub(crate) condition: String,
    pub(crate) step: String,
    /// Type of the index. Each lookup has a copy of the index.
    pub(crate) index_type: String,
    /// Whether the head declares the index.
    pub(crate) declares: bool,
}

/// Returns the functions that contain a `foreach` or are named by the caller. Calls of these
/// functions are not transformed.
pub(crate) fn apart(unit: &Unit<'_>, named: &[String]) -> Pass<BTreeSet<String>> {
    let mut found: BTreeSet<String> = named.iter().cloned().collect();
    if let Some(missing) = found.iter().find(|name| !unit.functions.contains_key(*name)) {
        return refuse(0, format!("the file does not define the function {missing}"));
    }
    for &at in &unit.source.foreach {
        let owner = unit.functions.values().find(|function| function.body.byte_range().contains(&at));
        found.extend(owner.map(|function| function.name.clone()));
    }
    Ok(found)
}

/// Returns all batch loops, in the order of the text.
pub(crate) fn find<'t>(unit: &Unit<'t>, reach: &Reach, apart: &BTreeSet<String>) -> Pass<Vec<Batch<'t>>> {
    let mut found = Vec::new();
    if apart.is_empty() {
        let called = |name: &String| {
            let callers = unit.functions.values().filter(|other| reach.expensive.contains(&other.name));
            let mut others = callers.filter(|other| other.name != *name);
            others.any(|other| calls(unit, other.body, name))
        };
        let mut tops: Vec<String> = reach.expensive.iter().filter(|name| !called(name)).cloned().collect();
        if tops.is_empty() {
            tops = reach.expensive.iter().take(1).cloned().collect();
        }
        let mut seen = BTreeSet::new();
        while let Some(top) = tops.pop() {
            if seen.insert(top.clone())
                && let Some(function) = unit.functions.get(&top)
            {
                found.extend(in_function(unit, reach, function, &mut tops)?);
            }
        }
    }
    for name in apart {
        if let Some(function) = unit.functions.get(name) {
            found.extend(in_function(unit, reach, function, &mut Vec::new())?);
        }
    }
    found.sort_by_key(|batch| batch.node.start_byte());
    covered(unit, reach, &found)?;
    Ok(found)
}

fn calls(unit: &Unit<'_>, node: Node<'_>, name: &str) -> bool {
    let mut found = false;
    walk(node, &mut |inner| {
        found |= unit.callee(inner) == Some(name);
        !found
    });
    found
}

/// Returns the outermost loops of a function that contain a switch point. Adds the expensive
/// functions that are called outside of these loops to `deeper`.
fn in_function<'t>(
    unit: &Unit<'t>,
    reach: &Reach,
    function: &Function<'t>,
    deeper: &mut Vec<String>,
) -> Pass<Vec<Batch<'t>>> {
    let marked = unit.source.foreach.iter().any(|at| function.body.byte_range().contains(at));
    let mut loops = Vec::new();
    let mut fault = Ok(());
    walk(function.body, &mut |node| {
        if fault.is_err() {
            return false;
        }
        let foreach = unit.source.foreach.contains(&node.start_byte()) && node.kind() == "while_statement";
        let counts = !marked && node.kind() == "for_statement";
        if foreach || counts && reach.switch_in(&function.name, node.start_byte(), node.end_byte()) {
            loops.push((node, foreach));
            return false;
        }
        if let Some(name) = unit.callee(node) {
            if ANNOTATIONS.contains(&name) {
                fault = refuse(
                    node.start_byte(),
                    format!("{name} is outside any batch loop: no other lookup can run there"),
                );
            } else if reach.expensive.contains(name) && name != function.name {
                if marked {
                    fault = refuse(
                        node.start_byte(),
                        format!("{name} has expensive accesses and is called outside the batch loop"),
                    );
                }
                deeper.push(name.to_owned());
            }
        }
        true
    });
    fault?;
    loops.into_iter().map(|(node, foreach)| batch(unit, function, node, foreach)).collect()
}

/// Refuses annotations that no batch loop reaches.
fn covered(unit: &Unit<'_>, reach: &Reach, batches: &[Batch<'_>]) -> Pass<()> {
    let mut reached = BTreeSet::new();
    let mut pending: Vec<Node<'_>> = batches.iter().map(|batch| batch.body).collect();
    while let Some(node) = pending.pop() {
        walk(node, &mut |inner| {
            if let Some(name) = unit.callee(inner).filter(|name| reach.expensive.contains(*name))
                && reached.insert(name)
            {
                pending.extend(unit.functions.get(name).map(|function| function.body));
            }
            true
        });
    }
    for function in unit.functions.values().filter(|function| !reached.contains(function.name.as_str())) {
        let mut fault = Ok(());
        walk(function.body, &mut |node| {
            let name = unit.callee(node).filter(|name| ANNOTATIONS.contains(name));
            let inside = batches.iter().any(|batch| batch.body.byte_range().contains(&node.start_byte()));
            if let (Some(name), false) = (name, inside) {
                fault = refuse(node.start_byte(), format!("{name} is reached from no batch loop"));
            }
            fault.is_ok()
        });
        fault?;
    }
    Ok(())
}

fn batch<'t>(unit: &Unit<'t>, function: &Function<'t>, node: Node<'t>, foreach: bool) -> Pass<Batch<'t>> {
    let Some(body) = node.child_by_field_name("body") else {
        return refuse(node.start_byte(), "a batch loop without a body");
    };
    let (index, header) =
        if foreach { foreach_header(unit, function, node)? } else { for_header(unit, function, node)? };
    Ok(Batch { function: function.name.clone(), node, body, index, header })
}

const CANONICAL: &str =
    "a batch loop must count: for (i = first; i < end; i++), with any first, end, step and comparison";

fn for_header(unit: &Unit<'_>, function: &Function<'_>, node: Node<'_>) -> Pass<(String, Header)> {
    let at = node.start_byte();
    let (Some(condition), Some(step)) = (node.child_by_field_name("condition"), node.child_by_field_name("update"))
    else {
        return refuse(at, CANONICAL);
    };
    let counted = match step.kind() {
        "update_expression" => step.child_by_field_name("argument"),
        "assignment_expression" => {
            let operator = step.child_by_field_name("operator").map_or("", |operator| unit.text(operator));
            step.child_by_field_name("left").filter(|_| matches!(operator, "+=" | "-="))
        }
        _ => None,
    };
    let Some(counted) = counted.filter(|counted| counted.kind() == "identifier") else {
        return refuse(step.start_byte(), CANONICAL);
    };
    let index = unit.text(counted).to_owned();
    let operator = condition.child_by_field_name("operator").map_or("", |operator| unit.text(operator));
    let compares = condition.kind() == "binary_expression" && matches!(operator, "<" | "<=" | ">" | ">=" | "!=");
    let mut effects = false;
    let mut mentioned = false;
    for part in [condition, step] {
        walk(part, &mut |inner| {
            let is_step = inner == step;
            effects |=
                !is_step && matches!(inner.kind(), "call_expression" | "assignment_expression" | "update_expression");
            mentioned |= part == condition && inner.kind() == "identifier" && unit.text(inner) == index;
            true
        });
    }
    if !compares || !mentioned || effects {
        return refuse(condition.start_byte(), CANONICAL);
    }
    let initializer = node.child_by_field_name("initializer");
    let declares = initializer.is_some_and(|first| first.kind() == "declaration");
    let mut first = String::new();
    let mut index_type = None;
    if let Some(initializer) = initializer {
        first = unit.text(initializer).trim_end_matches(';').to_owned();
        if declares {
            let all = declarators(initializer);
            let name = all.first().and_then(|only| declared_name(*only)).map(|name| unit.text(name));
            let [only] = all[..] else { return refuse(initializer.start_byte(), CANONICAL) };
            if name != Some(index.as_str()) || crate::unit::bare(only).kind() != "identifier" {
                return refuse(initializer.start_byte(), CANONICAL);
            }
            index_type = Some(unit.specifiers(initializer));
        }
    }
    let index_type = match index_type {
        Some(known) => known,
        None => outer_type(unit, function, node, &index)?,
    };
    let header = Header {
        first,
        condition: unit.text(condition).to_owned(),
        step: unit.text(step).to_owned(),
        index_type,
        declares,
    };
    Ok((index, header))
}

/// Returns the head of `foreach(i, n)`: the definition of the macro, or else a loop from 0 to n.
fn foreach_header(unit: &Unit<'_>, function: &Function<'_>, node: Node<'_>) -> Pass<(String, Header)> {
    let at = node.start_byte();
    let inner = node.child_by_field_name("condition").and_then(|condition| condition.named_child(0));
    let parts = inner.filter(|inner| inner.kind() == "comma_expression");
    let left = parts.and_then(|parts| parts.child_by_field_name("left")).filter(|left| left.kind() == "identifier");
    let (Some(left), Some(right)) = (left, parts.and_then(|parts| parts.child_by_field_name("right"))) else {
        return refuse(at, "foreach takes an index and the number of iterations: foreach(i, n)");
    };
    let mut effects = false;
    walk(right, &mut |inner| {
        effects |= matches!(
            inner.kind(),
            "call_expression" | "assignment_expression" | "update_expression" | "comma_expression"
        );
        true
    });
    if effects {
        return refuse(
            right.start_byte(),
            "the number of iterations of foreach must be an expression without side effects or calls",
        );
    }
    let (index, count) = (unit.text(left).to_owned(), unit.text(right).to_owned());
    let Some(defined) = foreach_macro(unit, at, &index, &count)? else {
        // Definition of the paper: from 0. The index is an int, if the function has no variable of
        // that name.
        let (condition, step) = (format!("{index} < ({count})"), format!("{index}++"));
        let declares = !crate::scope::at_loop(unit, function, node).contains_key(index.as_str());
        let index_type = if declares { "int".to_owned() } else { outer_type(unit, function, node, &index)? };
        let first = if declares { format!("int {index} = 0") } else { format!("{index} = 0") };
        return Ok((index, Header { first, condition, step, index_type, declares }));
    };
    let header = match defined {
        header if header.declares => header,
        header => Header { index_type: outer_type(unit, function, node, &index)?, ..header },
    };
    Ok((index, header))
}

/// Returns whether the definition of `foreach` declares the index. Refuses a `foreach` without a
/// definition, because the output contains it.
pub(crate) fn foreach_declares(unit: &Unit<'_>, at: usize, index: Node<'_>, count: Node<'_>) -> Pass<bool> {
    match foreach_macro(unit, at, unit.text(index), unit.text(count))? {
        Some(header) => Ok(header.declares),
        None => refuse(at, "a foreach inside a batch loop needs a definition of the macro in this file"),
    }
}

/// Returns the head of the loop that the file defines as `foreach`, or `None` without a definition.
fn foreach_macro(unit: &Unit<'_>, at: usize, index: &str, count: &str) -> Pass<Option<Header>> {
    const OTHER: &str = "foreach must be defined as a loop that counts from 0: for (i = 0; i < n; i++)";
    let mut header: Option<Header> = None;
    for one in unit.source.macros.definitions("foreach") {
        let Some([first_name, second_name]) = one.parameters.as_deref() else {
            return refuse(at, OTHER);
        };
        let filled: Vec<String> = tokens(&one.body)
            .iter()
            .map(|token| match token.text {
                word if word == first_name => index.to_owned(),
                word if word == second_name => count.to_owned(),
                word => word.to_owned(),
            })
            .collect();
        let filled = filled.join(" ");
        let parts = filled.strip_prefix("for (").and_then(|rest| rest.strip_suffix(')'));
        let parts: Vec<&str> = parts.map_or_else(Vec::new, |parts| parts.split(';').map(str::trim).collect());
        let [first, condition, step] = parts[..] else { return refuse(at, OTHER) };
        let bare = |text: &str| text.replace(['(', ')', ' '], "");
        let Some(words) = first.strip_suffix("= 0") else { return refuse(at, OTHER) };
        let declared =
            words.trim_end().strip_suffix(index).or_else(|| words.trim_end().strip_suffix(&format!("( {index} )")));
        let Some(declared) = declared.map(str::trim) else { return refuse(at, OTHER) };
        let counts = bare(step) == format!("{index}++") || bare(step) == format!("++{index}");
        let compares = condition.trim_start_matches("( ").starts_with(index)
            && bare(condition).starts_with(&format!("{index}<"))
            && bare(condition).ends_with(&bare(count));
        if !counts || !compares {
            return refuse(at, OTHER);
        }
        let found = Header {
            first: first.to_owned(),
            condition: condition.to_owned(),
            step: step.replace(' ', ""),
            index_type: declared.to_owned(),
            declares: !declared.is_empty(),
        };
        if header.as_ref().is_some_and(|header| header.first != found.first || header.condition != found.condition) {
            return refuse(at, "foreach has several different definitions");
        }
        header = Some(found);
    }
    Ok(header)
}

/// Returns the type of a variable that is declared before a loop.
fn outer_type(unit: &Unit<'_>, function: &Function<'_>, node: Node<'_>, name: &str) -> Pass<String> {
    let scope = crate::scope::at_loop(unit, function, node);
    match scope.get(name) {
        Some(variable) if variable.declarator.kind() == "identifier" => Ok(unit.specifiers(variable.declaration)),
        _ => refuse(node.start_byte(), format!("the index {name} must be a plain local variable")),
    }
}

/// Refuses a jump out of a batch loop, because later lookups may already have begun.
pub(crate) fn leaves(unit: &Unit<'_>, batch: &Batch<'_>) -> Pass<()> {
    leaves_below(unit, batch.body, batch.body, false)
}

fn leaves_below(unit: &Unit<'_>, node: Node<'_>, body: Node<'_>, inner: bool) -> Pass<()> {
    let at = node.start_byte();
    match node.kind() {
        "break_statement" if !inner => {
            return refuse(at, "break ends the batch loop, but later lookups may already have begun");
        }
        "return_statement" => {
            return refuse(at, "return inside the batch loop, but later lookups may already have begun");
        }
        "goto_statement" => {
            let label = node.child_by_field_name("label").map_or("", |label| unit.text(label));
            let mut found = false;
            walk(body, &mut |other| {
                let is_label = other.kind() == "labeled_statement";
                let named = other.child_by_field_name("label").filter(|_| is_label);
                found |= named.is_some_and(|named| unit.text(named) == label);
                !found
            });
            if !found {
                return refuse(at, format!("goto {label} leaves the batch loop"));
            }
        }
        _ => {}
    }
    let holds =
        inner || matches!(node.kind(), "for_statement" | "while_statement" | "do_statement" | "switch_statement");
    children(node).try_for_each(|child| leaves_below(unit, child, body, holds))
}

/// Refuses a `goto` into a batch loop.
pub(crate) fn entered(unit: &Unit<'_>, batch: &Batch<'_>) -> Pass<()> {
    let Some(function) = unit.functions.get(&batch.function) else { return Ok(()) };
    let mut labels = BTreeSet::new();
    walk(batch.node, &mut |node| {
        if node.kind() == "labeled_statement" {
            labels.extend(node.child_by_field_name("label").map(|label| unit.text(label)));
        }
        true
    });
    let mut fault = Ok(());
    walk(function.body, &mut |node| {
        if node == batch.node {
            return false;
        }
        let label = node.child_by_field_name("label").filter(|_| node.kind() == "goto_statement");
        if let Some(label) = label.map(|label| unit.text(label)).filter(|label| labels.contains(label)) {
            fault = refuse(node.start_byte(), format!("goto {label} enters the batch loop"));
        }
        true
    });
    fault
}
