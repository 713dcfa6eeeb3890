//! Fifth pass: refuses lookups that depend on each other.
//!
//! The author of a batch loop guarantees that its lookups are independent. This pass refuses the
//! violations that it can detect: outer variables that lookups change, locations that all lookups
//! write, and calls whose order is visible.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::Node;

use crate::batch::Batch;
use crate::reach::Reach;
use crate::refusal::{Pass, refuse};
use crate::source::ANNOTATIONS;
use crate::unit::{Unit, Variable, children, declarators, declared_name, walk};

/// Functions that return more than once, or whose memory is freed with the stack frame of the
/// caller.
const STACK_CALLS: &[&str] =
    &["setjmp", "sigsetjmp", "_setjmp", "longjmp", "alloca", "__builtin_alloca", "vfork", "__builtin_return_address"];
/// Functions whose order of calls is visible.
const ORDERED_CALLS: &[&str] = &[
    "printf", "puts", "putchar", "fprintf", "vprintf", "fputs", "fputc", "putc", "fwrite", "fread", "write", "read",
    "getchar", "fgets", "scanf", "fscanf", "rand", "random", "strtok", "exit", "abort", "_exit",
];

/// Refuses a batch whose lookups visibly depend on each other.
pub(crate) fn check(unit: &Unit<'_>, reach: &Reach, batch: &Batch<'_>) -> Pass<()> {
    let Some(function) = unit.functions.get(&batch.function) else { return Ok(()) };
    let mut check = Check {
        unit,
        reach,
        outer: crate::scope::at_loop(unit, function, batch.node),
        index: &batch.index,
        locals: Vec::new(),
        in_root: true,
        reductions: BTreeMap::new(),
        reads: BTreeMap::new(),
        fields: BTreeSet::new(),
        seen: BTreeSet::new(),
        pending: Vec::new(),
    };
    unit.sound(batch.body)?;
    check.locals.push(BTreeSet::new());
    check.node(batch.body)?;
    check.in_root = false;
    while let Some(name) = check.pending.pop() {
        let Some(function) = unit.functions.get(name).filter(|_| check.seen.insert(name)) else { continue };
        if reach.expensive.contains(name) {
            unit.sound(function.body)?;
        }
        let parameters = function.parameters.iter().filter_map(|one| one.child_by_field_name("declarator"));
        check.locals = vec![parameters.filter_map(declared_name).map(|name| unit.text(name)).collect()];
        check.node(function.body)?;
    }
    check.finish(batch)
}

/// Operation on a shared variable whose result does not depend on the order of the lookups.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Reduction {
    Up,
    Down,
    Add,
    Or,
    And,
    Xor,
    /// All lookups assign this constant.
    Set(String),
}

/// Use of the variable at the beginning of an expression.
enum Use<'t> {
    Read,
    Assign { operator: &'t str, node: Node<'t> },
    Address { node: Node<'t> },
}

/// State of the check.
struct Check<'u, 't> {
    unit: &'u Unit<'t>,
    reach: &'u Reach,
    /// Variables in scope at the loop.
    outer: BTreeMap<&'t str, Variable<'t>>,
    /// Name of the loop index.
    index: &'u str,
    /// Local variables of the current function, by block.
    locals: Vec<BTreeSet<&'t str>>,
    /// Whether the current node is in the batch loop itself, and not in a called function.
    in_root: bool,
    /// Shared variables that lookups change, with byte offsets.
    reductions: BTreeMap<&'t str, (Reduction, usize)>,
    /// Shared variables that lookups read, with byte offsets.
    reads: BTreeMap<&'t str, usize>,
    /// Fields that lookups assign.
    fields: BTreeSet<&'t str>,
    /// Called functions that are already checked.
    seen: BTreeSet<&'t str>,
    /// Called functions to check.
    pending: Vec<&'t str>,
}

