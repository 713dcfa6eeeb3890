//! Types and values of constants.

use super::types::{Kind, Type};

/// Returns the value and the type of a number.
pub(super) fn number(word: &str) -> (Option<i128>, Type) {
    let word = word.replace('\'', "");
    let lower = word.to_ascii_lowercase();
    let hexadecimal = lower.starts_with("0x");
    if lower.contains('.') || !hexadecimal && lower.contains('e') || hexadecimal && lower.contains('p') {
        let name = match lower.as_bytes().last() {
            Some(b'f') if !hexadecimal => "float",
            Some(b'l') => "long double",
            _ => "double",
        };
        return (None, Type::new(Kind::Floating(name.to_owned())));
    }
    let digits = lower.trim_end_matches(['u', 'l', 'i', 'j']);
    let suffix = &lower[digits.len()..];
    let (radix, text) = if hexadecimal {
        (16, &digits[2..])
    } else if let Some(text) = digits.strip_prefix("0b") {
        (2, text)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    let value = i128::from_str_radix(text, radix).ok();
    let unsigned = suffix.contains('u');
    let long = suffix.contains('l');
    let large = value.unwrap_or(0);
    let name = if unsigned {
        if long || large > i128::from(u32::MAX) { "unsigned long" } else { "unsigned int" }
    } else if radix != 10 && !long && large > i128::from(i32::MAX) && large <= i128::from(u32::MAX) {
        "unsigned int"
    } else if radix != 10 && large > i128::from(i64::MAX) {
        "unsigned long"
    } else if long || large > i128::from(i32::MAX) {
        "long"
    } else {
        "int"
    };
    (value, Type::integer(name))
}

/// Returns the value of a character constant with one character.
pub(super) fn character(word: &str) -> Option<i128> {
    let inner = word.strip_prefix('\'')?.strip_suffix('\'')?;
    match inner.as_bytes() {
        [one] => Some(i128::from(*one)),
        [b'\\', escape] => match escape {
            b'0' => Some(0),
            b'n' => Some(10),
            b't' => Some(9),
            b'r' => Some(13),
            b'\\' | b'\'' | b'"' => Some(i128::from(*escape)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the type of the result of a builtin function.
pub(super) fn builtin(name: &str) -> Type {
    let name = name.trim_start_matches("__builtin_").trim_start_matches("__");
    let starts = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
    if starts(&["bswap16"]) {
        return Type::integer("unsigned short");
    }
    if starts(&["bswap32"]) {
        return Type::integer("unsigned int");
    }
    if starts(&["bswap64", "strlen", "object_size", "strspn", "strcspn", "ia32_crc32di"]) {
        return Type::integer("unsigned long");
    }
    if starts(&["ia32_crc32"]) {
        return Type::integer("unsigned int");
    }
    if starts(&["expect", "labs"]) {
        return Type::integer("long");
    }
    if starts(&["popcount", "clz", "ctz", "ffs", "parity", "memcmp", "strcmp", "strncmp", "constant_p", "isnan", "abs"])
    {
        return Type::int();
    }
    if starts(&["prefetch", "trap", "unreachable", "assume"]) {
        return Type::void();
    }
    if starts(&["memcpy", "memset", "memmove", "alloca", "assume_aligned", "malloc", "calloc", "frame_address"]) {
        return Type::pointer(Type::void());
    }
    if starts(&["sqrt", "fabs", "exp", "log", "pow", "sin", "cos", "floor", "ceil", "huge_val", "nan", "inf"]) {
        return Type::new(Kind::Floating("double".to_owned()));
    }
    Type::unknown()
}
