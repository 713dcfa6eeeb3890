//! Chooses the batch loops.
//!
//! For each marker, the innermost enclosing loop that is proven legal becomes the batch loop. If no
//! loop of the function is legal, the calls to the function are considered instead. A loop that
//! only computes one value, or has few iterations, is part of a lookup if an outer loop is legal.

use std::collections::{BTreeMap, BTreeSet};

use crate::batch::header::Header;
use crate::batch::{self, Loop, jumps};
use crate::check::{self, Legal, Permissions};
use crate::error::{Fault, Pass, refuse};
use crate::reach::{Reach, file_fault};
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, Expr, ExprKind, Initializer, StmtKind};
use crate::syntax::walk::{self, Node};

/// Batch loop with the results of its analysis.
pub(crate) struct Batch<'u> {
    pub(crate) site: Loop<'u>,
    pub(crate) header: Header<'u>,
    pub(crate) legal: Legal,
}

/// Iterations below which a loop is part of a lookup.
const FEW: i128 = 16;

/// State of the choice.
struct Choice<'u, 'o> {
    unit: &'u Unit,
    reach: Reach,
    named: &'o [String],
    permissions: &'o Permissions,
    /// Functions that promised loops reach. Loops in these functions are parts of lookups.
    promised: BTreeSet<DeclId>,
    chosen: Vec<Batch<'u>>,
    /// Faults of loops, with the functions that contain them.
    faults: Vec<(Loop<'u>, Fault)>,
    /// Whether loops that compute one value are skipped in favour of outer loops.
    prefers_outer: bool,
}

/// Returns the batch loops of a file in text order. `named` are functions whose outermost loops are
/// the batch loops.
pub(crate) fn choose<'u>(unit: &'u Unit, named: &[String], permissions: &Permissions) -> Pass<(Vec<Batch<'u>>, Reach)> {
    for name in named {
        if unit.named(name).is_none_or(|id| unit.function(id).is_none()) {
            return file_fault(format!("the file does not define the function {name}"));
        }
    }
    let first = attempt(unit, named, permissions, true);
    match first {
        Ok(found) => Ok(found),
        Err(fault) => attempt(unit, named, permissions, false).map_err(|_| fault),
    }
}

fn attempt<'u>(
    unit: &'u Unit,
    named: &[String],
    permissions: &Permissions,
    prefers_outer: bool,
) -> Pass<(Vec<Batch<'u>>, Reach)> {
    let reach = Reach::new(unit);
    let mut choice = Choice {
        unit,
        reach,
        named,
        permissions,
        promised: BTreeSet::new(),
        chosen: Vec::new(),
        faults: Vec::new(),
        prefers_outer,
    };
    choice.find_promised();
    for function in choice.order() {
        choice.function(function)?;
    }
    choice.covered()?;
    let mut chosen = choice.chosen;
    chosen.sort_by_key(|batch| batch.site.span().first);
    let mut reach = choice.reach;
    for batch in &chosen {
        reach.inlined.extend(&batch.legal.inlined);
    }
    with_callers(&mut reach);
    Ok((chosen, reach))
}

/// Adds the callers of inlined functions, because only inlined code is rewritten.
fn with_callers(reach: &mut Reach) {
    if reach.inlined.is_empty() {
        return;
    }
    loop {
        let calls = |id: &DeclId| reach.uses[id].calls.iter().any(|(called, _)| reach.inlined.contains(called));
        let grown: Vec<DeclId> =
            reach.uses.keys().filter(|id| !reach.inlined.contains(id)).filter(|id| calls(id)).copied().collect();
        if grown.is_empty() {
            return;
        }
        reach.inlined.extend(grown);
    }
}

