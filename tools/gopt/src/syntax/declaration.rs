//! Declarations: specifiers, records, enumerations, and declarations of the file.

use std::rc::Rc;

use super::ast::{DeclId, DeclKind, Declaration, InitItem, InitList, Initializer, Span, Storage};
use super::types::{Enumeration, Field, Kind, Record, Type};
use super::{Function, Tag, Unit, Unparsed};
use crate::error::{Pass, refuse};
use crate::lexer;

/// Specifiers of a declaration.
#[derive(Clone, Default)]
pub(super) struct Specifiers {
    pub(super) ty: Option<Type>,
    pub(super) is_typedef: bool,
    pub(super) is_static: bool,
    pub(super) is_extern: bool,
    thread_local: bool,
    /// `__auto_type`, or `auto` without a type.
    pub(super) inferred: bool,
    pub(super) attributes: Vec<Span>,
}

/// Words that begin a declaration, apart from names of types.
const TYPE_WORDS: &[&str] = &[
    "void",
    "char",
    "short",
    "int",
    "long",
    "float",
    "double",
    "signed",
    "unsigned",
    "_Bool",
    "_Complex",
    "struct",
    "union",
    "enum",
    "typedef",
    "extern",
    "static",
    "auto",
    "register",
    "_Thread_local",
    "__thread",
    "inline",
    "__inline",
    "__inline__",
    "_Noreturn",
    "const",
    "__const",
    "__const__",
    "volatile",
    "__volatile__",
    "__volatile",
    "restrict",
    "__restrict",
    "__restrict__",
    "_Atomic",
    "__signed__",
    "__signed",
    "__complex__",
    "__int128",
    "typeof",
    "__typeof__",
    "__typeof",
    "typeof_unqual",
    "__auto_type",
    "_Alignas",
    "alignas",
    "__float128",
    "_Float128",
    "_Float64",
    "_Float32",
    "_Float32x",
    "_Float64x",
    "_Float16",
    "__fp16",
    "__bf16",
    "_Decimal32",
    "_Decimal64",
    "_Decimal128",
    "_BitInt",
    "thread_local",
    "constexpr",
];

impl Unit {
    /// Parses all external declarations. One that cannot be parsed is skipped.
    pub(super) fn file(&mut self) {
        while self.at < self.expanded.tokens.len() {
            let first = self.at;
            if let Err(fault) = self.external() {
                self.at = first;
                self.scopes.truncate(1);
                self.skip_external();
                let span = self.span(first);
                self.unparsed.push(Unparsed { span, fault });
            }
            if self.at == first {
                self.at += 1;
            }
            self.externals.push(self.span(first));
        }
    }

    /// Skips tokens up to the end of an external declaration.
    fn skip_external(&mut self) {
        let mut assigned = false;
        while self.at < self.expanded.tokens.len() {
            match self.word().to_owned().as_str() {
                ";" => {
                    self.at += 1;
                    return;
                }
                "=" => assigned = true,
                "{" => {
                    let function = self.at > 0 && !assigned && !matches!(self.expanded.word(self.at - 1), "=" | ",");
                    if self.skip_group().is_err() {
                        self.at = self.expanded.tokens.len();
                    }
                    // A declarator may follow the braces of a record.
                    if function && self.word() != ";" && !self.continues_declaration() {
                        return;
                    }
                    continue;
                }
                "(" | "[" if self.skip_group().is_ok() => continue,
                _ => {}
            }
            self.at += 1;
        }
    }

    fn continues_declaration(&self) -> bool {
        let same_line = !self.expanded.on_new_line(self.at);
        same_line && (self.is_identifier() || matches!(self.word(), "*" | "=" | "," | "["))
    }

    fn external(&mut self) -> Pass<()> {
        let first = self.at;
        if self.accept(";") {
            return Ok(());
        }
        if self.word().starts_with('#') {
            self.at += 1;
            return Ok(());
        }
        if matches!(self.word(), "asm" | "__asm__" | "__asm") {
            self.at += 1;
            self.skip_group()?;
            return self.expect(";");
        }
        if self.word() == "extern" && self.expanded.word(self.at + 1).starts_with('"') {
            self.at += 2;
            // The declarations in the braces are external ones.
            if !self.accept("{") {
                return self.external();
            }
            return Ok(());
        }
        if self.word() == "}" && self.expanded.cplusplus {
            self.at += 1;
            return Ok(());
        }
        if self.static_assertion()? {
            return Ok(());
        }
        let specifiers = self.specifiers()?;
        if self.accept(";") {
            return Ok(());
        }
        let mut is_first = true;
        loop {
            let id = self.init_declarator(&specifiers, first, is_first)?;
            is_first = false;
            if self.functions.get(&id).is_some_and(|function| function.span.first == first) {
                return Ok(());
            }
            if self.accept(";") {
                return Ok(());
            }
            self.expect(",")?;
        }
    }

