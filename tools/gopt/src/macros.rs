//! Macros that a text or its included files define.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::{Kind, tokens};

/// Definition of a macro. A name may have several definitions, under `#if`.
#[derive(Clone, Debug)]
pub(crate) struct Macro {
    /// Parameters of a function-like macro.
    pub(crate) parameters: Option<Vec<String>>,
    pub(crate) body: String,
}

/// All definitions, by name.
#[derive(Default)]
pub(crate) struct Macros {
    by_name: BTreeMap<String, Vec<Macro>>,
}

/// Keywords that a macro in a batch loop must not contain, because they change the control flow.
const JUMPS: &[&str] = &["return", "goto", "break", "continue", "case", "default", "asm", "__asm__"];

/// Keywords of macros that expand to specifiers of a function. Such macros are blanked for the
/// parse.
const SPECIFIERS: &[&str] = &["static", "inline", "__inline", "__inline__", "extern", "__attribute__"];

impl Macros {
    /// Adds the definition of a `#define` directive. Other directives are ignored.
    pub(crate) fn add(&mut self, directive: &str) {
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

    pub(crate) fn definitions(&self, name: &str) -> &[Macro] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Returns `Some(true)` if the macro expands to nothing, `Some(false)` if it expands to
    /// specifiers of a function, and `None` otherwise.
    pub(crate) fn transparent(&self, name: &str) -> Option<bool> {
        let all = self.definitions(name);
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

    /// Returns the identifiers that an expansion may contain, including those of nested macros,
    /// without parameters.
    pub(crate) fn mentions(&self, name: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut pending = vec![name.to_owned()];
        let mut found = BTreeSet::new();
        while let Some(name) = pending.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            for one in self.definitions(&name) {
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

    /// Returns a keyword in an expansion that changes the control flow.
    pub(crate) fn jump(&self, name: &str) -> Option<String> {
        self.mentions(name).into_iter().find(|word| JUMPS.contains(&word.as_str()))
    }

    /// Returns whether an expansion may assign, increment, decrement or take an address.
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

    /// Returns whether an expansion may assign, take an address, or access a field.
    pub(crate) fn accesses(&self, name: &str) -> bool {
        self.assigns(name) || self.bodies(name).iter().any(|body| tokens(body).iter().any(|word| word.text == "."))
    }

    /// Returns whether an expansion may convert arguments to text or join them with other names.
    pub(crate) fn pastes(&self, name: &str) -> bool {
        self.bodies(name).iter().any(|body| body.contains('#'))
    }

    fn bodies(&self, name: &str) -> Vec<&str> {
        let mut names = self.mentions(name);
        names.insert(name.to_owned());
        names.iter().flat_map(|name| self.definitions(name)).map(|one| one.body.as_str()).collect()
    }
}

/// Returns whether the token before `index` is the second half of `<<` or `>>`. `<<=` assigns, but
/// `<=` does not.
fn shift(words: &[crate::lexer::Token<'_>], index: usize) -> bool {
    index >= 2 && words[index - 1].text == words[index - 2].text && ["<", ">"].contains(&words[index - 1].text)
}

#[cfg(test)]
mod tests {
    use super::Macros;

    fn macros(text: &str) -> Macros {
        let mut macros = Macros::default();
        text.lines().for_each(|line| macros.add(line));
        macros
    }

    #[test]
    fn nested_macros_are_expanded() {
        let all =
            macros("#define A(x) ((x) <= B)\n#define B C(y)\n#define C(z) z = y\n#define D return 1\n#define E D");
        assert!(all.assigns("A") && all.assigns("B") && !all.assigns("D"));
        assert!(all.mentions("A").contains("y") && !all.mentions("A").contains("x"));
        assert_eq!(all.jump("E").as_deref(), Some("return"));
        assert!(all.jump("A").is_none());
    }

    #[test]
    fn operators_are_distinguished_from_assignments() {
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
