//! Values of expressions, and places that lvalues name.

use super::Check;
use super::access::AccessKind;
use super::number::Number;
use super::place::{Base, Place, Step, Targets, Value};
use crate::error::Pass;
use crate::syntax::ast::{DeclId, DeclKind, Designator, Expr, ExprKind, InitList, Initializer};
use crate::syntax::types::{Kind, Type};

/// Key of the values in memory that a lookup allocated.
const FRESH: (usize, DeclId) = (usize::MAX, DeclId(usize::MAX));

impl<'u> Check<'u> {
    /// Walks an expression and returns its value. Arrays become pointers.
    pub(super) fn value(&mut self, node: &'u Expr, frame: usize) -> Pass<Value> {
        match &node.kind {
            ExprKind::Number(value) => Ok(Value::number(
                value.and_then(|value| i64::try_from(value).ok()).map_or(Number::Any, Number::constant),
            )),
            ExprKind::Character | ExprKind::LabelAddress => Ok(Value::any()),
            ExprKind::String => Ok(Value::pointer(Targets::of(Place::new(Base::Constant)))),
            ExprKind::SizeOf(_) => Ok(Value::number(self.size(node))),
            ExprKind::Name(_) | ExprKind::Index(..) | ExprKind::Member { .. } | ExprKind::Undeclared(_) => {
                self.load(node, frame)
            }
            ExprKind::Paren(inner) => self.value(inner, frame),
            ExprKind::Unary(operator, inner) => self.unary(node, operator, inner, frame),
            ExprKind::Update { operator, postfix, operand } => self.update(node, operator, *postfix, operand, frame),
            ExprKind::Binary(operator, left, right) => {
                let left_value = self.value(left, frame)?;
                let right_value = self.value(right, frame)?;
                Ok(self.binary(operator, (left, &left_value), (right, &right_value)))
            }
            ExprKind::Assign(operator, target, value) => self.assigned(node, operator, target, value, frame),
            ExprKind::Conditional(condition, yes, no) => {
                let mut value = self.value(condition, frame)?;
                if let Some(yes) = yes {
                    value = self.value(yes, frame)?;
                }
                let other = self.value(no, frame)?;
                value.join(&other);
                Ok(value)
            }
            ExprKind::Comma(left, right) => {
                self.unused(left, frame)?;
                self.value(right, frame)
            }
            ExprKind::Cast(ty, inner) => {
                let value = self.value(inner, frame)?;
                Ok(cast(self, &value, &inner.ty, ty))
            }
            ExprKind::Compound(ty, list) => {
                let mut value = self.list(list, ty, frame)?;
                if ty.is_array() {
                    value.targets.join(&Targets::of(Place::new(Base::Fresh)));
                }
                Ok(value)
            }
            ExprKind::Call(..) => self.call(node, frame),
            ExprKind::Statement(block) => self.block_value(block, frame),
            ExprKind::Opaque(operands) => {
                let mut value = Value::any();
                for operand in operands {
                    let operand = self.value(operand, frame)?;
                    value.join(&operand);
                }
                Ok(value)
            }
        }
    }

    /// Returns the size of an operand as a number whose text begins with `sizeof`.
    fn size(&self, node: &Expr) -> Number {
        Number::invariant(&self.unit.expanded.words(node.span.first, node.span.end).replace(' ', ""))
    }

    fn unary(&mut self, node: &'u Expr, operator: &str, inner: &'u Expr, frame: usize) -> Pass<Value> {
        match operator {
            "&" => {
                if let Some(id) = inner.name().filter(|id| self.unit.declaration(*id).kind == DeclKind::Function) {
                    return Ok(Value::pointer(Targets { functions: vec![id], ..Targets::default() }));
                }
                self.places(inner, frame).map(Value::pointer)
            }
            "*" => self.load(node, frame),
            "-" => Ok(Value::number(self.value(inner, frame)?.number.negated())),
            "__extension__" | "+" => self.value(inner, frame),
            _ => {
                self.value(inner, frame)?;
                Ok(Value::any())
            }
        }
    }

