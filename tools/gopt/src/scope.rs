//! Variables in scope at a position in a function.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::unit::{Function, Unit, Variable, bare, children, declarators, declared_name};

/// Returns the parameters and locals that are in scope at the beginning of a loop.
pub(crate) fn at_loop<'t>(
    unit: &Unit<'t>,
    function: &Function<'t>,
    batch: Node<'_>,
) -> BTreeMap<&'t str, Variable<'t>> {
    let mut scope = BTreeMap::new();
    for &declaration in &function.parameters {
        if let Some(declarator) = declaration.child_by_field_name("declarator") {
            declare(unit, &mut scope, declaration, declarator);
        }
    }
    // From the body of the function inwards: the declarations before the loop in each enclosing
    // block.
    let mut around = function.body;
    loop {
        let mut deeper = None;
        for child in children(around) {
            if child.byte_range().contains(&batch.start_byte()) {
                deeper = Some(child).filter(|child| child.id() != batch.id());
                break;
            }
            if child.kind() == "declaration" {
                for declarator in declarators(child) {
                    declare(unit, &mut scope, child, declarator);
                }
            }
        }
        match deeper {
            Some(child) => around = child,
            None => return scope,
        }
    }
}

fn declare<'t>(
    unit: &Unit<'t>,
    scope: &mut BTreeMap<&'t str, Variable<'t>>,
    declaration: Node<'t>,
    declarator: Node<'t>,
) {
    if let Some(name) = declared_name(declarator) {
        scope.insert(unit.text(name), Variable { declaration, declarator: bare(declarator) });
    }
}

/// Returns the names in a function that it does not declare: names of the file, types and macros.
pub(crate) fn free_in<'t>(unit: &Unit<'t>, function: &Function<'t>) -> Vec<(&'t str, Node<'t>)> {
    let mut free = Vec::new();
    let mut scope = BTreeSet::new();
    for &parameter in &function.parameters {
        gather(unit, parameter, &mut vec![BTreeSet::new()], &mut free);
        let name = parameter.child_by_field_name("declarator").and_then(declared_name);
        scope.extend(name.map(|name| unit.text(name)));
        free.retain(|(_, node)| Some(*node) != name);
    }
    gather(unit, function.body, &mut vec![scope], &mut free);
    free
}

fn gather<'t>(
    unit: &Unit<'t>,
    node: Node<'t>,
    scopes: &mut Vec<BTreeSet<&'t str>>,
    free: &mut Vec<(&'t str, Node<'t>)>,
) {
    match node.kind() {
        "compound_statement" | "for_statement" => {
            scopes.push(BTreeSet::new());
            children(node).for_each(|child| gather(unit, child, scopes, free));
            scopes.pop();
        }
        "declaration" => {
            for child in children(node) {
                let name = declared_name(child).filter(|_| declarators(node).contains(&child));
                if let (Some(name), Some(scope)) = (name, scopes.last_mut()) {
                    scope.insert(unit.text(name));
                }
                gather(unit, child, scopes, free);
            }
        }
        "identifier" | "type_identifier" => {
            let name = unit.text(node);
            if !scopes.iter().any(|scope| scope.contains(name)) {
                free.push((name, node));
            }
        }
        _ => children(node).for_each(|child| gather(unit, child, scopes, free)),
    }
}
