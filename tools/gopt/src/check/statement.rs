//! Statements of a lookup.

use super::Check;
use super::number::Number;
use super::place::Value;
use crate::error::{Pass, refuse};
use crate::syntax::ast::{Assembly, DeclKind, DeclStmt, Expr, ExprKind, Initializer, Stmt, StmtKind, Storage};
use crate::syntax::walk::{self, Node};

impl<'u> Check<'u> {
    pub(super) fn statement(&mut self, node: &'u Stmt, frame: usize) -> Pass<()> {
        if let StmtKind::If(condition, yes, None) = &node.kind
            && self.conditional_step(condition, yes, frame)?
        {
            return Ok(());
        }
        match &node.kind {
            StmtKind::Block(all) => {
                let outer = self.serial;
                for one in all {
                    self.statement(one, frame)?;
                }
                self.serial = outer;
                Ok(())
            }
            StmtKind::Expression(expression) => self.unused(expression, frame),
            StmtKind::Declaration(declaration) => self.declaration(declaration, frame),
            StmtKind::For(parts) => {
                if let Some(first) = &parts.first {
                    self.statement(first, frame)?;
                }
                if let Some(condition) = &parts.condition {
                    self.value(condition, frame)?;
                }
                self.statement(&parts.body, frame)?;
                parts.step.as_ref().map_or(Ok(()), |step| self.unused(step, frame))
            }
            StmtKind::Return(value) => {
                let Some(value) = value else { return Ok(()) };
                let record = self.unit.functions.get(&self.frames[frame].function);
                let is_record = record.is_some_and(|function| function.result.record().is_some());
                let found = if is_record {
                    let targets = self.record_places(value, frame)?;
                    if !matches!(value.bare().kind, ExprKind::Call(..)) {
                        self.note(&targets.places, &super::access::AccessKind::Read, value.span.first);
                    }
                    Value::pointer(targets)
                } else {
                    self.value(value, frame)?
                };
                let known = self.results.entry(frame).or_insert_with(Value::nothing);
                self.changed |= known.join(&found);
                Ok(())
            }
            StmtKind::Assembly(assembly) => self.assembly(node, assembly, frame),
            StmtKind::Pragma(words) => self.pragma(node, words, frame),
            StmtKind::ComputedGoto(_) => refuse(node.span.first, "a computed goto inside the lookup: use switch"),
            _ => {
                for one in node.expressions() {
                    self.value(one, frame)?;
                }
                node.statements().into_iter().try_for_each(|one| self.statement(one, frame))
            }
        }
    }

    fn pragma(&mut self, node: &Stmt, words: &str, frame: usize) -> Pass<()> {
        let at = node.span.first;
        match words {
            "serial" if frame == 0 && !self.serial => {
                self.serial = true;
                Ok(())
            }
            "serial" => self.refuse(at, "#pragma gopt serial belongs into the body of the batch loop, once"),
            "independent" => Ok(()),
            words if words.starts_with("bound ") => Ok(()),
            words if words.starts_with('?') => self.refuse(
                at,
                format!("#pragma {} inside the lookup: remove it, or move it before the loop", &words[1..]),
            ),
            words => self.refuse(at, format!("#pragma gopt {words} is not known: use independent, serial or bound N")),
        }
    }

    fn assembly(&mut self, node: &Stmt, assembly: &'u Assembly, frame: usize) -> Pass<()> {
        if assembly.volatile || assembly.memory || assembly.jumps {
            if !self.serial {
                let reason = "inline assembly inside the lookup that is volatile, jumps or changes memory: its order would change";
                self.refuse(node.span.first, reason)?;
            }
            return Ok(());
        }
        for (_, input) in &assembly.inputs {
            self.value(input, frame)?;
        }
        for output in &assembly.outputs {
            self.store(output, &Value::any(), frame, node.span.first)?;
        }
        Ok(())
    }

    fn declaration(&mut self, declaration: &'u DeclStmt, frame: usize) -> Pass<()> {
        for id in &declaration.names {
            let one = self.unit.declaration(*id);
            let at = one.token;
            if one.name.starts_with("gopt_") {
                self.refuse(at, "names that begin with gopt_ are reserved for gopt: rename the variable")?;
            }
            match one.kind {
                DeclKind::Variable(Storage::Static | Storage::ThreadLocal) if !self.is_constant(*id) => {
                    self.refuse(
                        at,
                        format!(
                            "{} is static, so all lookups share it: declare it const, or outside of the lookup",
                            one.name
                        ),
                    )?;
                }
                DeclKind::Variable(Storage::Automatic) if one.ty.resolved().volatile && !self.serial => {
                    self.refuse(at, format!("the order of accesses to {}, which is volatile, would change", one.name))?;
                }
                _ => {}
            }
            if one.cleanup {
                self.refuse(at, format!("{} has a cleanup function, which would run too early", one.name))?;
            }
            if let Some(value) = &one.initializer
                && one.is_automatic()
            {
                self.initialize(*id, value, frame)?;
            }
        }
        Ok(())
    }

