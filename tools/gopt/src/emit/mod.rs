//! Writes a batch loop with interleaved lookups.
//!
//! The body keeps its form. A variable that is in scope at a switch becomes a local variable of the
//! whole loop. It is saved at the switch, and loaded when the lookup continues, if the lookup still
//! uses it (`live`). A variable whose address must not change becomes a member of a struct per
//! lookup. A variable that is not in scope at any switch stays unchanged. A label follows each
//! switch, where the lookup continues.

mod again;
pub(crate) mod auto;
mod declare;
mod inline;
mod layout;
mod live;
mod lower;
mod sequence;
mod serial;
mod statement;
mod text;
mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) use turns::{PROLOGUE, Plain};

use crate::address::{Addresses, changed};
use crate::batch::Loop;
use crate::batch::header::Header;
use crate::check::Legal;
use crate::error::Pass;
use crate::reach::Reach;
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Span, Stmt};
use crate::syntax::types::Type;
use turns::Turns;

/// Meaning of a name in the output.
#[derive(Clone, Debug)]
struct Entry {
    binding: Binding,
    ty: Type,
    /// Whether the variable never changes after it is set.
    steady: bool,
    /// Whether the name is the address of a steady variable.
    points_at_steady: bool,
}

/// Form of a variable in the output.
#[derive(Clone, Debug)]
enum Binding {
    /// Variable outside the lookup, or local variable that is not in scope at a switch, under its
    /// original name.
    Kept,
    /// Local variable that is not in scope at a switch, under another name.
    Renamed(String),
    /// Variable of the whole loop, which is saved at switches.
    Moved(String),
    /// Member of the lookup's struct, whose address does not change.
    Member(String),
    /// Parameter that its argument replaces, or row of a variable-length array.
    Alias(String),
}

impl Entry {
    fn new(binding: Binding, ty: Type, steady: bool) -> Self {
        Self { binding, ty, steady, points_at_steady: false }
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
    /// Loop. If `continue` must become a `goto`, it has a label, and a flag that tells whether the
    /// label is used.
    Loop(Option<(String, bool)>),
    Switch,
}

/// Return from an inlined copy of a function.
struct Return {
    /// Variable for the returned value, or `None` in a `void` function.
    result: Option<String>,
    /// Label at the end of the copy.
    label: String,
    /// Whether a `goto` to the label was written.
    used: bool,
    /// Span of the last statement, whose `return` needs no `goto`.
    last: Option<Span>,
    /// Label at the beginning of the copy, for the function's tail calls to itself.
    again: Option<String>,
}

/// Context of the current body: the batch loop, or an inlined copy of a function.
struct Context<'u> {
    function: DeclId,
    /// Body of the loop or of the function.
    region: &'u Stmt,
    names: HashMap<DeclId, Entry>,
    /// Blocks around the current statement, from the outermost.
    blocks: Vec<Span>,
    /// Number of the copy. The loop itself has number 0.
    copy: usize,
    returns: Option<Return>,
    /// Enclosing loops and switch statements, from the outermost.
    around: Vec<Around>,
    /// Bound of the next array of variable length.
    bound: Option<String>,
}

/// Variable of the whole loop.
struct Moved {
    name: String,
    /// Declaration in C, without the `;`.
    declaration: String,
    /// Assignment that can recompute the variable at any time after its declaration, if there is
    /// one.
    recompute: Option<String>,
}

/// Writer of one batch loop.
struct Emitter<'u> {
    unit: &'u Unit,
    reach: &'u Reach,
    addresses: Addresses<'u>,
    legal: &'u Legal,
    site: &'u Loop<'u>,
    /// Variables of the whole loop.
    moved: Vec<Moved>,
    /// Members of the struct of a lookup.
    members: Vec<String>,
    /// Declarations of types and rows before the loop.
    hoisted: Vec<String>,
    /// Output names of local types, by type number.
    types: BTreeMap<usize, String>,
    /// Names of local `typedef`s in the output.
    typedefs: BTreeMap<DeclId, String>,
    /// Copies of the induction variables of the file.
    file_inductions: HashMap<DeclId, Entry>,
    /// Names that the function declares outside the loop.
    outer: BTreeSet<&'u str>,
    /// File-level names that a local variable hides, with the variables that replace them.
    file_names: BTreeMap<DeclId, String>,
    /// Position in a loop with `#pragma gopt serial`.
    serial: serial::Part,
    /// Names in use.
    used: BTreeSet<String>,
    /// Label prefix. All batch loops of a function share one label name space.
    labels_begin: String,
    /// Functions of the enclosing copies.
    path: Vec<DeclId>,
    copies: usize,
    labels: usize,
    switches: usize,
    temporaries: usize,
}

