//! Sixth pass: writes a batch loop with interleaved lookups.
//!
//! The body keeps its form. A variable that exists at a switch becomes a local variable of the
//! whole loop. It is saved at the switch and loaded when the lookup continues, if the lookup still
//! uses it (`live`). A variable whose address must not change becomes a member of a struct per
//! lookup. A variable that does not exist at any switch stays unchanged. A label follows each
//! switch, where the lookup continues.

mod again;
mod declare;
mod inline;
mod live;
mod lower;
mod statement;
mod turns;

pub(crate) use turns::PROLOGUE;

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::address::{Addresses, changed, type_key};
use crate::batch::Batch;
use crate::lexer::{Kind, tokens};
use crate::reach::Reach;
use crate::refusal::{Pass, refuse};
use crate::unit::{Function, Unit, children};

/// Meaning of a name in the output.
#[derive(Clone, Debug)]
struct Entry {
    binding: Binding,
    /// Type, without `const` and without the name.
    type_key: String,
    /// Whether the variable never changes after it is set.
    steady: bool,
    /// Whether the name is the address of a steady variable.
    points_at_steady: bool,
}

/// Form of a variable in the output.
#[derive(Clone, Debug)]
enum Binding {
    /// Variable outside the lookup, or local variable that does not exist at a switch, under its
    /// own name.
    Kept,
    /// Local variable that does not exist at a switch, under another name.
    Renamed(String),
    /// Variable of the whole loop, which is saved at switches.
    Moved(String),
    /// Member of the struct of the lookup, whose address does not change.
    Member(String),
    /// Parameter that is replaced by its argument.
    Alias(String),
}

impl Entry {
    fn new(binding: Binding, type_key: String, steady: bool) -> Self {
        Self { binding, type_key, steady, points_at_steady: false }
    }

    /// Returns the text of the variable in the output.
    fn text(&self, name: &str) -> String {
        match &self.binding {
            Binding::Kept => name.to_owned(),
            Binding::Renamed(text) | Binding::Moved(text) | Binding::Alias(text) => text.clone(),
            Binding::Member(member) => format!("gopt_s->{member}"),
        }
    }
}

/// Loop or switch statement that encloses a statement.
enum Around {
    Batch,
    /// Loop. If `continue` must become a `goto`: its label, and whether the label is used.
    Loop(Option<(String, bool)>),
    Switch,
}

/// Return from an inlined copy of a function.
struct Return {
    /// Variable for the returned value. `None` in a `void` function.
    result: Option<String>,
    /// Label at the end of the copy.
    label: String,
    /// Whether a `goto` to the label was written.
    used: bool,
    /// Id of the last statement, whose `return` needs no `goto`.
    last: Option<usize>,
}

/// Context of the body that is being written: the batch loop, or an inlined copy of a function.
struct Context<'u, 't> {
    function: &'u Function<'t>,
    /// Body of the loop or of the function.
    region: Node<'t>,
    scopes: Vec<BTreeMap<&'t str, Entry>>,
    /// Number of the copy. The loop itself has number 0.
    copy: usize,
    returns: Option<Return>,
    /// Enclosing loops and switch statements, from the outermost.
    around: Vec<Around>,
}

impl Context<'_, '_> {
    fn entry(&self, name: &str) -> Option<&Entry> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }
}

/// Variable of the whole loop.
struct Moved {
    name: String,
    /// Declaration in C, without the `;`.
    declaration: String,
    /// Assignment that recomputes the variable, if this is possible at any time after its
    /// declaration.
    recompute: Option<String>,
}

/// Writer of one batch loop.
struct Emitter<'u, 't> {
    unit: &'u Unit<'t>,
    reach: &'u Reach,
    addresses: &'u Addresses<'u, 't>,
    /// Variables of the whole loop.
    moved: Vec<Moved>,
    /// Members of the struct of a lookup.
    members: Vec<String>,
    /// Names with the same meaning in the output: variables outside the loop, and some local
    /// variables.
    kept: BTreeSet<&'t str>,
    /// Names in use.
    names: BTreeSet<String>,
    /// Prefix of labels. All batch loops of a function share the name space of labels.
    labels_begin: String,
    /// Number of inlined copies.
    copies: usize,
    /// Number of labels for `continue`.
    labels: usize,
    /// Number of switches.
    switches: usize,
    /// Number of temporary variables.
    temporaries: usize,
    /// Number of calls with a switch in the whole expression that is being written.
    calls_of_expression: usize,
}

