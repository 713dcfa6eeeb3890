//! Calls of functions inside a lookup.

use super::access::AccessKind;
use super::convert::cast;
use super::known::{self, Effect};
use super::number::Number;
use super::place::{Base, Place, Step, Targets, Value};
use super::{CALLS_MAX, Check, Frame};
use crate::error::{Pass, refuse};
use crate::reach;
use crate::syntax::ast::{DeclId, Expr, ExprKind};
use crate::syntax::types::Type;

/// Maximum depth of nested calls that the analysis distinguishes.
const DEPTH_MAX: usize = 24;

impl<'u> Check<'u> {
    pub(super) fn call(&mut self, node: &'u Expr, frame: usize) -> Pass<Value> {
        let ExprKind::Call(function, arguments) = &node.kind else { return Ok(Value::any()) };
        if reach::is_marker_call(self.unit, node) {
            return self.marker(node, arguments, frame);
        }
        if let Some(value) = self.overflow_builtin(node, function, arguments, frame)? {
            return Ok(value);
        }
        let function_bare = function.bare();
        if let ExprKind::Undeclared(name) = &function_bare.kind {
            if name == "__builtin_prefetch" {
                // The address is a hint, so it may contain values that other lookups change.
                return self.hint(node, arguments, frame);
            }
            let name = name.clone();
            let values = self.arguments(arguments, frame)?;
            return self.invisible(node, &name, arguments, &values, false, frame);
        }
        if let Some(id) = function.name().filter(|id| self.is_function(*id)) {
            let values = self.arguments(arguments, frame)?;
            return self.named_call(node, id, arguments, &values, frame);
        }
        // A call through a pointer.
        let pointer = self.value(function, frame)?.targets;
        let values = self.arguments(arguments, frame)?;
        let mut result = Value::nothing();
        for id in &pointer.functions {
            let found = self.named_call(node, *id, arguments, &values, frame)?;
            result.join(&found);
        }
        if (pointer.functions.is_empty() || pointer.unknown) && !self.site.promise && !self.serial {
            self.refuse(
                node.span.first,
                "a call through a pointer, whose function gopt cannot see: \
                 say foreach or #pragma gopt independent if the function has no side effects that others see",
            )?;
        }
        if result == Value::nothing() {
            result = Value::pointer(Targets::unknown());
        }
        Ok(result)
    }

    fn is_function(&self, id: DeclId) -> bool {
        self.unit.declaration(id).kind == crate::syntax::ast::DeclKind::Function
    }

    /// Walks the address of a marker. The plain loop does not evaluate it, so its reads do not
    /// matter, and it must not write.
    fn marker(&mut self, node: &'u Expr, arguments: &'u [Expr], frame: usize) -> Pass<Value> {
        self.hint(node, arguments, frame)?;
        if arguments.is_empty() || arguments.len() > 2 {
            self.refuse(node.span.first, "a marker takes an address, and may take a size")?;
        }
        Ok(Value::any())
    }

    /// Walks the arguments of a prefetch, ignoring their reads.
    fn hint(&mut self, node: &'u Expr, arguments: &'u [Expr], frame: usize) -> Pass<Value> {
        let known = std::mem::take(&mut self.accesses);
        let walked = arguments.iter().try_for_each(|one| self.value(one, frame).map(|_| ()));
        let writes = self.accesses.iter().any(super::access::Access::writes);
        self.accesses = known;
        walked?;
        if writes {
            self.refuse(node.span.first, "the address of a marker has a side effect: compute the address before")?;
        }
        Ok(Value::any())
    }

    /// Walks arguments and returns their values.
    fn arguments(&mut self, arguments: &'u [Expr], frame: usize) -> Pass<Vec<Value>> {
        let mut values = Vec::new();
        for argument in arguments {
            values.push(if argument.ty.record().is_some() {
                let places = self.record_places(argument, frame)?;
                if !matches!(argument.bare().kind, ExprKind::Call(..) | ExprKind::Compound(..)) {
                    self.note(&places.places, &AccessKind::Read, argument.span.first);
                }
                Value::pointer(places)
            } else {
                self.value(argument, frame)?
            });
        }
        Ok(values)
    }