    /// Walks an expression with an unused value, such as a statement or a step.
    pub(super) fn unused(&mut self, node: &'u Expr, frame: usize) -> Pass<()> {
        match &node.kind {
            ExprKind::Paren(inner) => self.unused(inner, frame),
            ExprKind::Cast(ty, inner) if ty.is_void() => self.unused(inner, frame),
            ExprKind::Comma(left, right) => {
                self.unused(left, frame)?;
                self.unused(right, frame)
            }
            ExprKind::Conditional(condition, Some(yes), no) => {
                self.value(condition, frame)?;
                self.unused(yes, frame)?;
                self.unused(no, frame)
            }
            ExprKind::Statement(block) => self.statement(block, frame),
            _ if self.step(node, frame)? => Ok(()),
            _ => self.value(node, frame).map(|_| ()),
        }
    }

    /// Walks a statement expression and returns its value.
    pub(super) fn block_value(&mut self, block: &'u Stmt, frame: usize) -> Pass<Value> {
        let StmtKind::Block(all) = &block.kind else { return Ok(Value::any()) };
        let outer = self.serial;
        let mut value = Value::any();
        for (index, one) in all.iter().enumerate() {
            match &one.kind {
                StmtKind::Expression(last) if index + 1 == all.len() => {
                    value = if last.ty.record().is_some() {
                        let targets = self.record_places(last, frame)?;
                        self.note(&targets.places, &super::access::AccessKind::Read, last.span.first);
                        Value::pointer(targets)
                    } else {
                        self.value(last, frame)?
                    };
                }
                _ => self.statement(one, frame)?,
            }
        }
        self.serial = outer;
        Ok(value)
    }

    /// Finds the loop counters inside the lookup and its functions.
    pub(super) fn find_counters(&mut self) {
        let unit = self.unit;
        let mut loops = Vec::new();
        let mut collect = |body: &'u Stmt| {
            walk::statement(unit, body, &mut |node| {
                if let Node::Stmt(statement) = node
                    && matches!(statement.kind, StmtKind::For(_))
                {
                    loops.push((statement, body));
                }
                true
            });
        };
        collect(self.site.body);
        for id in unit.functions.keys() {
            if let Some((_, body)) = unit.function(*id) {
                collect(body);
            }
        }
        for (node, body) in loops {
            if let Some((id, number)) = self.counter(node, body) {
                self.counters.insert(id, (number, node.span));
            }
        }
    }

    /// Returns the variable of a loop `for (k = FIRST; k < LAST; k++)`, with its range.
    fn counter(&self, node: &'u Stmt, body: &'u Stmt) -> Option<(crate::syntax::ast::DeclId, Number)> {
        let StmtKind::For(parts) = &node.kind else { return None };
        let ExprKind::Binary(operator, left, right) = &parts.condition.as_ref()?.bare().kind else { return None };
        let id = left.name()?;
        let step = match &parts.step.as_ref()?.bare().kind {
            ExprKind::Update { operator, operand, .. } if operator == "++" => operand.name()?,
            _ => return None,
        };
        let declaration = self.unit.declaration(id);
        if step != id || !declaration.is_automatic() || declaration.ty.as_integer().is_none() {
            return None;
        }
        let first = match &parts.first.as_ref()?.kind {
            StmtKind::Declaration(_) => match declaration.initializer.as_deref()? {
                Initializer::Expression(value) => value.constant()?,
                Initializer::List(_) => return None,
            },
            StmtKind::Expression(one) => match &one.bare().kind {
                ExprKind::Assign(operator, target, value) if operator == "=" && target.name() == Some(id) => {
                    value.constant()?
                }
                _ => return None,
            },
            _ => return None,
        };
        // The variable must not change anywhere else.
        if changes(self.unit, body, id) != if declaration.initializer.is_some() { 1 } else { 2 } {
            return None;
        }
        let (first, last) = (i64::try_from(first).ok()?, right.constant());
        match (operator.as_str(), last.map(i64::try_from)) {
            ("<", Some(Ok(last))) => Some((id, Number::range(first, (last - 1).max(first)))),
            ("<=", Some(Ok(last))) => Some((id, Number::range(first, last.max(first)))),
            ("<", None) if first == 0 => {
                let bound = right.name()?;
                let fixed = !self.is_private(0, bound) && self.unit.declaration(bound).is_automatic();
                fixed.then(|| (id, Number::below(&self.name(bound))))
            }
            _ => None,
        }
    }
}

/// Returns how often a body changes a variable or takes its address.
fn changes(unit: &crate::syntax::Unit, body: &Stmt, id: crate::syntax::ast::DeclId) -> usize {
    let mut found = 0;
    walk::statement(unit, body, &mut |node| {
        if let Node::Expr(one) = node {
            let target = match &one.kind {
                ExprKind::Assign(_, target, _) | ExprKind::Update { operand: target, .. } => target.name(),
                ExprKind::Unary(operator, target) if operator == "&" => target.name(),
                _ => None,
            };
            found += usize::from(target == Some(id));
        }
        true
    });
    found
}
