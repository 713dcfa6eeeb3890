//! Text of expressions and declarations, with the new names.

use super::{Context, Emitter};
use crate::error::{Pass, refuse};
use crate::syntax::ast::{DeclId, DeclKind, Span, Storage};
use crate::syntax::types::{Enumeration, Kind, Record, Type};

impl<'u> Emitter<'u> {
    /// Returns tokens with the new names.
    pub(super) fn text(&mut self, span: Span, context: &Context<'u>) -> Pass<String> {
        let mut text = String::new();
        for at in span.first..span.end {
            let expanded = &self.unit.expanded;
            if at > span.first {
                if expanded.on_new_line(at) {
                    text.push('\n');
                } else if expanded.spaced(at) {
                    text.push(' ');
                }
            }
            let word = expanded.word(at);
            let renamed = match self.unit.resolved.get(&at) {
                Some(id) => Some(self.name(*id, at, context)?),
                None => self.unit.tags.get(&at).and_then(|number| self.types.get(number)).cloned(),
            };
            match renamed {
                Some(renamed) => text.push_str(&renamed),
                None if context.copy > 0 && matches!(word, "__func__" | "__FUNCTION__" | "__PRETTY_FUNCTION__") => {
                    text.push_str(&format!("\"{}\"", self.unit.declaration(context.function).name));
                }
                None => text.push_str(word),
            }
        }
        Ok(text)
    }

    /// Returns the text of a declared name.
    pub(super) fn name(&mut self, id: DeclId, at: usize, context: &Context<'u>) -> Pass<String> {
        let unit = self.unit;
        let declaration = unit.declaration(id);
        if let Some(entry) = context.names.get(&id).or(self.file_inductions.get(&id)) {
            return Ok(entry.text(&declaration.name));
        }
        if let Some(name) = self.typedefs.get(&id) {
            return Ok(name.clone());
        }
        let of_file = matches!(declaration.kind, DeclKind::Function | DeclKind::Variable(Storage::Global));
        let hidden = context.copy > 0 && self.outer.contains(declaration.name.as_str());
        if !hidden {
            return Ok(declaration.name.clone());
        }
        if of_file || matches!(declaration.kind, DeclKind::Variable(Storage::ThreadLocal)) {
            return Ok(self.file_name(id));
        }
        if declaration.kind == DeclKind::Constant
            && let Some(value) = declaration.initializer.as_ref().and_then(|value| value.expressions()[0].constant())
        {
            return Ok(value.to_string());
        }
        refuse(
            at,
            format!(
                "{} uses {} of the file, but {} is a local variable at the call: rename one of them",
                unit.declaration(context.function).name,
                declaration.name,
                declaration.name
            ),
        )
    }

    /// Returns a name for a file-level variable or function that a local variable hides.
    fn file_name(&mut self, id: DeclId) -> String {
        if let Some(name) = self.file_names.get(&id) {
            return format!("(*{name})");
        }
        let name = self.fresh(&format!("gopt_file_{}", self.unit.declaration(id).name));
        self.file_names.insert(id, name.clone());
        format!("(*{name})")
    }

    /// Returns declarations of pointers to hidden file-level variables and functions.
    pub(super) fn file_declarations(&self) -> String {
        let line = |(id, name): (&DeclId, &String)| {
            let original = &self.unit.declaration(*id).name;
            format!("static __typeof__({original}) *const {name} = &{original};\n")
        };
        self.file_names.iter().map(line).collect()
    }

    /// Returns a variable declaration with a type that supports assignment.
    pub(super) fn assignable(&mut self, ty: &Type, name: &str, at: usize, context: &Context<'u>) -> Pass<String> {
        let mut ty = ty.unqualified();
        // Element qualifiers are those of the array, and `typedef` names may contain them.
        if let Kind::Array { element, size } = &*ty.resolved().kind {
            let mut inner = element.clone();
            inner.constant = false;
            ty = Type::new(Kind::Array { element: inner, size: size.clone() });
            if let Kind::Array { element: deeper, size: inner_size } = &*element.resolved().kind {
                let mut deeper = deeper.clone();
                deeper.constant = false;
                let element = Type::new(Kind::Array { element: deeper, size: inner_size.clone() });
                ty = Type::new(Kind::Array { element, size: size.clone() });
            }
        }
        let resolved = ty.resolved();
        if resolved.constant || resolved.volatile {
            ty = resolved.unqualified();
        }
        self.declared(&ty, name, at, context)
    }

