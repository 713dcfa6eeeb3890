//! Which variables keep an address: a pointer to them may outlive a switch, so they must not move.
//!
//! All others are local variables of the loop, saved where look-ups switch and loaded where they go on. Pointers that are
//! handed to functions which only look through them do no harm.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::lexer::tokens;
use crate::reach::Reach;
use crate::unit::{Function, Unit, Variable, children, declarators, declared_name, walk};

/// What is known of structs, and of functions that were looked into.
pub(crate) struct Addresses<'u, 't> {
    unit: &'u Unit<'t>,
    pub(crate) reach: &'u Reach,
    /// Names of structs that the file defines, as specifiers say them.
    structs: BTreeSet<String>,
    /// Fields by name: whether each of them is no array.
    fields: BTreeMap<String, bool>,
    /// Parameters by function and place: whether what they point at keeps no pointer. While one is looked into: no.
    looked: RefCell<BTreeMap<(String, usize), bool>>,
}

impl<'u, 't> Addresses<'u, 't> {
    pub(crate) fn new(unit: &'u Unit<'t>, reach: &'u Reach, root: Node<'t>) -> Self {
        let mut all =
            Self { unit, reach, structs: BTreeSet::new(), fields: BTreeMap::new(), looked: RefCell::default() };
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

    /// The variable must stay where it is while others have their turns.
    pub(crate) fn keeps(&self, region: Node<'t>, name: &str, variable: Variable<'t>) -> bool {
        if variable.declarator.kind() == "array_declarator" && variable.declaration.kind() != "parameter_declaration" {
            return true;
        }
        let key = type_key(self.unit, variable);
        let mut looked_into = false;
        let mut keeps = false;
        walk(region, &mut |node| {
            if node.kind() == "identifier" && self.unit.text(node) == name && !keeps {
                keeps = !self.stays(node, &key, &mut looked_into);
            }
            !keeps
        });
        let pointer = crate::unit::find(variable.declarator, "pointer_declarator").is_some();
        let specifiers = self.unit.specifiers(variable.declaration);
        let known = pointer || self.structs.contains(&specifiers) || is_number(variable.declaration);
        keeps || looked_into && !known
    }

    /// After the use of an object no pointer to it is left. `key` is its type; `looked_into`: it is seen as a struct, or
    /// through a pointer.
    fn stays(&self, object: Node<'t>, key: &str, looked_into: &mut bool) -> bool {
        let Some(parent) = object.parent() else { return true };
        let operator = parent.child_by_field_name("operator").map_or("", |operator| self.unit.text(operator));
        match parent.kind() {
            "parenthesized_expression" => self.stays(parent, key, looked_into),
            "field_expression" if operator == "." => {
                *looked_into = true;
                self.single(parent) && self.stays(parent, "", looked_into)
            }
            "pointer_expression" if operator == "&" => {
                *looked_into = true;
                self.handed(parent, &format!("{key}*"))
            }
            "argument_list" => {
                let callee = parent.parent().and_then(|call| self.unit.callee(call)).unwrap_or_default();
                !self.unit.source.macros.has(callee) || !self.unit.source.macros.looks_into(callee)
            }
            _ => true,
        }
    }

    /// The field that an expression names is no array, which would become a pointer.
    fn single(&self, expression: Node<'t>) -> bool {
        let field = expression.child_by_field_name("field").map_or("", |field| self.unit.text(field));
        self.fields.get(field).copied().unwrap_or(false)
    }

    /// A pointer is the argument of a function that keeps nothing of it.
    fn handed(&self, pointer: Node<'t>, key: &str) -> bool {
        let Some(list) = pointer.parent().filter(|parent| parent.kind() == "argument_list") else { return false };
        let callee = list.parent().and_then(|call| self.unit.callee(call)).unwrap_or_default();
        let place = children(list).filter(Node::is_named).position(|argument| argument == pointer);
        let function = self.unit.functions.get(callee).filter(|_| !self.unit.source.macros.has(callee));
        function.zip(place).is_some_and(|(function, place)| self.looks_through(function, place, key))
    }

    /// A function looks through a parameter, and does not store it.
    fn looks_through(&self, function: &Function<'t>, place: usize, key: &str) -> bool {
        let Some(parameter) = function.parameters.get(place).copied().filter(|_| !function.variadic) else {
            return false;
        };
        let Some(declarator) = parameter.child_by_field_name("declarator") else { return true };
        let Some(name) = declared_name(declarator).map(|name| self.unit.text(name)) else { return true };
        // A copy of its body has the pointer's text in the place of the parameter only under these conditions.
        if self.reach.expensive.contains(&function.name) {
            let own = type_key(self.unit, Variable { declaration: parameter, declarator });
            if own != key || changed(self.unit, function.body, name) {
                return false;
            }
        }
        let known = (function.name.clone(), place);
        if let Some(&found) = self.looked.borrow().get(&known) {
            return found;
        }
        self.looked.borrow_mut().insert(known.clone(), false);
        let mut through = true;
        walk(function.body, &mut |node| {
            if node.kind() == "identifier" && through {
                through = if self.unit.text(node) == name {
                    self.looked_through(node, key)
                } else {
                    !self.unit.source.macros.mentions(self.unit.text(node)).contains(name)
                };
            }
            through
        });
        self.looked.borrow_mut().insert(known, through);
        through
    }

    fn looked_through(&self, pointer: Node<'t>, key: &str) -> bool {
        let Some(parent) = pointer.parent() else { return false };
        let operator = parent.child_by_field_name("operator").map_or("", |operator| self.unit.text(operator));
        match parent.kind() {
            "parenthesized_expression" => self.looked_through(parent, key),
            "field_expression" if operator == "->" => self.single(parent) && self.stays(parent, "", &mut false),
            "pointer_expression" if operator == "*" => self.stays(parent, key.trim_end_matches('*'), &mut false),
            "argument_list" => self.handed(pointer, key),
            _ => false,
        }
    }
}

fn field_name(declarator: Node<'_>) -> Option<Node<'_>> {
    crate::unit::find(declarator, "field_identifier")
}

/// Declared by C's own words.
fn is_number(declaration: Node<'_>) -> bool {
    let kind = declaration.child_by_field_name("type").map_or("", |kind| kind.kind());
    matches!(kind, "primitive_type" | "sized_type_specifier")
}

/// A type as text, to tell whether two are the same: `const` matters to neither.
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

/// A variable's name may be assigned, counted, or its address taken in a text.
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
            // Of an array: an element of the variable itself. Of a pointer: something else; the answer errs safely.
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
