//! Expressions.

use super::Unit;
use super::ast::{DeclKind, Expr, ExprKind, Initializer};
use super::literal;
use super::types::{Kind as TypeKind, Type};
use crate::error::Pass;
use crate::lexer::Kind;

/// Binary operators with their precedence. Higher numbers bind more tightly.
const BINARY: &[(&str, u8)] = &[
    ("||", 1),
    ("&&", 2),
    ("|", 3),
    ("^", 4),
    ("&", 5),
    ("==", 6),
    ("!=", 6),
    ("<", 7),
    (">", 7),
    ("<=", 7),
    (">=", 7),
    ("<<", 8),
    (">>", 8),
    ("+", 9),
    ("-", 9),
    ("*", 10),
    ("/", 10),
    ("%", 10),
];

const ASSIGNMENTS: &[&str] = &["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="];

impl Unit {
    fn node(&self, first: usize, kind: ExprKind, ty: Type) -> Expr {
        Expr { kind, ty, span: self.span(first) }
    }

    /// Parses an expression, with commas.
    pub(super) fn expression(&mut self) -> Pass<Expr> {
        let first = self.at;
        let mut left = self.assignment()?;
        while self.accept(",") {
            let right = self.assignment()?;
            let ty = right.ty.decayed();
            left = self.node(first, ExprKind::Comma(Box::new(left), Box::new(right)), ty);
        }
        Ok(left)
    }

    pub(super) fn assignment(&mut self) -> Pass<Expr> {
        let first = self.at;
        let left = self.conditional()?;
        let word = self.word();
        if self.kind() == Some(Kind::Punctuation)
            && let Some(operator) = ASSIGNMENTS.iter().find(|operator| **operator == word)
        {
            self.at += 1;
            let right = self.assignment()?;
            let ty = left.ty.unqualified();
            return Ok(self.node(first, ExprKind::Assign((*operator).to_owned(), Box::new(left), Box::new(right)), ty));
        }
        Ok(left)
    }

    pub(super) fn conditional(&mut self) -> Pass<Expr> {
        let first = self.at;
        let condition = self.binary(1)?;
        if !self.accept("?") {
            return Ok(condition);
        }
        let yes = if self.word() == ":" { None } else { Some(self.expression()?) };
        self.expect(":")?;
        let no = self.conditional()?;
        let first_type = yes.as_ref().map_or(&condition.ty, |yes| &yes.ty).decayed();
        let no_type = no.ty.decayed();
        let ty = if first_type.as_integer().is_some() && no_type.as_integer().is_some() {
            Type::common(&first_type, &no_type)
        } else if first_type.is_pointer() && !is_null(&no) && no_type.target().is_some_and(|target| target.is_void()) {
            no_type
        } else if first_type.is_pointer() || first_type.record().is_some() || first_type.is_void() {
            first_type
        } else if no_type.is_pointer() {
            no_type
        } else {
            Type::common(&first_type, &no_type)
        };
        let kind = ExprKind::Conditional(Box::new(condition), yes.map(Box::new), Box::new(no));
        Ok(self.node(first, kind, ty))
    }

    fn binary(&mut self, least: u8) -> Pass<Expr> {
        let first = self.at;
        let mut left = self.cast()?;
        loop {
            let word = self.word();
            let found = BINARY.iter().find(|(operator, level)| *operator == word && *level >= least);
            let Some((operator, level)) = found.filter(|_| self.kind() == Some(Kind::Punctuation)) else {
                return Ok(left);
            };
            self.at += 1;
            let right = self.binary(level + 1)?;
            let ty = binary_type(operator, &left.ty, &right.ty);
            left = self.node(first, ExprKind::Binary((*operator).to_owned(), Box::new(left), Box::new(right)), ty);
        }
    }

    fn cast(&mut self) -> Pass<Expr> {
        let first = self.at;
        if self.word() != "(" || !self.is_type_start(self.at + 1) {
            return self.unary();
        }
        self.at += 1;
        let ty = self.type_name()?;
        self.expect(")")?;
        if self.word() == "{" {
            let list = self.initializer_list()?;
            let literal = self.node(first, ExprKind::Compound(ty.clone(), list), ty);
            return self.postfix(first, literal);
        }
        let operand = self.cast()?;
        let value_type = ty.unqualified();
        Ok(self.node(first, ExprKind::Cast(ty, Box::new(operand)), value_type))
    }

