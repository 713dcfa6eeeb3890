//! Parses the rule options `byte_test`, `byte_jump`, `byte_extract`, `byte_math` and `isdataat`.

use super::content::Value;
use super::number::parse_number;

/// Position, size and encoding of a number in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSource {
    /// Number of bytes to read. In textual numbers, each byte is a digit.
    pub bytes: Value,
    /// Offset of the number from the start of the field, or from the end of the previous match.
    pub offset: Value,
    /// Whether `offset` counts from the end of the previous match.
    pub relative: bool,
    /// Encoding of the number.
    pub encoding: Encoding,
    /// Mask for the number. The masked number is shifted right by the number of trailing zero bits
    /// in the mask.
    pub bitmask: Option<u32>,
}

/// Encoding of a number in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Binary number, most significant byte first.
    Big,
    /// Binary number, least significant byte first.
    Little,
    /// Binary number in the byte order of the DCE/RPC header.
    Dce,
    /// Number as text in base 10, 16 or 8. With base 0, the prefix `0x` or `0` selects the base.
    Text(u8),
}

/// Operator of `byte_test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOperator {
    /// `<`
    Less,
    /// `>`
    Greater,
    /// `=`
    Equal,
    /// `<=`
    LessOrEqual,
    /// `>=`
    GreaterOrEqual,
    /// `&`
    And,
    /// `^`
    Xor,
}

/// Comparison of a number in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteTest {
    /// Number in the field.
    pub source: ByteSource,
    /// Operator of the comparison.
    pub operator: TestOperator,
    /// Whether the result of the comparison is inverted.
    pub negated: bool,
    /// Right operand of the comparison.
    pub value: Value,
}

/// Reads a number from the field, and moves the next test's position by it (option `byte_jump`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteJump {
    /// Number in the field.
    pub source: ByteSource,
    /// Factor by which the number is multiplied.
    pub multiplier: u32,
    /// Whether the result is rounded up to a multiple of four.
    pub align: bool,
    /// Whether the jump starts at the start of the field.
    pub from_beginning: bool,
    /// Whether the jump starts at the end of the field.
    pub from_end: bool,
    /// Number of bytes added after the jump.
    pub post_offset: Value,
}

/// Stores a number from the field in a variable (option `byte_extract`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteExtract {
    /// Number in the field.
    pub source: ByteSource,
    /// Factor by which the number is multiplied.
    pub multiplier: u32,
    /// Alignment in bytes: 0, 2 or 4.
    pub align: u8,
    /// Variable that receives the number.
    pub variable: u8,
}

/// Operator of `byte_math`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MathOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
}

/// Calculates with a number from the field and stores the result in a variable (option
/// `byte_math`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteMath {
    /// Number in the field, which is the left operand.
    pub source: ByteSource,
    /// Operator of the calculation.
    pub operator: MathOperator,
    /// Right operand of the calculation.
    pub value: Value,
    /// Variable that receives the result.
    pub variable: u8,
}

/// Tests whether the field has a byte at a position (option `isdataat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IsDataAt {
    /// Position of the byte.
    pub position: Value,
    /// Whether the position counts from the end of the previous match.
    pub relative: bool,
    /// Whether the result of the test is inverted.
    pub negated: bool,
}

/// Names of a rule's variables, in the order of their definition.
#[derive(Debug, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// Returns the index of the variable `name`, which is defined if necessary.
    fn define(&mut self, name: &str) -> Result<u8, &'static str> {
        const BAD: &str = "the name of a variable is not valid";
        let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
        if !valid {
            return Err(BAD);
        }
        if let Some(index) = self.0.iter().position(|known| known == name) {
            return Ok(index as u8);
        }
        if self.0.len() >= 16 {
            return Err("the rule has more than 16 variables");
        }
        self.0.push(name.to_owned());
        Ok(self.0.len() as u8 - 1)
    }

    /// Parses a number or the name of a defined variable.
    pub fn value(&self, text: &str) -> Result<Value, &'static str> {
        let text = text.trim();
        if let Some(number) = signed(text) {
            return Ok(Value::Number(number));
        }
        match self.0.iter().position(|known| known == text) {
            Some(index) => Ok(Value::Variable(index as u8)),
            None => Err("the value is neither a number nor a variable of this rule"),
        }
    }
}

fn signed(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { -number } else { number })
}

/// Modifiers of number options such as `byte_test` and `byte_jump`.
struct Flags {
    relative: bool,
    little: bool,
    dce: bool,
    string: bool,
    base: Option<u8>,
    bitmask: Option<u32>,
}

impl Flags {
    fn new() -> Self {
        Self { relative: false, little: false, dce: false, string: false, base: None, bitmask: None }
    }

