//! Evaluates the tests of a rule on one field, such as an HTTP header.
//!
//! A relative test starts where the match of the previous test ended. If a relative test fails, the
//! previous test tries its next match. The number of steps is limited, because crafted traffic
//! could otherwise make a rule expensive.

use super::{numbers, transform};
use crate::regex::Cache;
use crate::rules::content::{Content, Value};
use crate::rules::rule::{Capture, Pcre, Test};

/// Maximum number of evaluation steps per field (Suricata's default for
/// `inspection-recursion-limit`).
const STEPS_MAX: u32 = 3000;

/// Working memory that all rules of a thread share during evaluation.
#[derive(Default)]
pub(super) struct Scratch {
    /// Variables of the current rule.
    pub variables: [u64; 16],
    /// Memory that searches with regular expressions use.
    pub regex: Cache,
    /// Bytes that capture groups of the current rule have matched.
    pub captures: Vec<(Capture, Vec<u8>)>,
    /// Number of evaluations that ended at the step limit.
    pub limits: u64,
    steps: u32,
}

/// Field that a rule inspects.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    /// Bytes of the field.
    pub bytes: &'a [u8],
    /// Whether the numbers in the DCE/RPC message are little-endian.
    pub dce_little: bool,
}

impl<'a> Subject<'a> {
    /// Returns a field of plain bytes.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, dce_little: true }
    }
}

/// Result of a sequence of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Match,
    /// The tests fail at this position, but may succeed at another position.
    NoMatch,
    /// The tests fail at every position.
    Never,
}

/// Returns whether all tests of a field match.
pub(super) fn matches(tests: &[Test], subject: Subject<'_>, scratch: &mut Scratch) -> bool {
    scratch.steps = 0;
    run(tests, subject, 0, scratch) == Outcome::Match
}

/// Runs a list of tests in order. `end` is the offset after the previous match.
fn run(tests: &[Test], subject: Subject<'_>, end: usize, scratch: &mut Scratch) -> Outcome {
    let Some((test, rest)) = tests.split_first() else { return Outcome::Match };
    scratch.steps += 1;
    if scratch.steps > STEPS_MAX {
        scratch.limits += u64::from(scratch.steps == STEPS_MAX + 1);
        return Outcome::Never;
    }
    let bytes = subject.bytes;
    let next = match test {
        Test::Content(content) => return run_content(content, rest, subject, end, scratch),
        Test::Pcre(pcre) => return run_pcre(pcre, rest, subject, end, scratch),
        Test::ByteTest(test) => numbers::test(test, subject, end, &scratch.variables).then_some(end),
        Test::ByteJump(jump) => numbers::jump(jump, subject, end, &scratch.variables),
        Test::ByteExtract(extract) => match numbers::extract(extract, subject, end, &scratch.variables) {
            Some((value, after)) => {
                scratch.variables[usize::from(extract.variable)] = value;
                Some(after)
            }
            None => None,
        },
        Test::ByteMath(math) => match numbers::math(math, subject, end, &scratch.variables) {
            Some((value, after)) => {
                scratch.variables[usize::from(math.variable)] = value;
                Some(after)
            }
            None => None,
        },
        Test::DataAt(at) => {
            let position = value(at.position, &scratch.variables);
            let exists =
                if at.relative { end as i64 + position <= bytes.len() as i64 } else { position < bytes.len() as i64 };
            (exists != at.negated).then_some(end)
        }
        Test::Size(test) => test.matches(bytes.len() as u64).then_some(end),
        Test::Number(test) => number(bytes).is_some_and(|number| test.matches(number)).then_some(end),
        Test::Base64 { bytes: count, offset, relative, tests } => {
            let start = *offset as usize + if *relative { end } else { 0 };
            let encoded = bytes.get(start..).unwrap_or(&[]);
            let encoded = &encoded[..encoded.len().min(count.map_or(usize::MAX, |count| count as usize))];
            let decoded = transform::decode_base64(encoded, crate::rules::transform::Base64Mode::Rfc4648);
            let matches = !decoded.is_empty()
                && (tests.is_empty() || run(tests, Subject::new(&decoded), 0, scratch) == Outcome::Match);
            matches.then_some(end)
        }
        Test::Absent { .. } => Some(end),
    };
    match next {
        Some(end) => run(rest, subject, end, scratch),
        None => Outcome::NoMatch,
    }
}