    fn named_call(
        &mut self,
        node: &'u Expr,
        id: DeclId,
        arguments: &'u [Expr],
        values: &[Value],
        frame: usize,
    ) -> Pass<Value> {
        let declaration = self.unit.declaration(id);
        let name = declaration.name.clone();
        let visible = self.unit.function(id).is_some();
        let named = |list: &[String]| list.contains(&name);
        let permitted = named(&self.permissions.pure) || named(&self.permissions.unordered);
        if !visible || permitted || known::STACK.contains(&name.as_str()) {
            let pure = declaration.pure;
            return self.invisible(node, &name, arguments, values, pure, frame);
        }
        self.visible(node, id, arguments, values, frame)
    }

    /// Walks the body of a function.
    fn visible(
        &mut self,
        node: &'u Expr,
        id: DeclId,
        arguments: &'u [Expr],
        values: &[Value],
        frame: usize,
    ) -> Pass<Value> {
        let unit = self.unit;
        let Some((function, body)) = unit.function(id) else { return Ok(Value::any()) };
        let at = node.span.first;
        let depth = self.frames[frame].depth + 1;
        // A recursive or very deep call counts as the same call as before.
        let mut outer = Some(frame);
        let mut known = None;
        while let Some(one) = outer {
            if one != 0 && self.frames[one].function == id {
                known = Some(one);
            }
            outer = self.frames[one].from.map(|(from, _)| from);
        }
        let inner = known.unwrap_or_else(|| {
            let owner = if depth > DEPTH_MAX { 0 } else { frame };
            let number = self.frames.len();
            let inner = *self.calls.entry((owner, at, id)).or_insert(number);
            if inner == number {
                self.frames.push(Frame { function: id, depth, from: Some((frame, at)) });
            }
            inner
        });
        for (index, parameter) in function.parameters.iter().enumerate() {
            let Some(value) = values.get(index) else { break };
            let ty = &unit.declaration(*parameter).ty;
            if ty.record().is_some() {
                let sources = value.targets.clone();
                self.copy_parts(&sources, inner, *parameter, "");
            } else {
                let value = cast(self, value, &arguments[index].ty, ty);
                self.assign(inner, *parameter, "", &value);
            }
        }
        if !self.open.contains(&inner) {
            self.budget += 1;
            if self.budget > CALLS_MAX {
                return refuse(
                    at,
                    "the lookup calls more functions than gopt can analyse: name some of them with --pure",
                );
            }
            self.open.push(inner);
            let serial = self.serial;
            let walked = self.statement(body, inner);
            self.serial = serial;
            self.open.pop();
            walked?;
        }
        Ok(self.results.get(&inner).cloned().unwrap_or_else(Value::nothing))
    }

    /// Returns the result of a function without a visible body.
    fn invisible(
        &mut self,
        node: &'u Expr,
        name: &str,
        arguments: &'u [Expr],
        values: &[Value],
        pure: bool,
        frame: usize,
    ) -> Pass<Value> {
        let at = node.span.first;
        if known::FRAME.contains(&name) && self.has_own_frame(frame) {
            return Ok(Value::any());
        }
        if known::STACK.contains(&name) {
            self.refuse(at, format!("{name} depends on the stack, which lookups do not have"))?;
            return Ok(Value::any());
        }
        let permitted = |list: &[String]| list.iter().any(|one| one == name);
        let unordered = permitted(&self.permissions.unordered);
        let pure = pure || permitted(&self.permissions.pure);
        if let Some(value) = self.atomic(name, node, values)? {
            return Ok(value);
        }
        if known::ERRNO.contains(&name) {
            return Ok(Value::pointer(Targets::of(Place::new(Base::Reached("errno".to_owned())))));
        }
        let effect = known::effect(name).or((pure && !unordered).then_some(Effect::Pure));
        match effect {
            Some(Effect::Pure) => {
                for value in values {
                    self.reads_behind(value, at);
                }
                Ok(self.pure_result(node, values))
            }
            Some(Effect::Fills) => self.fills(name, node, arguments, values),
            Some(Effect::Allocates) => {
                for value in values {
                    self.reads_behind(value, at);
                }
                Ok(Value::pointer(Targets::of(
                    Place::new(Base::Fresh)
                        .with(Step::Index { number: Number::constant(0), unit: super::convert::unit_of(&node.ty) }),
                )))
            }
            Some(Effect::Frees) => {
                let foreign = values
                    .first()
                    .is_some_and(|value| value.targets.unknown || !value.targets.places.iter().all(Place::is_private));
                if foreign && !self.site.promise && !self.serial {
                    self.refuse(at, "the lookup frees memory that other lookups may use: free it after the loop")?;
                }
                Ok(Value::any())
            }
            Some(Effect::Forwards) => Ok(values.first().cloned().unwrap_or_else(Value::any)),
            Some(Effect::Ends) => Ok(Value::any()),
            None => {
                if !unordered && !self.serial {
                    self.refuse_invisible(name, at)?;
                }
                Ok(Value::pointer(Targets::unknown()))
            }
        }
    }

