//! Groups the tests of a rule by the field that they inspect. Keywords before or after a `content`
//! option select its field.

use super::bytes::{Names, base64_decode};
use super::content::{Content, Value};
use super::field::{Field, Kind};
use super::number::NumberTest;
use super::rule::{Chain, Test};
use super::text::unquote;
use super::transform::Transform;
use super::{keywords, pcre};

/// Tests of a rule that is being built, grouped by field.
pub(super) struct Chains {
    chains: Vec<Chain>,
    /// Group of tests to which the next test is added.
    current: Option<usize>,
    /// Group and index of the last `content` test.
    last: Option<(usize, usize)>,
    /// Group of the last test.
    last_chain: Option<usize>,
    /// Whether new tests inspect the output of the last `base64_decode` option.
    in_base64: bool,
    /// Whether field names precede their `content` options, as in Snort 3.
    snort3: bool,
}

const NO_CONTENT: &str = "no content precedes the modifier";
const NO_VALUE: &str = "the option lacks a value";
const BAD: &str = "the value is not valid";

impl Chains {
    pub(super) fn new(snort3: bool) -> Self {
        Self { chains: Vec::new(), current: None, last: None, last_chain: None, in_base64: false, snort3 }
    }

    /// Adds a rule option that tests or selects a field. Returns false for any other option.
    pub(super) fn option(&mut self, name: &str, value: Option<&str>, names: &mut Names) -> Result<bool, &'static str> {
        match (name, value) {
            ("content", Some(value)) => self.content(value, names)?,
            ("content" | "uricontent" | "pcre", None) => return Err(NO_VALUE),
            ("uricontent", Some(value)) => {
                self.content(value, names)?;
                self.move_last(Field::HttpUri)?;
            }
            ("pcre", Some(value)) => self.pcre(value)?,
            ("base64_decode", value) => {
                let (bytes, offset, relative) = base64_decode(value.unwrap_or(""))?;
                self.push(Test::Base64 { bytes, offset, relative, tests: Vec::new() });
            }
            ("base64_data", None) => self.in_base64 = true,
            ("bsize", Some(value)) => {
                let test = NumberTest::parse(value).ok_or(BAD)?;
                if self.current.is_none() {
                    return Err("no field precedes the option");
                }
                self.push(Test::Size(test));
            }
            ("absent", value) => {
                let or_else = match value.map(str::trim) {
                    None => false,
                    Some("or_else") => true,
                    Some(_) => return Err(BAD),
                };
                self.current
                    .filter(|at| self.chains[*at].field != Field::Payload)
                    .ok_or("no field precedes the option")?;
                self.push(Test::Absent { or_else });
            }
            _ => {
                if self.content_modifier(name, value, names)? || self.field(name, value)? {
                    return Ok(true);
                }
                return keywords::option(self, name, value);
            }
        }
        Ok(true)
    }

    /// Adds a `content` test and its modifiers, which Snort 3 writes after commas.
    fn content(&mut self, value: &str, names: &Names) -> Result<(), &'static str> {
        let end = value.rfind('"').ok_or("the byte string is not quoted")?;
        let (negated, spelling) = unquote(&value[..=end]);
        self.push(Test::Content(Content::parse(spelling, negated)?));
        for word in value[end + 1..].split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, value) = match word.split_once(char::is_whitespace) {
                Some((name, value)) => (name, Some(value.trim())),
                None => (word, None),
            };
            let name = match name {
                "fast_pattern_offset" | "fast_pattern_length" => continue,
                name => name,
            };
            if !self.content_modifier(name, value, names)? {
                return Err("a modifier of the content is not supported");
            }
        }
        Ok(())
    }

    fn pcre(&mut self, value: &str) -> Result<(), &'static str> {
        let (test, field) = pcre::parse(value)?;
        match field {
            Some(field) => self.push_to(field, Test::Pcre(test)),
            None => self.push(Test::Pcre(test)),
        }
        Ok(())
    }

    /// Applies a modifier such as `nocase` to the last `content` test. Returns false for any other
    /// option.
    fn content_modifier(&mut self, name: &str, value: Option<&str>, names: &Names) -> Result<bool, &'static str> {
        let is_modifier = matches!(
            name,
            "nocase"
                | "offset"
                | "depth"
                | "distance"
                | "within"
                | "startswith"
                | "endswith"
                | "fast_pattern"
                | "rawbytes"
        );
        if !is_modifier {
            return Ok(false);
        }
        let operand = || value.ok_or(NO_VALUE).and_then(|text| names.value(text));
        let content = self.last_content().ok_or(NO_CONTENT)?;
        match name {
            "nocase" => content.set_nocase(),
            "offset" => content.offset = Some(operand()?),
            "depth" => content.depth = Some(operand()?),
            "distance" => content.distance = Some(operand()?),
            "within" => content.within = Some(operand()?),
            "startswith" => content.starts = true,
            "endswith" => content.ends = true,
            "fast_pattern" => {
                content.fast_pattern = true;
                if let Some((offset, length)) = value.and_then(|value| value.split_once(',')) {
                    let number = |text: &str| text.trim().parse::<u16>().map_err(|_| BAD);
                    let part = (number(offset)?, number(length)?);
                    if part.1 == 0 || usize::from(part.0) + usize::from(part.1) > content.bytes.len() {
                        return Err(BAD);
                    }
                    content.fast_part = Some(part);
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Selects a field for the next tests, or moves the last `content` test to the field. Returns
    /// false if `name` is not a field.
    fn field(&mut self, name: &str, value: Option<&str>) -> Result<bool, &'static str> {
        if value.is_some() {
            return Ok(false);
        }
        if let Some(field) = Field::modifier(name).filter(|_| !self.snort3) {
            if self.last_is_plain() {
                self.move_last(field)?;
                return Ok(true);
            }
            if Field::sticky(name).is_none() {
                return Err(NO_CONTENT);
            }
        }
        let Some(field) = Field::sticky(name) else { return Ok(false) };
        self.select(field);
        Ok(true)
    }

    /// Selects `field` for the following tests.
    pub(super) fn select(&mut self, field: Field) {
        self.in_base64 = false;
        let repeated = matches!(field.info().kind, Kind::Repeated);
        let current = self.current;
        self.current = Some(if repeated { self.new_chain(field) } else { self.chain_of(field) });
        // A second selection of the same field has no effect without a test in between.
        if let (true, Some(at)) = (repeated, current)
            && self.chains[at].field == field
            && self.chains[at].tests.is_empty()
        {
            self.chains.pop();
            self.current = Some(at);
        }
    }

    /// Adds a transformation of the current field.
    pub(super) fn transform(&mut self, transform: Transform) -> Result<(), &'static str> {
        let at =
            self.current.filter(|at| self.chains[*at].field != Field::Payload).ok_or("no field precedes the option")?;
        let field = self.chains[at].field;
        if !self.chains[at].tests.is_empty() {
            self.current = Some(self.new_chain(field));
        }
        let at = self.current.unwrap_or(at);
        self.chains[at].transforms.push(transform);
        Ok(())
    }

    /// Adds a test of an event of an application protocol.
    pub(super) fn event(&mut self, app: &str, event: &str) -> Result<(), &'static str> {
        keywords::app_event(self, app, event)
    }

    /// Adds a test to the selected field. Without a selected field, a relative test inspects the
    /// field of the previous test. Any other test then inspects the payload.
    pub(super) fn push(&mut self, test: Test) {
        let joins_last = is_relative(&test) && !matches!(test, Test::Content(_));
        let at = match (self.current, self.last_chain) {
            (Some(at), _) => at,
            (None, Some(at)) if joins_last => at,
            _ => self.chain_of(Field::Payload),
        };
        self.last_chain = Some(at);
        let is_content = matches!(test, Test::Content(_));
        if self.in_base64
            && let Some(Test::Base64 { tests, .. }) = self.chains[at].tests.last_mut()
        {
            tests.push(test);
            self.last = if is_content { Some((at, usize::MAX)) } else { self.last };
            return;
        }
        self.chains[at].tests.push(test);
        if is_content {
            self.last = Some((at, self.chains[at].tests.len() - 1));
        }
    }

    /// Adds a test to a field without selecting it.
    pub(super) fn push_to(&mut self, field: Field, test: Test) {
        let chain = if field.info().kind == Kind::Repeated { self.new_chain(field) } else { self.chain_of(field) };
        self.chains[chain].tests.push(test);
        self.last_chain = Some(chain);
    }

    fn last_content(&mut self) -> Option<&mut Content> {
        let (chain, test) = self.last?;
        let tests = &mut self.chains[chain].tests;
        let test = if test == usize::MAX {
            match tests.last_mut()? {
                Test::Base64 { tests, .. } => tests.iter_mut().rev().find(|test| matches!(test, Test::Content(_)))?,
                _ => return None,
            }
        } else {
            tests.get_mut(test)?
        };
        match test {
            Test::Content(content) => Some(content),
            _ => None,
        }
    }

    /// Returns whether the last `content` test inspects the payload, and may move to another field.
    fn last_is_plain(&self) -> bool {
        let no_sticky = self.current.is_none_or(|at| self.chains[at].field == Field::Payload);
        no_sticky && self.last.is_some_and(|(chain, _)| self.chains[chain].field == Field::Payload)
    }

    /// Moves the last `content` test to `field`.
    fn move_last(&mut self, field: Field) -> Result<(), &'static str> {
        let (chain, index) = self.last.filter(|(_, index)| *index != usize::MAX).ok_or(NO_CONTENT)?;
        let test = self.chains[chain].tests.remove(index);
        let target = self.chain_of(field);
        self.chains[target].tests.push(test);
        self.last = Some((target, self.chains[target].tests.len() - 1));
        self.last_chain = Some(target);
        Ok(())
    }

    fn chain_of(&mut self, field: Field) -> usize {
        let known = self.chains.iter().position(|chain| chain.field == field && chain.transforms.is_empty());
        known.unwrap_or_else(|| self.new_chain(field))
    }

    fn new_chain(&mut self, field: Field) -> usize {
        self.chains.push(Chain { field, transforms: Vec::new(), tests: Vec::new() });
        self.chains.len() - 1
    }

    /// Returns the tests grouped by field. For an invalid test, returns its keyword and the reason.
    pub(super) fn finish(mut self) -> Result<Vec<Chain>, (String, &'static str)> {
        for chain in &mut self.chains {
            if chain.tests.is_empty() && chain.field != Field::Payload {
                return Err((chain.field.info().name.to_owned(), "no test follows the field"));
            }
            if chain.tests.iter().any(|test| matches!(test, Test::Content(content) if is_too_deep(content))) {
                return Err(("depth".to_owned(), "the depth is below the length of the content"));
            }
            mark_relative(&mut chain.tests);
        }
        self.chains.retain(|chain| !chain.tests.is_empty());
        Ok(self.chains)
    }
}

