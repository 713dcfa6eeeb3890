//! The macros that a text defines, itself or in the files it includes.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::{Kind, tokens};

/// One definition. A name may have several, under `#if`.
#[derive(Clone, Debug)]
pub(crate) struct Macro {
    /// Of a function-like macro.
    pub(crate) parameters: Option<Vec<String>>,
    pub(crate) body: String,
}

/// All definitions by name.
#[derive(Default)]
pub(crate) struct Macros {
    by_name: BTreeMap<String, Vec<Macro>>,
}

/// Words of C that a macro may not bring into a loop unseen: they leave the place where the macro stands.
const JUMPS: &[&str] = &["return", "goto", "break", "continue", "case", "default", "asm", "__asm__"];

/// Words of which the macros consist that stand in front of functions and types and can be left out of a parse.
const SPECIFIERS: &[&str] = &["static", "inline", "__inline", "__inline__", "extern", "__attribute__"];

impl Macros {
    /// Takes in a `#define` directive; others are ignored.
    pub(crate) fn take(&mut self, directive: &str) {
        let joined = directive.replace("\\\n", " ");
        let Some(rest) = joined.strip_prefix('#').and_then(|rest| rest.trim_start().strip_prefix("define")) else {
            return;
        };
        let rest = rest.trim_start();
        let name_bytes = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(name_bytes);
        let (parameters, body) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((list, body)) => {
                let names = list.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
                (Some(names.collect()), body)
            }
            None => (None, rest),
        };
        let body: Vec<&str> = tokens(body).into_iter().map(|token| token.text).collect();
        self.by_name.entry(name.to_owned()).or_default().push(Macro { parameters, body: body.join(" ") });
    }

    pub(crate) fn of(&self, name: &str) -> &[Macro] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Stands for nothing at all, or for specifiers of a function; `Some(true)`: for nothing.
    pub(crate) fn transparent(&self, name: &str) -> Option<bool> {
        let all = self.of(name);
        if all.is_empty() || all.iter().any(|one| one.parameters.is_some()) {
            return None;
        }
        let empty = all.iter().all(|one| one.body.is_empty());
        let specifiers = |body: &str| {
            let words = tokens(body);
            let first = words.first().is_some_and(|word| SPECIFIERS.contains(&word.text));
            let mut depth = 0_i32;
            first
                && words.iter().all(|word| {
                    depth += i32::from(word.text == "(") - i32::from(word.text == ")");
                    depth > 0 || word.text == ")" || SPECIFIERS.contains(&word.text)
                })
        };
        (empty || all.iter().all(|one| one.body.is_empty() || specifiers(&one.body))).then_some(empty)
    }

    /// Every identifier that an expansion may contain, those of nested macros included, parameters not.
    pub(crate) fn mentions(&self, name: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut pending = vec![name.to_owned()];
        let mut found = BTreeSet::new();
        while let Some(name) = pending.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            for one in self.of(&name) {
                for token in tokens(&one.body).iter().filter(|token| token.kind == Kind::Identifier) {
                    let word = token.text.to_owned();
                    if one.parameters.as_ref().is_some_and(|names| names.contains(&word)) {
                        continue;
                    }
                    pending.push(word.clone());
                    found.insert(word);
                }
            }
        }
        found
    }

    /// A word in an expansion that leaves the place where the macro stands.
    pub(crate) fn jump(&self, name: &str) -> Option<String> {
        self.mentions(name).into_iter().find(|word| JUMPS.contains(&word.as_str()))
    }

    /// An expansion may assign, count or take an address.
    pub(crate) fn assigns(&self, name: &str) -> bool {
        self.bodies(name).iter().any(|body| {
            let words = tokens(body);
            words.iter().enumerate().any(|(index, word)| {
                let before = index.checked_sub(1).map(|index| words[index]);
                let after = words.get(index + 1);
                let joined = after.is_some_and(|after| after.text == word.text);
                match word.text {
                    "=" => {
                        after.is_none_or(|after| after.text != "=")
                            && !before.is_some_and(|before| {
                                ["=", "!", "<", ">"].contains(&before.text) && !shift(&words, index)
                            })
                    }
                    "+" | "-" => joined,
                    "&" => {
                        let unary = before.is_none_or(|before| {
                            before.kind == Kind::Punctuation && ![")", "]", "&"].contains(&before.text)
                        });
                        unary && !joined
                    }
                    _ => false,
                }
            })
        })
    }

    /// An expansion may assign, take an address, or name a field.
    pub(crate) fn looks_into(&self, name: &str) -> bool {
        self.assigns(name) || self.bodies(name).iter().any(|body| tokens(body).iter().any(|word| word.text == "."))
    }

    /// An expansion may turn its arguments into text or join them to other names.
    pub(crate) fn pastes(&self, name: &str) -> bool {
        self.bodies(name).iter().any(|body| body.contains('#'))
    }

    fn bodies(&self, name: &str) -> Vec<&str> {
        let mut names = self.mentions(name);
        names.insert(name.to_owned());
        names.iter().flat_map(|name| self.of(name)).map(|one| one.body.as_str()).collect()
    }
}

/// The token before `index` is the second half of `<<` or `>>`: `<<=` assigns, `<=` does not.
fn shift(words: &[crate::lexer::Token<'_>], index: usize) -> bool {
    index >= 2 && words[index - 1].text == words[index - 2].text && ["<", ">"].contains(&words[index - 1].text)
}

#[cfg(test)]
mod tests {
    use super::Macros;

    fn macros(text: &str) -> Macros {
        let mut macros = Macros::default();
        text.lines().for_each(|line| macros.take(line));
        macros
    }

    #[test]
    fn what_expansions_do_is_seen_through_nested_macros() {
        let all =
            macros("#define A(x) ((x) <= B)\n#define B C(y)\n#define C(z) z = y\n#define D return 1\n#define E D");
        assert!(all.assigns("A") && all.assigns("B") && !all.assigns("D"));
        assert!(all.mentions("A").contains("y") && !all.mentions("A").contains("x"));
        assert_eq!(all.jump("E").as_deref(), Some("return"));
        assert!(all.jump("A").is_none());
    }

    #[test]
    fn operators_are_told_from_assignments() {
        for body in ["a <= b", "a == b", "a != b", "a && b", "a & b", "(a) & b", "a - b"] {
            assert!(!macros(&format!("#define M(a, b) {body}")).assigns("M"), "{body}");
        }
        for body in ["a = b", "a += b", "a <<= b", "a++", "--a", "f(&a)", "& a"] {
            assert!(macros(&format!("#define M(a, b) {body}")).assigns("M"), "{body}");
        }
    }

    #[test]
    fn specifiers_are_transparent() {
        let all = macros(
            "#define G\n#define L static inline\n#define R static __attribute__((cold, unused))\n#define T 3\n#define F(x)",
        );
        assert_eq!(all.transparent("G"), Some(true));
        assert_eq!(all.transparent("L"), Some(false));
        assert_eq!(all.transparent("R"), Some(false));
        assert_eq!(all.transparent("T"), None);
        assert_eq!(all.transparent("F"), None);
    }
}