    fn update(
        &mut self,
        node: &'u Expr,
        operator: &str,
        postfix: bool,
        operand: &'u Expr,
        frame: usize,
    ) -> Pass<Value> {
        let before = self.load(operand, frame)?;
        let number = Number::constant(if operator == "++" { 1 } else { -1 });
        let after = moved(&before, &number, &operand.ty);
        let own = operand.name().filter(|id| frame == 0 && self.header.inductions.contains_key(id));
        if own.is_none() {
            self.store(operand, &after, frame, node.span.first)?;
        }
        Ok(if postfix { before } else { after })
    }

    fn binary(&self, operator: &str, (left, one): (&Expr, &Value), (right, two): (&Expr, &Value)) -> Value {
        let pointers = !one.targets.places.is_empty() || one.targets.unknown;
        match operator {
            "+" if left.ty.decayed().is_pointer() => moved(one, &two.number, &left.ty.decayed()),
            "+" if right.ty.decayed().is_pointer() => moved(two, &one.number, &right.ty.decayed()),
            "-" if left.ty.decayed().is_pointer() && !right.ty.decayed().is_pointer() => {
                moved(one, &two.number.negated(), &left.ty.decayed())
            }
            "+" => with_targets(one.number.plus(&two.number), one, two),
            "-" => with_targets(one.number.plus(&two.number.negated()), one, two),
            "*" => Value::number(one.number.times(&two.number)),
            "<<" => match two.number.as_constant() {
                Some(bits @ 0..=31) => Value::number(one.number.times(&Number::constant(1 << bits))),
                _ => Value::any(),
            },
            "%" => match two.number.as_constant() {
                Some(modulus)
                    if modulus > 0 && modulus <= 1 << 16 && left.ty.as_integer().is_some_and(|(signed, _)| !signed) =>
                {
                    Value::number(Number::range(0, modulus - 1))
                }
                _ => Value::any(),
            },
            "&" if pointers => one.clone(),
            "&" => {
                let mask = one.number.as_constant().or(two.number.as_constant());
                match mask {
                    Some(mask) if (0..1 << 16).contains(&mask) => Value::number(Number::range(0, mask)),
                    _ => Value::any(),
                }
            }
            "==" | "!=" | "<" | ">" | "<=" | ">=" | "&&" | "||" => Value::number(Number::range(0, 1)),
            "|" | "^" if pointers => with_targets(Number::Any, one, two),
            _ => Value::any(),
        }
    }

    /// Walks an assignment whose value is used.
    fn assigned(
        &mut self,
        node: &'u Expr,
        operator: &str,
        target: &'u Expr,
        value: &'u Expr,
        frame: usize,
    ) -> Pass<Value> {
        let mut new = self.value(value, frame)?;
        if operator != "=" {
            let old = self.load(target, frame)?;
            new = self.binary(operator.trim_end_matches('='), (target, &old), (value, &new));
        }
        if operator == "=" && target.ty.record().is_some() {
            self.copy(target, value, frame)?;
        }
        let own = target.name().filter(|id| frame == 0 && self.header.inductions.contains_key(id));
        if own.is_none() {
            let new = cast(self, &new, &value.ty, &target.ty);
            self.store(target, &new, frame, node.span.first)?;
        }
        Ok(new)
    }

    /// Copies the parts of a record.
    fn copy(&mut self, target: &'u Expr, value: &'u Expr, frame: usize) -> Pass<()> {
        let targets = self.places(target, frame)?;
        let sources = self.record_places(value, frame)?;
        for place in targets.places {
            if let Base::Local(owner, id) = place.base {
                self.copy_parts(&sources, owner, id, &part(&place));
            }
        }
        Ok(())
    }

