//! Specifiers and attributes of declarations.

use super::Unit;
use super::ast::{DeclKind, Span};
use super::types::{Kind, Type};
use crate::error::Pass;
use crate::lexer;

/// Specifiers of a declaration.
#[derive(Clone, Default)]
pub(super) struct Specifiers {
    pub(super) ty: Option<Type>,
    pub(super) is_typedef: bool,
    pub(super) is_static: bool,
    pub(super) is_extern: bool,
    pub(super) thread_local: bool,
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

    /// Parses attributes after a declarator, and skips the assembler name.
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

    pub(super) fn says(&self, attributes: &[Span], names: &[&str]) -> bool {
        attributes.iter().any(|span| (span.first..span.end).any(|at| names.contains(&self.expanded.word(at))))
    }

    /// Returns whether attributes state that a function has no side effects.
    pub(super) fn says_pure(&self, attributes: &[Span]) -> bool {
        self.says(attributes, &["pure", "__pure__", "const", "__const__", "__const"])
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
