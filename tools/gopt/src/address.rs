//! Variables whose address must not change, because a pointer to them may exist across a switch.
//!
//! All other variables become local variables of the loop. They are saved at a switch and loaded
//! when the lookup continues. A pointer that is passed only to functions that do not store it is
//! harmless.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::lexer::tokens;
use crate::reach::Reach;
use crate::unit::{Function, Unit, Variable, children, declarators, declared_name, walk};

/// Analysis of addresses: structs and fields of the file, and the results for functions.
pub(crate) struct Addresses<'u, 't> {
    unit: &'u Unit<'t>,
    pub(crate) reach: &'u Reach,
    /// Names of structs that the file defines, in the form of specifiers.
    structs: BTreeSet<String>,
    /// Fields by name, and whether all fields of this name are not arrays.
    fields: BTreeMap<String, bool>,
    /// Parameters by function and position, and whether the function does not store the pointer.
    /// The value is false while the function is analysed.
    not_stored: RefCell<BTreeMap<(String, usize), bool>>,
}

impl<'u, 't> Addresses<'u, 't> {
    pub(crate) fn new(unit: &'u Unit<'t>, reach: &'u Reach, root: Node<'t>) -> Self {
        let mut all =
            Self { unit, reach, structs: BTreeSet::new(), fields: BTreeMap::new(), not_stored: RefCell::default() };
        let mut plain_types = BTreeSet::new();
        walk(root, &mut |node| {
            let body = |node: Node<'t>| node.child_by_field_name("body").is_some();
            match node.kind() {
                "struct_specifier" if body(node) => {
                    let name = node.child_by_field_name("name").map(|name| format!("struct {}", unit.text(name)));
                    all.structs.extend(name);
                }
                "type_definition" => {
                    let declared = declarators(node);
                    let names = declared.iter().filter(|one| one.kind() != "array_declarator");
                    let names: Vec<_> = names.filter(|one| one.child_count() == 0).map(|one| unit.text(*one)).collect();
                    plain_types.extend(names.iter().map(|name| (*name).to_owned()));
                    let defined = node.child_by_field_name("type");
                    if defined.is_some_and(|defined| defined.kind() == "struct_specifier" && body(defined)) {
                        all.structs.extend(names.iter().map(|name| (*name).to_owned()));
                    }
                }
                _ => {}
            }
            true
        });
        walk(root, &mut |node| {
            if node.kind() == "field_declaration" {
                let kind = node.child_by_field_name("type");
                let plain = kind.is_some_and(|kind| match kind.kind() {
                    "type_identifier" => plain_types.contains(unit.text(kind)),
                    kind => kind != "macro_type_specifier",
                });
                for declarator in declarators(node) {
                    let Some(name) = field_name(declarator) else { continue };
                    let single =
                        declarator.kind() == "pointer_declarator" || declarator.kind() == "field_identifier" && plain;
                    *all.fields.entry(unit.text(name).to_owned()).or_insert(true) &= single;
                }
            }
            true
        });
        all
    }

    /// Returns whether the address of the variable must not change while other lookups run.
    pub(crate) fn is_fixed(&self, region: Node<'t>, name: &str, variable: Variable<'t>) -> bool {
        if variable.declarator.kind() == "array_declarator" && variable.declaration.kind() != "parameter_declaration" {
            return true;
        }
        let key = type_key(self.unit, variable);
        let mut accessed = false;
        let mut fixed = false;
        walk(region, &mut |node| {
            if node.kind() == "identifier" && self.unit.text(node) == name && !fixed {
                fixed = !self.leaves_no_pointer(node, &key, &mut accessed);
            }
            !fixed
        });
        let pointer = crate::unit::find(variable.declarator, "pointer_declarator").is_some();
        let specifiers = self.unit.specifiers(variable.declaration);
        let known = pointer || self.structs.contains(&specifiers) || is_number(variable.declaration);
        fixed || accessed && !known
    }

    /// Returns whether no pointer to an object exists after this use. `key` is its type. Sets
    /// `accessed` if the use accesses a field or takes the address.
    fn leaves_no_pointer(&self, object: Node<'t>, key: &str, accessed: &mut bool) -> bool {
        let Some(parent) = object.parent() else { return true };
        let operator = parent.child_by_field_name("operator").map_or("", |operator| self.unit.text(operator));
        match parent.kind() {
            "parenthesized_expression" => self.leaves_no_pointer(parent, key, accessed),
            "field_expression" if operator == "." => {
                *accessed = true;
                self.is_not_array(parent) && self.leaves_no_pointer(parent, "", accessed)
            }
            "pointer_expression" if operator == "&" => {
                *accessed = true;
                self.is_passed(parent, &format!("{key}*"))
            }
            "argument_list" => {
                let callee = parent.parent().and_then(|call| self.unit.callee(call)).unwrap_or_default();
                !self.unit.source.macros.has(callee) || !self.unit.source.macros.accesses(callee)
            }
            _ => true,
        }
    }

    /// Returns whether the field of an expression is not an array. An array would become a pointer.
    fn is_not_array(&self, expression: Node<'t>) -> bool {
        let field = expression.child_by_field_name("field").map_or("", |field| self.unit.text(field));
        self.fields.get(field).copied().unwrap_or(false)
    }

    /// Returns whether a pointer is the argument of a function that does not store it.
    fn is_passed(&self, pointer: Node<'t>, key: &str) -> bool {
        let Some(list) = pointer.parent().filter(|parent| parent.kind() == "argument_list") else { return false };
        let callee = list.parent().and_then(|call| self.unit.callee(call)).unwrap_or_default();
        let position = children(list).filter(Node::is_named).position(|argument| argument == pointer);
        let function = self.unit.functions.get(callee).filter(|_| !self.unit.source.macros.has(callee));
        function.zip(position).is_some_and(|(function, position)| self.does_not_store(function, position, key))
    }