    fn unary(&mut self) -> Pass<Expr> {
        let first = self.at;
        let word = self.word().to_owned();
        match word.as_str() {
            "++" | "--" => {
                self.at += 1;
                let operand = self.unary()?;
                let ty = operand.ty.unqualified();
                let kind = ExprKind::Update { operator: word, postfix: false, operand: Box::new(operand) };
                Ok(self.node(first, kind, ty))
            }
            "&&" => {
                self.at += 2;
                Ok(self.node(first, ExprKind::LabelAddress, Type::pointer(Type::void())))
            }
            "&" | "*" | "+" | "-" | "!" | "~" | "__extension__" | "__real__" | "__imag__" => {
                self.at += 1;
                let operand = self.cast()?;
                let ty = match word.as_str() {
                    "&" => Type::pointer(operand.ty.clone()),
                    "*" => operand.ty.decayed().target().unwrap_or_else(Type::unknown),
                    "!" => Type::int(),
                    "+" | "-" | "~" => operand.ty.promoted(),
                    _ => operand.ty.clone(),
                };
                Ok(self.node(first, ExprKind::Unary(word, Box::new(operand)), ty))
            }
            "sizeof" | "_Alignof" | "__alignof__" | "alignof" | "__alignof" => {
                self.at += 1;
                let mut operand = None;
                if self.word() == "(" && self.is_type_start(self.at + 1) {
                    self.at += 1;
                    self.type_name()?;
                    self.expect(")")?;
                    if self.word() == "{" {
                        self.initializer_list()?;
                    }
                } else {
                    operand = Some(Box::new(self.unary()?));
                }
                Ok(self.node(first, ExprKind::SizeOf(operand), Type::integer("unsigned long")))
            }
            _ => {
                let primary = self.primary()?;
                self.postfix(first, primary)
            }
        }
    }

    fn postfix(&mut self, first: usize, mut left: Expr) -> Pass<Expr> {
        loop {
            let word = self.word().to_owned();
            if self.kind() != Some(Kind::Punctuation) {
                return Ok(left);
            }
            match word.as_str() {
                "[" => {
                    self.at += 1;
                    let index = self.expression()?;
                    self.expect("]")?;
                    let target = left.ty.decayed().target().or_else(|| index.ty.decayed().target());
                    let ty = target.unwrap_or_else(Type::unknown);
                    left = self.node(first, ExprKind::Index(Box::new(left), Box::new(index)), ty);
                }
                "(" => left = self.call(first, left)?,
                "." | "->" => {
                    self.at += 1;
                    let field = self.word().to_owned();
                    if !self.is_identifier() {
                        return self.unexpected("the name of a field");
                    }
                    self.at += 1;
                    let arrow = word == "->";
                    let record = if arrow { left.ty.decayed().target() } else { Some(left.ty.clone()) };
                    let ty = record.as_ref().and_then(|record| {
                        let mut ty = record.record()?.field(&field)?;
                        let own = record.resolved();
                        ty.constant |= own.constant;
                        ty.volatile |= own.volatile;
                        Some(ty)
                    });
                    let ty = ty.unwrap_or_else(Type::unknown);
                    left = self.node(first, ExprKind::Member { object: Box::new(left), arrow, field }, ty);
                }
                "++" | "--" => {
                    self.at += 1;
                    let ty = left.ty.unqualified();
                    let kind = ExprKind::Update { operator: word, postfix: true, operand: Box::new(left) };
                    left = self.node(first, kind, ty);
                }
                _ => return Ok(left),
            }
        }
    }