    /// Parses one declarator of a declaration, with its initialiser or body.
    fn init_declarator(&mut self, specifiers: &Specifiers, first: usize, may_define: bool) -> Pass<DeclId> {
        self.last_parameters = None;
        let base = specifiers.ty.clone().unwrap_or_else(Type::int);
        let found = self.declarator(base)?;
        let Some(token) = found.name else { return self.unexpected("a name") };
        let name = self.expanded.word(token).to_owned();
        let parameters = self.last_parameters.take();
        let old_style = found.ty.is_function() && may_define && self.is_type_start(self.at);
        if old_style {
            self.old_style_parameters(parameters.as_ref().map_or(&[], |(ids, _)| ids))?;
        }
        let mut attributes = [specifiers.attributes.clone(), found.attributes].concat();
        attributes.extend(self.trailing_attributes()?);
        let mut found_type = found.ty;
        if self.says(&attributes, &["vector_size", "__vector_size__", "ext_vector_type"]) {
            found_type = Type::new(Kind::Vector(found_type));
        }
        let is_function = found_type.is_function();
        let kind = self.kind_of(specifiers, is_function);
        // All declarations of a function or variable of the file are one.
        let of_file = is_function || matches!(kind, DeclKind::Variable(Storage::Global));
        let known = of_file.then(|| self.named(&name)).flatten();
        let known = known.filter(|id| self.declaration(*id).kind == kind);
        let pure = self.says_pure(&attributes);
        let id = match known {
            Some(id) => {
                if let Some(scope) = self.scopes.last_mut() {
                    scope.names.insert(name.clone(), id);
                }
                // A later declaration may complete the type of an array.
                if !is_function && found_type.is_array() {
                    self.declarations[id.0].ty = found_type.clone();
                }
                id
            }
            None => self.declare(&name, kind, found_type.clone(), token),
        };
        self.resolved.insert(token, id);
        let cleanup = self.says(&attributes, &["cleanup", "__cleanup__"]);
        let declaration = &mut self.declarations[id.0];
        declaration.pure |= pure;
        declaration.is_static |= specifiers.is_static;
        declaration.cleanup = cleanup;
        declaration.attributes.extend(attributes.into_iter().filter(|_| !is_function));
        if is_function && self.word() == "{" && may_define && !self.is_local() {
            return self.define(id, found_type, parameters, first);
        }
        if self.accept("=") {
            let value = self.initializer()?;
            if specifiers.inferred
                && let Initializer::Expression(value) = &value
            {
                self.declarations[id.0].ty = value.ty.decayed().unqualified();
            }
            self.declarations[id.0].initializer = Some(Rc::new(value));
        }
        Ok(id)
    }

    fn kind_of(&self, specifiers: &Specifiers, is_function: bool) -> DeclKind {
        if specifiers.is_typedef {
            return DeclKind::Typedef;
        }
        if is_function {
            return DeclKind::Function;
        }
        DeclKind::Variable(match (specifiers.thread_local, self.is_local()) {
            (true, _) => Storage::ThreadLocal,
            (false, false) => Storage::Global,
            (false, true) if specifiers.is_extern => Storage::Global,
            (false, true) if specifiers.is_static => Storage::Static,
            (false, true) => Storage::Automatic,
        })
    }

    fn define(&mut self, id: DeclId, ty: Type, parameters: Option<(Vec<DeclId>, bool)>, first: usize) -> Pass<DeclId> {
        let begin = self.at;
        self.skip_group()?;
        let (parameters, variadic) = parameters.unwrap_or_default();
        let result = ty.result().unwrap_or_else(Type::int);
        let name = self.declaration(id).name.clone();
        self.declarations[id.0].ty = ty;
        let span = self.span(first);
        let body_span = Span { first: begin, end: self.at };
        self.functions.insert(id, Function { id, name, parameters, variadic, result, span, body_span, body: None });
        Ok(id)
    }

