//! Statements.

use super::ast::{Assembly, Expr, ForLoop, Stmt, StmtKind};
use super::{Scope, Unit};
use crate::error::{Pass, refuse};
use crate::front::DECLARES;
use crate::lexer::Kind;

impl Unit {
    /// Parses a statement.
    pub(super) fn statement(&mut self) -> Pass<Stmt> {
        let first = self.at;
        if self.kind() == Some(Kind::Directive) {
            return self.pragma();
        }
        let kind = match self.kind() {
            Some(Kind::Identifier) => self.word_statement()?,
            Some(Kind::Punctuation) if self.word() == "{" => self.block()?,
            Some(Kind::Punctuation) if self.word() == ";" => {
                self.at += 1;
                StmtKind::Empty
            }
            Some(Kind::Punctuation) if self.word() == "[" && self.peek(1) == "[" => {
                self.skip_group()?;
                self.accept(";");
                StmtKind::Empty
            }
            _ => self.expression_statement()?,
        };
        Ok(Stmt { kind, span: self.span(first) })
    }

    fn block(&mut self) -> Pass<StmtKind> {
        self.scopes.push(Scope::default());
        let found = self.block_in_scope();
        self.scopes.pop();
        found
    }

    fn block_in_scope(&mut self) -> Pass<StmtKind> {
        self.expect("{")?;
        let mut all = Vec::new();
        while !self.accept("}") {
            if self.at >= self.expanded.tokens.len() {
                return self.unexpected("}");
            }
            all.push(self.statement()?);
        }
        Ok(StmtKind::Block(all))
    }

    fn expression_statement(&mut self) -> Pass<StmtKind> {
        let expression = self.expression()?;
        if !self.accept(";") {
            return self.unexpected("; is expected");
        }
        Ok(StmtKind::Expression(expression))
    }

    /// Parses an expression in parentheses.
    fn condition(&mut self) -> Pass<Expr> {
        self.expect("(")?;
        let condition = self.expression()?;
        self.expect(")")?;
        Ok(condition)
    }

    fn boxed(&mut self) -> Pass<Box<Stmt>> {
        self.statement().map(Box::new)
    }

    /// Parses a statement that begins with a word.
    fn word_statement(&mut self) -> Pass<StmtKind> {
        let word = self.word().to_owned();
        if self.peek(1) == ":" && !matches!(word.as_str(), "default" | "case") && self.peek(2) != ":" {
            self.at += 2;
            self.trailing_attributes()?;
            // A label may end a block (C23).
            if self.word() == "}" {
                let empty = Stmt { kind: StmtKind::Empty, span: self.span(self.at) };
                return Ok(StmtKind::Label(word, Box::new(empty)));
            }
            return Ok(StmtKind::Label(word, self.boxed()?));
        }
        let found = match word.as_str() {
            "if" => {
                self.at += 1;
                self.accept("constexpr");
                let condition = self.condition()?;
                let yes = self.boxed()?;
                let no = if self.accept("else") { Some(self.boxed()?) } else { None };
                StmtKind::If(condition, yes, no)
            }
            "while" => {
                self.at += 1;
                StmtKind::While(self.condition()?, self.boxed()?)
            }
            "do" => {
                self.at += 1;
                let body = self.boxed()?;
                self.expect("while")?;
                let condition = self.condition()?;
                self.expect(";")?;
                StmtKind::Do(body, condition)
            }
            "for" => self.for_statement()?,
            "switch" => {
                self.at += 1;
                StmtKind::Switch(self.condition()?, self.boxed()?)
            }
            "case" => self.case()?,
            "default" => {
                self.at += 1;
                self.expect(":")?;
                StmtKind::Default(self.after_label()?)
            }
            "goto" => {
                self.at += 1;
                if self.accept("*") {
                    let target = self.expression()?;
                    self.expect(";")?;
                    return Ok(StmtKind::ComputedGoto(target));
                }
                let label = self.word().to_owned();
                self.at += 1;
                self.expect(";")?;
                StmtKind::Goto(label)
            }
            "return" => {
                self.at += 1;
                let value = if self.word() == ";" { None } else { Some(self.expression()?) };
                self.expect(";")?;
                StmtKind::Return(value)
            }
            "break" | "continue" => {
                self.at += 1;
                self.expect(";")?;
                if word == "break" { StmtKind::Break } else { StmtKind::Continue }
            }
            "asm" | "__asm__" | "__asm" => StmtKind::Assembly(self.assembly()?),
            "__label__" => return refuse(self.at, "a local label: use an ordinary label"),
            "__attribute__" | "__attribute" if !self.is_type_start(self.at) => {
                self.trailing_attributes()?;
                self.expect(";")?;
                StmtKind::Empty
            }
            _ if self.static_assertion()? => StmtKind::Empty,
            _ if self.is_type_start(self.at) => StmtKind::Declaration(self.local_declaration()?),
            _ => self.expression_statement()?,
        };
        Ok(found)
    }

