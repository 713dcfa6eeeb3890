//! Variables that are recomputed instead of saved, because they depend only on unchanging
//! variables.

use super::{Binding, Context, Emitter, changed};
use crate::syntax::ast::{DeclId, Expr, ExprKind, Initializer};

impl<'u> Emitter<'u> {
    /// Returns whether an expression has the same value at any time within its lookup. Such an
    /// expression reads no memory, and only variables that never change after they are set.
    pub(super) fn is_repeatable(&self, node: &Expr, context: &Context<'u>) -> bool {
        let same = |part: &Expr| self.is_repeatable(part, context);
        match &node.kind {
            ExprKind::Number(_) | ExprKind::Character => true,
            ExprKind::Name(id) => !node.ty.is_array() && self.never_changes(*id, context),
            ExprKind::Paren(inner) | ExprKind::Cast(_, inner) => same(inner),
            ExprKind::Unary(operator, inner) if operator == "&" => match &inner.bare().kind {
                // The address of an element reads no memory if the array is a pointer.
                ExprKind::Index(array, index) => !array.ty.is_array() && same(array) && same(index),
                _ => false,
            },
            ExprKind::Unary(operator, inner) => operator != "*" && same(inner),
            ExprKind::Binary(_, left, right) => same(left) && same(right),
            ExprKind::Conditional(condition, Some(yes), no) => same(condition) && same(yes) && same(no),
            ExprKind::Member { object, arrow: false, .. } => {
                !node.ty.is_array() && matches!(object.bare().kind, ExprKind::Name(_)) && same(object)
            }
            ExprKind::Member { object, arrow: true, .. } => {
                let entry = object.name().and_then(|id| context.names.get(&id));
                !node.ty.is_array() && entry.is_some_and(|entry| entry.points_at_steady)
            }
            _ => false,
        }
    }

    /// Returns whether an initialiser has the same value at any time within its lookup.
    pub(super) fn is_repeatable_initializer(&self, value: &Initializer, context: &Context<'u>) -> bool {
        match value {
            Initializer::Expression(value) => self.is_repeatable(value, context),
            Initializer::List(list) => list
                .items
                .iter()
                .all(|item| item.designators.is_empty() && self.is_repeatable_initializer(&item.value, context)),
        }
    }

    fn never_changes(&self, id: DeclId, context: &Context<'u>) -> bool {
        if self.is_outer(id, context) {
            return !changed(self.unit, self.site.body, id);
        }
        context
            .names
            .get(&id)
            .is_some_and(|entry| entry.steady && matches!(entry.binding, Binding::Moved(_) | Binding::Alias(_)))
    }
}
