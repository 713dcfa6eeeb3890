//! Initialisers of variables.

use super::Unit;
use super::ast::{InitItem, InitList, Initializer};
use crate::error::Pass;

impl Unit {
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