    /// Copies the parts of records at `sources` to a part of a local variable.
    pub(super) fn copy_parts(&mut self, sources: &Targets, owner: usize, id: DeclId, prefix: &str) {
        for source in &sources.places {
            match &source.base {
                Base::Local(from, from_id) => {
                    let begin = part(source);
                    let found: Vec<_> = self
                        .values
                        .iter()
                        .filter(|((frame, id, _), _)| frame == from && id == from_id)
                        .filter_map(|((.., name), value)| {
                            Some((name.strip_prefix(begin.as_str())?.to_owned(), value.clone()))
                        })
                        .collect();
                    for (rest, value) in found {
                        self.assign(owner, id, &format!("{prefix}{rest}"), &value);
                    }
                }
                Base::Fresh | Base::Constant => {}
                // The parts are read from memory when they are needed.
                _ => self.assign(owner, id, &format!("{prefix}="), &Value::pointer(Targets::of(source.clone()))),
            }
        }
        if sources.unknown {
            self.assign(owner, id, &format!("{prefix}="), &Value::pointer(Targets::unknown()));
        }
    }

    /// Returns the places of a record value.
    pub(super) fn record_places(&mut self, value: &'u Expr, frame: usize) -> Pass<Targets> {
        match &value.bare().kind {
            ExprKind::Name(_) | ExprKind::Member { .. } | ExprKind::Index(..) => self.places(value.bare(), frame),
            ExprKind::Unary(operator, _) if operator == "*" => self.places(value.bare(), frame),
            ExprKind::Conditional(_, Some(yes), no) => {
                let mut found = self.record_places(yes, frame)?;
                found.join(&self.record_places(no, frame)?);
                Ok(found)
            }
            ExprKind::Call(..) | ExprKind::Compound(..) => Ok(self.value(value, frame)?.targets),
            _ => Ok(Targets::default()),
        }
    }

    /// Returns the places that an lvalue names, and walks its parts.
    pub(super) fn places(&mut self, node: &'u Expr, frame: usize) -> Pass<Targets> {
        match &node.kind {
            ExprKind::Paren(inner) | ExprKind::Cast(_, inner) => self.places(inner, frame),
            ExprKind::Unary(operator, inner) if operator == "*" => Ok(self.value(inner, frame)?.targets),
            ExprKind::Unary(operator, inner) if operator == "__extension__" => self.places(inner, frame),
            ExprKind::Name(id) => {
                if self.unit.declaration(*id).name.starts_with("gopt_") {
                    self.refuse(
                        node.span.first,
                        "names that begin with gopt_ are reserved for gopt: rename the variable",
                    )?;
                }
                if self.is_private(frame, *id) {
                    let owner = if self.unit.declaration(*id).is_automatic() { frame } else { 0 };
                    return Ok(Targets::of(Place::new(Base::Local(owner, *id))));
                }
                Ok(Targets::of(Place::new(Base::Outer(*id))))
            }
            ExprKind::Index(array, index) => {
                // `2[array]` is allowed as well.
                let (array, index) = if index.ty.decayed().is_pointer() { (index, array) } else { (array, index) };
                let base = self.value(array, frame)?;
                let number = self.value(index, frame)?.number;
                let unit = unit_of(&array.ty);
                Ok(base.targets.map(|place| place.moved(&number, unit)))
            }
            ExprKind::Member { object, arrow, field } => {
                let (base, record) = if *arrow {
                    (
                        self.value(object, frame)?.targets,
                        object.ty.decayed().target().and_then(|target| target.record()),
                    )
                } else {
                    (self.record_places(object, frame)?, object.ty.record())
                };
                let number = record.as_ref().map_or(0, |record| record.number);
                let shared = record.as_ref().is_some_and(|record| record.overlaps(field));
                let step = Step::Field { record: number, name: field.clone(), shared };
                Ok(base.map(|place| place.with(step.clone())))
            }
            ExprKind::Compound(..) => Ok(Targets::of(Place::new(Base::Fresh))),
            ExprKind::Undeclared(name) => {
                self.refuse(
                    node.span.first,
                    format!("{name} is not declared: include its header, so that gopt knows its type"),
                )?;
                Ok(Targets::unknown())
            }
            ExprKind::Conditional(_, Some(yes), no) => {
                let mut found = self.places(yes, frame)?;
                found.join(&self.places(no, frame)?);
                Ok(found)
            }
            ExprKind::Comma(left, right) => {
                self.unused(left, frame)?;
                self.places(right, frame)
            }
            _ => Ok(self.value(node, frame)?.targets),
        }
    }