/// Returns a number or the value of a variable.
pub(super) fn value(value: Value, variables: &[u64; 16]) -> i64 {
    match value {
        Value::Number(number) => number,
        Value::Variable(index) => i64::try_from(variables[usize::from(index)]).unwrap_or(i64::MAX),
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

/// Returns the part of the field that must contain the pattern.
fn range(content: &Content, length: usize, end: usize, variables: &[u64; 16]) -> (usize, usize) {
    let length = length as i64;
    let operand = |operand: Option<Value>| operand.map(|operand| value(operand, variables));
    let mut low;
    let mut high = length;
    if content.is_relative() {
        let distance = operand(content.distance).unwrap_or(0);
        low = (end as i64).saturating_add(distance).max(0);
        if let Some(within) = operand(content.within) {
            high = high.min((end as i64).saturating_add(distance).saturating_add(within));
        }
        if let Some(depth) = operand(content.depth) {
            let offset = operand(content.offset).unwrap_or(0);
            high = high.min(offset.saturating_add(depth));
        }
        low = low.max(operand(content.offset).unwrap_or(0));
    } else {
        low = operand(content.offset).unwrap_or(0).max(0);
        if let Some(depth) = operand(content.depth) {
            high = high.min(low.saturating_add(depth));
        }
    }
    if content.starts {
        high = high.min(content.bytes.len() as i64);
    }
    (low.clamp(0, length) as usize, high.clamp(0, length) as usize)
}

fn run_content(content: &Content, rest: &[Test], subject: Subject<'_>, end: usize, scratch: &mut Scratch) -> Outcome {
    let bytes = subject.bytes;
    let (low, high) = range(content, bytes.len(), end, &scratch.variables);
    let mut from = low;
    loop {
        let found = if from <= high { find(content, &bytes[from..high]).map(|at| from + at) } else { None };
        let found = match found {
            Some(at) if content.ends && at + content.bytes.len() != bytes.len() => {
                // The match must end where the field ends, so only one position is possible.
                let last = bytes.len().saturating_sub(content.bytes.len());
                if last > at && last >= from {
                    find(content, &bytes[last..high.max(last)]).map(|at| last + at)
                } else {
                    None
                }
            }
            found => found,
        };
        let Some(at) = found else {
            return if content.negated { run(rest, subject, end, scratch) } else { Outcome::NoMatch };
        };
        if content.negated {
            return Outcome::NoMatch;
        }
        match run(rest, subject, at + content.bytes.len(), scratch) {
            Outcome::NoMatch if content.relative_next => from = at + 1,
            Outcome::NoMatch => return Outcome::NoMatch,
            outcome => return outcome,
        }
        scratch.steps += 1;
        if scratch.steps > STEPS_MAX {
            return Outcome::Never;
        }
    }
}

/// Returns the offset of the first match in `bytes`.
fn find(content: &Content, bytes: &[u8]) -> Option<usize> {
    let needle = &content.bytes;
    if needle.len() > bytes.len() {
        return None;
    }
    if !content.nocase {
        return memchr::memmem::find(bytes, needle);
    }
    let (first, last) = (needle[0], bytes.len() - needle.len());
    let upper = first.to_ascii_uppercase();
    let mut at = 0;
    while at <= last {
        at += memchr::memchr2(first, upper, &bytes[at..=last])?;
        if bytes[at..at + needle.len()].eq_ignore_ascii_case(needle) {
            return Some(at);
        }
        at += 1;
    }
    None
}

fn run_pcre(pcre: &Pcre, rest: &[Test], subject: Subject<'_>, end: usize, scratch: &mut Scratch) -> Outcome {
    let bytes = subject.bytes;
    let base = if pcre.relative { end.min(bytes.len()) } else { 0 };
    let retries = rest.first().is_some_and(is_relative);
    let mut from = base;
    loop {
        let mut slots = [None; 32];
        let groups = if pcre.captures.is_empty() { 2 } else { 32 };
        let found = pcre.regex.find(&bytes[from..], &mut scratch.regex, &mut slots[..groups]);
        if !found {
            return if pcre.negated { run(rest, subject, end, scratch) } else { Outcome::NoMatch };
        }
        if pcre.negated {
            return Outcome::NoMatch;
        }
        let (Some(start), Some(stop)) = (slots[0], slots[1]) else { return Outcome::NoMatch };
        for (group, capture) in &pcre.captures {
            let at = usize::from(*group) * 2;
            if let (Some(low), Some(high)) = (slots[at], slots[at + 1]) {
                scratch.captures.push((capture.clone(), bytes[from + low..from + high].to_vec()));
            }
        }
        match run(rest, subject, from + stop, scratch) {
            Outcome::NoMatch if retries && from + start < bytes.len() => from += start + 1,
            outcome => return outcome,
        }
        scratch.steps += 1;
        if scratch.steps > STEPS_MAX {
            return Outcome::Never;
        }
    }
}

fn is_relative(test: &Test) -> bool {
    match test {
        Test::Content(content) => content.is_relative(),
        Test::Pcre(pcre) => pcre.relative,
        Test::ByteTest(test) => test.source.relative,
        Test::ByteJump(jump) => jump.source.relative,
        Test::ByteExtract(extract) => extract.source.relative,
        Test::ByteMath(math) => math.source.relative,
        Test::DataAt(at) => at.relative,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{RuleSet, Variables};

    fn check(options: &str, text: &[u8]) -> bool {
        let mut set = RuleSet::default();
        let rule = format!("alert ip any any -> any any ({options} sid:1;)");
        set.add("test", rule.as_bytes(), &Variables::default(), false);
        let rule = set.rules.first().unwrap_or_else(|| panic!("{options}: {:?}", set.unsupported));
        matches(&rule.chains[0].tests, Subject::new(text), &mut Scratch::default())
    }

    #[test]
    fn contents_match_in_their_ranges() {
        assert!(check(r#"content:"b"; offset:1;"#, b"ab") && !check(r#"content:"a"; offset:1;"#, b"ab"));
        assert!(check(r#"content:"AB"; nocase;"#, b"xaB") && !check(r#"content:"AB";"#, b"xab"));
        assert!(check(r#"content:"a"; depth:1;"#, b"ab") && !check(r#"content:"b"; depth:1;"#, b"ab"));
        assert!(check(r#"content:"ab"; startswith; content:"cd"; endswith;"#, b"abcd"));
        assert!(!check(r#"content:"b"; startswith;"#, b"ab") && check(r#"content:"a"; endswith;"#, b"aba"));
        assert!(check(r#"content:!"x";"#, b"ab") && !check(r#"content:!"a";"#, b"ab"));
    }

    #[test]
    fn relative_contents_try_later_places() {
        let rule = r#"content:"a"; content:"b"; distance:1; within:1;"#;
        assert!(check(rule, b"ab a.b") && !check(rule, b"ab"));
        assert!(check(r#"content:"a"; content:"b"; distance:-2; within:2;"#, b"ba"));
        assert!(check(r#"content:"AllWork"; content:"DullBoy"; distance:1; within:7;"#, b"AllWorkADullBoy"));
        assert!(
            check(r#"content:"a"; isdataat:1,relative;"#, b"aa")
                && !check(r#"content:"a"; isdataat:1,relative;"#, b"ba")
        );
        assert!(check(r#"content:"a"; isdataat:!1,relative;"#, b"ba"));
    }

    #[test]
    fn numbers_and_variables_guide_contents() {
        let rule = r#"byte_extract:1,0,n,string,dec; content:"x"; distance:n; within:1;"#;
        assert!(check(rule, b"2..x") && !check(rule, b"1..x"));
        assert!(check(r#"byte_test:1,>,4,0,relative,string,dec;"#, b"5"));
        assert!(check(r#"content:"a"; byte_jump:1,0,relative; content:"z"; within:1;"#, b"a\x02..z"));
        assert!(check(r#"pcre:"/a./"; content:"c"; within:1;"#, b"abab.abc"));
        assert!(check(r#"base64_decode:relative; base64_data; content:"hello";"#, b"aGVsbG8="));
    }

    #[test]
    fn the_number_of_steps_is_bounded() {
        let rule = r#"content:"a"; content:"a"; distance:0; content:"a"; distance:0; content:"a"; distance:0; content:"b"; distance:0;"#;
        assert!(!check(rule, &[b'a'; 4000]));
    }
}