/// Returns whether the byte string is longer than its search range (option `depth`).
fn is_too_deep(content: &Content) -> bool {
    matches!(content.depth, Some(Value::Number(depth)) if depth < content.bytes.len() as i64)
}

/// Returns whether a test starts where the previous match ended.
fn is_relative(test: &Test) -> bool {
    match test {
        Test::Content(content) => content.is_relative(),
        Test::Pcre(pcre) => pcre.relative,
        Test::ByteTest(test) => test.source.relative,
        Test::ByteJump(jump) => jump.source.relative,
        Test::ByteExtract(extract) => extract.source.relative,
        Test::ByteMath(math) => math.source.relative,
        Test::DataAt(at) => at.relative,
        Test::Base64 { relative, .. } => *relative,
        _ => false,
    }
}

/// Marks each `content` test whose match decides where a later test starts.
fn mark_relative(tests: &mut [Test]) {
    for index in 1..tests.len() {
        if is_relative(&tests[index]) {
            let before = tests[..index].iter_mut().rev().find(|test| matches!(test, Test::Content(_)));
            if let Some(Test::Content(content)) = before {
                content.relative_next = true;
            }
        }
    }
    for test in tests {
        if let Test::Base64 { tests, .. } = test {
            mark_relative(tests);
        }
    }
}