    /// Walks an lvalue and returns the value that is stored there. An array becomes a pointer.
    pub(super) fn load(&mut self, node: &'u Expr, frame: usize) -> Pass<Value> {
        if let Some(id) = node.name() {
            let declaration = self.unit.declaration(id);
            if declaration.kind == DeclKind::Function {
                return Ok(Value::pointer(Targets { functions: vec![id], ..Targets::default() }));
            }
            if let Some(value) = self.known(id, frame, node.span.first) {
                return Ok(value);
            }
            self.refuse_volatile(&declaration.ty, node)?;
        }
        if let ExprKind::Undeclared(name) = &node.bare().kind
            && matches!(name.as_str(), "nullptr" | "__func__" | "__FUNCTION__" | "__PRETTY_FUNCTION__")
        {
            return Ok(Value::pointer(Targets::of(Place::new(Base::Constant))));
        }
        let targets = self.places(node, frame)?;
        if node.ty.is_array() {
            let first = Step::Index { number: Number::constant(0), unit: unit_of(&node.ty) };
            return Ok(Value::pointer(targets.map(|place| place.with(first.clone()))));
        }
        if node.ty.is_function() {
            return Ok(Value::pointer(targets));
        }
        self.refuse_volatile(&node.ty, node)?;
        self.note(&targets.places, &AccessKind::Read, node.span.first);
        Ok(self.stored(&targets, &node.ty))
    }

    /// Returns the value of an induction variable or a counter.
    fn known(&mut self, id: DeclId, frame: usize, at: usize) -> Option<Value> {
        let declaration = self.unit.declaration(id);
        if let Some(induction) = self.header.inductions.get(&id) {
            let of_site = frame == 0 || !declaration.is_automatic();
            if !of_site {
                return None;
            }
            if frame != 0 && self.is_last {
                // The function must read the copy of its lookup.
                let function = self.frames[frame].function;
                if !self.reach.is_inlined(function) {
                    self.inlined.insert(function);
                }
            }
            induction.step?;
            // After an update in the body, the variable has the next value.
            let step = induction.step.unwrap_or(0);
            let offset = if induction.in_body.is_some_and(|update| at > update) { step } else { 0 };
            let number = Number::induction(id, offset);
            if declaration.ty.decayed().is_pointer() {
                let mut targets = self.outer_pointer(id);
                let unit = unit_of(&declaration.ty);
                targets = targets.map(|place| place.moved(&number, unit));
                return Some(Value::pointer(targets));
            }
            return Some(Value::number(number));
        }
        self.counters.get(&id).map(|number| Value::number(number.clone()))
    }

    /// Returns the memory behind a pointer of the function that lookups do not change.
    fn outer_pointer(&self, id: DeclId) -> Targets {
        if let Some(place) = self.initial_place(id, 4) {
            return Targets::of(place);
        }
        let first = Step::Index { number: Number::constant(0), unit: unit_of(&self.unit.declaration(id).ty) };
        Targets::of(Place::new(Base::Behind(self.name(id))).with(first))
    }

