//! Initialisers of local variables.

use super::Check;
use super::access::AccessKind;
use super::convert::cast;
use super::place::Value;
use crate::error::Pass;
use crate::syntax::ast::{DeclId, Designator, ExprKind, InitList, Initializer};
use crate::syntax::types::Type;

impl<'u> Check<'u> {
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

    /// Walks a list and returns its joined values. The targets are those of all parts.
    pub(super) fn list(&mut self, list: &'u InitList, ty: &Type, frame: usize) -> Pass<Value> {
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
