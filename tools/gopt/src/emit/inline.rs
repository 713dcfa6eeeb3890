//! Replaces calls to functions that contain expensive accesses with a copy of the body.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::{Binding, Context, Emitter, Entry, Return, changed};
use crate::error::{Pass, refuse};
use crate::reach;
use crate::syntax::Function;
use crate::syntax::ast::{DeclId, Expr, ExprKind, Stmt, StmtKind};
use crate::syntax::types::Type;
use crate::syntax::walk::{self, Node};

impl<'u> Emitter<'u> {
    /// Writes a copy of the called function to `before`, and returns the value of the call.
    pub(super) fn inlined(
        &mut self,
        call: &'u Expr,
        called: DeclId,
        context: &mut Context<'u>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let unit = self.unit;
        let at = call.span.first;
        let Some((function, body)) = unit.function(called) else {
            return refuse(at, format!("{} is not defined in this file", unit.declaration(called).name));
        };
        let arguments = reach::arguments(call);
        if function.variadic || arguments.len() != function.parameters.len() {
            return refuse(
                at,
                format!("{} takes a variable number of arguments, so it cannot be inlined", function.name),
            );
        }
        if self.path.contains(&called) {
            return refuse(
                at,
                format!(
                    "recursion: {} calls itself, and lookups have no stack; use a loop, or a tail call",
                    function.name
                ),
            );
        }
        self.copies += 1;
        let copy = self.copies;
        let recursive = self.tail_recursive(function, body)?;
        let mut inner = Context {
            function: called,
            region: body,
            names: HashMap::new(),
            blocks: vec![body.span],
            copy,
            returns: None,
            around: Vec::new(),
            bound: None,
        };
        let mut sets = String::new();
        for (parameter, argument) in function.parameters.iter().zip(arguments) {
            let text = self.lower(argument, context, single, before)?;
            self.parameter(*parameter, (argument, &text), recursive, (context, &mut inner), &mut sets)?;
        }
        let result = match function.result.is_void() {
            true => None,
            false => Some(self.temporary(&function.result, at, context, single, before)?),
        };
        let last = match &body.kind {
            StmtKind::Block(all) => all.last().map(|last| last.span),
            _ => None,
        };
        let again = recursive.then(|| format!("{}again_{copy}", self.labels_begin));
        inner.returns = Some(Return {
            result: result.clone(),
            label: format!("{}end_{copy}", self.labels_begin),
            used: false,
            last,
            again: again.clone(),
        });
        self.path.push(called);
        let body = self.statement(body, &mut inner);
        self.path.pop();
        let body = body?;
        let end = inner
            .returns
            .filter(|returns| returns.used)
            .map_or_else(String::new, |returns| format!("{}:;\n", returns.label));
        let again = again.map_or_else(String::new, |label| format!("{label}:;\n"));
        write!(before, "{{ /* {} */\n{sets}{again}{body}\n{end}}} ", function.name).expect("writing to a String");
        Ok(result.unwrap_or_else(|| "(void)0".to_owned()))
    }