    /// Returns the place that a pointer outside the lookup is set to once, if the text shows it.
    fn initial_place(&self, id: DeclId, depth: u32) -> Option<Place> {
        if depth == 0 || !self.unit.declaration(id).is_automatic() {
            return None;
        }
        let value = super::step::only_value(self.unit, self.site, id)?;
        let (value, number) = match &value.bare().kind {
            ExprKind::Binary(operator, left, right) if operator == "+" && left.ty.decayed().is_pointer() => (
                left.bare(),
                right.constant().and_then(|value| i64::try_from(value).ok()).map_or_else(
                    || Number::invariant(&self.unit.expanded.words(right.span.first, right.span.end)),
                    Number::constant,
                ),
            ),
            _ => (value.bare(), Number::constant(0)),
        };
        let source = value.name()?;
        let declaration = self.unit.declaration(source);
        if !declaration.is_variable()
            || !declaration.ty.decayed().target()?.same(&self.unit.declaration(id).ty.target()?)
        {
            return None;
        }
        let unit = unit_of(&declaration.ty);
        let index = Step::Index { number: Number::constant(0), unit };
        let place = if declaration.ty.is_array() {
            Place::new(Base::Outer(source)).with(index)
        } else {
            match self.initial_place(source, depth - 1) {
                Some(place) => place,
                None => Place::new(Base::Behind(self.name(source))).with(index),
            }
        };
        Some(place.moved(&number, unit))
    }

    /// Returns the value that is stored at places.
    pub(super) fn stored(&self, targets: &Targets, ty: &Type) -> Value {
        let mut value = Value::nothing();
        if targets.unknown {
            value.join(&Value::pointer(Targets::unknown()));
        }
        for place in &targets.places {
            value.join(&self.stored_at(place, ty));
        }
        if targets.places.is_empty() && !targets.unknown { value } else { self.fitting(value, ty) }
    }

    /// Drops the targets of a value that is no pointer.
    fn fitting(&self, mut value: Value, ty: &Type) -> Value {
        let holds = ty.is_pointer()
            || ty.record().is_some()
            || ty.is_unknown()
            || ty.as_integer().is_some_and(|(_, rank)| rank >= 4);
        if !holds {
            value.targets = Targets::default();
        }
        value
    }

    fn stored_at(&self, place: &Place, ty: &Type) -> Value {
        let pointee = ty.target();
        match &place.base {
            Base::Local(frame, id) => {
                let name = part(place);
                let mut value = self.values.get(&(*frame, *id, name.clone())).cloned().unwrap_or_else(Value::nothing);
                // A record that was copied from memory.
                let mut prefix = name.as_str();
                loop {
                    if let Some(source) = self.values.get(&(*frame, *id, format!("{prefix}="))) {
                        let steps = place.path.len() - count_steps(prefix);
                        let rest = &place.path[place.path.len() - steps..];
                        for from in &source.targets.places {
                            let from = rest.iter().fold(from.clone(), |place, step| place.with(step.clone()));
                            value.join(&self.stored_at(&from, ty));
                        }
                        if source.targets.unknown {
                            value.join(&Value::pointer(Targets::unknown()));
                        }
                    }
                    match prefix.rfind(['.', '[']) {
                        Some(end) => prefix = &prefix[..end],
                        None => break,
                    }
                }
                value
            }
            Base::Fresh => {
                let stored = self.values.get(&(FRESH.0, FRESH.1, String::new()));
                stored.cloned().unwrap_or_else(Value::any)
            }
            Base::Constant => Value::any(),
            base => {
                let Some(pointee) = pointee else {
                    let invariant = place.is_same_for_all() && ty.as_integer().is_some_and(|(_, rank)| rank >= 2);
                    let number = if invariant { Number::invariant(&self.place_text(place)) } else { Number::Any };
                    return Value::number(number);
                };
                if pointee.is_function() {
                    let functions = match base {
                        Base::Outer(id) if self.is_constant(*id) => self.functions_in(*id),
                        _ => Vec::new(),
                    };
                    let unknown = functions.is_empty();
                    return Value::pointer(Targets { functions, unknown, ..Targets::default() });
                }
                if let (Base::Outer(id), true) = (base, place.path.is_empty()) {
                    return Value::pointer(self.outer_pointer(*id));
                }
                let unit = unit_of(ty);
                let first = Step::Index { number: Number::constant(0), unit };
                let base = if place.is_same_for_all() {
                    Base::Behind(self.place_text(place))
                } else if let Some(record) = pointee.record() {
                    return Value::pointer(Targets::of(
                        Place::new(Base::Records(record.number)).with(Step::Index { number: Number::Any, unit }),
                    ));
                } else {
                    return Value::pointer(Targets::of(
                        Place::new(Base::Reached(self.reached_text(place)))
                            .with(Step::Index { number: Number::Any, unit }),
                    ));
                };
                Value::pointer(Targets::of(Place::new(base).with(first)))
            }
        }
    }