/// Output of one batch loop.
pub(crate) struct Emitted {
    /// Text that replaces the loop.
    pub(crate) text: String,
    /// Declarations before the function.
    pub(crate) before: String,
}

/// Returns the text that replaces a batch loop. `number` is the index of the loop in the file, and
/// `plain` is the original loop.
pub(crate) fn transformed<'u>(
    unit: &'u Unit,
    reach: &'u Reach,
    site: &'u Loop<'u>,
    header: &'u Header<'u>,
    legal: &'u Legal,
    number: usize,
    plain: Plain<'_>,
) -> Pass<Emitted> {
    let mut emitter = Emitter {
        unit,
        reach,
        addresses: Addresses::new(unit, reach),
        legal,
        site,
        moved: Vec::new(),
        members: Vec::new(),
        hoisted: Vec::new(),
        types: BTreeMap::new(),
        typedefs: BTreeMap::new(),
        file_inductions: HashMap::new(),
        outer: BTreeSet::new(),
        file_names: BTreeMap::new(),
        serial: serial::Part::of(site),
        used: unit.declarations.iter().map(|one| one.name.clone()).collect(),
        labels_begin: if number == 0 { "gopt_".to_owned() } else { format!("gopt_{}_", number + 1) },
        path: vec![site.function],
        copies: 0,
        labels: 0,
        switches: 0,
        temporaries: 0,
    };
    emitter.find_outer();
    let mut context = Context {
        function: site.function,
        region: site.body,
        names: HashMap::new(),
        blocks: vec![site.span()],
        copy: 0,
        returns: None,
        around: vec![Around::Batch],
        bound: None,
    };
    let mut copies = emitter.inductions(header, &mut context)?;
    copies.extend(emitter.ticket());
    for id in &legal.private {
        let (binding, _) = emitter.lasting(*id, &mut context)?;
        let ty = unit.declaration(*id).ty.clone();
        context.names.insert(*id, Entry::new(binding, ty, false));
    }
    let body = emitter.statement(site.body, &mut context)?;
    let types = emitter.typedefs.values().cloned().collect::<Vec<_>>();
    let saved =
        live::resolved(unit, &body, &emitter.moved, !emitter.members.is_empty(), &types, &emitter.labels_begin)?;
    let before = emitter.file_declarations();
    let turns = Turns {
        unit,
        header,
        moved: &emitter.moved,
        members: &emitter.members,
        hoisted: &emitter.hoisted,
        copies: &copies,
        body: &saved,
        serial: emitter.serial != serial::Part::None,
        labels: &emitter.labels_begin,
        plain,
    };
    Ok(Emitted { text: turns.text(), before })
}

impl<'u> Emitter<'u> {
    /// Finds the names that the function declares outside the loop.
    fn find_outer(&mut self) {
        let Some((function, body)) = self.unit.function(self.site.function) else { return };
        for id in &function.parameters {
            self.outer.insert(self.unit.declaration(*id).name.as_str());
        }
        let inside = self.site.body.span;
        for id in self.unit.resolved_in(body.span) {
            let declaration = self.unit.declaration(id);
            let local = (body.span.first..body.span.end).contains(&declaration.token);
            if local && !(inside.first..inside.end).contains(&declaration.token) {
                self.outer.insert(declaration.name.as_str());
            }
        }
    }

    /// Returns a new name that occurs neither in the file nor in the output.
    fn fresh(&mut self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut number = 1;
        while self.unit.expanded.macros.contains_key(&name) || !self.used.insert(name.clone()) {
            number += 1;
            name = format!("{base}_{number}");
        }
        name
    }

    /// Adds copies of induction variables. Returns the statements that set them when a lookup
    /// begins.
    fn inductions(&mut self, header: &Header<'u>, context: &mut Context<'u>) -> Pass<Vec<String>> {
        let mut copies = Vec::new();
        for (id, induction) in &header.inductions {
            if !induction.is_read && induction.in_body.is_none() && self.unit.declaration(*id).is_automatic() {
                continue;
            }
            let declaration = self.unit.declaration(*id);
            let name = declaration.name.clone();
            let steady = induction.in_body.is_none() && !changed(self.unit, self.site.body, *id);
            let (binding, _) = self.lasting(*id, context)?;
            let entry = Entry::new(binding, declaration.ty.clone(), steady);
            copies.push(format!("{} = {name};", entry.text(&name)));
            if let (Some(_), Some(step)) = (induction.in_body, induction.step) {
                copies.push(format!("{name} += {step};"));
            }
            if !declaration.is_automatic() {
                self.file_inductions.insert(*id, entry.clone());
            }
            context.names.insert(*id, entry);
        }
        Ok(copies)
    }
}