impl<'t> Check<'_, 't> {
    fn node(&mut self, node: Node<'t>) -> Pass<()> {
        match node.kind() {
            "compound_statement" | "for_statement" => {
                self.locals.push(BTreeSet::new());
                children(node).try_for_each(|child| self.node(child))?;
                self.locals.pop();
                return Ok(());
            }
            "declaration" => {
                if self.unit.has_word(node, "static") && !self.unit.has_word(node, "const") {
                    return refuse(node.start_byte(), "a static variable is shared by all lookups");
                }
                if self.unit.has_word(node, "volatile") {
                    return refuse(node.start_byte(), "the order of accesses to a volatile variable would change");
                }
                for declarator in declarators(node) {
                    let name = declared_name(declarator).map(|name| self.unit.text(name));
                    // A variable is in scope from its initialiser.
                    if let (Some(name), Some(scope)) = (name, self.locals.last_mut()) {
                        scope.insert(name);
                    }
                    self.node(declarator)?;
                }
                return Ok(());
            }
            "call_expression" => self.call(node)?,
            "identifier" => return self.identifier(node),
            "sizeof_expression" | "alignof_expression" | "offsetof_expression" => return Ok(()),
            "assignment_expression" | "update_expression" => {
                let field = node.child_by_field_name("left").or_else(|| node.child_by_field_name("argument"));
                let field = field.and_then(|left| left.child_by_field_name("field"));
                self.fields.extend(field.map(|field| self.unit.text(field)));
            }
            _ => {}
        }
        children(node).try_for_each(|child| self.node(child))
    }

    fn call(&mut self, call: Node<'t>) -> Pass<()> {
        let Some(name) = self.unit.callee(call) else { return Ok(()) };
        let at = call.start_byte();
        if ANNOTATIONS.contains(&name) {
            return self.annotation(call, name);
        }
        if STACK_CALLS.contains(&name) {
            return refuse(at, format!("{name} depends on the stack, which lookups do not have"));
        }
        if ORDERED_CALLS.contains(&name) && !self.unit.functions.contains_key(name) {
            return refuse(at, format!("{name} inside the lookup: the order of its calls would change"));
        }
        if self.unit.functions.contains_key(name) {
            self.pending.push(name);
        }
        Ok(())
    }

    /// Checks an annotation. If its macro is empty, the output evaluates the address and the input
    /// does not. The address must therefore have no side effects.
    fn annotation(&mut self, call: Node<'t>, name: &str) -> Pass<()> {
        let Some(arguments) = call.child_by_field_name("arguments").filter(|list| list.named_child_count() == 1) else {
            return refuse(call.start_byte(), format!("{name} takes one address"));
        };
        let mut fault = Ok(());
        walk(arguments, &mut |node| {
            let effect = match node.kind() {
                "assignment_expression" | "update_expression" => true,
                "call_expression" if name == "g_expensive" => {
                    let callee = self.unit.callee(node);
                    callee.is_none_or(|callee| {
                        !self.unit.source.macros.has(callee) || self.unit.source.macros.assigns(callee)
                    }) && !cast(node)
                }
                "call_expression" => self.unit.callee(node).is_some_and(|callee| self.reach.expensive.contains(callee)),
                _ => false,
            };
            if effect && fault.is_ok() {
                fault = refuse(
                    node.start_byte(),
                    format!("the address of {name} has a side effect or a call: compute the address before"),
                );
            }
            fault.is_ok()
        });
        fault
    }

    /// Returns the variable of a name, if all lookups share it.
    fn shared(&self, name: &str) -> Option<Variable<'t>> {
        if self.locals.iter().any(|scope| scope.contains(name)) {
            return None;
        }
        let outer = self.outer.get(name).filter(|_| self.in_root);
        outer.or_else(|| self.unit.globals.get(name)).copied()
    }

    fn identifier(&mut self, node: Node<'t>) -> Pass<()> {
        let name = self.unit.text(node);
        let at = node.start_byte();
        if name.starts_with("gopt_") && !self.unit.functions.contains_key(name) && !self.unit.source.macros.has(name) {
            return refuse(at, "names that begin with gopt_ are reserved for gopt");
        }
        if matches!(name, "__func__" | "__FUNCTION__" | "__PRETTY_FUNCTION__") {
            return refuse(at, format!("{name} would name another function"));
        }
        if self.unit.source.macros.has(name) && !ANNOTATIONS.contains(&name) {
            self.expansion(node, name)?;
        }
        let local = self.locals.iter().any(|scope| scope.contains(name));
        let callee =
            node.parent().is_some_and(|parent| self.unit.callee(parent).is_some() && parent.child(0) == Some(node));
        if self.reach.expensive.contains(name) && !callee && !local {
            return refuse(
                at,
                format!("{name} has expensive accesses and is used as a value: gopt can inline direct calls only"),
            );
        }
        if name == self.index && self.in_root && !local {
            return match self.use_of(node) {
                (Use::Read, ..) => Ok(()),
                _ => refuse(at, format!("the lookup changes the index {name} of the batch loop")),
            };
        }
        let Some(variable) = self.shared(name) else {
            let (used, deep, _) = self.use_of(node);
            if let (Use::Assign { .. }, false, false, false) = (used, deep, local, callee) {
                return refuse(at, format!("{name}, which is not declared in this file, is changed by lookups"));
            }
            return Ok(());
        };
        self.shared_use(node, name, variable)
    }

    fn shared_use(&mut self, node: Node<'t>, name: &'t str, variable: Variable<'t>) -> Pass<()> {
        let at = node.start_byte();
        if self.unit.has_word(variable.declaration, "volatile") {
            return refuse(at, format!("the order of accesses to {name}, which is volatile, would change"));
        }
        let array = variable.declarator.kind() == "array_declarator";
        let constant = self.unit.has_word(variable.declaration, "const")
            && matches!(variable.declarator.kind(), "identifier" | "array_declarator");
        let (used, deep, varies) = self.use_of(node);
        match used {
            Use::Read if deep || constant => Ok(()),
            Use::Read if array => self.decays(node, name),
            Use::Read => {
                self.reads.entry(name).or_insert(at);
                Ok(())
            }
            Use::Address { .. } if deep && varies || constant || in_annotation(self.unit, node) => Ok(()),
            Use::Address { node } if deep && self.only_read(node) => Ok(()),
            Use::Address { .. } => refuse(at, format!("the address of {name}, which all lookups share, is taken")),
            Use::Assign { .. } if deep && varies => Ok(()),
            Use::Assign { .. } if deep => refuse(
                at,
                format!("every lookup writes to the same location through {name}: the last write would change"),
            ),
            Use::Assign { operator, node: assignment } => self.reduce(name, variable, operator, assignment, at),
        }
    }

    /// Checks a shared array that is converted to a pointer.
    fn decays(&self, node: Node<'t>, name: &str) -> Pass<()> {
        if self.only_read(node) || in_annotation(self.unit, node) {
            return Ok(());
        }
        let reason = "an array that all lookups share, may be written here: declare it const, or inside the loop";
        refuse(node.start_byte(), format!("{name}, {reason}"))
    }

    /// Returns whether a pointer is assigned or passed to a pointer to `const` only.
    fn only_read(&self, node: Node<'t>) -> bool {
        let parent = node.parent();
        let declares = parent.filter(|parent| parent.kind() == "init_declarator").and_then(|parent| parent.parent());
        if declares.is_some_and(|declaration| self.unit.has_word(declaration, "const")) {
            return true;
        }
        let list = parent.filter(|parent| parent.kind() == "argument_list");
        list.is_some_and(|list| {
            let callee = list.parent().and_then(|call| self.unit.callee(call));
            let position = (0..list.named_child_count()).position(|index| list.named_child(index) == Some(node));
            let function = callee.and_then(|callee| self.unit.functions.get(callee));
            let parameter =
                function.zip(position).and_then(|(function, position)| function.parameters.get(position).copied());
            parameter.is_some_and(|parameter| self.unit.has_word(parameter, "const"))
        })
    }

    /// Returns the use of an expression that begins with a variable. The second value is true if
    /// the expression dereferences the variable. The third value is true if the location depends on
    /// the lookup.
    fn use_of(&self, identifier: Node<'t>) -> (Use<'t>, bool, bool) {
        let (mut node, mut deep, mut varies) = (identifier, false, false);
        while let Some(parent) = node.parent() {
            let is = |field: &str| parent.child_by_field_name(field) == Some(node);
            match parent.kind() {
                "parenthesized_expression" => {}
                "field_expression" if is("argument") => {
                    deep |=
                        parent.child_by_field_name("operator").is_some_and(|operator| self.unit.text(operator) == "->");
                }
                "subscript_expression" if is("argument") => {
                    deep = true;
                    varies |= parent.child_by_field_name("index").is_some_and(|index| self.belongs_to_lookup(index));
                }
                "cast_expression" => {}
                "binary_expression" => {
                    let operator =
                        parent.child_by_field_name("operator").map_or("", |operator| self.unit.text(operator));
                    let other = if is("left") { "right" } else { "left" };
                    if !matches!(operator, "+" | "-") {
                        return (Use::Read, deep, varies);
                    }
                    // The operand matters only for a pointer that an outer expression dereferences.
                    // A number is only read.
                    varies |= parent.child_by_field_name(other).is_some_and(|other| self.belongs_to_lookup(other));
                }
                "pointer_expression" => {
                    let address =
                        parent.child_by_field_name("operator").is_some_and(|operator| self.unit.text(operator) == "&");
                    if address {
                        return (Use::Address { node: parent }, deep, varies);
                    }
                    deep = true;
                }
                "assignment_expression" if is("left") => {
                    let operator =
                        parent.child_by_field_name("operator").map_or("=", |operator| self.unit.text(operator));
                    return (Use::Assign { operator, node: parent }, deep, varies);
                }
                "update_expression" => {
                    let operator =
                        parent.child_by_field_name("operator").map_or("++", |operator| self.unit.text(operator));
                    return (Use::Assign { operator, node: parent }, deep, varies);
                }
                _ => return (Use::Read, deep, varies),
            }
            node = parent;
        }
        (Use::Read, deep, varies)
    }

    /// Returns whether an expression contains a call, or a variable that belongs to the lookup.
    fn belongs_to_lookup(&self, expression: Node<'t>) -> bool {
        let mut found = false;
        walk(expression, &mut |node| {
            let name = (node.kind() == "identifier").then(|| self.unit.text(node));
            found |= node.kind() == "call_expression";
            found |=
                name.is_some_and(|name| name == self.index || self.locals.iter().any(|scope| scope.contains(name)));
            !found
        });
        found
    }

    /// Accepts changes of a shared variable whose result does not depend on the order: counts, sums
    /// and flags.
    fn reduce(&mut self, name: &'t str, variable: Variable<'t>, operator: &str, node: Node<'t>, at: usize) -> Pass<()> {
        let depends = || {
            refuse(at, format!("{name} is declared outside the lookup and changed by it: lookups depend on each other"))
        };
        let statement = node.parent().is_some_and(|parent| parent.kind() == "expression_statement");
        let target = node.child_by_field_name("left").or_else(|| node.child_by_field_name("argument"));
        if !statement
            || target.is_none_or(|target| target.kind() != "identifier")
            || variable.declarator.kind() != "identifier"
        {
            return depends();
        }
        let right = node.child_by_field_name("right");
        let literal = right.filter(|right| right.kind() == "number_literal").map(|right| self.unit.text(right));
        let class = integer(&self.unit.specifiers(variable.declaration));
        let reduction = match (operator, class) {
            ("=", _) => literal.map(|literal| Reduction::Set(literal.to_owned())),
            (_, None) => None,
            ("+=" | "-=" | "++" | "--", Some(false)) => Some(Reduction::Add),
            ("++", Some(true)) => Some(Reduction::Up),
            ("--", Some(true)) => Some(Reduction::Down),
            ("+=", Some(true)) => literal.map(|_| Reduction::Up),
            ("-=", Some(true)) => literal.map(|_| Reduction::Down),
            ("|=", _) => Some(Reduction::Or),
            ("&=", _) => Some(Reduction::And),
            ("^=", _) => Some(Reduction::Xor),
            _ => None,
        };
        let Some(reduction) = reduction else { return depends() };
        match self.reductions.get(name) {
            Some((other, _)) if *other != reduction => depends(),
            _ => {
                self.reductions.insert(name, (reduction, at));
                // The caller checks the right side, which may read other shared variables.
                Ok(())
            }
        }
    }

    /// Refuses a macro that hides C which gopt must analyse.
    fn expansion(&mut self, node: Node<'t>, name: &'t str) -> Pass<()> {
        let macros = &self.unit.source.macros;
        let at = node.start_byte();
        if let Some(word) = macros.jump(name) {
            return refuse(at, format!("the macro {name} hides {word}"));
        }
        let mentions = macros.mentions(name);
        if let Some(word) =
            mentions.iter().find(|word| ANNOTATIONS.contains(&word.as_str()) || self.reach.expensive.contains(*word))
        {
            return refuse(at, format!("the macro {name} hides {word}"));
        }
        if let Some(word) = mentions.iter().find(|word| STACK_CALLS.contains(&word.as_str())) {
            return refuse(at, format!("the macro {name} hides {word}"));
        }
        for word in &mentions {
            if let Some((word, _)) = self.unit.functions.get_key_value(word) {
                let function = &self.unit.functions[word];
                self.pending.push(self.unit.text(declared_name_of(function.node)));
            }
        }
        if macros.assigns(name) {
            let hidden = mentions.iter().find(|word| {
                self.shared(word).is_some_and(|one| !self.unit.has_word(one.declaration, "const"))
                    || *word == self.index
            });
            if let Some(word) = hidden {
                return refuse(at, format!("the macro {name} may change {word}, which all lookups share"));
            }
            let arguments = node.parent().and_then(|call| call.child_by_field_name("arguments"));
            let mut fault = Ok(());
            if let Some(arguments) = arguments {
                walk(arguments, &mut |inner| {
                    let word = (inner.kind() == "identifier").then(|| self.unit.text(inner));
                    let shared = word.filter(|word| {
                        let variable = self.shared(word).filter(|one| !self.unit.has_word(one.declaration, "const"));
                        variable.is_some()
                            || self.in_root
                                && *word == self.index
                                && !self.locals.iter().any(|scope| scope.contains(word))
                    });
                    if let Some(word) = shared {
                        fault = refuse(
                            inner.start_byte(),
                            format!("the macro {name} may change {word}, which all lookups share"),
                        );
                    }
                    fault.is_ok()
                });
            }
            fault?;
        }
        Ok(())
    }

    /// Checks the batch as a whole, after all nodes.
    fn finish(&self, batch: &Batch<'_>) -> Pass<()> {
        for (name, (_, at)) in &self.reductions {
            if self.reads.contains_key(name) {
                return refuse(
                    *at,
                    format!(
                        "{name} is declared outside the lookup, changed by it and read by others: lookups depend on each other"
                    ),
                );
            }
        }
        let words = crate::lexer::tokens(&batch.header.condition);
        let changed = |word: &str| self.reductions.contains_key(word) || self.fields.contains(word);
        if let Some(word) = words.iter().find(|word| changed(word.text)) {
            return refuse(
                batch.node.start_byte(),
                format!("the number of lookups depends on {}, which lookups change", word.text),
            );
        }
        Ok(())
    }
}