/// Returns the text that replaces a batch loop. `number` is the index of the loop in its function.
pub(crate) fn transformed<'t>(
    unit: &Unit<'t>,
    addresses: &Addresses<'_, 't>,
    batch: &Batch<'t>,
    number: usize,
) -> Pass<String> {
    let reach = addresses.reach;
    let Some(function) = unit.functions.get(&batch.function) else {
        return refuse(batch.node.start_byte(), "a loop outside any function");
    };
    let words = tokens(&unit.source.text);
    let words = words.iter().filter(|token| token.kind == Kind::Identifier);
    let mut emitter = Emitter {
        unit,
        reach,
        addresses,
        moved: Vec::new(),
        members: Vec::new(),
        kept: BTreeSet::new(),
        names: words.map(|token| token.text.to_owned()).collect(),
        labels_begin: if number == 0 { "gopt_".to_owned() } else { format!("gopt_{}_", number + 1) },
        copies: 0,
        labels: 0,
        switches: 0,
        temporaries: 0,
        calls_of_expression: 0,
    };
    let mut scope = BTreeMap::new();
    for (name, variable) in crate::scope::at_loop(unit, function, batch.node) {
        // Lookups change an outer variable only for sums that no lookup reads (`depend`).
        let steady = !changed(unit, batch.body, name);
        emitter.kept.insert(name);
        scope.insert(name, Entry::new(Binding::Kept, type_key(unit, variable), steady));
    }
    let type_key = format!("{}|", batch.header.index_type);
    let index_name = index_name(unit, batch);
    emitter.kept.insert(index_name);
    let binding = emitter.index(batch);
    let entry = Entry::new(binding, type_key, true);
    let index = entry.text(index_name);
    scope.insert(index_name, entry);
    let mut context = Context {
        function,
        region: batch.body,
        scopes: vec![scope],
        copy: 0,
        returns: None,
        around: vec![Around::Batch],
    };
    let body = emitter.statement(batch.body, &mut context)?;
    let labels = &emitter.labels_begin;
    let saved = live::resolved(&body, &emitter.moved, !emitter.members.is_empty(), labels);
    Ok(turns::turns(unit, batch, &emitter.moved, &emitter.members, &index, &saved, labels))
}

/// Returns the name of the index as a slice of the text.
fn index_name<'t>(unit: &Unit<'t>, batch: &Batch<'t>) -> &'t str {
    let mut found = "";
    crate::unit::walk(batch.node, &mut |node| {
        if found.is_empty() && node.kind() == "identifier" && unit.text(node) == batch.index {
            found = unit.text(node);
        }
        found.is_empty()
    });
    found
}

impl<'t> Emitter<'_, 't> {
    /// Returns a new name that neither the file nor the output contains.
    fn fresh(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut number = 1;
        while self.unit.source.macros.has(&name) || !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{base}_{number}");
        }
        name
    }

    /// Returns the form of the index in a lookup.
    fn index(&mut self, batch: &Batch<'t>) -> Binding {
        let name = &batch.index;
        // An index whose address is taken is a member of the struct.
        if changed(self.unit, batch.body, name) {
            self.members.push(format!("{} {name};", batch.header.index_type));
            return Binding::Member(name.clone());
        }
        let moved = self.fresh(&format!("{name}_0"));
        self.moved.push(Moved {
            name: moved.clone(),
            declaration: format!("{} {moved}", batch.header.index_type),
            recompute: None,
        });
        Binding::Moved(moved)
    }

    /// Writes a node: each child with `child`, and the text between the children unchanged.
    fn assemble(&mut self, node: Node<'t>, mut child: impl FnMut(&mut Self, Node<'t>) -> Pass<String>) -> Pass<String> {
        let unit = self.unit;
        let mut text = String::new();
        let mut at = node.start_byte();
        for inner in children(node) {
            text.push_str(&unit.source.plain[at..inner.start_byte()]);
            text.push_str(&child(self, inner)?);
            at = inner.end_byte();
        }
        text.push_str(&unit.source.plain[at..node.end_byte()]);
        Ok(text)
    }

    /// Writes an expression without expensive calls, with the new names.
    fn expression(&mut self, node: Node<'t>, context: &Context<'_, 't>) -> Pass<String> {
        let unit = self.unit;
        match node.kind() {
            "identifier" | "type_identifier" => {
                let name = unit.text(node);
                if unit.source.macros.has(name) {
                    self.macro_use(node, name, context)?;
                }
                Ok(context.entry(name).map_or_else(|| name.to_owned(), |entry| entry.text(name)))
            }
            _ if node.child_count() == 0 => Ok(unit.text(node).to_owned()),
            "string_literal" | "char_literal" | "system_lib_string" | "concatenated_string" => {
                Ok(unit.text(node).to_owned())
            }
            _ => self.assemble(node, |emitter, child| emitter.expression(child, context)),
        }
    }

    /// Refuses a macro that names a renamed variable, because expansions are not rewritten.
    fn macro_use(&self, node: Node<'t>, name: &str, context: &Context<'_, 't>) -> Pass<()> {
        let macros = &self.unit.source.macros;
        let renamed = |word: &str| context.entry(word).is_some_and(|entry| !matches!(entry.binding, Binding::Kept));
        if let Some(word) = macros.mentions(name).iter().find(|word| renamed(word)) {
            return refuse(
                node.start_byte(),
                format!("the macro {name} names the local variable {word}, which is renamed: pass it as an argument"),
            );
        }
        let list = node.parent().and_then(|call| call.child_by_field_name("arguments"));
        if let Some(list) = list.filter(|_| macros.pastes(name)) {
            let words = tokens(self.unit.text(list));
            if let Some(word) = words.iter().find(|word| word.kind == Kind::Identifier && renamed(word.text)) {
                return refuse(
                    node.start_byte(),
                    format!(
                        "the macro {name} converts the local variable {} to text, but the variable is renamed",
                        word.text
                    ),
                );
            }
        }
        Ok(())
    }
}