    /// Parses a modifier that several number options accept. Returns false for any other word.
    fn take(&mut self, word: &str) -> Result<bool, &'static str> {
        match word {
            "relative" => self.relative = true,
            "big" => self.little = false,
            "little" => self.little = true,
            "dce" => self.dce = true,
            "string" => self.string = true,
            "dec" => self.base = Some(10),
            "hex" => self.base = Some(16),
            "oct" => self.base = Some(8),
            _ => {
                let mut parts = word.split_whitespace();
                let (name, value) = (parts.next(), parts.next());
                return match (name, value) {
                    (Some("string"), Some(base)) => {
                        self.string = true;
                        self.take(base)
                    }
                    (Some("endian"), Some(order)) => self.take(order),
                    (Some("bitmask"), Some(mask)) => {
                        let digits = mask.trim_start_matches("0x").trim_start_matches("0X");
                        self.bitmask = Some(u32::from_str_radix(digits, 16).map_err(|_| "the bitmask is not valid")?);
                        Ok(true)
                    }
                    _ => Ok(false),
                };
            }
        }
        Ok(true)
    }

    fn source(self, bytes: Value, offset: Value) -> Result<ByteSource, &'static str> {
        let encoding = match (self.dce, self.string) {
            (true, false) => Encoding::Dce,
            (false, true) => Encoding::Text(self.base.unwrap_or(0)),
            (false, false) if self.little => Encoding::Little,
            (false, false) => Encoding::Big,
            (true, true) => return Err("dce and string exclude each other"),
        };
        if let Value::Number(count) = bytes {
            let most = if self.string { 23 } else { 8 };
            if !(0..=most).contains(&count) {
                return Err("the number of bytes is out of range");
            }
        }
        Ok(ByteSource { bytes, offset, relative: self.relative, encoding, bitmask: self.bitmask })
    }
}

fn words(value: &str) -> Vec<&str> {
    value.split(',').map(str::trim).collect()
}

const UNKNOWN: &str = "a modifier is not supported";
const FEW: &str = "the option has too few values";

/// Parses the option `byte_test` in the form
/// `byte_test:bytes,[!]operator,value,offset[,modifiers]`.
pub fn byte_test(value: &str, names: &Names) -> Result<ByteTest, &'static str> {
    let words = words(value);
    let [bytes, operator, operand, offset, rest @ ..] = words.as_slice() else { return Err(FEW) };
    let (negated, operator) = match operator.strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, *operator),
    };
    let operator = match operator {
        "<" => TestOperator::Less,
        ">" => TestOperator::Greater,
        "=" | "==" | "" => TestOperator::Equal,
        "<=" => TestOperator::LessOrEqual,
        ">=" => TestOperator::GreaterOrEqual,
        "&" => TestOperator::And,
        "^" => TestOperator::Xor,
        _ => return Err("the operator is not valid"),
    };
    let mut flags = Flags::new();
    for word in rest {
        if !flags.take(word)? {
            return Err(UNKNOWN);
        }
    }
    let source = flags.source(names.value(bytes)?, names.value(offset)?)?;
    Ok(ByteTest { source, operator, negated, value: names.value(operand)? })
}

/// Parses `byte_jump:bytes,offset[,modifiers]`.
pub fn byte_jump(value: &str, names: &Names) -> Result<ByteJump, &'static str> {
    let words = words(value);
    let [bytes, offset, rest @ ..] = words.as_slice() else { return Err(FEW) };
    let mut flags = Flags::new();
    let (mut multiplier, mut align, mut from_beginning, mut from_end) = (1, false, false, false);
    let mut post_offset = Value::Number(0);
    for word in rest {
        if flags.take(word)? {
            continue;
        }
        match word.split_whitespace().collect::<Vec<_>>()[..] {
            ["align"] => align = true,
            ["from_beginning"] => from_beginning = true,
            ["from_end"] => from_end = true,
            ["multiplier", factor] => multiplier = factor.parse().map_err(|_| "the multiplier is not valid")?,
            ["post_offset", bytes] => post_offset = names.value(bytes)?,
            _ => return Err(UNKNOWN),
        }
    }
    let source = flags.source(names.value(bytes)?, names.value(offset)?)?;
    Ok(ByteJump { source, multiplier, align, from_beginning, from_end, post_offset })
}

/// Parses `byte_extract:bytes,offset,name[,modifiers]`.
pub fn byte_extract(value: &str, names: &mut Names) -> Result<ByteExtract, &'static str> {
    let words = words(value);
    let [bytes, offset, name, rest @ ..] = words.as_slice() else { return Err(FEW) };
    let mut flags = Flags::new();
    let (mut multiplier, mut align) = (1, 0);
    for word in rest {
        if flags.take(word)? {
            continue;
        }
        match word.split_whitespace().collect::<Vec<_>>()[..] {
            ["align", bytes] => {
                align = bytes.parse().ok().filter(|a| [0u8, 2, 4].contains(a)).ok_or("the alignment is not valid")?
            }
            ["multiplier", factor] => multiplier = factor.parse().map_err(|_| "the multiplier is not valid")?,
            _ => return Err(UNKNOWN),
        }
    }
    let source = flags.source(names.value(bytes)?, names.value(offset)?)?;
    Ok(ByteExtract { source, multiplier, align, variable: names.define(name)? })
}