    /// Binds a parameter of a copy to its argument.
    fn parameter(
        &mut self,
        id: DeclId,
        (argument, text): (&'u Expr, &str),
        recursive: bool,
        (context, inner): (&Context<'u>, &mut Context<'u>),
        sets: &mut String,
    ) -> Pass<()> {
        let declaration = self.unit.declaration(id);
        if declaration.name.is_empty() {
            write!(sets, "(void)({text}); ").expect("writing to a String");
            return Ok(());
        }
        let ty = declaration.ty.clone();
        let steady = !recursive && !changed(self.unit, inner.region, id);
        let alias = steady.then(|| self.alias(argument, &ty, text, context)).flatten();
        let points_at_steady = alias.is_some() && self.points_at_steady(argument, context);
        let binding = match alias {
            Some(alias) => Binding::Alias(alias),
            None => {
                let (binding, mark) = self.lasting(id, inner)?;
                let name = Entry::new(binding.clone(), ty.clone(), steady).text(&declaration.name);
                writeln!(sets, "{mark}{name} = {text};").expect("writing to a String");
                if steady && self.is_repeatable(argument, context) {
                    self.set_recomputation(&name, &format!("{name} = {text}"));
                }
                binding
            }
        };
        inner.names.insert(id, Entry { binding, ty, steady, points_at_steady });
        Ok(())
    }

    /// Returns the replacement for a parameter that never changes, if the argument has the same
    /// type.
    fn alias(&self, argument: &Expr, ty: &Type, text: &str, context: &Context<'u>) -> Option<String> {
        let argument = argument.bare();
        match &argument.kind {
            ExprKind::Name(id) if self.is_outer(*id, context) => {
                let declaration = self.unit.declaration(*id);
                let steady = !changed(self.unit, self.site.body, *id) && !declaration.ty.is_array();
                (steady && declaration.ty.same(ty)).then(|| text.to_owned())
            }
            ExprKind::Name(id) => {
                let entry = context.names.get(id)?;
                // A local variable that is not saved does not exist after a switch.
                let lasts = !matches!(entry.binding, Binding::Renamed(_) | Binding::Kept);
                (entry.steady && lasts && !entry.ty.is_array() && entry.ty.same(ty)).then(|| text.to_owned())
            }
            ExprKind::Unary(operator, inner) if operator == "&" => {
                let ExprKind::Name(id) = inner.bare().kind else { return None };
                let entry = context.names.get(&id)?;
                let lasts = matches!(entry.binding, Binding::Moved(_) | Binding::Member(_));
                (lasts && argument.ty.same(ty)).then(|| format!("({text})"))
            }
            ExprKind::Number(Some(_)) if argument.span.end == argument.span.first + 1 => {
                let name = match &*ty.resolved().kind {
                    crate::syntax::types::Kind::Integer { name, .. } => *name,
                    _ => return None,
                };
                Some(format!("(({name}){text})"))
            }
            _ => None,
        }
    }

    /// Returns whether an argument is the address of a variable that never changes.
    fn points_at_steady(&self, argument: &Expr, context: &Context<'u>) -> bool {
        match &argument.bare().kind {
            ExprKind::Name(id) => context.names.get(id).is_some_and(|entry| entry.points_at_steady),
            ExprKind::Unary(operator, inner) if operator == "&" => inner
                .name()
                .and_then(|id| context.names.get(&id))
                .is_some_and(|entry| entry.steady && matches!(entry.binding, Binding::Moved(_))),
            _ => false,
        }
    }

    /// Returns whether a function calls itself. Refuses recursion that is not a tail call.
    fn tail_recursive(&self, function: &Function, body: &'u Stmt) -> Pass<bool> {
        let (mut all, mut first) = (0, None);
        walk::statement(self.unit, body, &mut |node| {
            if let Node::Expr(one) = node
                && reach::called(self.unit, one) == Some(function.id)
            {
                all += 1;
                first.get_or_insert(one.span.first);
            }
            true
        });
        let Some(first) = first else { return Ok(false) };
        let tails = tail_calls(self.unit, function, body, true);
        let refused = || {
            refuse(
                first,
                format!(
                    "recursion: {} calls itself, and lookups have no stack; only return {}(...) is a loop",
                    function.name, function.name
                ),
            )
        };
        let simple = function.parameters.iter().all(|id| !self.unit.declaration(*id).ty.is_array());
        if all != tails || !simple { refused() } else { Ok(true) }
    }

    /// Writes `return f(...)` inside `f` as a jump to the beginning of `f`.
    pub(super) fn tail_call(&mut self, value: Option<&'u Expr>, context: &mut Context<'u>) -> Pass<Option<String>> {
        let Some(again) = context.returns.as_ref().and_then(|returns| returns.again.clone()) else { return Ok(None) };
        let Some(value) = value.map(Expr::bare) else { return Ok(None) };
        if let ExprKind::Conditional(condition, Some(yes), no) = &value.kind
            && let Some((function, _)) = self.unit.function(context.function)
            && tail_values(self.unit, function, yes) + tail_values(self.unit, function, no) > 0
        {
            let mut before = String::new();
            let condition = self.hoisted(condition, context, &mut before)?;
            let yes = self.returned(yes, context)?;
            let no = self.returned(no, context)?;
            return Ok(Some(format!("{{ {before}if ({condition}) {{ {yes} }} else {{ {no} }} }}")));
        }
        if !is_own_call(self.unit, value, context.function) {
            return Ok(None);
        }
        self.jump_again(value, &again, context).map(Some)
    }

    /// Writes the return of one side of a conditional expression.
    fn returned(&mut self, value: &'u Expr, context: &mut Context<'u>) -> Pass<String> {
        if let Some(text) = self.tail_call(Some(value), context)? {
            return Ok(text);
        }
        let mut before = String::new();
        let text = self.hoisted(value, context, &mut before)?;
        let Some(returns) = &mut context.returns else { return Ok(String::new()) };
        returns.used = true;
        let set = returns.result.as_ref().map_or_else(|| format!("{text};"), |result| format!("{result} = {text};"));
        Ok(format!("{before}{set} goto {};", returns.label))
    }

    /// Sets the parameters to new arguments and jumps to the beginning of the copy.
    pub(super) fn jump_again(&mut self, call: &'u Expr, again: &str, context: &mut Context<'u>) -> Pass<String> {
        let Some((function, _)) = self.unit.function(context.function) else { return Ok(String::new()) };
        let mut text = String::from("{ ");
        let mut sets = String::new();
        for (parameter, argument) in function.parameters.iter().zip(reach::arguments(call)) {
            let mut before = String::new();
            let value = self.hoisted(argument, context, &mut before)?;
            text += &before;
            let Some(entry) = context.names.get(parameter) else { continue };
            let (ty, target) = (entry.ty.clone(), entry.text(&self.unit.declaration(*parameter).name));
            self.temporaries += 1;
            let name = format!("gopt_t{}", self.temporaries);
            let declared = self.assignable(&ty, &name, call.span.first, context)?;
            text += &format!("{declared} = {value}; ");
            sets += &format!("{target} = {name}; ");
        }
        Ok(format!("{text}{sets}goto {again}; }}"))
    }

    /// Returns the recursive call that ends a `void` function.
    pub(super) fn last_own_call(&self, node: &'u Expr, context: &Context<'u>) -> Option<(&'u Expr, String)> {
        let again = context.returns.as_ref()?.again.clone()?;
        is_own_call(self.unit, node.bare(), context.function).then(|| (node.bare(), again))
    }
}

fn is_own_call(unit: &crate::syntax::Unit, node: &Expr, function: DeclId) -> bool {
    reach::called(unit, node.bare()) == Some(function)
}

/// Returns how many tail calls a function makes to itself. `last` tells whether the function ends
/// after the statement.
fn tail_calls(unit: &crate::syntax::Unit, function: &Function, node: &Stmt, last: bool) -> usize {
    match &node.kind {
        StmtKind::Return(Some(value)) => tail_values(unit, function, value),
        StmtKind::Expression(value) if last && function.result.is_void() => {
            usize::from(is_own_call(unit, value, function.id))
        }
        StmtKind::Block(all) => all
            .iter()
            .enumerate()
            .map(|(index, one)| {
                let ends = last && index + 1 == all.len()
                    || matches!(all.get(index + 1).map(|next| &next.kind), Some(StmtKind::Return(None)));
                tail_calls(unit, function, one, ends)
            })
            .sum(),
        StmtKind::If(_, yes, no) => {
            tail_calls(unit, function, yes, last) + no.as_ref().map_or(0, |no| tail_calls(unit, function, no, last))
        }
        StmtKind::Label(_, inner) => tail_calls(unit, function, inner, last),
        _ => node.statements().into_iter().map(|one| tail_calls(unit, function, one, false)).sum(),
    }
}

fn tail_values(unit: &crate::syntax::Unit, function: &Function, value: &Expr) -> usize {
    match &value.bare().kind {
        ExprKind::Conditional(_, Some(yes), no) => tail_values(unit, function, yes) + tail_values(unit, function, no),
        _ => usize::from(is_own_call(unit, value, function.id)),
    }
}