    fn call(&mut self, first: usize, function: Expr) -> Pass<Expr> {
        let name = match &function.kind {
            ExprKind::Undeclared(name) => name.clone(),
            ExprKind::Name(id) => self.declaration(*id).name.clone(),
            _ => String::new(),
        };
        if matches!(
            name.as_str(),
            "__builtin_va_arg"
                | "__builtin_offsetof"
                | "__builtin_types_compatible_p"
                | "__builtin_convertvector"
                | "__builtin_bit_cast"
                | "offsetof"
        ) && matches!(function.kind, ExprKind::Undeclared(_))
        {
            return self.typed_builtin(first, &name);
        }
        self.at += 1;
        let mut arguments = Vec::new();
        while self.word() != ")" {
            // Builtins of the compiler may take types.
            if self.is_type_start(self.at) && name.starts_with("__builtin") {
                self.type_name()?;
            } else {
                arguments.push(self.assignment()?);
            }
            if !self.accept(",") {
                break;
            }
        }
        self.expect(")")?;
        let ty = match &function.kind {
            ExprKind::Undeclared(name) if name.starts_with("__builtin") || name.starts_with("__sync") => {
                literal::builtin(name)
            }
            ExprKind::Undeclared(name) if name.starts_with("__atomic") || name.starts_with("__c11_atomic") => {
                let object = arguments.first().and_then(|pointer| pointer.ty.decayed().target());
                object.map_or_else(Type::unknown, |object| object.unqualified())
            }
            ExprKind::Undeclared(_) => Type::int(),
            _ => function.ty.result().unwrap_or_else(Type::unknown).unqualified(),
        };
        Ok(self.node(first, ExprKind::Call(Box::new(function), arguments), ty))
    }

    /// Parses a builtin with types as arguments.
    fn typed_builtin(&mut self, first: usize, name: &str) -> Pass<Expr> {
        let begin = self.at;
        self.skip_group()?;
        let end = std::mem::replace(&mut self.at, begin + 1);
        let mut operands = Vec::new();
        let ty = match name {
            "__builtin_va_arg" | "__builtin_convertvector" => {
                operands.push(self.assignment()?);
                self.expect(",")?;
                self.type_name()?
            }
            "__builtin_bit_cast" => {
                let ty = self.type_name()?;
                self.expect(",")?;
                operands.push(self.assignment()?);
                ty
            }
            "__builtin_types_compatible_p" => Type::int(),
            _ => Type::integer("unsigned long"),
        };
        self.at = end;
        Ok(self.node(first, ExprKind::Opaque(operands), ty))
    }

    fn primary(&mut self) -> Pass<Expr> {
        let first = self.at;
        let word = self.word().to_owned();
        match self.kind() {
            Some(Kind::Number) => {
                self.at += 1;
                let (value, ty) = literal::number(&word);
                Ok(self.node(first, ExprKind::Number(value), ty))
            }
            Some(Kind::Character) => {
                self.at += 1;
                let kind = literal::character(&word).map_or(ExprKind::Character, |value| ExprKind::Number(Some(value)));
                Ok(self.node(first, kind, Type::int()))
            }
            Some(Kind::String) => {
                while self.kind() == Some(Kind::String) {
                    self.at += 1;
                }
                let array = TypeKind::Array { element: Type::integer("char"), size: None };
                Ok(self.node(first, ExprKind::String, Type::new(array)))
            }
            Some(Kind::Identifier) if word == "_Generic" => self.generic(),
            Some(Kind::Identifier) => self.identifier(&word),
            Some(Kind::Punctuation) if word == "(" && self.peek(1) == "{" => {
                self.at += 1;
                let block = self.statement()?;
                self.expect(")")?;
                let ty = value_of(&block).map_or_else(Type::void, |value| value.ty.decayed().unqualified());
                Ok(self.node(first, ExprKind::Statement(Box::new(block)), ty))
            }
            Some(Kind::Punctuation) if word == "(" => {
                self.at += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                let ty = inner.ty.clone();
                Ok(self.node(first, ExprKind::Paren(Box::new(inner)), ty))
            }
            _ => self.unexpected("an expression"),
        }
    }

