//! Second pass: parses the text, and lists the functions and variables of the file.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::refusal::{Pass, refuse};
use crate::source::{ANNOTATIONS, Source};

/// Function that the file defines.
pub(crate) struct Function<'t> {
    pub(crate) name: String,
    pub(crate) node: Node<'t>,
    pub(crate) body: Node<'t>,
    pub(crate) parameters: Vec<Node<'t>>,
    pub(crate) variadic: bool,
    /// Return type without storage classes. Empty for `void`.
    pub(crate) returns: String,
    pub(crate) has_labels: bool,
}

/// Definitions of a file.
pub(crate) struct Unit<'t> {
    pub(crate) source: &'t Source,
    pub(crate) functions: BTreeMap<String, Function<'t>>,
    /// Functions that are declared, but not defined.
    pub(crate) prototypes: BTreeSet<String>,
    /// Variables at file scope.
    pub(crate) globals: BTreeMap<String, Variable<'t>>,
}

/// Declared variable.
#[derive(Clone, Copy)]
pub(crate) struct Variable<'t> {
    pub(crate) declaration: Node<'t>,
    /// Declarator without the initialiser.
    pub(crate) declarator: Node<'t>,
}

impl<'t> Unit<'t> {
    pub(crate) fn new(source: &'t Source, root: Node<'t>) -> Self {
        let mut unit =
            Unit { source, functions: BTreeMap::new(), prototypes: BTreeSet::new(), globals: BTreeMap::new() };
        unit.add(root);
        unit
    }

    /// Adds the definitions at file scope, including those under `#if`.
    fn add(&mut self, node: Node<'t>) {
        for child in children(node) {
            match child.kind() {
                "function_definition" => self.add_function(child),
                "declaration" => {
                    for declarator in declarators(child) {
                        let Some(name) = declared_name(declarator) else { continue };
                        let named = self.text(name).to_owned();
                        if declares_function(declarator) {
                            self.prototypes.insert(named);
                        } else {
                            self.globals.insert(named, Variable { declaration: child, declarator: bare(declarator) });
                        }
                    }
                }
                kind if kind.starts_with("preproc_if")
                    || kind.starts_with("preproc_el")
                    || kind == "linkage_specification" =>
                {
                    self.add(child);
                }
                _ => {}
            }
        }
    }

    fn add_function(&mut self, node: Node<'t>) {
        let (Some(declarator), Some(body)) = (node.child_by_field_name("declarator"), node.child_by_field_name("body"))
        else {
            return;
        };
        let Some(function) = find(declarator, "function_declarator") else { return };
        let (Some(name), Some(list)) = (declared_name(function), function.child_by_field_name("parameters")) else {
            return;
        };
        let stars =
            self.source.plain.get(declarator.start_byte()..function.start_byte()).unwrap_or_default().trim_end();
        // The target of a returned pointer may be const. The result itself must not be, because the
        // output assigns it.
        let mut returns = if stars.contains('*') { self.pointee_specifiers(node) } else { self.specifiers(node) };
        returns.push_str(stars);
        if returns.trim() == "void" {
            returns.clear();
        }
        let parameters = children(list).filter(|child| child.kind() == "parameter_declaration");
        let parameters: Vec<_> = parameters.filter(|child| self.text(*child) != "void").collect();
        let name = self.text(name).to_owned();
        let function = Function {
            variadic: children(list).any(|child| child.kind().contains("variadic")),
            has_labels: find(body, "labeled_statement").is_some(),
            name: name.clone(),
            node,
            body,
            parameters,
            returns: returns.trim().to_owned(),
        };
        self.functions.insert(name, function);
    }