    /// Returns whether a function only dereferences the pointer in a parameter, and does not store
    /// it.
    fn does_not_store(&self, function: &Function<'t>, position: usize, key: &str) -> bool {
        let Some(parameter) = function.parameters.get(position).copied().filter(|_| !function.variadic) else {
            return false;
        };
        let Some(declarator) = parameter.child_by_field_name("declarator") else { return true };
        let Some(name) = declared_name(declarator).map(|name| self.unit.text(name)) else { return true };
        // An inlined copy replaces the parameter by the text of the pointer only if the types are
        // equal and the parameter never changes.
        if self.reach.expensive.contains(&function.name) {
            let parameter_key = type_key(self.unit, Variable { declaration: parameter, declarator });
            if parameter_key != key || changed(self.unit, function.body, name) {
                return false;
            }
        }
        let known = (function.name.clone(), position);
        if let Some(&found) = self.not_stored.borrow().get(&known) {
            return found;
        }
        self.not_stored.borrow_mut().insert(known.clone(), false);
        let mut only_dereferenced = true;
        walk(function.body, &mut |node| {
            if node.kind() == "identifier" && only_dereferenced {
                only_dereferenced = if self.unit.text(node) == name {
                    self.is_dereferenced(node, key)
                } else {
                    !self.unit.source.macros.mentions(self.unit.text(node)).contains(name)
                };
            }
            only_dereferenced
        });
        self.not_stored.borrow_mut().insert(known, only_dereferenced);
        only_dereferenced
    }

    /// Returns whether this use of a pointer dereferences it, without a pointer that exists
    /// afterwards.
    fn is_dereferenced(&self, pointer: Node<'t>, key: &str) -> bool {
        let Some(parent) = pointer.parent() else { return false };
        let operator = parent.child_by_field_name("operator").map_or("", |operator| self.unit.text(operator));
        match parent.kind() {
            "parenthesized_expression" => self.is_dereferenced(parent, key),
            "field_expression" if operator == "->" => {
                self.is_not_array(parent) && self.leaves_no_pointer(parent, "", &mut false)
            }
            "pointer_expression" if operator == "*" => {
                self.leaves_no_pointer(parent, key.trim_end_matches('*'), &mut false)
            }
            "argument_list" => self.is_passed(pointer, key),
            _ => false,
        }
    }
}

fn field_name(declarator: Node<'_>) -> Option<Node<'_>> {
    crate::unit::find(declarator, "field_identifier")
}

/// Returns whether the type consists of keywords of C, such as `unsigned int`.
fn is_number(declaration: Node<'_>) -> bool {
    let kind = declaration.child_by_field_name("type").map_or("", |kind| kind.kind());
    matches!(kind, "primitive_type" | "sized_type_specifier")
}

/// Returns a type as text for comparisons. `const` and `restrict` are left out.
pub(crate) fn type_key(unit: &Unit<'_>, variable: Variable<'_>) -> String {
    let name = declared_name(variable.declarator);
    let declarator = variable.declarator.byte_range();
    let name = name.map_or(declarator.end..declarator.end, |name| name.byte_range());
    let text = &unit.source.plain;
    let around = format!("{} {}", &text[declarator.start..name.start], &text[name.end..declarator.end]);
    let words: Vec<_> = tokens(&around).into_iter().map(|token| token.text.to_owned()).collect();
    let plain = |word: &&String| !matches!(word.as_str(), "const" | "restrict" | "__restrict" | "__restrict__");
    format!("{}|{}", unit.specifiers(variable.declaration), words.iter().filter(plain).cloned().collect::<String>())
}

/// Returns whether a region may assign, increment or decrement a variable, or take its address.
pub(crate) fn changed<'t>(unit: &Unit<'t>, region: Node<'t>, name: &str) -> bool {
    let mut found = false;
    walk(region, &mut |node| {
        if node.kind() == "identifier" && unit.text(node) == name && !found {
            found = changes(unit, node);
        }
        if node.kind() == "call_expression"
            && unit.callee(node).is_some_and(|callee| unit.source.macros.assigns(callee))
        {
            found |= tokens(unit.text(node)).iter().any(|token| token.text == name);
        }
        if node.kind() == "identifier" && unit.source.macros.has(unit.text(node)) {
            found |= unit.source.macros.mentions(unit.text(node)).contains(name);
        }
        !found
    });
    found
}

/// Returns whether this use of an identifier changes the variable or takes its address.
fn changes<'t>(unit: &Unit<'t>, identifier: Node<'t>) -> bool {
    let mut node = identifier;
    while let Some(parent) = node.parent() {
        let is = |field: &str| parent.child_by_field_name(field) == Some(node);
        match parent.kind() {
            "parenthesized_expression" | "cast_expression" => {}
            "field_expression" if is("argument") => {
                let operator = parent.child_by_field_name("operator");
                if operator.is_some_and(|operator| unit.text(operator) == "->") {
                    return false;
                }
            }
            // The element of an array is a part of the variable. The element behind a pointer is
            // not, but the result `true` is safe.
            "subscript_expression" if is("argument") => {}
            "assignment_expression" => return is("left"),
            "update_expression" => return true,
            "pointer_expression" => {
                let operator = parent.child_by_field_name("operator");
                return operator.is_some_and(|operator| unit.text(operator) == "&");
            }
            _ => return false,
        }
        node = parent;
    }
    false
}