    /// Returns the name of the pointers that are stored at a place.
    fn reached_text(&self, place: &Place) -> String {
        match place.path.iter().rev().find(|step| matches!(step, Step::Field { .. })) {
            Some(Step::Field { record, name, .. }) => format!("{record}.{name}"),
            _ => format!("*{}", self.place_text(place)),
        }
    }

    /// Returns the functions whose addresses constant data contains.
    fn functions_in(&self, id: DeclId) -> Vec<DeclId> {
        let Some(value) = &self.unit.declaration(id).initializer else { return Vec::new() };
        let named = value.expressions().into_iter().filter_map(|one| match &one.bare().kind {
            ExprKind::Unary(operator, inner) if operator == "&" => inner.name(),
            _ => one.name(),
        });
        named.filter(|id| self.unit.declaration(*id).kind == DeclKind::Function).collect()
    }

    /// Stores a value at an lvalue, and notes the write.
    pub(super) fn store(&mut self, target: &'u Expr, value: &Value, frame: usize, at: usize) -> Pass<()> {
        self.refuse_volatile(&target.ty, target)?;
        let targets = self.places(target, frame)?;
        self.store_at(&targets, value);
        if targets.unknown || targets.places.is_empty() {
            self.unknown_write(at)?;
        }
        self.note(&targets.places, &AccessKind::Write, at);
        Ok(())
    }

    /// Adds a value to the local variables among places.
    pub(super) fn store_at(&mut self, targets: &Targets, value: &Value) {
        for place in &targets.places {
            if let Base::Local(frame, id) = place.base {
                self.assign(frame, id, &part(place), value);
            } else if place.base == Base::Fresh {
                self.assign(FRESH.0, FRESH.1, "", value);
            }
        }
    }

    /// Refuses a write to memory that the analysis does not know.
    pub(super) fn unknown_write(&self, at: usize) -> Pass<()> {
        if self.site.promise || self.serial {
            return Ok(());
        }
        self.refuse(
            at,
            "the lookup writes through a pointer of unknown origin: \
             say foreach or #pragma gopt independent if no two lookups meet",
        )
    }

    fn refuse_volatile(&self, ty: &Type, node: &Expr) -> Pass<()> {
        let named = node.name().is_some();
        if !ty.resolved().volatile || self.serial || self.site.promise && !named {
            return Ok(());
        }
        let text = self.unit.expanded.words(node.span.first, node.span.end);
        self.refuse(node.span.first, format!("the order of accesses to {text}, which is volatile, would change"))
    }

    /// Walks an initialiser of a variable.
    pub(super) fn initialize(&mut self, id: DeclId, value: &'u Initializer, frame: usize) -> Pass<()> {
        let ty = self.unit.declaration(id).ty.clone();
        match value {
            Initializer::Expression(one) => {
                if ty.record().is_some() {
                    let sources = self.record_places(one, frame)?;
                    if !matches!(one.bare().kind, ExprKind::Call(..) | ExprKind::Compound(..)) {
                        self.note(&sources.places, &AccessKind::Read, one.span.first);
                    }
                    self.copy_parts(&sources, frame, id, "");
                    return Ok(());
                }
                let found = self.value(one, frame)?;
                let found = cast(self, &found, &one.ty, &ty);
                self.assign(frame, id, "", &found);
            }
            Initializer::List(list) => {
                let mut parts = Vec::new();
                self.list_parts(list, &ty, "", frame, &mut parts)?;
                for (part, value) in parts {
                    self.assign(frame, id, &part, &value);
                }
            }
        }
        Ok(())
    }

