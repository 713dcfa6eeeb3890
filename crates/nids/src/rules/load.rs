//! Loads rule files. Unsupported rules do not prevent other rules from loading.

use super::build::{Context, build};
use super::meta::Classes;
use super::rule::{Place, Rule};
use super::text::{Lines, parse};
use super::variables::Variables;
use crate::Error;
use std::path::Path;
use std::sync::Arc;

/// Rule that did not load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// File and line.
    pub place: Place,
    /// Rule number, if the text has one.
    pub sid: Option<u32>,
    /// Keyword that caused the problem, or `header` or `syntax` for a problem with the whole rule.
    pub option: String,
    /// Description for the user.
    pub reason: &'static str,
}

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}: {}", self.place.file, self.place.line, self.option, self.reason)
    }
}

/// Rules of all files, in the order of the files.
#[derive(Debug, Default)]
pub struct RuleSet {
    /// Rules that loaded.
    pub rules: Vec<Rule>,
    /// Rules that did not load.
    pub unsupported: Vec<Unsupported>,
    /// Rule classes.
    pub classes: Classes,
}

impl RuleSet {
    /// Loads the rules in `files`. If `with_commented` is true, rules commented out with `#` are
    /// included.
    pub fn load(files: &[impl AsRef<Path>], variables: &Variables, with_commented: bool) -> Result<Self, Error> {
        let mut set = Self::default();
        for path in files {
            let path = path.as_ref();
            let bytes = std::fs::read(path).map_err(|source| Error::RuleFile { path: path.to_owned(), source })?;
            set.add(&path.display().to_string(), &bytes, variables, with_commented);
        }
        Ok(set)
    }

    /// Adds the rules of one file. Each rule records the file name `name`.
    pub fn add(&mut self, name: &str, bytes: &[u8], variables: &Variables, with_commented: bool) {
        // Read the file as Latin-1, in which every byte is one character, so that byte strings keep
        // all bytes.
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        let file: Arc<str> = name.into();
        let classes = self.classes.clone();
        let mut context = Context::new(variables, &classes);
        for (line, text) in Lines::new(&text, with_commented) {
            let place = Place { file: file.clone(), line };
            let parsed = match parse(line, &text) {
                Ok(parsed) => parsed,
                Err(error) => {
                    let option = "syntax".to_owned();
                    self.unsupported.push(Unsupported { place, sid: None, option, reason: error.message });
                    continue;
                }
            };
            match build(&parsed, place.clone(), &mut context) {
                Ok(rule) => self.rules.push(rule),
                Err(problem) => {
                    let sid = parsed.options.iter().find(|option| option.name == "sid");
                    let sid = sid.and_then(|option| option.value).and_then(|value| value.trim().parse().ok());
                    self.unsupported.push(Unsupported { place, sid, option: problem.option, reason: problem.reason });
                }
            }
        }
    }

    /// Returns the number of rules in the files.
    pub fn total(&self) -> usize {
        self.rules.len() + self.unsupported.len()
    }
}