    pub(crate) fn text(&self, node: Node<'_>) -> &'t str {
        &self.source.text[node.byte_range()]
    }

    /// Returns the specifiers of a declaration, without storage classes, attributes and `const`.
    pub(crate) fn specifiers(&self, declaration: Node<'_>) -> String {
        let mut words = Vec::new();
        for index in 0..declaration.child_count() {
            let Some(child) = declaration.child(index) else { continue };
            if declaration.field_name_for_child(index as u32) == Some("declarator") || child.kind() == ";" {
                break;
            }
            match child.kind() {
                "storage_class_specifier" | "attribute_specifier" | "attribute_declaration" => {}
                "type_qualifier" if self.text(child) != "volatile" && self.text(child) != "_Atomic" => {}
                _ => words.push(self.text(child)),
            }
        }
        words.join(" ")
    }

    /// Returns the specifiers of the target of a pointer, with `const`.
    pub(crate) fn pointee_specifiers(&self, declaration: Node<'_>) -> String {
        let constant = children(declaration)
            .take_while(|child| !child.kind().ends_with("declarator") && child.kind() != "identifier")
            .any(|child| child.kind() == "type_qualifier" && self.text(child) == "const");
        let specifiers = self.specifiers(declaration);
        if constant { format!("const {specifiers}") } else { specifiers }
    }

    pub(crate) fn has_word(&self, declaration: Node<'_>, word: &str) -> bool {
        children(declaration)
            .filter(|child| matches!(child.kind(), "storage_class_specifier" | "type_qualifier"))
            .any(|child| self.text(child) == word)
    }

    /// Returns the name of the called function, if the call uses a plain name.
    pub(crate) fn callee(&self, call: Node<'_>) -> Option<&'t str> {
        let function = call.child_by_field_name("function")?;
        (call.kind() == "call_expression" && function.kind() == "identifier").then(|| self.text(function))
    }

    /// Returns the call of an annotation, if the statement is an annotation.
    pub(crate) fn annotation(&self, statement: Node<'t>) -> Option<Node<'t>> {
        let call = statement.named_child(0).filter(|_| statement.kind() == "expression_statement")?;
        self.callee(call).filter(|name| ANNOTATIONS.contains(name)).map(|_| call)
    }

    /// Refuses C that must not appear inside a transformed loop.
    pub(crate) fn sound(&self, node: Node<'_>) -> Pass<()> {
        if let Some(at) = self.source.blanked_in(node.start_byte(), node.end_byte()) {
            return refuse(at, "a macro for attributes or storage classes is used inside the lookup");
        }
        let mut fault = None;
        walk(node, &mut |inner| {
            if fault.is_some() {
                return false;
            }
            let reason = match inner.kind() {
                "ERROR" => Some("gopt cannot parse this: a macro may expand to more than an expression"),
                _ if inner.is_missing() => Some("something is missing here, or a macro expands to it"),
                kind if kind.starts_with("preproc_") => Some("a preprocessor directive inside the lookup"),
                kind if kind.contains("asm") => Some("inline assembly inside the lookup"),
                "function_definition" => Some("a function inside a function"),
                kind if kind.starts_with("seh_") => Some("exception handling inside the lookup"),
                _ => None,
            };
            fault = reason.map(|reason| (inner.start_byte(), reason));
            fault.is_none()
        });
        fault.map_or(Ok(()), |(at, reason)| refuse(at, reason))
    }
}

/// Returns all children of a node except comments.
pub(crate) fn children(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    (0..node.child_count()).filter_map(move |index| node.child(index)).filter(|child| child.kind() != "comment")
}

/// Visits a node and its descendants in the order of the text. If `visit` returns false, the
/// descendants of a node are skipped.
pub(crate) fn walk<'t>(node: Node<'t>, visit: &mut impl FnMut(Node<'t>) -> bool) {
    if visit(node) {
        children(node).for_each(|child| walk(child, visit));
    }
}

/// Returns the first node of a kind: `node` itself or a descendant.
pub(crate) fn find<'t>(node: Node<'t>, kind: &str) -> Option<Node<'t>> {
    if node.kind() == kind {
        return Some(node);
    }
    children(node).find_map(|child| find(child, kind))
}

/// Returns the declarators of a declaration, with their initialisers.
pub(crate) fn declarators(declaration: Node<'_>) -> Vec<Node<'_>> {
    let declares = |index: &usize| declaration.field_name_for_child(*index as u32) == Some("declarator");
    (0..declaration.child_count()).filter(declares).filter_map(|index| declaration.child(index)).collect()
}

/// Returns a declarator without its initialiser.
pub(crate) fn bare(declarator: Node<'_>) -> Node<'_> {
    if declarator.kind() == "init_declarator" {
        return declarator.child_by_field_name("declarator").unwrap_or(declarator);
    }
    declarator
}

/// Returns the identifier that a declarator declares.
pub(crate) fn declared_name(declarator: Node<'_>) -> Option<Node<'_>> {
    if declarator.kind() == "identifier" {
        return Some(declarator);
    }
    let inner = declarator.child_by_field_name("declarator").or_else(|| {
        let wraps = matches!(declarator.kind(), "parenthesized_declarator" | "attributed_declarator");
        children(declarator)
            .find(|child| wraps && (child.kind() == "identifier" || child.kind().ends_with("declarator")))
    });
    declared_name(inner?)
}

/// Returns whether a declarator declares a function, and not a pointer to a function.
pub(crate) fn declares_function(declarator: Node<'_>) -> bool {
    match declarator.kind() {
        "function_declarator" => {
            let inner = declarator.child_by_field_name("declarator");
            inner.is_some_and(|inner| inner.kind() == "identifier")
        }
        "pointer_declarator" | "init_declarator" => {
            declarator.child_by_field_name("declarator").is_some_and(declares_function)
        }
        _ => false,
    }
}