    /// Parses the statement after a label. A label may end a block (C23).
    fn after_label(&mut self) -> Pass<Box<Stmt>> {
        if self.word() == "}" {
            return Ok(Box::new(Stmt { kind: StmtKind::Empty, span: self.span(self.at) }));
        }
        self.boxed()
    }

    fn case(&mut self) -> Pass<StmtKind> {
        self.at += 1;
        let mut values = vec![self.conditional()?];
        if self.accept("...") {
            values.push(self.conditional()?);
        }
        self.expect(":")?;
        Ok(StmtKind::Case(values, self.after_label()?))
    }

    fn for_statement(&mut self) -> Pass<StmtKind> {
        let promise = self.expanded.tokens[self.at].promise;
        self.at += 1;
        self.scopes.push(Scope::default());
        let parts = self.for_in_scope(promise);
        self.scopes.pop();
        parts
    }

    fn for_in_scope(&mut self, promise: bool) -> Pass<StmtKind> {
        self.expect("(")?;
        let first = if self.word() == ";" {
            self.at += 1;
            None
        } else {
            self.default_foreach();
            Some(self.statement()?)
        };
        if self.word() == ":" {
            return self.unexpected(";");
        }
        let condition = if self.word() == ";" { None } else { Some(self.expression()?) };
        self.expect(";")?;
        let step = if self.word() == ")" { None } else { Some(self.expression()?) };
        self.expect(")")?;
        let body = self.statement()?;
        Ok(StmtKind::For(Box::new(ForLoop { first, condition, step, body, promise })))
    }

    /// Completes the head of a `foreach` that the file does not define. As in the paper, the index
    /// counts from 0. It is an `int`, unless a variable of this name is in scope.
    fn default_foreach(&mut self) {
        if self.word() == DECLARES {
            let known = self.lookup(self.peek(1)).is_some();
            self.expanded.replace(self.at, if known { "" } else { "int" });
            self.at += usize::from(known);
        }
    }

    /// Parses a `#pragma` between statements.
    fn pragma(&mut self) -> Pass<Stmt> {
        let first = self.at;
        let text = self.word().trim_start_matches('#').trim().to_owned();
        self.at += 1;
        let words: Vec<&str> = text.split_whitespace().collect();
        let kind = match words[..] {
            ["pragma", "gopt", ..] => StmtKind::Pragma(words[2..].join(" ")),
            ["pragma", "GCC" | "clang", "diagnostic" | "unroll" | "ivdep" | "loop", ..]
            | ["pragma", "unroll" | "nounroll" | "message", ..] => StmtKind::Empty,
            _ => StmtKind::Pragma(format!("?{}", words.get(1..).unwrap_or_default().join(" "))),
        };
        Ok(Stmt { kind, span: self.span(first) })
    }

    /// Parses inline assembly.
    fn assembly(&mut self) -> Pass<Assembly> {
        self.at += 1;
        let mut found =
            Assembly { volatile: false, memory: false, jumps: false, outputs: Vec::new(), inputs: Vec::new() };
        loop {
            match self.word() {
                "volatile" | "__volatile__" | "__volatile" => found.volatile = true,
                "goto" => found.jumps = true,
                "inline" => {}
                _ => break,
            }
            self.at += 1;
        }
        self.expect("(")?;
        while self.kind() == Some(Kind::String) {
            self.at += 1;
        }
        // Without operands, assembly is volatile.
        found.volatile |= self.word() == ")";
        let mut section = 0;
        loop {
            match self.word() {
                ":" => section += 1,
                "::" => section += 2,
                "," => {}
                ")" => break,
                _ if section >= 3 => {
                    found.memory |= self.word().contains("memory");
                }
                "[" => {
                    self.skip_group()?;
                    continue;
                }
                _ if self.kind() == Some(Kind::String) => {
                    let constraint = self.word().to_owned();
                    self.at += 1;
                    let operand = self.condition()?;
                    let in_memory = constraint.contains('m') || constraint.contains('o');
                    if section == 1 {
                        found.outputs.push(operand);
                    } else {
                        found.inputs.push((in_memory, operand));
                    }
                    continue;
                }
                _ => return self.unexpected("an operand"),
            }
            self.at += 1;
        }
        self.expect(")")?;
        self.expect(";")?;
        Ok(found)
    }
}