/// Parses the option `byte_math` in the form `byte_math:bytes N, offset N, oper +, rvalue N, result
/// NAME[, modifiers]`.
pub fn byte_math(value: &str, names: &mut Names) -> Result<ByteMath, &'static str> {
    let mut flags = Flags::new();
    let (mut bytes, mut offset, mut operator, mut operand, mut result) = (None, None, None, None, None);
    for word in words(value) {
        if flags.take(word)? {
            continue;
        }
        match word.split_whitespace().collect::<Vec<_>>()[..] {
            ["bytes", count] => bytes = Some(names.value(count)?),
            ["offset", position] => offset = Some(names.value(position)?),
            ["oper", sign] => {
                operator = Some(match sign {
                    "+" => MathOperator::Add,
                    "-" => MathOperator::Subtract,
                    "*" => MathOperator::Multiply,
                    "/" => MathOperator::Divide,
                    "<<" => MathOperator::ShiftLeft,
                    ">>" => MathOperator::ShiftRight,
                    _ => return Err("the operator is not valid"),
                })
            }
            ["rvalue", value] => operand = Some(names.value(value)?),
            ["result", name] => result = Some(name.to_owned()),
            _ => return Err(UNKNOWN),
        }
    }
    let (Some(bytes), Some(offset), Some(operator), Some(value), Some(result)) =
        (bytes, offset, operator, operand, result)
    else {
        return Err(FEW);
    };
    Ok(ByteMath { source: flags.source(bytes, offset)?, operator, value, variable: names.define(&result)? })
}

/// Parses `isdataat:[!]position[,relative][,rawbytes]`.
pub fn isdataat(value: &str, names: &Names) -> Result<IsDataAt, &'static str> {
    let (negated, value) = match value.trim().strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let words = words(value);
    let relative = words[1..].contains(&"relative");
    if words[1..].iter().any(|word| !matches!(*word, "relative" | "rawbytes" | "")) {
        return Err(UNKNOWN);
    }
    Ok(IsDataAt { position: names.value(words[0])?, relative, negated })
}

/// Parses `base64_decode:[bytes N][, offset N][, relative]`.
pub fn base64_decode(value: &str) -> Result<(Option<u32>, u32, bool), &'static str> {
    let (mut bytes, mut offset, mut relative) = (None, 0, false);
    for word in words(value) {
        match word.split_whitespace().collect::<Vec<_>>()[..] {
            [] => {}
            ["relative"] => relative = true,
            ["bytes", count] => bytes = Some(parse_number(count).and_then(|n| n.try_into().ok()).ok_or(UNKNOWN)?),
            ["offset", count] => offset = parse_number(count).and_then(|n| n.try_into().ok()).ok_or(UNKNOWN)?,
            _ => return Err(UNKNOWN),
        }
    }
    Ok((bytes, offset, relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_byte_test() {
        let test = byte_test("2,!>,0x10,4,relative,little", &Names::default()).unwrap();
        assert_eq!(test.source.bytes, Value::Number(2));
        assert_eq!((test.operator, test.negated, test.value), (TestOperator::Greater, true, Value::Number(16)));
        assert_eq!((test.source.relative, test.source.encoding), (true, Encoding::Little));
        let text = byte_test("1,=,1,6,relative,string,dec", &Names::default()).unwrap();
        assert_eq!(text.source.encoding, Encoding::Text(10));
        let mask = byte_test("2,=,0x568,0,bitmask 0x3FF0", &Names::default()).unwrap();
        assert_eq!(mask.source.bitmask, Some(0x3ff0));
    }

    #[test]
    fn parses_jumps_and_variables() {
        let mut names = Names::default();
        let extract = byte_extract("1,4,rpkt_len,relative", &mut names).unwrap();
        assert_eq!(extract.variable, 0);
        let jump = byte_jump("rpkt_len,0,relative,post_offset -7,align", &names).unwrap();
        assert_eq!((jump.source.bytes, jump.post_offset, jump.align), (Value::Variable(0), Value::Number(-7), true));
        let math = byte_math("bytes 4, offset 1, oper +, rvalue 248, result var, relative", &mut names).unwrap();
        assert_eq!((math.operator, math.variable), (MathOperator::Add, 1));
        assert!(isdataat("!10,relative", &names).unwrap().negated);
        assert!(byte_jump("other,0", &names).is_err());
        assert!(byte_test("9,=,1,0", &names).is_err());
        assert!(byte_test("1,=,1", &names).is_err());
    }
}
