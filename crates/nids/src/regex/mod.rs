//! Regular expressions of rules.
//!
//! Expressions without look-around and back-references run in linear time. PCRE2 runs all other
//! expressions, with limits. Both find the same match as a backtracking matcher.

mod backtrack;
mod translate;

pub use translate::{Syntax, Unsuitable, translate};

use regex_automata::Input;
use regex_automata::nfa::thompson::{self, NFA, backtrack as bounded, pikevm};
use std::sync::Arc;

/// Maximum memory of one compiled expression, in bytes.
const NFA_BYTES_MAX: usize = 1 << 20;
/// Maximum memory in bytes for the fast linear-time matcher. Texts that need more memory use a
/// slower matcher.
const VISITED_BYTES: usize = 64 << 10;

/// Flags of an expression that apply to both matchers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// Flag `i`: ASCII letters match in both cases.
    pub nocase: bool,
    /// Flag `m`: `^` and `$` also match at line boundaries.
    pub multi_line: bool,
    /// Flag `s`: the dot matches a newline.
    pub dot_all: bool,
    /// Flag `x`: white space and comments are ignored.
    pub extended: bool,
    /// Flag `A`: the match must begin at the start of the text.
    pub anchored: bool,
    /// Flag `E`: `$` matches only at the very end.
    pub dollar_end_only: bool,
    /// Flag `G`: quantifiers are lazy.
    pub swap_greed: bool,
}

/// Compiled expression, which all clones share.
#[derive(Clone)]
pub struct Regex {
    inner: Arc<Inner>,
}

struct Inner {
    matcher: Matcher,
    /// Names of the capture groups, or `None` for groups without a name.
    names: Vec<Option<String>>,
    source: Box<str>,
    flags: Flags,
}

enum Matcher {
    Linear(Linear),
    Backtrack(backtrack::Code),
}

struct Linear {
    short: bounded::BoundedBacktracker,
    long: pikevm::PikeVM,
    number: usize,
}

/// Memory for searches, which all expressions of one thread share.
pub struct Cache {
    short: Option<(usize, bounded::Cache)>,
    long: Option<(usize, pikevm::Cache)>,
    search: Option<backtrack::Search>,
    /// Number of searches that exceeded a PCRE2 limit. They count as mismatches.
    pub limits: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}

impl Cache {
    /// Returns an empty cache.
    pub fn new() -> Self {
        Self { short: None, long: None, search: None, limits: 0 }
    }
}

/// Problem of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegexError {
    /// The expression has a syntax error.
    Syntax,
    /// The compiled expression exceeds the memory limit.
    TooLarge,
}

static NEXT_NUMBER: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

impl Regex {
    /// Compiles `pattern`. Each of its characters is one byte.
    pub fn new(pattern: &str, flags: Flags) -> Result<Self, RegexError> {
        let linear = match Linear::new(pattern, flags) {
            Ok(linear) => Some(linear),
            Err(LinearError::NotRegular) => None,
            Err(LinearError::TooLarge) => return Err(RegexError::TooLarge),
        };
        let (matcher, names) = match linear {
            Some((linear, names)) => (Matcher::Linear(linear), names),
            None => {
                let code = backtrack::Code::new(pattern, flags)?;
                let names = code.names();
                (Matcher::Backtrack(code), names)
            }
        };
        Ok(Self { inner: Arc::new(Inner { matcher, names, source: pattern.into(), flags }) })
    }

    /// Returns the memory use of the compiled expression, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let matcher = match &self.inner.matcher {
            Matcher::Linear(linear) => linear.short.get_nfa().memory_usage(),
            Matcher::Backtrack(code) => code.memory_bytes(),
        };
        matcher + size_of::<Inner>() + self.inner.source.len()
    }

    /// Returns whether the expression runs in PCRE2.
    pub fn backtracks(&self) -> bool {
        matches!(self.inner.matcher, Matcher::Backtrack(_))
    }

    /// Returns the names of the capture groups. The first entry belongs to the whole match.
    pub fn names(&self) -> &[Option<String>] {
        &self.inner.names
    }

    /// Returns whether the expression matches `text`. On a match, writes the start and end of each
    /// capture group to `slots`, as far as they fit.
    pub fn find(&self, text: &[u8], cache: &mut Cache, slots: &mut [Option<usize>]) -> bool {
        match &self.inner.matcher {
            Matcher::Linear(linear) => linear.find(text, self.inner.flags.anchored, cache, slots),
            Matcher::Backtrack(code) => {
                if cache.search.is_none() {
                    cache.search = backtrack::Search::new();
                }
                let outcome = cache.search.as_mut().map(|search| search.find(code, text, slots));
                if outcome.is_none_or(|outcome| outcome == backtrack::Outcome::Limit) {
                    cache.limits += 1;
                }
                outcome == Some(backtrack::Outcome::Match)
            }
        }
    }
}

enum LinearError {
    /// The expression has look-around, back-references, or syntax that only PCRE2 accepts.
    NotRegular,
    TooLarge,
}

