//! Assigns numbers to the names of flow bits and counters. A name keeps its number after a rule
//! reload, because flows store the numbers.

use std::collections::HashMap;

/// Names and their numbers.
#[derive(Debug, Clone, Default)]
pub struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    /// Returns the number of a name.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }

    /// Returns the name of a number.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(String::as_str)
    }
}