impl<'u> Choice<'u, '_> {
    /// Finds the functions that promised loops reach.
    fn find_promised(&mut self) {
        let mut pending = Vec::new();
        for id in self.reach.uses.keys() {
            for site in batch::loops(self.unit, *id).iter().filter(|site| site.promise) {
                let span = site.span();
                let calls = self.reach.uses[id].calls.iter();
                pending.extend(calls.filter(|(_, at)| (span.first..span.end).contains(at)).map(|(called, _)| *called));
            }
        }
        while let Some(id) = pending.pop() {
            if self.promised.insert(id) {
                pending.extend(
                    self.reach.uses.get(&id).iter().flat_map(|uses| uses.calls.iter().map(|(called, _)| *called)),
                );
            }
        }
    }

    /// Returns all functions, with called functions before their callers.
    fn order(&self) -> Vec<DeclId> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for id in self.reach.uses.keys() {
            self.visit(*id, &mut seen, &mut order);
        }
        order
    }

    fn visit(&self, id: DeclId, seen: &mut BTreeSet<DeclId>, order: &mut Vec<DeclId>) {
        if !seen.insert(id) {
            return;
        }
        if let Some(uses) = self.reach.uses.get(&id) {
            for (called, _) in &uses.calls {
                self.visit(*called, seen, order);
            }
            order.push(id);
        }
    }

    /// Returns a function's switch points outside all chosen loops.
    fn uncovered(&self, function: DeclId) -> Vec<usize> {
        let mut all = self.reach.switches(function);
        let spans: Vec<_> = self
            .chosen
            .iter()
            .filter(|batch| batch.site.function == function)
            .map(|batch| batch.site.body.span)
            .collect();
        all.retain(|at| !spans.iter().any(|span| (span.first..span.end).contains(at)));
        all
    }

    fn is_named(&self, function: DeclId) -> bool {
        self.named.contains(&self.unit.declaration(function).name)
    }

    /// Chooses the batch loops of a function. If switch points remain, the function is expensive.
    fn function(&mut self, function: DeclId) -> Pass<()> {
        let switches = self.uncovered(function);
        let may = self.named.is_empty() || self.is_named(function);
        let mut sites = if may { batch::loops(self.unit, function) } else { Vec::new() };
        sites.retain(|site| {
            let span = site.body.span;
            switches.iter().any(|at| (span.first..span.end).contains(at))
        });
        let has_promise = sites.iter().any(|site| site.promise);
        if !self.named.is_empty() {
            // The outermost loops of named functions.
            let all = sites.clone();
            sites.retain(|site| !all.iter().any(|outer| outer.contains(site)));
        } else if has_promise {
            sites.retain(|site| site.promise);
        } else if self.promised.contains(&function) {
            sites.clear();
        }
        // Inner loops first.
        sites.sort_by_key(|site| site.span().end - site.span().first);
        let mut weak: Vec<Batch<'u>> = Vec::new();
        for site in sites {
            let span = site.body.span;
            let open = self.uncovered(function).iter().any(|at| (span.first..span.end).contains(at));
            if !open {
                continue;
            }
            match self.check(&site) {
                Ok(batch) => {
                    if self.is_weak(&batch) {
                        weak.push(batch);
                        continue;
                    }
                    // An outer loop takes over from the loops inside it.
                    self.chosen.retain(|inner| !batch.site.contains(&inner.site));
                    self.chosen.push(batch);
                }
                Err(fault) => {
                    let designated = site.promise || self.is_named(function);
                    if designated && !self.has_inner_choice(&site) && !self.has_outer_promise(&site) {
                        return Err(fault);
                    }
                    self.faults.push((site, fault));
                }
            }
        }
        let called = self.reach.uses.values().any(|uses| uses.calls.iter().any(|(called, _)| *called == function));
        for batch in weak {
            let span = batch.site.body.span;
            let open = self.uncovered(function).iter().any(|at| (span.first..span.end).contains(at));
            if open && !called {
                self.chosen.push(batch);
            }
        }
        if !self.uncovered(function).is_empty() {
            self.reach.expensive.insert(function);
        }
        Ok(())
    }

    fn has_inner_choice(&self, site: &Loop<'u>) -> bool {
        self.chosen.iter().any(|batch| site.contains(&batch.site))
    }

    /// Returns whether an outer promised loop may be legal.
    fn has_outer_promise(&self, site: &Loop<'u>) -> bool {
        batch::loops(self.unit, site.function).iter().any(|outer| outer.promise && outer.contains(site))
    }

    fn check(&self, site: &Loop<'u>) -> Pass<Batch<'u>> {
        let form = |mut fault: Fault| {
            fault.is_form = true;
            fault
        };
        let header = Header::new(self.unit, site).map_err(form)?;
        jumps::check(self.unit, site).map_err(form)?;
        let legal = check::check(self.unit, &self.reach, site, &header, self.permissions)?;
        if !legal.has_effects {
            const REASON: &str =
                "the batch loop changes nothing outside its lookups: put it and their uses into a loop";
            return refuse(site.span().first, REASON).map_err(form);
        }
        Ok(Batch { site: site.clone(), header, legal })
    }

    /// Returns whether a legal loop should be part of an outer loop's lookup.
    fn is_weak(&self, batch: &Batch<'u>) -> bool {
        if !self.prefers_outer || batch.site.promise && !has_few(self.unit, &batch.site) {
            return false;
        }
        has_few(self.unit, &batch.site) || batch.legal.only_local_steps && !batch.legal.reads_own_elements
    }

    /// Refuses markers that no batch loop reaches.
    fn covered(&self) -> Pass<()> {
        let mut reached = BTreeSet::new();
        let mut pending = Vec::new();
        for batch in &self.chosen {
            let span = batch.site.body.span;
            let calls = self.reach.uses[&batch.site.function].calls.iter();
            pending.extend(calls.filter(|(_, at)| (span.first..span.end).contains(at)).map(|(called, _)| *called));
        }
        while let Some(id) = pending.pop() {
            if reached.insert(id) {
                pending.extend(
                    self.reach.uses.get(&id).iter().flat_map(|uses| uses.calls.iter().map(|(called, _)| *called)),
                );
            }
        }
        let spans: Vec<_> = self.chosen.iter().map(|batch| batch.site.body.span).collect();
        let mut first: Option<(DeclId, usize)> = None;
        for (id, uses) in &self.reach.uses {
            for at in &uses.markers {
                let inside = spans.iter().any(|span| (span.first..span.end).contains(at));
                if !inside && !reached.contains(id) && first.is_none_or(|(_, known)| *at < known) {
                    first = Some((*id, *at));
                }
            }
        }
        let Some((function, at)) = first else {
            return if self.chosen.is_empty() {
                Err(Fault { is_without_marker: true, ..Fault::new(self.without_markers()) })
            } else {
                Ok(())
            };
        };
        Err(self.best_fault(function, at))
    }

    /// Returns the fault that best explains why no loop around a marker is a batch loop.
    fn best_fault(&self, function: DeclId, at: usize) -> Fault {
        // Functions from which the marker is reached, from the inside outwards.
        let mut callers: BTreeMap<DeclId, usize> = BTreeMap::from([(function, 0)]);
        let mut pending = vec![function];
        while let Some(id) = pending.pop() {
            let distance = callers[&id] + 1;
            for (caller, uses) in &self.reach.uses {
                if uses.calls.iter().any(|(called, _)| *called == id) && !callers.contains_key(caller) {
                    callers.insert(*caller, distance);
                    pending.push(*caller);
                }
            }
        }
        let mut faults: Vec<&(Loop<'u>, Fault)> = self
            .faults
            .iter()
            .filter(|(site, _)| {
                let span = site.body.span;
                callers.contains_key(&site.function)
                    && (site.function != function || (span.first..span.end).contains(&at))
            })
            .collect();
        faults.sort_by_key(|(site, _)| (callers[&site.function], site.span().end - site.span().first));
        let semantic = faults.iter().find(|(site, fault)| !fault.is_form && !self.is_carried(site, fault));
        if let Some((_, fault)) = semantic.or(faults.last()) {
            return fault.clone();
        }
        if let Some(used) = self.used_as_value(function) {
            let name = &self.unit.declaration(function).name;
            let reason = format!(
                "{name} contains a marker and is called through a pointer: call it by its name, so that gopt can inline it"
            );
            return Fault { at: Some(used), ..Fault::new(reason) };
        }
        let name = self.unit.expanded.word(at);
        let reason = format!("{name} is outside any batch loop: no other lookup can run there");
        Fault { at: Some(at), ..Fault::new(reason) }
    }

    /// Returns the first token that names a function without a call.
    fn used_as_value(&self, function: DeclId) -> Option<usize> {
        let (mut called, mut named) = (BTreeSet::new(), BTreeSet::new());
        for id in self.reach.uses.keys() {
            let Some((_, body)) = self.unit.function(*id) else { continue };
            walk::statement(self.unit, body, &mut |node| {
                match node {
                    Node::Expr(Expr { kind: ExprKind::Call(callee, _), .. }) => {
                        called.insert(callee.bare().span.first);
                    }
                    Node::Expr(one) if one.name() == Some(function) => {
                        named.insert(one.bare().span.first);
                    }
                    _ => {}
                }
                true
            });
        }
        named.difference(&called).next().copied()
    }

    /// Returns whether a fault concerns a variable of one iteration of an outer loop.
    fn is_carried(&self, site: &Loop<'u>, fault: &Fault) -> bool {
        let Some(id) = fault.about.filter(|id| self.unit.declaration(*id).is_automatic()) else { return false };
        let token = self.unit.declaration(id).token;
        let outer = batch::loops(self.unit, site.function);
        let in_loop = outer.iter().any(|outer| {
            let span = outer.body.span;
            outer.contains(site) && (span.first..span.end).contains(&token)
        });
        let called = self.faults.iter().any(|(other, _)| other.function != site.function);
        in_loop || called
    }

    /// Returns the refusal of a file without markers.
    fn without_markers(&self) -> String {
        let unit = self.unit;
        let mut candidates = BTreeSet::new();
        for (name, one) in &unit.expanded.macros {
            if one.takes_arguments && one.body.is_empty() && unit.expanded.calls_as_statement(name) {
                candidates.insert(name.as_str());
            }
        }
        let mut reason = "the file contains no marker of an expensive access, such as g_expensive(address)".to_owned();
        if let Some(name) = candidates.first() {
            reason += &format!("; if {name} is one, pass --marker {name}");
        } else {
            reason += "; gopt --suggest FILE proposes places for markers";
        }
        reason
    }
}

/// Returns whether a loop has a small constant number of iterations.
fn has_few(unit: &Unit, site: &Loop<'_>) -> bool {
    let StmtKind::For(parts) = &site.node.kind else { return false };
    let Some(condition) = &parts.condition else { return false };
    let ExprKind::Binary(_, left, right) = &condition.bare().kind else { return false };
    let Some(end) = right.constant() else { return false };
    let first = match parts.first.as_ref().map(|first| &first.kind) {
        Some(StmtKind::Declaration(_)) => {
            match left.name().and_then(|id| unit.declaration(id).initializer.as_deref()) {
                Some(Initializer::Expression(value)) => value.constant(),
                _ => None,
            }
        }
        Some(StmtKind::Expression(one)) => match &one.bare().kind {
            ExprKind::Assign(_, _, value) => value.constant(),
            _ => None,
        },
        _ => None,
    };
    first.is_some_and(|first| (end - first).abs() < FEW)
}