    /// Returns whether a call runs in its own stack frame, because its function is not inlined.
    fn has_own_frame(&self, frame: usize) -> bool {
        let function = self.frames[frame].function;
        frame != 0 && !self.reach.is_inlined(function) && !self.inlined.contains(&function)
    }

    fn refuse_invisible(&self, name: &str, at: usize) -> Pass<()> {
        if known::ORDERED.contains(&name) {
            return self.refuse(
                at,
                format!(
                    "{name} inside the lookup: the order of its calls would change; \
                     allow it with --unordered {name}, or move it behind #pragma gopt serial"
                ),
            );
        }
        if self.site.promise {
            return Ok(());
        }
        self.refuse(
            at,
            format!(
                "gopt cannot see the function {name}: name it with --pure {name} if it has no side effects, \
                 with --unordered {name} if the order of its calls does not matter, or declare it __attribute__((pure))"
            ),
        )
    }

    /// Notes that a function reads memory behind an argument.
    fn reads_behind(&mut self, value: &Value, at: usize) {
        let places: Vec<Place> = value.targets.places.iter().cloned().map(widened).collect();
        self.note(&places, &AccessKind::Read, at);
    }

    fn pure_result(&self, node: &Expr, values: &[Value]) -> Value {
        if node.ty.decayed().is_pointer() {
            // A search returns a pointer into one of its arguments.
            let mut targets = Targets::default();
            for value in values {
                targets.join(&value.targets.clone().map(Place::blurred));
            }
            targets.unknown = targets.places.is_empty();
            return Value::pointer(targets);
        }
        if let ExprKind::Call(function, _) = &node.kind
            && matches!(&function.bare().kind, ExprKind::Undeclared(name) if name.starts_with("__builtin_expect"))
        {
            return values.first().cloned().unwrap_or_else(Value::any);
        }
        Value::any()
    }

    /// Walks a function that writes memory behind its first argument.
    fn fills(&mut self, name: &str, node: &'u Expr, arguments: &'u [Expr], values: &[Value]) -> Pass<Value> {
        let at = node.span.first;
        let Some(target) = values.first() else { return Ok(Value::any()) };
        for value in &values[1..] {
            self.reads_behind(value, at);
        }
        if target.targets.unknown || target.targets.places.is_empty() {
            self.unknown_write(at)?;
        }
        // The size must not exceed the element of the lookup.
        let size = arguments.get(2).filter(|_| name.contains("mem"));
        let element = arguments.first().map(uncast).and_then(|one| one.ty.decayed().target());
        let bytes = size.and_then(|size| size_bytes(self.unit, size, element.as_ref()));
        let element_bytes = element.as_ref().and_then(super::convert::size_of);
        let fits = match (bytes, element_bytes) {
            (Some(bytes), Some(element)) => bytes <= element,
            _ => size.is_some_and(|size| sized_as(self.unit, size, arguments.first().map(uncast))),
        };
        let places: Vec<Place> = target
            .targets
            .places
            .iter()
            .cloned()
            .map(|place| if fits { place } else { covered(place, bytes, element_bytes) })
            .collect();
        self.refuse_index_change(&places, at)?;
        self.note(&places, &AccessKind::Write, at);
        // A copy may contain pointers.
        if let (true, Some(source)) = (name.contains("cpy") || name.contains("move"), values.get(1)) {
            for place in &target.targets.places {
                if let Base::Local(frame, id) = place.base {
                    let sources = source.targets.clone();
                    self.copy_parts(&sources, frame, id, &super::lvalue::part(place));
                }
            }
        }
        Ok(target.clone())
    }

    /// Walks an atomic operation whose result is used, or a load or store.
    fn atomic(&mut self, name: &str, node: &'u Expr, values: &[Value]) -> Pass<Option<Value>> {
        let atomic = ["__atomic_", "__c11_atomic_", "__sync_"].iter().any(|prefix| name.starts_with(prefix));
        if !atomic {
            return Ok(None);
        }
        let at = node.span.first;
        if name.contains("thread_fence") || name.contains("signal_fence") || name == "__sync_synchronize" {
            self.refuse(
                at,
                format!("{name} orders accesses of the lookup, which would change: move it out of the loop"),
            )?;
            return Ok(Some(Value::any()));
        }
        let places = values.first().map(|value| value.targets.clone()).unwrap_or_default();
        if name.contains("atomic_load") {
            self.note(&places.places, &AccessKind::Read, at);
            return Ok(Some(self.stored(&places, &node.ty)));
        }
        if places.unknown || places.places.is_empty() {
            self.unknown_write(at)?;
        }
        self.note(&places.places, &AccessKind::Read, at);
        self.note(&places.places, &AccessKind::Write, at);
        Ok(Some(Value::any()))
    }