    /// Parses the declarations of parameters between a declarator and a body (C before 1989).
    fn old_style_parameters(&mut self, parameters: &[DeclId]) -> Pass<()> {
        while self.word() != "{" {
            let specifiers = self.specifiers()?;
            loop {
                let base = specifiers.ty.clone().unwrap_or_else(Type::int);
                let found = self.declarator(base)?;
                let name = found.name.map_or("", |token| self.expanded.word(token)).to_owned();
                if let Some(id) = parameters.iter().copied().find(|id| self.declaration(*id).name == name) {
                    self.declarations[id.0].ty = found.ty.decayed();
                }
                if !self.accept(",") {
                    break;
                }
            }
            self.expect(";")?;
        }
        Ok(())
    }

    /// Parses a declaration inside a function. Returns the declared names.
    pub(super) fn local_declaration(&mut self) -> Pass<super::ast::DeclStmt> {
        let first = self.at;
        let specifiers = self.specifiers()?;
        let mut found = super::ast::DeclStmt { names: Vec::new(), types: specifiers.ty.iter().cloned().collect() };
        if self.accept(";") {
            return Ok(found);
        }
        loop {
            found.names.push(self.init_declarator(&specifiers, first, false)?);
            if self.word() == "{" {
                return refuse(self.at, "a function inside a function: declare it before the function");
            }
            if self.accept(";") {
                return Ok(found);
            }
            if !self.accept(",") {
                return self.unexpected("; is expected");
            }
        }
    }

    /// Returns whether a declaration begins at a token.
    pub(super) fn is_type_start(&self, at: usize) -> bool {
        let word = self.expanded.word(at);
        let is_word = self.expanded.tokens.get(at).is_some_and(|token| token.kind == lexer::Kind::Identifier);
        is_word
            && (TYPE_WORDS.contains(&word)
                || word == "bool" && self.lookup(word).is_none()
                || self.lookup(word).is_some_and(|id| self.declaration(id).kind == DeclKind::Typedef)
                || matches!(word, "__extension__" | "__attribute__" | "__attribute")
                    && self.is_type_start(self.after_prefix(at)))
    }

