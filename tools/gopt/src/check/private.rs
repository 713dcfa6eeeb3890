//! Variables outside a batch loop that each lookup sets before it reads them.
//!
//! Such a variable carries no value from one lookup to the next, so each lookup can have a separate
//! copy.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::batch::Loop;
use crate::flow::{Event, Graph, Variables};
use crate::reach;
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Expr, ExprKind, Stmt};
use crate::syntax::walk::{self, Node};

/// Returns the variables that every lookup of a loop sets before it reads them, and that are not
/// read after the loop. `kept` contains variables with another meaning.
pub(super) fn variables(unit: &Unit, site: &Loop<'_>, kept: &BTreeSet<DeclId>) -> BTreeSet<DeclId> {
    let mut candidates = BTreeSet::new();
    let span = site.body.span;
    walk::statement(unit, site.body, &mut |node| {
        if let Node::Expr(Expr { kind: ExprKind::Name(id), .. }) = node {
            let declaration = unit.declaration(*id);
            let outside = !(span.first..span.end).contains(&declaration.token);
            if declaration.is_automatic() && outside && !kept.contains(id) && is_set(unit, site.body, *id) {
                candidates.insert(*id);
            }
        }
        true
    });
    let Some((_, function)) = unit.function(site.function) else { return BTreeSet::new() };
    candidates.retain(|id| !address_outside(unit, function, site, *id));
    if candidates.is_empty() {
        return candidates;
    }
    let order: Vec<DeclId> = candidates.iter().copied().collect();
    let calls = Calls::default();
    let followed = Followed { unit, ids: &order, calls: &calls, depth: 0 };
    let exposed = Graph::new(unit, site.body, &followed, "").alive_at_entry(&BTreeSet::new());
    let live = Graph::new(unit, function, &followed, "").alive_after_loop(site.span().first);
    let kept = (0..order.len()).filter(|index| !exposed.contains(index) && !live.contains(index));
    kept.map(|index| order[index]).collect()
}

/// Returns whether a loop body may set a variable.
fn is_set(unit: &Unit, body: &Stmt, id: DeclId) -> bool {
    let mut found = false;
    walk::statement(unit, body, &mut |node| {
        if let Node::Expr(one) = node {
            let target = match &one.kind {
                ExprKind::Assign(_, target, _) | ExprKind::Update { operand: target, .. } => Some(target),
                ExprKind::Unary(operator, target) if operator == "&" => Some(target),
                _ => None,
            };
            found |= target.is_some_and(|target| root(target) == Some(id));
            // An array that is passed to a function may be set there.
            found |= unit.declaration(id).ty.is_array() && one.name() == Some(id);
        }
        !found
    });
    found
}

/// Returns the variable that an lvalue is a part of.
pub(super) fn root(lvalue: &Expr) -> Option<DeclId> {
    match &lvalue.bare().kind {
        ExprKind::Name(id) => Some(*id),
        ExprKind::Member { object, arrow: false, .. } => root(object),
        ExprKind::Index(array, _) if array.ty.is_array() => root(array),
        _ => None,
    }
}

/// Returns whether code outside the loop takes a variable's address.
fn address_outside(unit: &Unit, body: &Stmt, site: &Loop<'_>, id: DeclId) -> bool {
    let mut found = false;
    walk::statement(unit, body, &mut |node| match node {
        Node::Stmt(statement) => statement.span != site.node.span,
        Node::Expr(one) => {
            found |=
                matches!(&one.kind, ExprKind::Unary(operator, target) if operator == "&" && root(target) == Some(id));
            true
        }
    });
    found
}

/// Results for objects behind parameters, by function and position. They tell whether the function
/// may first read the object, and whether it always sets it.
type Calls = RefCell<BTreeMap<(DeclId, usize), (bool, bool)>>;

/// Local variables whose values are followed.
struct Followed<'u, 'c> {
    unit: &'u Unit,
    ids: &'c [DeclId],
    calls: &'c Calls,
    depth: u32,
}

impl<'u> Variables<'u> for Followed<'u, '_> {
    fn named(&self, expression: &Expr) -> Option<usize> {
        let id = expression.name()?;
        self.ids.iter().position(|one| *one == id)
    }