    /// Returns the declaration of a name of a type.
    pub(super) fn declared(&mut self, ty: &Type, name: &str, at: usize, context: &Context<'u>) -> Pass<String> {
        let mut words = String::new();
        if ty.constant {
            words += "const ";
        }
        if ty.volatile {
            words += "volatile ";
        }
        let spaced = |words: String, base: &str, name: &str| {
            if name.is_empty() { format!("{words}{base}") } else { format!("{words}{base} {name}") }
        };
        match &*ty.kind {
            Kind::Pointer(target) => {
                let inner = format!("*{words}{name}");
                let nested = matches!(&*target.kind, Kind::Array { .. } | Kind::Function { .. });
                self.declared(target, &if nested { format!("({inner})") } else { inner }, at, context)
            }
            Kind::Array { element, size } => {
                let size = match size {
                    Some(size) => self.text(size.span, context)?,
                    None => String::new(),
                };
                let mut element = element.clone();
                element.constant |= ty.constant;
                self.declared(&element, &format!("{name}[{size}]"), at, context)
            }
            Kind::Function { result, parameters, variadic } => {
                let mut list = Vec::new();
                for one in parameters {
                    list.push(self.declared(one, "", at, context)?);
                }
                if *variadic {
                    list.push("...".to_owned());
                }
                let list = if list.is_empty() { "void".to_owned() } else { list.join(", ") };
                self.declared(result, &format!("{name}({list})"), at, context)
            }
            Kind::Void => Ok(spaced(words, "void", name)),
            Kind::Integer { name: base, .. } => Ok(spaced(words, base, name)),
            Kind::Floating(base) => Ok(spaced(words, base, name)),
            Kind::Named { name: base, declaration, .. } => {
                let base = self.typedefs.get(declaration).cloned().unwrap_or_else(|| base.clone());
                Ok(spaced(words, &base, name))
            }
            Kind::Record(record) => {
                let base = self.record_name(record, at, context)?;
                Ok(spaced(words, &base, name))
            }
            Kind::Enum(enumeration) => {
                let base = self.enum_name(enumeration, at)?;
                Ok(spaced(words, &base, name))
            }
            Kind::Vector(_) => refuse(at, "a vector without a typedef name: declare its type with typedef"),
            Kind::Unknown(base) if !base.is_empty() => Ok(spaced(words, base, name)),
            Kind::Unknown(_) => refuse(at, "gopt does not know this type: name it in the declaration"),
        }
    }

    fn record_name(&mut self, record: &Record, at: usize, context: &Context<'u>) -> Pass<String> {
        let word = if record.is_union { "union" } else { "struct" };
        if !record.local {
            return match &record.tag {
                Some(tag) => Ok(format!("{word} {tag}")),
                None => refuse(at, "a variable of a type without a name: give the type a name"),
            };
        }
        if let Some(name) = self.types.get(&record.number) {
            return Ok(format!("{word} {name}"));
        }
        // A local type that the loop uses is declared before the loop.
        let inside = record.body.get().is_some_and(|body| self.is_moved_type(body, context));
        if let (false, Some(tag)) = (inside, &record.tag) {
            return Ok(format!("{word} {tag}"));
        }
        let name = self.fresh(&format!("gopt_{}", record.tag.as_deref().unwrap_or("type")));
        self.types.insert(record.number, name.clone());
        let mut fields = String::new();
        for field in record.fields.borrow().iter() {
            let named = field.name.clone().unwrap_or_default();
            let mut line = match (&field.name, field.ty.record()) {
                (None, Some(inner)) if inner.tag.is_none() => self.anonymous(&inner, at, context)?,
                _ => self.declared(&field.ty, &named, at, context)?,
            };
            if let Some(bits) = &field.bits {
                line += &format!(" : {}", self.text(bits.span, context)?);
            }
            for attribute in &field.attributes {
                line += &format!(" {}", self.text(*attribute, context)?);
            }
            fields += &format!("    {line};\n");
        }
        let mut after = String::new();
        for attribute in record.attributes.borrow().iter() {
            after += &format!(" {}", self.text(*attribute, context)?);
        }
        self.hoisted.push(format!("{word} {name} {{\n{fields}}}{after};"));
        Ok(format!("{word} {name}"))
    }

    /// Returns the definition of an anonymous record inside a record.
    fn anonymous(&mut self, record: &Record, at: usize, context: &Context<'u>) -> Pass<String> {
        let mut fields = String::new();
        for field in record.fields.borrow().iter() {
            let named = field.name.clone().unwrap_or_default();
            let mut line = match (&field.name, field.ty.record()) {
                (None, Some(inner)) if inner.tag.is_none() => self.anonymous(&inner, at, context)?,
                _ => self.declared(&field.ty, &named, at, context)?,
            };
            if let Some(bits) = &field.bits {
                line += &format!(" : {}", self.text(bits.span, context)?);
            }
            fields += &format!("{line}; ");
        }
        Ok(format!("{} {{ {fields}}}", if record.is_union { "union" } else { "struct" }))
    }

    fn enum_name(&mut self, enumeration: &Enumeration, at: usize) -> Pass<String> {
        match (&enumeration.tag, self.types.get(&enumeration.number)) {
            (_, Some(name)) => Ok(format!("enum {name}")),
            (Some(tag), _) => Ok(format!("enum {tag}")),
            // Its constants are integers.
            (None, _) if enumeration.local => Ok("int".to_owned()),
            (None, _) => refuse(at, "a variable of an enumeration without a name: give it a name"),
        }
    }

    /// Returns whether a type is defined in code that the output copies.
    fn is_moved_type(&self, body: Span, context: &Context<'u>) -> bool {
        context.copy > 0 || self.site.body.span.contains(body)
    }

    /// Returns whether a variable is outside the batch loop.
    pub(super) fn is_outer(&self, id: DeclId, context: &Context<'u>) -> bool {
        !context.names.contains_key(&id) && context.copy == 0 && self.unit.declaration(id).is_automatic()
    }
}