    /// Returns the token after an `__extension__` or an attribute.
    fn after_prefix(&self, at: usize) -> usize {
        if self.expanded.word(at) == "__extension__" {
            return at + 1;
        }
        let mut depth = 0;
        let mut end = at + 1;
        while end < self.expanded.tokens.len() {
            match self.expanded.word(end) {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            end += 1;
            if depth == 0 {
                break;
            }
        }
        end
    }

    /// Parses a static assertion, if there is one.
    pub(super) fn static_assertion(&mut self) -> Pass<bool> {
        if !matches!(self.word(), "_Static_assert" | "static_assert") {
            return Ok(false);
        }
        self.at += 1;
        self.skip_group()?;
        self.expect(";").map(|()| true)
    }

    /// Parses the specifiers of a declaration or of a type name.
    pub(super) fn specifiers(&mut self) -> Pass<Specifiers> {
        let mut found = Specifiers::default();
        let mut words: Vec<String> = Vec::new();
        let (mut constant, mut volatile, mut atomic) = (false, false, false);
        let begin = self.at;
        loop {
            let word = self.word().to_owned();
            match word.as_str() {
                "typedef" => found.is_typedef = true,
                "extern" => found.is_extern = true,
                "static" => found.is_static = true,
                "_Thread_local" | "__thread" | "thread_local" => found.thread_local = true,
                "auto" | "__auto_type" => found.inferred = true,
                "register" | "inline" | "__inline" | "__inline__" | "_Noreturn" | "__extension__" | "restrict"
                | "__restrict" | "__restrict__" | "constexpr" => {}
                "const" | "__const" | "__const__" => constant = true,
                "volatile" | "__volatile__" | "__volatile" => volatile = true,
                "_Atomic" => {
                    atomic = true;
                    if self.peek(1) == "(" {
                        self.at += 2;
                        found.ty = Some(self.type_name()?);
                        self.expect(")")?;
                        continue;
                    }
                }
                "__attribute__" | "__attribute" | "_Alignas" | "alignas" | "__declspec" => {
                    let first = self.at;
                    self.at += 1;
                    self.skip_group()?;
                    found.attributes.push(self.span(first));
                    continue;
                }
                "[" if self.peek(1) == "[" && self.at == begin => {
                    self.skip_group()?;
                    continue;
                }
                "struct" | "union" => {
                    found.ty = Some(self.record()?);
                    continue;
                }
                "enum" => {
                    found.ty = Some(self.enumeration()?);
                    continue;
                }
                "typeof" | "__typeof__" | "__typeof" | "typeof_unqual" => {
                    self.at += 1;
                    self.expect("(")?;
                    let ty = if self.is_type_start(self.at) { self.type_name()? } else { self.expression()?.ty };
                    found.ty = Some(if word == "typeof_unqual" { ty.unqualified() } else { ty });
                    self.expect(")")?;
                    continue;
                }
                "_BitInt" => {
                    self.at += 1;
                    self.skip_group()?;
                    words.push("long".to_owned());
                    continue;
                }
                "bool" if self.lookup("bool").is_none() => words.push("_Bool".to_owned()),
                _ if is_base(&word) => words.push(word),
                _ => {
                    let id = self.is_identifier().then(|| self.lookup(&word)).flatten();
                    let id = id.filter(|_| found.ty.is_none() && words.is_empty());
                    let id = id.filter(|id| self.declaration(*id).kind == DeclKind::Typedef);
                    let Some(id) = id else { break };
                    self.resolved.insert(self.at, id);
                    let target = self.declaration(id).ty.clone();
                    found.ty = Some(Type::new(Kind::Named { name: word, declaration: id, target }));
                }
            }
            self.at += 1;
        }
        if !words.is_empty() {
            found.ty = Some(base_type(&words));
        }
        if self.at == begin {
            return self.unexpected("a declaration");
        }
        let storage = found.is_static || found.is_extern || found.is_typedef || found.inferred || constant || volatile;
        if found.ty.is_none() && !storage {
            return self.unexpected("a type");
        }
        let mut ty = found.ty.take().unwrap_or_else(Type::int);
        ty.constant |= constant;
        ty.volatile |= volatile;
        ty.atomic |= atomic;
        found.ty = Some(ty);
        Ok(found)
    }

    /// Parses attributes after a declarator. Skips the assembler name.
    pub(super) fn trailing_attributes(&mut self) -> Pass<Vec<Span>> {
        let mut found = Vec::new();
        loop {
            let first = self.at;
            match self.word() {
                "__attribute__" | "__attribute" => {
                    self.at += 1;
                    self.skip_group()?;
                    found.push(self.span(first));
                }
                "asm" | "__asm__" | "__asm" => {
                    self.at += 1;
                    self.skip_group()?;
                }
                "noexcept" | "throw" if self.expanded.tokens.get(self.at).is_some_and(|token| token.system) => {
                    self.at += 1;
                    if self.word() == "(" {
                        self.skip_group()?;
                    }
                }
                _ => return Ok(found),
            }
        }
    }

    fn says(&self, attributes: &[Span], names: &[&str]) -> bool {
        attributes.iter().any(|span| (span.first..span.end).any(|at| names.contains(&self.expanded.word(at))))
    }

    /// Returns whether attributes say that a function has no side effects.
    fn says_pure(&self, attributes: &[Span]) -> bool {
        self.says(attributes, &["pure", "__pure__", "const", "__const__", "__const"])
    }

    /// Parses a struct or union.
    fn record(&mut self) -> Pass<Type> {
        let is_union = self.word() == "union";
        self.at += 1;
        let mut attributes = self.trailing_attributes()?;
        let token = self.at;
        let tag = self.is_identifier().then(|| self.word().to_owned());
        self.at += usize::from(tag.is_some());
        let defines = self.word() == "{";
        let record = self.tagged_record(tag, is_union, defines || self.word() == ";");
        if record.local && record.tag.is_some() {
            self.tags.insert(token, record.number);
        }
        if !defines {
            return Ok(Type::new(Kind::Record(record)));
        }
        self.at += 1;
        let first = self.at;
        let mut fields = Vec::new();
        while self.word() != "}" {
            self.fields(&mut fields)?;
        }
        record.body.set(Some(self.span(first)));
        self.at += 1;
        attributes.extend(self.trailing_attributes()?);
        *record.attributes.borrow_mut() = attributes;
        *record.fields.borrow_mut() = fields;
        Ok(Type::new(Kind::Record(record)))
    }

    /// Returns the record of a tag. `declares`: a new one, unless the block has one without fields.
    fn tagged_record(&mut self, tag: Option<String>, is_union: bool, declares: bool) -> Rc<Record> {
        if let Some(name) = &tag {
            let own = self.scopes.last().and_then(|scope| scope.tags.get(name)).cloned();
            let known = if declares { own } else { self.lookup_tag(name) };
            if let Some(Tag::Record(record)) = known
                && (!declares || record.body.get().is_none())
            {
                return record;
            }
        }
        self.types += 1;
        let record = Rc::new(Record {
            number: self.types,
            is_union,
            tag: tag.clone(),
            local: self.is_local(),
            fields: Vec::new().into(),
            body: None.into(),
            attributes: Vec::new().into(),
        });
        if let (Some(name), Some(scope)) = (tag, self.scopes.last_mut()) {
            scope.tags.insert(name, Tag::Record(Rc::clone(&record)));
        }
        record
    }

    /// Parses one declaration of fields.
    fn fields(&mut self, fields: &mut Vec<Field>) -> Pass<()> {
        if self.accept(";") || self.static_assertion()? {
            return Ok(());
        }
        if self.word().starts_with('#') {
            self.at += 1;
            return Ok(());
        }
        let specifiers = self.specifiers()?;
        let base = specifiers.ty.clone().unwrap_or_else(Type::int);
        if self.accept(";") {
            if matches!(&*base.kind, Kind::Record(record) if record.tag.is_none()) {
                fields.push(Field { name: None, ty: base, bits: None, attributes: Vec::new() });
            }
            return Ok(());
        }
        loop {
            let found = if self.word() == ":" { None } else { Some(self.declarator(base.clone())?) };
            let bits = if self.accept(":") { Some(Rc::new(self.conditional()?)) } else { None };
            let mut attributes = specifiers.attributes.clone();
            attributes.extend(self.trailing_attributes()?);
            if let Some(found) = found {
                let name = found.name.map(|token| self.expanded.word(token).to_owned());
                attributes.extend(found.attributes);
                fields.push(Field { name, ty: found.ty, bits, attributes });
            }
            if self.accept(";") {
                return Ok(());
            }
            self.expect(",")?;
        }
    }

    fn enumeration(&mut self) -> Pass<Type> {
        self.at += 1;
        self.trailing_attributes()?;
        let token = self.at;
        let tag = self.is_identifier().then(|| self.word().to_owned());
        self.at += usize::from(tag.is_some());
        if self.word() == ":" {
            // Underlying type (C23).
            self.at += 1;
            self.specifiers()?;
        }
        if self.word() != "{"
            && let Some(Tag::Enum(known)) = tag.as_deref().and_then(|name| self.lookup_tag(name))
        {
            if known.local {
                self.tags.insert(token, known.number);
            }
            return Ok(Type::new(Kind::Enum(known)));
        }
        self.types += 1;
        let local = self.is_local();
        let found = Rc::new(Enumeration { number: self.types, tag: tag.clone(), local, body: None.into() });
        if let (Some(name), Some(scope)) = (tag, self.scopes.last_mut()) {
            scope.tags.insert(name, Tag::Enum(Rc::clone(&found)));
            if local {
                self.tags.insert(token, found.number);
            }
        }
        if self.accept("{") {
            let first = self.at;
            self.constants()?;
            found.body.set(Some(self.span(first)));
            self.expect("}")?;
            self.trailing_attributes()?;
        }
        Ok(Type::new(Kind::Enum(found)))
    }

    /// Parses the constants of an enumeration.
    fn constants(&mut self) -> Pass<()> {
        let mut next = Some(0_i128);
        while self.word() != "}" {
            let (token, name) = (self.at, self.word().to_owned());
            if !self.is_identifier() {
                return self.unexpected("a name");
            }
            self.at += 1;
            self.trailing_attributes()?;
            if self.accept("=") {
                next = self.conditional()?.constant();
            }
            let id = self.declare(&name, DeclKind::Constant, Type::int(), token);
            self.resolved.insert(token, id);
            self.set_constant(id, next, token);
            next = next.map(|value| value + 1);
            if !self.accept(",") {
                break;
            }
        }
        Ok(())
    }

    fn set_constant(&mut self, id: DeclId, value: Option<i128>, token: usize) {
        let span = Span { first: token, end: token + 1 };
        let value = super::ast::Expr { kind: super::ast::ExprKind::Number(value), ty: Type::int(), span };
        self.declarations[id.0].initializer = Some(Rc::new(Initializer::Expression(value)));
    }

    /// Parses an initialiser after its `=`.
    pub(super) fn initializer(&mut self) -> Pass<Initializer> {
        if self.word() == "{" {
            return self.initializer_list().map(Initializer::List);
        }
        self.assignment().map(Initializer::Expression)
    }

    pub(super) fn initializer_list(&mut self) -> Pass<InitList> {
        let first = self.at;
        self.expect("{")?;
        let mut items = Vec::new();
        while self.word() != "}" {
            let designators = self.designators()?;
            items.push(InitItem { designators, value: self.initializer()? });
            if !self.accept(",") {
                break;
            }
        }
        self.expect("}")?;
        Ok(InitList { span: self.span(first), items })
    }

    fn designators(&mut self) -> Pass<Vec<super::ast::Designator>> {
        use super::ast::Designator;
        let mut found = Vec::new();
        if self.is_identifier() && self.peek(1) == ":" {
            // Old form of GNU C.
            found.push(Designator::Field(self.word().to_owned()));
            self.at += 2;
            return Ok(found);
        }
        loop {
            if self.accept(".") {
                found.push(Designator::Field(self.word().to_owned()));
                self.at += 1;
            } else if self.accept("[") {
                self.conditional()?;
                if self.accept("...") {
                    self.conditional()?;
                }
                self.expect("]")?;
                found.push(Designator::Index);
            } else {
                break;
            }
        }
        if !found.is_empty() && !self.accept("=") && self.word() != "{" {
            return self.unexpected("= is expected");
        }
        Ok(found)
    }
}

impl Declaration {
    /// Returns whether the name is a variable or parameter.
    pub(crate) fn is_variable(&self) -> bool {
        matches!(self.kind, DeclKind::Variable(_) | DeclKind::Parameter)
    }