impl Linear {
    fn new(pattern: &str, flags: Flags) -> Result<(Self, Vec<Option<String>>), LinearError> {
        let syntax =
            Syntax { multi_line: flags.multi_line, dollar_end_only: flags.dollar_end_only, extended: flags.extended };
        let text = translate(pattern, syntax).map_err(|Unsuitable| LinearError::NotRegular)?;
        let hir = regex_syntax::ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .case_insensitive(flags.nocase)
            .multi_line(flags.multi_line)
            .dot_matches_new_line(flags.dot_all)
            .ignore_whitespace(flags.extended)
            .swap_greed(flags.swap_greed)
            .nest_limit(200)
            .build()
            .parse(&text)
            .map_err(|_| LinearError::NotRegular)?;
        let nfa = thompson::Compiler::new()
            .configure(thompson::Config::new().utf8(false).shrink(false).nfa_size_limit(Some(NFA_BYTES_MAX)))
            .build_from_hir(&hir)
            .map_err(|_| LinearError::TooLarge)?;
        Self::from_nfa(nfa).ok_or(LinearError::TooLarge)
    }

    fn from_nfa(nfa: NFA) -> Option<(Self, Vec<Option<String>>)> {
        let groups = nfa.group_info().pattern_names(regex_automata::PatternID::ZERO);
        let names = groups.map(|name| name.map(str::to_owned)).collect();
        let short = bounded::Builder::new()
            .configure(bounded::Config::new().visited_capacity(VISITED_BYTES))
            .build_from_nfa(nfa.clone())
            .ok()?;
        let long = pikevm::PikeVM::new_from_nfa(nfa).ok()?;
        let number = NEXT_NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Some((Self { short, long, number }, names))
    }

    fn find(&self, text: &[u8], anchored: bool, cache: &mut Cache, slots: &mut [Option<usize>]) -> bool {
        let anchored = if anchored { regex_automata::Anchored::Yes } else { regex_automata::Anchored::No };
        let input = Input::new(text).anchored(anchored);
        let mut raw = [None; 32];
        let raw = &mut raw[..slots.len().clamp(2, 32)];
        let found = if text.len() <= self.short.max_haystack_len() {
            let (number, cache) = cache.short.get_or_insert_with(|| (self.number, self.short.create_cache()));
            if *number != self.number {
                cache.reset(&self.short);
                *number = self.number;
            }
            matches!(self.short.try_search_slots(cache, &input, raw), Ok(Some(_)))
        } else {
            let (number, cache) = cache.long.get_or_insert_with(|| (self.number, self.long.create_cache()));
            if *number != self.number {
                cache.reset(&self.long);
                *number = self.number;
            }
            self.long.search_slots(cache, &input, raw).is_some()
        };
        if found {
            for (slot, value) in slots.iter_mut().zip(raw) {
                *slot = value.map(|at| at.get());
            }
        }
        found
    }
}

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.inner.source == other.inner.source && self.inner.flags == other.inner.flags
    }
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Regex({:?}, {:?})", self.inner.source, self.inner.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, flags: Flags, text: &[u8]) -> Option<(usize, usize)> {
        let mut slots = [None; 2];
        let regex = Regex::new(pattern, flags).unwrap();
        regex.find(text, &mut Cache::new(), &mut slots).then(|| (slots[0].unwrap(), slots[1].unwrap()))
    }

    #[test]
    fn prefers_the_match_of_a_backtracking_matcher() {
        let none = Flags::default();
        assert_eq!(find("a|ab", none, b"xab"), Some((1, 2)));
        assert_eq!(find("a+?", none, b"aaa"), Some((0, 1)));
        assert_eq!(find("^one(self)?$", none, b"one\n"), Some((0, 4)));
        assert_eq!(find("A.B", Flags { nocase: true, dot_all: true, ..none }, b"a\nb"), Some((0, 3)));
        assert_eq!(find("b", Flags { anchored: true, ..none }, b"ab"), None);
        assert_eq!(find("^b", Flags { multi_line: true, ..none }, b"a\nb"), Some((2, 3)));
    }

    #[test]
    fn long_texts_have_the_same_matches() {
        let mut text = vec![b'x'; 200_000];
        text.extend_from_slice(b"needle");
        assert_eq!(find("n[a-e]+dle", Flags::default(), &text), Some((200_000, 200_006)));
    }

    #[test]
    fn look_around_and_back_references_match_within_limits() {
        let none = Flags::default();
        assert_eq!(find(r"(a|b)\1", none, b"abba"), Some((1, 3)));
        assert_eq!(find("foo(?!bar)", none, b"foobar foox"), Some((7, 10)));
        let (slow, mut cache) = (Regex::new(r"^(a+)+\1$", none).unwrap(), Cache::new());
        assert!(slow.backtracks());
        assert!(!slow.find(&[&[b'a'; 40][..], b"!"].concat(), &mut cache, &mut [None; 2]));
        assert_eq!(cache.limits, 1);
        assert_eq!(Regex::new("(", none).unwrap_err(), RegexError::Syntax);
        assert_eq!(Regex::new(r"(?P<x>a)\1", none).unwrap().names()[1].as_deref(), Some("x"));
    }

    #[test]
    fn one_cache_serves_all_expressions() {
        let (a, b) = (Regex::new("a+", Flags::default()).unwrap(), Regex::new("(b)(c|d)+x", Flags::default()).unwrap());
        let (mut cache, mut slots) = (Cache::new(), [None; 6]);
        for _ in 0..3 {
            assert!(a.find(b"baa", &mut cache, &mut slots[..2]));
            assert_eq!(slots[..2], [Some(1), Some(3)]);
            assert!(b.find(b"abcdx", &mut cache, &mut slots));
            assert_eq!(slots, [Some(1), Some(5), Some(1), Some(2), Some(3), Some(4)]);
        }
    }
}