fn declared_name_of(function: Node<'_>) -> Node<'_> {
    function.child_by_field_name("declarator").and_then(declared_name).unwrap_or(function)
}

/// Returns whether a call is a cast, such as `(T)(x)`, which the parser reports as a call.
fn cast(call: Node<'_>) -> bool {
    call.child_by_field_name("function").is_some_and(|function| function.kind() == "parenthesized_expression")
}

/// Returns whether a node is in the address of an annotation.
fn in_annotation(unit: &Unit<'_>, node: Node<'_>) -> bool {
    let mut around = node.parent();
    while let Some(parent) = around {
        if unit.callee(parent).is_some_and(|name| ANNOTATIONS.contains(&name)) {
            return true;
        }
        around = parent.parent();
    }
    false
}

/// Returns `Some(signed)` for a type that is known to be an integer.
fn integer(specifiers: &str) -> Option<bool> {
    let unsigned = specifiers.split(' ').any(|word| word == "unsigned")
        || specifiers == "size_t"
        || specifiers.starts_with("uint") && specifiers.ends_with("_t")
        || matches!(specifiers, "gw_u8" | "gw_u16" | "gw_u32" | "gw_u64" | "u8" | "u16" | "u32" | "u64");
    if unsigned {
        return Some(false);
    }
    let signed = specifiers.split(' ').all(|word| matches!(word, "int" | "long" | "short" | "char" | "signed"))
        || specifiers.starts_with("int") && specifiers.ends_with("_t")
        || matches!(specifiers, "ssize_t" | "ptrdiff_t");
    signed.then_some(true)
}
