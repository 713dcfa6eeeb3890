//! Evaluates rule options that read numbers from a field: `byte_test`, `byte_jump`, `byte_extract`
//! and `byte_math`.

use super::chain::{Subject, value};
use crate::rules::bytes::{
    ByteExtract, ByteJump, ByteMath, ByteSource, ByteTest, Encoding, MathOperator, TestOperator,
};

type Variables = [u64; 16];

/// Reads a number from a field. Returns the number with its start and end offsets.
fn read(source: &ByteSource, subject: Subject<'_>, end: usize, variables: &Variables) -> Option<(u64, usize, usize)> {
    let start = value(source.offset, variables) + if source.relative { end as i64 } else { 0 };
    let start = usize::try_from(start).ok()?;
    let count = usize::try_from(value(source.bytes, variables)).ok()?;
    let bytes = subject.bytes.get(start..)?;
    let (mut number, used) = match source.encoding {
        Encoding::Text(base) => text(bytes.get(..count.min(bytes.len()))?, base)?,
        encoding => {
            let bytes = bytes.get(..count)?;
            let little = encoding == Encoding::Little || encoding == Encoding::Dce && subject.dce_little;
            (binary(bytes, little)?, count)
        }
    };
    if let Some(mask) = source.bitmask {
        number = (number & u64::from(mask)) >> mask.trailing_zeros().min(31);
    }
    Some((number, start, start + used))
}

fn binary(bytes: &[u8], little: bool) -> Option<u64> {
    if bytes.len() > 8 {
        return None;
    }
    let fold = |number, byte: &u8| number << 8 | u64::from(*byte);
    Some(if little { bytes.iter().rev().fold(0, fold) } else { bytes.iter().fold(0, fold) })
}

/// Reads digits like the C function `strtoull`. Leading spaces and a prefix such as `0x` are
/// allowed. Returns the value and the number of bytes read.
fn text(bytes: &[u8], base: u8) -> Option<(u64, usize)> {
    let mut at = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    if matches!(bytes.get(at), Some(b'+')) {
        at += 1;
    }
    let mut base = u32::from(base);
    let prefixed =
        bytes.len() > at + 2 && bytes[at] == b'0' && bytes[at + 1] | 0x20 == b'x' && bytes[at + 2].is_ascii_hexdigit();
    if prefixed && matches!(base, 0 | 16) {
        at += 2;
        base = 16;
    } else if base == 0 {
        base = if bytes.get(at) == Some(&b'0') { 8 } else { 10 };
    }
    let digits = bytes[at..].iter().map_while(|byte| char::from(*byte).to_digit(base));
    let (mut number, mut count) = (0u64, 0);
    for digit in digits {
        number = number.checked_mul(u64::from(base))?.checked_add(u64::from(digit))?;
        count += 1;
    }
    (count > 0).then_some((number, at + count))
}

pub(super) fn test(test: &ByteTest, subject: Subject<'_>, end: usize, variables: &Variables) -> bool {
    let Some((number, ..)) = read(&test.source, subject, end, variables) else { return false };
    let operand = value(test.value, variables) as u64;
    let holds = match test.operator {
        TestOperator::Less => number < operand,
        TestOperator::Greater => number > operand,
        TestOperator::Equal => number == operand,
        TestOperator::LessOrEqual => number <= operand,
        TestOperator::GreaterOrEqual => number >= operand,
        TestOperator::And => number & operand != 0,
        TestOperator::Xor => number ^ operand != 0,
    };
    holds != test.negated
}

/// Returns the offset to which a `byte_jump` option moves, or `None` if it is outside the field.
pub(super) fn jump(jump: &ByteJump, subject: Subject<'_>, end: usize, variables: &Variables) -> Option<usize> {
    let zero = value(jump.source.bytes, variables) == 0;
    let (number, start, after) = if zero {
        let start = value(jump.source.offset, variables) + if jump.source.relative { end as i64 } else { 0 };
        let start = usize::try_from(start).ok().filter(|start| *start <= subject.bytes.len())?;
        (0, start, start)
    } else {
        read(&jump.source, subject, end, variables)?
    };
    let _ = start;
    let mut distance = i64::try_from(number).ok()?.checked_mul(i64::from(jump.multiplier.max(1)))?;
    if jump.align {
        distance = distance.checked_add(3)? & !3;
    }
    distance = distance.checked_add(value(jump.post_offset, variables))?;
    let base = match (jump.from_beginning, jump.from_end) {
        (true, _) => 0,
        (_, true) => subject.bytes.len() as i64,
        _ => after as i64,
    };
    let target = usize::try_from(base.checked_add(distance)?).ok()?;
    (target <= subject.bytes.len()).then_some(target)
}

/// Returns the number that a `byte_extract` option reads, and the offset after the number.
pub(super) fn extract(
    extract: &ByteExtract,
    subject: Subject<'_>,
    end: usize,
    variables: &Variables,
) -> Option<(u64, usize)> {
    let (number, _, after) = read(&extract.source, subject, end, variables)?;
    let mut number = number.wrapping_mul(u64::from(extract.multiplier.max(1)));
    if extract.align > 0 {
        number = number.next_multiple_of(u64::from(extract.align));
    }
    Some((number, after))
}

/// Returns the result of a `byte_math` option, and the offset after the number that it reads.
pub(super) fn math(math: &ByteMath, subject: Subject<'_>, end: usize, variables: &Variables) -> Option<(u64, usize)> {
    let (number, _, after) = read(&math.source, subject, end, variables)?;
    let operand = value(math.value, variables) as u64;
    let result = match math.operator {
        MathOperator::Add => number.wrapping_add(operand),
        MathOperator::Subtract => number.wrapping_sub(operand),
        MathOperator::Multiply => number.wrapping_mul(operand),
        MathOperator::Divide => number.checked_div(operand)?,
        MathOperator::ShiftLeft => number.checked_shl(operand.try_into().ok()?).unwrap_or(0),
        MathOperator::ShiftRight => number.checked_shr(operand.try_into().ok()?).unwrap_or(0),
    };
    Some((result & 0xffff_ffff, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_text_like_strtoull() {
        assert_eq!(text(b" 12x", 10), Some((12, 3)));
        assert_eq!(text(b"0x1f", 16), Some((31, 4)));
        assert_eq!(text(b"0x1f", 0), Some((31, 4)));
        assert_eq!(text(b"017", 0), Some((15, 3)));
        assert_eq!(text(b"z", 10), None);
        assert_eq!(text(b"99999999999999999999", 10), None);
    }

    #[test]
    fn reads_both_byte_orders() {
        assert_eq!((binary(&[1, 2], false), binary(&[1, 2], true)), (Some(0x102), Some(0x201)));
        assert_eq!(binary(&[0; 9], false), None);
    }
}