    /// Returns whether the variable belongs to one call of its function.
    pub(crate) fn is_automatic(&self) -> bool {
        matches!(self.kind, DeclKind::Variable(Storage::Automatic) | DeclKind::Parameter)
    }
}

fn is_base(word: &str) -> bool {
    matches!(
        word,
        "void"
            | "char"
            | "short"
            | "int"
            | "long"
            | "float"
            | "double"
            | "signed"
            | "__signed__"
            | "__signed"
            | "unsigned"
            | "_Bool"
            | "_Complex"
            | "__complex__"
            | "__int128"
            | "__bf16"
            | "__fp16"
    ) || word.starts_with("_Float") && word.len() < 10
        || word.starts_with("_Decimal")
        || word == "__float128"
}

/// Returns the type that a list of words names.
fn base_type(words: &[String]) -> Type {
    let has = |word: &str| words.iter().any(|other| other == word);
    let floating = |word: &String| {
        word.contains("loat")
            || word == "double"
            || word.contains("Decimal")
            || word.contains("p16")
            || word.contains("f16")
    };
    if has("void") {
        return Type::void();
    }
    if has("_Complex") || has("__complex__") || words.iter().any(floating) {
        return Type::new(Kind::Floating(words.join(" ")));
    }
    let unsigned = has("unsigned");
    let longs = words.iter().filter(|word| *word == "long").count();
    let name = match (longs, unsigned) {
        _ if has("_Bool") => "_Bool",
        _ if has("__int128") => {
            if unsigned {
                "unsigned __int128"
            } else {
                "__int128"
            }
        }
        _ if has("char") && unsigned => "unsigned char",
        _ if has("char") && (has("signed") || has("__signed__") || has("__signed")) => "signed char",
        _ if has("char") => "char",
        _ if has("short") => {
            if unsigned {
                "unsigned short"
            } else {
                "short"
            }
        }
        (0, true) => "unsigned int",
        (0, false) => "int",
        (1, true) => "unsigned long",
        (1, false) => "long",
        (_, true) => "unsigned long long",
        (_, false) => "long long",
    };
    Type::integer(name)
}