    fn identifier(&mut self, word: &str) -> Pass<Expr> {
        const KEYWORDS: &[&str] = &[
            "if", "else", "for", "while", "do", "switch", "case", "default", "return", "break", "continue", "goto",
            "struct", "union", "enum", "typedef", "static", "extern", "const", "int", "void",
        ];
        let first = self.at;
        if KEYWORDS.contains(&word) || self.cplusplus_word(word) {
            return self.unexpected("an expression");
        }
        self.at += 1;
        if self.word() == "::" {
            return self.unexpected("an expression");
        }
        if let Some(id) = self.lookup(word) {
            let declaration = self.declaration(id);
            match declaration.kind {
                DeclKind::Typedef => {
                    self.at = first;
                    return self.unexpected("an expression");
                }
                DeclKind::Constant => {
                    let value = match declaration.initializer.as_deref() {
                        Some(Initializer::Expression(value)) => value.constant(),
                        _ => None,
                    };
                    self.resolved.insert(first, id);
                    return Ok(self.node(first, ExprKind::Number(value), Type::int()));
                }
                _ => {}
            }
            let ty = declaration.ty.clone();
            self.resolved.insert(first, id);
            return Ok(self.node(first, ExprKind::Name(id), ty));
        }
        let ty = match word {
            "true" | "false" => {
                return Ok(self.node(first, ExprKind::Number(Some(i128::from(word == "true"))), Type::int()));
            }
            "nullptr" => Type::pointer(Type::void()),
            "__func__" | "__FUNCTION__" | "__PRETTY_FUNCTION__" => Type::pointer(Type::integer("char")),
            _ => Type::unknown(),
        };
        Ok(self.node(first, ExprKind::Undeclared(word.to_owned()), ty))
    }

    fn cplusplus_word(&self, word: &str) -> bool {
        matches!(word, "static_cast" | "reinterpret_cast" | "const_cast" | "dynamic_cast")
            || self.expanded.cplusplus && matches!(word, "new" | "delete" | "this" | "throw" | "co_await" | "operator")
    }

    /// Parses a `_Generic` selection, which has the type of the selected expression.
    fn generic(&mut self) -> Pass<Expr> {
        let first = self.at;
        self.at += 1;
        self.expect("(")?;
        let control = self.assignment()?.ty.decayed().unqualified();
        let (mut selected, mut fallback) = (None, None);
        while self.accept(",") {
            if self.accept("default") {
                self.expect(":")?;
                fallback = Some(self.assignment()?);
            } else {
                let ty = self.type_name()?;
                self.expect(":")?;
                let value = self.assignment()?;
                if ty.same(&control) {
                    selected = Some(value);
                }
            }
        }
        self.expect(")")?;
        let ty = selected.as_ref().or(fallback.as_ref()).map_or_else(Type::unknown, |value| value.ty.clone());
        Ok(self.node(first, ExprKind::Opaque(selected.or(fallback).into_iter().collect()), ty))
    }
}

/// Returns the value of a statement expression, which is its last statement.
pub(crate) fn value_of(block: &super::ast::Stmt) -> Option<&Expr> {
    use super::ast::StmtKind;
    match &block.kind {
        StmtKind::Block(all) => match &all.last()?.kind {
            StmtKind::Expression(value) => Some(value),
            StmtKind::Label(_, inner) => match &inner.kind {
                StmtKind::Expression(value) => Some(value),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

fn is_null(expression: &Expr) -> bool {
    match &expression.bare().kind {
        ExprKind::Cast(_, inner) => is_null(inner),
        _ => expression.constant() == Some(0),
    }
}

fn binary_type(operator: &str, left: &Type, right: &Type) -> Type {
    let (left, right) = (left.decayed(), right.decayed());
    match operator {
        "&&" | "||" => Type::int(),
        "==" | "!=" | "<" | ">" | "<=" | ">=" => {
            if matches!(&*left.resolved().kind, TypeKind::Vector(_)) {
                left
            } else {
                Type::int()
            }
        }
        "<<" | ">>" => left.promoted(),
        "+" if left.is_pointer() => left,
        "+" if right.is_pointer() => right,
        "-" if left.is_pointer() => {
            if right.is_pointer() {
                Type::integer("long")
            } else {
                left
            }
        }
        _ => Type::common(&left, &right),
    }
}
