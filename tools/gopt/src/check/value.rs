//! Values of expressions.

use super::Check;
use super::convert::{cast, unit_of};
use super::number::Number;
use super::place::{Base, Place, Targets, Value};
use crate::error::Pass;
use crate::syntax::ast::{DeclKind, Expr, ExprKind};
use crate::syntax::types::Type;

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
                if self.unit.expanded.word(node.span.first) == "__builtin_va_arg"
                    && let Some(list) = operands.first()
                {
                    // It also advances the list.
                    self.store(list, &Value::any(), frame, node.span.first)?;
                }
                Ok(value)
            }
        }
    }

    /// Returns an operand's size as a number whose text begins with `sizeof`.
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
}

/// Returns a pointer or number `number` further.
pub(super) fn moved(value: &Value, number: &Number, ty: &Type) -> Value {
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
