//! Parser for expanded C11 with the GNU extensions.
//!
//! It first parses the file-level declarations. It parses function bodies on demand, because
//! headers contain many functions that no lookup calls.

pub(crate) mod ast;
mod declaration;
mod declarator;
mod expression;
mod initializer;
pub(crate) use expression::value_of;
mod literal;
mod record;
mod specifier;
mod statement;
pub(crate) mod types;
pub(crate) mod walk;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::error::{Fault, Pass, refuse};
use crate::front::Expanded;
use crate::lexer::Kind;
use ast::{DeclId, DeclKind, Declaration, Span, Stmt};
use types::{Enumeration, Record, Type};

/// Function with a visible body.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) id: DeclId,
    pub(crate) name: String,
    pub(crate) parameters: Vec<DeclId>,
    pub(crate) variadic: bool,
    pub(crate) result: Type,
    /// Whole definition.
    pub(crate) span: Span,
    pub(crate) body_span: Span,
    /// Body, or the reason why it could not be parsed. It is `None` until it is needed.
    pub(crate) body: Option<Pass<Stmt>>,
}

/// External declaration that the parser does not support.
#[derive(Debug)]
pub(crate) struct Unparsed {
    pub(crate) span: Span,
    pub(crate) fault: Fault,
}

/// Type with a tag.
#[derive(Clone, Debug)]
enum Tag {
    Record(Rc<Record>),
    Enum(Rc<Enumeration>),
}

/// Names of a block.
#[derive(Default)]
struct Scope {
    names: HashMap<String, DeclId>,
    tags: HashMap<String, Tag>,
}

/// Definitions of a file and its headers.
pub(crate) struct Unit {
    pub(crate) expanded: Expanded,
    pub(crate) declarations: Vec<Declaration>,
    /// Declaration of each identifier that is used as a name, by token.
    pub(crate) resolved: HashMap<usize, DeclId>,
    /// Local records and enumerations, by the token of the tag.
    pub(crate) tags: HashMap<usize, usize>,
    pub(crate) functions: BTreeMap<DeclId, Function>,
    pub(crate) unparsed: Vec<Unparsed>,
    /// External declarations, in order.
    pub(crate) externals: Vec<Span>,
    at: usize,
    /// Blocks around the current token, from the file inwards.
    scopes: Vec<Scope>,
    /// Parameters of the last parsed function declarator, and whether it is variadic.
    last_parameters: Option<(Vec<DeclId>, bool)>,
    types: usize,
}

impl Unit {
    /// Parses all declarations of a file and its headers.
    pub(crate) fn new(expanded: Expanded) -> Self {
        let mut unit = Self {
            expanded,
            declarations: Vec::new(),
            resolved: HashMap::new(),
            tags: HashMap::new(),
            functions: BTreeMap::new(),
            unparsed: Vec::new(),
            externals: Vec::new(),
            at: 0,
            scopes: vec![Scope::default()],
            last_parameters: None,
            types: 0,
        };
        unit.builtin_types();
        unit.file();
        unit
    }

    /// Parses a block of generated text. `types` contains type names.
    pub(crate) fn fragment(expanded: Expanded, types: &[String]) -> Pass<(Self, Stmt)> {
        let mut unit = Self {
            expanded,
            declarations: Vec::new(),
            resolved: HashMap::new(),
            tags: HashMap::new(),
            functions: BTreeMap::new(),
            unparsed: Vec::new(),
            externals: Vec::new(),
            at: 0,
            scopes: vec![Scope::default()],
            last_parameters: None,
            types: 0,
        };
        unit.builtin_types();
        for name in types {
            unit.declare(name, DeclKind::Typedef, Type::unknown(), 0);
        }
        unit.scopes.push(Scope::default());
        let body = unit.statement()?;
        Ok((unit, body))
    }

    fn builtin_types(&mut self) {
        for (name, ty) in [
            ("__builtin_va_list", Type::unknown()),
            ("__int128_t", Type::integer("__int128")),
            ("__uint128_t", Type::integer("unsigned __int128")),
        ] {
            self.declare(name, DeclKind::Typedef, ty, 0);
        }
    }

    pub(crate) fn declaration(&self, id: DeclId) -> &Declaration {
        &self.declarations[id.0]
    }

    /// Returns the declarations that a range of tokens names.
    pub(crate) fn resolved_in(&self, span: Span) -> impl Iterator<Item = DeclId> {
        (span.first..span.end).filter_map(|at| self.resolved.get(&at).copied())
    }

    /// Returns the names of all types of the file.
    pub(crate) fn type_names(&self) -> Vec<String> {
        let types = self.declarations.iter().filter(|one| one.kind == DeclKind::Typedef);
        types.map(|one| one.name.clone()).collect()
    }

    /// Returns the declaration of a name at file scope.
    pub(crate) fn named(&self, name: &str) -> Option<DeclId> {
        self.scopes[0].names.get(name).copied()
    }

