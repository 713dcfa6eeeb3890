//! Variables that are recomputed instead of saved, because they depend only on variables that never
//! change.

use tree_sitter::Node;

use crate::unit::{children, find};

use super::{Binding, Context, Emitter};

impl<'t> Emitter<'_, 't> {
    /// Returns whether an expression has the same value at any time within its lookup. It must read
    /// no memory, and only variables that never change after they are set.
    pub(super) fn is_repeatable(&self, node: Node<'t>, context: &Context<'_, 't>) -> bool {
        let part = |field: &str| node.child_by_field_name(field);
        let same = |part: Option<Node<'t>>| part.is_some_and(|part| self.is_repeatable(part, context));
        let operator = part("operator").map_or("", |operator| self.unit.text(operator));
        match node.kind() {
            "number_literal" | "char_literal" | "true" | "false" | "null" => true,
            "identifier" => self.never_changes(node, context),
            "parenthesized_expression" => same(node.named_child(0)),
            "cast_expression" => same(part("value")),
            "unary_expression" => same(part("argument")),
            "binary_expression" => same(part("left")) && same(part("right")),
            "conditional_expression" => {
                same(part("condition")) && same(part("consequence")) && same(part("alternative"))
            }
            "field_expression" if operator == "." => {
                part("argument").is_some_and(|object| object.kind() == "identifier") && same(part("argument"))
            }
            "field_expression" => {
                let name = part("argument").filter(|pointer| pointer.kind() == "identifier");
                let entry = name.and_then(|name| context.entry(self.unit.text(name)));
                entry.is_some_and(|entry| entry.points_at_steady)
            }
            "pointer_expression" if operator == "&" => {
                let element = part("argument").filter(|element| element.kind() == "subscript_expression");
                element.is_some_and(|element| children(element).filter(Node::is_named).all(|one| same(Some(one))))
            }
            "initializer_list" => {
                find(node, "initializer_pair").is_none()
                    && children(node).filter(Node::is_named).all(|one| same(Some(one)))
            }
            _ => false,
        }
    }

    fn never_changes(&self, identifier: Node<'t>, context: &Context<'_, 't>) -> bool {
        let name = self.unit.text(identifier);
        let Some(entry) = context.entry(name) else {
            let macros = &self.unit.source.macros;
            return macros.has(name) && macros.mentions(name).is_empty() && !macros.assigns(name);
        };
        entry.steady
            && match entry.binding {
                Binding::Kept => self.outer(name, context),
                Binding::Moved(_) | Binding::Alias(_) => true,
                Binding::Renamed(_) | Binding::Member(_) => false,
            }
    }
}