    fn call(&self, call: &'u Expr) -> Vec<(usize, Vec<Event>)> {
        let marker = reach::is_marker_call(self.unit, call);
        let arguments = reach::arguments(call);
        let mut found = Vec::new();
        for (position, argument) in arguments.iter().enumerate() {
            if marker {
                // The plain loop does not evaluate the address.
                found.push((position, Vec::new()));
            } else if let Some(index) = self.address(argument) {
                let (reads, sets) = passed(self.unit, call, position, self.calls, self.depth);
                let events = [reads.then_some(Event::Use(index)), sets.then_some(Event::Set(index))];
                found.push((position, events.into_iter().flatten().collect()));
            }
        }
        found
    }
}

impl Followed<'_, '_> {
    /// Returns the variable whose address an argument is.
    fn address(&self, argument: &Expr) -> Option<usize> {
        match &argument.bare().kind {
            ExprKind::Unary(operator, inner) if operator == "&" => self.named(inner),
            ExprKind::Cast(_, inner) => self.address(inner),
            ExprKind::Name(id) if self.unit.declaration(*id).ty.is_array() => self.named(argument),
            _ => None,
        }
    }
}

/// Object behind a parameter.
struct Behind<'u, 'c> {
    unit: &'u Unit,
    parameter: DeclId,
    calls: &'c Calls,
    depth: u32,
}

impl<'u> Variables<'u> for Behind<'u, '_> {
    fn named(&self, expression: &Expr) -> Option<usize> {
        match &expression.bare().kind {
            ExprKind::Unary(operator, inner) if operator == "*" && inner.name() == Some(self.parameter) => Some(0),
            ExprKind::Name(id) if *id == self.parameter => Some(0),
            _ => None,
        }
    }

    fn is_part(&self, lvalue: &Expr) -> bool {
        match &lvalue.bare().kind {
            ExprKind::Member { object, arrow, .. } => {
                if *arrow {
                    object.name() == Some(self.parameter)
                } else {
                    self.is_part(object)
                }
            }
            _ => false,
        }
    }

    fn call(&self, call: &'u Expr) -> Vec<(usize, Vec<Event>)> {
        let mut found = Vec::new();
        for (position, argument) in reach::arguments(call).iter().enumerate() {
            if argument.name() == Some(self.parameter) {
                let (reads, sets) = passed(self.unit, call, position, self.calls, self.depth);
                let events = [reads.then_some(Event::Use(0)), sets.then_some(Event::Set(0))];
                found.push((position, events.into_iter().flatten().collect()));
            }
        }
        found
    }
}

/// Returns whether a call may first read the object behind an argument, and whether it always sets
/// it.
fn passed(unit: &Unit, call: &Expr, position: usize, calls: &Calls, depth: u32) -> (bool, bool) {
    let ExprKind::Call(function, arguments) = &call.kind else { return (true, false) };
    let name = match &function.bare().kind {
        ExprKind::Name(id) => unit.declaration(*id).name.as_str(),
        ExprKind::Undeclared(name) => name.as_str(),
        _ => "",
    };
    let fills = matches!(name, "memset" | "memcpy" | "memmove" | "__builtin_memset" | "__builtin_memcpy");
    if fills && position == 0 && arguments.get(2).is_some_and(|size| matches!(size.bare().kind, ExprKind::SizeOf(_))) {
        return (false, true);
    }
    let Some((callee, body)) = function.name().and_then(|id| unit.function(id)).filter(|_| depth < 6) else {
        return (true, false);
    };
    let Some(parameter) = callee.parameters.get(position).copied() else { return (true, false) };
    let key = (callee.id, position);
    if let Some(known) = calls.borrow().get(&key) {
        return *known;
    }
    calls.borrow_mut().insert(key, (true, false));
    let behind = Behind { unit, parameter, calls, depth: depth + 1 };
    let graph = Graph::new(unit, body, &behind, "");
    let reads = graph.alive_at_entry(&BTreeSet::new()).contains(&0);
    let sets = !graph.alive_at_entry(&BTreeSet::from([0])).contains(&0);
    calls.borrow_mut().insert(key, (reads, sets));
    (reads, sets)
}