    /// Returns a function with its parsed body.
    pub(crate) fn function(&self, id: DeclId) -> Option<(&Function, &Stmt)> {
        let function = self.functions.get(&id)?;
        Some((function, function.body.as_ref()?.as_ref().ok()?))
    }

    /// Parses the body of a function, unless this is already done.
    pub(crate) fn parse_body(&mut self, id: DeclId) {
        let Some(function) = self.functions.get(&id).filter(|function| function.body.is_none()) else { return };
        let (parameters, span) = (function.parameters.clone(), function.body_span);
        self.scopes.truncate(1);
        self.scopes.push(Scope::default());
        for parameter in parameters {
            let name = self.declaration(parameter).name.clone();
            self.scopes[1].names.insert(name, parameter);
        }
        self.at = span.first;
        let body = self.statement();
        self.scopes.truncate(1);
        if let Some(function) = self.functions.get_mut(&id) {
            function.body = Some(body);
        }
    }

    /// Returns the current token.
    fn word(&self) -> &str {
        self.expanded.word(self.at)
    }

    fn peek(&self, ahead: usize) -> &str {
        self.expanded.word(self.at + ahead)
    }

    fn kind(&self) -> Option<Kind> {
        self.expanded.tokens.get(self.at).map(|token| token.kind)
    }

    fn is_identifier(&self) -> bool {
        self.kind() == Some(Kind::Identifier)
    }

    /// Skips the current token if it is `word`.
    fn accept(&mut self, word: &str) -> bool {
        let found = self.word() == word && self.kind() != Some(Kind::String);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, word: &str) -> Pass<()> {
        if self.accept(word) { Ok(()) } else { self.unexpected(&format!("{word} is expected")) }
    }

    /// Refuses the current token. If it begins a C++ construct, names C++ as the reason.
    fn unexpected<T>(&self, expected: &str) -> Pass<T> {
        if let Some(found) = self.cplusplus() {
            return refuse(self.at, format!("this is C++ that is not C ({found}): move the lookups to a C file"));
        }
        let found = if self.at < self.expanded.tokens.len() { self.word() } else { "the end of the file" };
        refuse(self.at, format!("gopt cannot parse this C: {expected} before {found}"))
    }

    /// Returns the C++ construct that prevents a parse at the current token.
    fn cplusplus(&self) -> Option<&str> {
        const WORDS: &[&str] = &[
            "class",
            "template",
            "namespace",
            "using",
            "new",
            "delete",
            "operator",
            "virtual",
            "public",
            "private",
            "protected",
            "friend",
            "typename",
            "mutable",
            "explicit",
            "try",
            "catch",
            "throw",
            "this",
            "co_await",
            "co_yield",
            "co_return",
            "static_cast",
            "reinterpret_cast",
            "const_cast",
            "dynamic_cast",
            "decltype",
            "noexcept",
            "concept",
            "requires",
        ];
        let near = self.at.saturating_sub(2)..(self.at + 2).min(self.expanded.tokens.len());
        let words = near.map(|at| self.expanded.word(at));
        let mut found = words.filter(|word| *word == "::" || WORDS.contains(word));
        found.next().or_else(|| self.expanded.cplusplus.then(|| self.word()))
    }

    fn span(&self, first: usize) -> Span {
        Span { first, end: self.at }
    }

    /// Skips a group in parentheses, brackets or braces that begins at the current token.
    fn skip_group(&mut self) -> Pass<()> {
        let begin = self.at;
        let mut depth = 0_u32;
        while self.at < self.expanded.tokens.len() {
            if self.kind() == Some(Kind::Punctuation) {
                match self.word() {
                    "(" | "[" | "{" => depth += 1,
                    ")" | "]" | "}" => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        self.at = begin;
        refuse(begin, "a bracket without its partner")
    }

    /// Adds a declaration to the innermost scope.
    fn declare(&mut self, name: &str, kind: DeclKind, ty: Type, token: usize) -> DeclId {
        let id = DeclId(self.declarations.len());
        self.declarations.push(Declaration {
            name: name.to_owned(),
            kind,
            ty,
            token,
            initializer: None,
            attributes: Vec::new(),
            pure: false,
            is_static: false,
            cleanup: false,
        });
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.insert(name.to_owned(), id);
        }
        id
    }

    fn lookup(&self, name: &str) -> Option<DeclId> {
        self.scopes.iter().rev().find_map(|scope| scope.names.get(name)).copied()
    }

    fn lookup_tag(&self, name: &str) -> Option<Tag> {
        self.scopes.iter().rev().find_map(|scope| scope.tags.get(name)).cloned()
    }

    /// Returns whether the current declaration is inside a function.
    fn is_local(&self) -> bool {
        self.scopes.len() > 1
    }
}