    /// Walks `__builtin_add_overflow(a, b, &c)` and its relatives.
    fn overflow_builtin(
        &mut self,
        node: &'u Expr,
        function: &'u Expr,
        arguments: &'u [Expr],
        frame: usize,
    ) -> Pass<Option<Value>> {
        let ExprKind::Undeclared(name) = &function.bare().kind else { return Ok(None) };
        if !(name.starts_with("__builtin_") && name.ends_with("_overflow")) {
            return Ok(None);
        }
        let values = self.arguments(arguments, frame)?;
        if let Some(target) = values.last() {
            self.store_at(&target.targets, &Value::any());
            if target.targets.unknown || target.targets.places.is_empty() {
                self.unknown_write(node.span.first)?;
            }
            self.note(&target.targets.places, &AccessKind::Write, node.span.first);
        }
        Ok(Some(Value::any()))
    }
}

/// Returns a place that a function reads, extended to further elements.
fn widened(mut place: Place) -> Place {
    if let Some(Step::Index { number, .. }) = place.path.last_mut()
        && number.as_constant() != Some(0)
    {
        *number = Number::Any;
    }
    place
}

/// Returns a place to which a function writes `bytes` bytes. `element` is the size of its elements.
fn covered(mut place: Place, bytes: Option<u64>, element: Option<u64>) -> Place {
    if let Some(Step::Index { number, .. }) = place.path.last_mut() {
        let elements = bytes.zip(element).map(|(bytes, element)| bytes.div_ceil(element.max(1)));
        match (number, elements.and_then(|elements| i64::try_from(elements).ok())) {
            (Number::Linear(one), Some(elements)) if one.stride.is_empty() && one.below.is_empty() => {
                one.high = one.high.saturating_add((elements - 1).max(0));
            }
            (number, _) => *number = Number::Any,
        }
    }
    place
}

/// Returns an expression without its casts.
fn uncast(mut node: &Expr) -> &Expr {
    loop {
        match &node.bare().kind {
            ExprKind::Cast(_, inner) => node = inner,
            _ => return node.bare(),
        }
    }
}

/// Returns the value of a size. `element` is the type behind the pointer, which `sizeof` may name.
fn size_bytes(unit: &crate::syntax::Unit, size: &Expr, element: Option<&Type>) -> Option<u64> {
    if let Some(size) = size.constant() {
        return u64::try_from(size).ok();
    }
    let part = |size: &Expr| size_bytes(unit, size, element);
    match &size.bare().kind {
        ExprKind::SizeOf(Some(operand)) => super::convert::size_of(&operand.ty),
        ExprKind::SizeOf(None) => {
            element.filter(|element| names_type(unit, size, element)).and_then(super::convert::size_of)
        }
        ExprKind::Binary(operator, left, right) => match operator.as_str() {
            "*" => part(left)?.checked_mul(part(right)?),
            "+" => part(left)?.checked_add(part(right)?),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether `sizeof(T)` names a type.
fn names_type(unit: &crate::syntax::Unit, size: &Expr, ty: &Type) -> bool {
    let text = unit.expanded.words(size.span.first, size.span.end);
    let inner = text.trim_start_matches("sizeof").trim().trim_start_matches('(').trim_end_matches(')').trim();
    super::convert::type_words(ty) == inner.replace(' ', "")
}

/// Returns whether a size is that of the element behind a pointer: `sizeof *p`, `sizeof(p[0])` or
/// `sizeof(T)`.
fn sized_as(unit: &crate::syntax::Unit, size: &Expr, pointer: Option<&Expr>) -> bool {
    let Some(target) = pointer.and_then(|pointer| pointer.ty.decayed().target()) else { return false };
    match &size.bare().kind {
        ExprKind::SizeOf(Some(operand)) => operand.ty.same(&target),
        ExprKind::SizeOf(None) => names_type(unit, size, &target),
        _ => false,
    }
}