    /// Walks a list and returns its values, joined. The targets are those of all parts.
    fn list(&mut self, list: &'u InitList, ty: &Type, frame: usize) -> Pass<Value> {
        let mut parts = Vec::new();
        self.list_parts(list, ty, "", frame, &mut parts)?;
        let mut value = Value::any();
        for (_, part) in parts {
            value.join(&part);
        }
        Ok(value)
    }

    fn list_parts(
        &mut self,
        list: &'u InitList,
        ty: &Type,
        prefix: &str,
        frame: usize,
        parts: &mut Vec<(String, Value)>,
    ) -> Pass<()> {
        let fields: Vec<(Option<String>, Type)> = ty
            .record()
            .map(|record| record.fields.borrow().iter().map(|field| (field.name.clone(), field.ty.clone())).collect())
            .unwrap_or_default();
        let mut position = 0;
        for item in &list.items {
            let (name, ty) = match item.designators.first() {
                Some(Designator::Field(name)) => {
                    position = fields.iter().position(|field| field.0.as_ref() == Some(name)).unwrap_or(position);
                    (format!("{prefix}.{name}"), ty.record().and_then(|record| record.field(name)))
                }
                Some(Designator::Index) => (format!("{prefix}[]"), ty.target()),
                None => match fields.get(position) {
                    Some((Some(name), ty)) => (format!("{prefix}.{name}"), Some(ty.clone())),
                    _ => (format!("{prefix}[]"), ty.target()),
                },
            };
            position += 1;
            let ty = ty.unwrap_or_else(Type::unknown);
            match &item.value {
                Initializer::Expression(one) => {
                    let value = self.value(one, frame)?;
                    parts.push((name, cast(self, &value, &one.ty, &ty)));
                }
                Initializer::List(inner) => self.list_parts(inner, &ty, &name, frame, parts)?,
            }
        }
        Ok(())
    }
}

/// Returns the name of the part of a local variable that a place is.
pub(super) fn part(place: &Place) -> String {
    let mut name = String::new();
    for step in &place.path {
        match step {
            Step::Field { name: field, .. } => {
                name.push('.');
                name += field;
            }
            Step::Index { .. } => name += "[]",
        }
    }
    // The first element of a variable that is no array is the variable itself.
    name
}

fn count_steps(part: &str) -> usize {
    part.matches(['.', '[']).count()
}

/// Returns the size of the elements behind a pointer or in an array. Each record has a number of
/// its own instead.
pub(super) fn unit_of(ty: &Type) -> u64 {
    const RECORDS: u64 = 1 << 32;
    let Some(target) = ty.decayed().target() else { return 0 };
    match target.record() {
        Some(record) => RECORDS + record.number as u64,
        None => size_of(&target).unwrap_or(0),
    }
}

/// Returns the size of a type on machines with 64-bit pointers, or at least an upper bound.
pub(super) fn size_of(ty: &Type) -> Option<u64> {
    match &*ty.resolved().kind {
        Kind::Void => Some(1),
        Kind::Integer { rank, .. } => Some(match rank {
            0 | 1 => 1,
            2 => 2,
            3 => 4,
            4 => 8,
            _ => 16,
        }),
        Kind::Enum(_) => Some(4),
        Kind::Floating(name) => match name.as_str() {
            "float" => Some(4),
            "double" => Some(8),
            _ => None,
        },
        Kind::Pointer(_) => Some(8),
        Kind::Array { element, size } => {
            let count = u64::try_from(size.as_ref()?.constant()?).ok()?;
            size_of(element)?.checked_mul(count)
        }
        Kind::Record(record) => {
            let fields = record.fields.borrow();
            if fields.is_empty() || !record.attributes.borrow().is_empty() {
                return None;
            }
            let sizes = fields.iter().map(|field| size_of(&field.ty).map(|size| size.next_multiple_of(8)));
            if record.is_union { sizes.collect::<Option<Vec<_>>>()?.into_iter().max() } else { sizes.sum() }
        }
        _ => None,
    }
}

