//! Sixth pass: the text of a batch loop whose look-ups take turns.
//!
//! The body keeps its form. A variable that exists where look-ups switch becomes a local variable of the whole loop, saved
//! where its look-up waits and loaded where that goes on, if it is used there (`live`); one whose address is kept lives in
//! a struct of its look-up. Labels stand where look-ups go on. What stays within one turn is declared where it was.

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

/// What a name stands for in the text that is made.
#[derive(Clone, Debug)]
struct Entry {
    binding: Binding,
    /// Its type, `const` and the name left out.
    type_key: String,
    /// Never changed once it is set.
    steady: bool,
    /// Stands for the address of a variable that is steady.
    points_at_steady: bool,
}

#[derive(Clone, Debug)]
enum Binding {
    /// Declared outside the look-up, or a local within one turn that keeps its name.
    Kept,
    /// A local within one turn under another name.
    Renamed(String),
    /// A variable of the whole loop, saved where its look-up waits.
    Moved(String),
    /// A member of the look-up's struct: it keeps its address.
    Member(String),
    /// A parameter that is what it was called with.
    Alias(String),
}

impl Entry {
    fn new(binding: Binding, type_key: String, steady: bool) -> Self {
        Self { binding, type_key, steady, points_at_steady: false }
    }

    fn text(&self, name: &str) -> String {
        match &self.binding {
            Binding::Kept => name.to_owned(),
            Binding::Renamed(text) | Binding::Moved(text) | Binding::Alias(text) => text.clone(),
            Binding::Member(member) => format!("gopt_s->{member}"),
        }
    }
}

/// A loop or switch around a statement.
enum Around {
    Batch,
    /// Where `continue` has to jump, where the loop's own text would not do; and whether one does.
    Loop(Option<(String, bool)>),
    Switch,
}

/// How a copy of a function's body returns.
struct Return {
    /// What takes the value; none in a `void` function.
    result: Option<String>,
    label: String,
    /// A `goto` to the label was written.
    used: bool,
    /// The statement behind which the label stands anyway.
    last: Option<usize>,
}

/// A body that is being written: the batch loop's, or a copy of a function's.
struct Place<'u, 't> {
    function: &'u Function<'t>,
    region: Node<'t>,
    scopes: Vec<BTreeMap<&'t str, Entry>>,
    /// The number of the copy; 0 is the loop itself.
    copy: usize,
    returns: Option<Return>,
    around: Vec<Around>,
}

impl Place<'_, '_> {
    fn entry(&self, name: &str) -> Option<&Entry> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }
}

/// A variable of the whole loop.
struct Moved {
    name: String,
    /// As C, without the `;`.
    declaration: String,
    /// What sets it to the value that it has from its declaration on, where that can be said at any time.
    again: Option<String>,
}

/// Writes one batch loop.
struct Emitter<'u, 't> {
    unit: &'u Unit<'t>,
    reach: &'u Reach,
    addresses: &'u Addresses<'u, 't>,
    /// Variables of the whole loop, and members of the look-up's struct.
    moved: Vec<Moved>,
    members: Vec<String>,
    /// Names that mean the same in the text that is made as in the loop: of variables outside it, and of some locals.
    kept: BTreeSet<&'t str>,
    /// Names that are taken.
    names: BTreeSet<String>,
    /// What labels begin with: they are one name space for all batch loops of a function.
    labels_begin: String,
    copies: usize,
    labels: usize,
    /// Places where look-ups switch.
    switches: usize,
    temporaries: usize,
    /// Calls that switch in the whole expression that is being written.
    calls_of_expression: usize,
}

/// The text that takes the place of a batch loop, of those of its function the one with this number, from 0.
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
        // Look-ups were seen not to change it, but for sums that none of them reads.
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
    let mut place = Place {
        function,
        region: batch.body,
        scopes: vec![scope],
        copy: 0,
        returns: None,
        around: vec![Around::Batch],
    };
    let body = emitter.statement(batch.body, &mut place)?;
    let labels = &emitter.labels_begin;
    let saved = live::resolved(&body, &emitter.moved, !emitter.members.is_empty(), labels);
    Ok(turns::turns(unit, batch, &emitter.moved, &emitter.members, &index, &saved, labels))
}

/// The index's name as it lies in the text.
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
    /// A name that the file does not have and that was not given away.
    fn fresh(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut number = 1;
        while self.unit.source.macros.has(&name) || !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{base}_{number}");
        }
        name
    }

    /// What each look-up has of the index.
    fn index(&mut self, batch: &Batch<'t>) -> Binding {
        let name = &batch.index;
        // Where the address of the index is kept, it is a member.
        if changed(self.unit, batch.body, name) {
            self.members.push(format!("{} {name};", batch.header.index_type));
            return Binding::Member(name.clone());
        }
        let moved = self.fresh(&format!("{name}_0"));
        self.moved.push(Moved {
            name: moved.clone(),
            declaration: format!("{} {moved}", batch.header.index_type),
            again: None,
        });
        Binding::Moved(moved)
    }

    /// A node's text with what lies between its children as it is, and each child as `child` writes it.
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

    /// An expression without expensive calls: names in the place of names.
    fn expression(&mut self, node: Node<'t>, place: &Place<'_, 't>) -> Pass<String> {
        let unit = self.unit;
        match node.kind() {
            "identifier" | "type_identifier" => {
                let name = unit.text(node);
                if unit.source.macros.has(name) {
                    self.macro_use(node, name, place)?;
                }
                Ok(place.entry(name).map_or_else(|| name.to_owned(), |entry| entry.text(name)))
            }
            _ if node.child_count() == 0 => Ok(unit.text(node).to_owned()),
            "string_literal" | "char_literal" | "system_lib_string" | "concatenated_string" => {
                Ok(unit.text(node).to_owned())
            }
            _ => self.assemble(node, |emitter, child| emitter.expression(child, place)),
        }
    }

    /// A macro's expansion is not rewritten, so it must not name what is renamed.
    fn macro_use(&self, node: Node<'t>, name: &str, place: &Place<'_, 't>) -> Pass<()> {
        let macros = &self.unit.source.macros;
        let renamed = |word: &str| place.entry(word).is_some_and(|entry| !matches!(entry.binding, Binding::Kept));
        if let Some(word) = macros.mentions(name).iter().find(|word| renamed(word)) {
            return refuse(
                node.start_byte(),
                format!("the macro {name} names the local variable {word}, which becomes the look-up's own"),
            );
        }
        let list = node.parent().and_then(|call| call.child_by_field_name("arguments"));
        if let Some(list) = list.filter(|_| macros.pastes(name)) {
            let words = tokens(self.unit.text(list));
            if let Some(word) = words.iter().find(|word| word.kind == Kind::Identifier && renamed(word.text)) {
                return refuse(
                    node.start_byte(),
                    format!("the macro {name} makes text of the local variable {}, which gets another name", word.text),
                );
            }
        }
        Ok(())
    }
}
