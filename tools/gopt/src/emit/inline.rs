//! Calls of functions with expensive accesses, which are replaced by a copy of the body.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tree_sitter::Node;

use crate::refusal::{Pass, refuse};
use crate::unit::{Function, Variable, children, declared_name};

use super::{Binding, Context, Emitter, Entry, Return, changed, type_key};

impl<'t> Emitter<'_, 't> {
    /// Writes the copy of a called function to `before` and returns the value of the call.
    pub(super) fn inlined(
        &mut self,
        call: Node<'t>,
        name: &str,
        context: &mut Context<'_, 't>,
        single: bool,
        before: &mut String,
    ) -> Pass<String> {
        let unit = self.unit;
        let at = call.start_byte();
        let Some(function) = unit.functions.get(name) else {
            return refuse(at, format!("{name} is not defined in this file"));
        };
        let list = call.child_by_field_name("arguments");
        let arguments: Vec<_> = list.map(|list| children(list).filter(Node::is_named).collect()).unwrap_or_default();
        if function.variadic || arguments.len() != function.parameters.len() {
            return refuse(at, format!("{name} is called with a wrong number of arguments"));
        }
        self.captures(function, call)?;
        self.copies += 1;
        let copy = self.copies;
        let mut scope = BTreeMap::new();
        let mut inner =
            Context { function, region: function.body, scopes: Vec::new(), copy, returns: None, around: Vec::new() };
        let mut sets = String::new();
        for (parameter, argument) in function.parameters.iter().zip(arguments) {
            let text = self.lower(argument, context, single, before)?;
            let declarator = parameter.child_by_field_name("declarator");
            let Some((declarator, parameter_name)) = declarator.and_then(|one| Some((one, declared_name(one)?))) else {
                write!(sets, "(void)({text}); ").expect("writing to a String");
                continue;
            };
            let parameter_name = unit.text(parameter_name);
            let variable = Variable { declaration: *parameter, declarator };
            let steady = !changed(unit, function.body, parameter_name);
            let key = type_key(unit, variable);
            let alias = steady.then(|| self.alias(argument, &key, &text, context)).flatten();
            let points_at_steady = alias.is_some() && self.points_at_steady(argument, context);
            let binding = match alias {
                Some(alias) => Binding::Alias(alias),
                None => {
                    let (binding, mark) = self.lasting(parameter_name, variable, &inner)?;
                    let name = Entry::new(binding.clone(), String::new(), steady).text(parameter_name);
                    writeln!(sets, "{mark}{name} = {text};").expect("writing to a String");
                    if steady && self.is_repeatable(argument, context) {
                        self.set_recomputation(&name, &format!("{name} = {text}"));
                    }
                    binding
                }
            };
            scope.insert(parameter_name, Entry { binding, type_key: key, steady, points_at_steady });
        }
        let result = (!function.returns.is_empty()).then(|| self.temporary(&function.returns, single, before));
        let last = children(function.body).filter(Node::is_named).last();
        inner.scopes.push(scope);
        inner.returns = Some(Return {
            result: result.clone(),
            label: format!("{}end_{copy}", self.labels_begin),
            used: false,
            last: last.map(|last| last.id()),
        });
        let body = self.block(function.body, &mut inner)?;
        let label = inner
            .returns
            .filter(|returns| returns.used)
            .map_or_else(String::new, |returns| format!("{}:;\n", returns.label));
        write!(before, "{{ /* {name} */\n{sets}{body}\n{label}}} ").expect("writing to a String");
        Ok(result.unwrap_or_else(|| "(void)0".to_owned()))
    }

    /// Returns the text that replaces a parameter that never changes, if the argument has the same
    /// type.
    fn alias(&self, argument: Node<'t>, key: &str, text: &str, context: &Context<'_, 't>) -> Option<String> {
        let unit = self.unit;
        match argument.kind() {
            "identifier" => {
                let entry = context.entry(unit.text(argument))?;
                let fits = entry.steady && entry.type_key == key && !entry.type_key.contains('[');
                // A local variable that is not saved does not exist after a switch.
                let lasts = !matches!(entry.binding, Binding::Renamed(_))
                    && (self.outer(unit.text(argument), context) || !matches!(entry.binding, Binding::Kept));
                (fits && lasts).then(|| text.to_owned())
            }
            "pointer_expression" => {
                let inner = argument.child_by_field_name("argument").filter(|inner| inner.kind() == "identifier")?;
                let operator = argument.child_by_field_name("operator").map(|operator| unit.text(operator));
                let entry = context.entry(unit.text(inner)).filter(|_| operator == Some("&"))?;
                let fits = matches!(entry.binding, Binding::Moved(_) | Binding::Member(_))
                    && format!("{}*", entry.type_key) == key;
                fits.then(|| format!("({text})"))
            }
            "number_literal" => {
                let specifiers = key.strip_suffix('|')?;
                Some(format!("(({specifiers}){text})"))
            }
            _ => None,
        }
    }

    /// Returns whether the argument for an alias is the address of a steady variable.
    fn points_at_steady(&self, argument: Node<'t>, context: &Context<'_, 't>) -> bool {
        if argument.kind() == "identifier" {
            return context.entry(self.unit.text(argument)).is_some_and(|entry| entry.points_at_steady);
        }
        let name = argument.child_by_field_name("argument").filter(|_| argument.kind() == "pointer_expression");
        let entry = name.and_then(|name| context.entry(self.unit.text(name)));
        entry.is_some_and(|entry| entry.steady && matches!(entry.binding, Binding::Moved(_)))
    }

    /// Returns whether a name is a variable outside the batch loop.
    pub(super) fn outer(&self, name: &str, context: &Context<'_, 't>) -> bool {
        context.copy == 0
            && context.scopes.first().is_some_and(|scope| scope.contains_key(name))
            && !context.scopes.iter().skip(1).any(|scope| scope.contains_key(name))
    }

    /// Refuses a copy in which a name of the file would refer to a local variable of the caller.
    fn captures(&self, function: &Function<'t>, call: Node<'t>) -> Pass<()> {
        let unit = self.unit;
        for (name, _) in crate::scope::free_in(unit, function) {
            let expands = unit.source.macros.mentions(name);
            let word = Some(name).filter(|name| self.kept.contains(name));
            let word = word.or_else(|| expands.iter().map(String::as_str).find(|word| self.kept.contains(word)));
            if let Some(word) = word {
                return refuse(
                    call.start_byte(),
                    format!(
                        "{} uses {word} of the file, but {word} is a local variable at the call: rename one of them",
                        function.name
                    ),
                );
            }
        }
        Ok(())
    }
}