/// Returns a pointer or number `number` further.
fn moved(value: &Value, number: &Number, ty: &Type) -> Value {
    if ty.decayed().is_pointer() || !value.targets.places.is_empty() {
        let unit = unit_of(ty);
        return Value { number: Number::Any, targets: value.targets.clone().map(|place| place.moved(number, unit)) };
    }
    Value { number: value.number.plus(number), targets: value.targets.clone() }
}

fn with_targets(number: Number, one: &Value, two: &Value) -> Value {
    let mut targets = one.targets.clone().map(Place::blurred);
    targets.join(&two.targets.clone().map(Place::blurred));
    Value { number, targets }
}

/// Returns a value after its conversion to another type.
pub(super) fn cast(check: &Check<'_>, value: &Value, from: &Type, to: &Type) -> Value {
    let (from, to) = (from.decayed(), to.resolved());
    if let (Some(source), Some(target)) = (from.target(), to.target()) {
        if source.same(&target) || target.is_void() || source.is_void() && value.targets.places.iter().all(at_begin) {
            return value.clone();
        }
        return Value {
            number: value.number.clone(),
            targets: value.targets.clone().map(|place| retyped(check, place, &source, &target)),
        };
    }
    match (from.as_integer(), to.as_integer()) {
        // A narrower integer may lose the index.
        (Some((_, rank)), Some((_, other))) if other < rank => {
            let fits = matches!(&value.number, Number::Linear(one) if one.variable.is_none() && one.shift.is_empty() && one.below.is_empty() && one.low >= 0 && one.high < 128);
            if fits { value.clone() } else { Value { number: Number::Any, targets: Targets::default() } }
        }
        (None, Some(_)) if from.is_pointer() => value.clone(),
        (Some(_), None) if to.is_pointer() => {
            let mut value = value.clone();
            if value.targets.places.is_empty() && value.number.as_constant() != Some(0) {
                value.targets.unknown = true;
            }
            value
        }
        _ => value.clone(),
    }
}

fn at_begin(place: &Place) -> bool {
    match place.path.last() {
        Some(Step::Index { number, .. }) => number.as_constant() == Some(0),
        _ => true,
    }
}

/// Returns a place as an element of another type.
fn retyped(_check: &Check<'_>, mut place: Place, from: &Type, to: &Type) -> Place {
    let size = size_of(to);
    let bytes = matches!(from.as_integer(), Some((_, 1))) || from.is_void();
    match place.path.last_mut() {
        Some(Step::Index { number: Number::Linear(one), unit }) if bytes && *unit <= 1 => {
            let text = format!("sizeof({})", type_text(to));
            if one.stride == text && one.scale.abs() == 1 && one.below.is_empty() && one.low == 0 && one.high == 0 {
                // `base + i * sizeof(T)` is element i.
                return place;
            }
            match size.and_then(|size| i64::try_from(size).ok()) {
                Some(size) if one.stride.is_empty() && one.below.is_empty() => {
                    one.high = one.high.saturating_add(size - 1);
                }
                _ => return place.blurred(),
            }
            place
        }
        Some(Step::Index { number, .. }) if number.as_constant() == Some(0) => place,
        Some(Step::Index { .. }) => place.blurred(),
        _ => place,
    }
}

/// Returns the text of a type without spaces, as in `sizeof`.
fn type_text(ty: &Type) -> String {
    type_words(ty)
}

/// Returns the text of a type without spaces.
pub(super) fn type_words(ty: &Type) -> String {
    match &*ty.kind {
        Kind::Named { name, .. } => name.clone(),
        Kind::Record(record) => {
            let word = if record.is_union { "union" } else { "struct" };
            format!("{word}{}", record.tag.as_deref().unwrap_or_default())
        }
        Kind::Integer { name, .. } => name.replace(' ', ""),
        _ => "?".to_owned(),
    }
}
