//! Parses numeric comparisons in rules, such as `5`, `!5`, `<5`, `>=5`, `1-9` and `1<>9`.

/// Comparison of an unsigned number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberTest {
    /// Equal to the operand.
    Equal(u64),
    /// Not equal to the operand.
    NotEqual(u64),
    /// Below the operand.
    Less(u64),
    /// Not above the operand.
    LessOrEqual(u64),
    /// Above the operand.
    Greater(u64),
    /// Not below the operand.
    GreaterOrEqual(u64),
    /// Strictly between both operands.
    Between(u64, u64),
    /// Not between both operands.
    NotBetween(u64, u64),
    /// The bits under the mask equal the second operand.
    Masked(u64, u64),
    /// The bits under the mask differ from the second operand.
    NotMasked(u64, u64),
}

impl NumberTest {
    /// Returns whether `value` passes the comparison.
    pub fn matches(self, value: u64) -> bool {
        match self {
            Self::Equal(a) => value == a,
            Self::NotEqual(a) => value != a,
            Self::Less(a) => value < a,
            Self::LessOrEqual(a) => value <= a,
            Self::Greater(a) => value > a,
            Self::GreaterOrEqual(a) => value >= a,
            Self::Between(a, b) => value > a && value < b,
            Self::NotBetween(a, b) => value <= a || value >= b,
            Self::Masked(mask, bits) => value & mask == bits,
            Self::NotMasked(mask, bits) => value & mask != bits,
        }
    }

    /// Parses a comparison. `number` converts one operand.
    pub fn parse_with(text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let text = text.trim();
        let number = |operand: &str| number(operand.trim());
        if let Some((low, high)) = text.split_once("<>") {
            let (low, high) = (number(low)?, number(high)?);
            return (low < high).then_some(Self::Between(low, high));
        }
        if let Some(rest) = text.strip_prefix('&') {
            let (mask, bits) = rest.split_once('=')?;
            return match mask.trim().strip_suffix('!') {
                Some(mask) => Some(Self::NotMasked(number(mask)?, number(bits)?)),
                None => Some(Self::Masked(number(mask)?, number(bits)?)),
            };
        }
        for (prefix, make) in [
            ("<=", Self::LessOrEqual as fn(u64) -> Self),
            (">=", Self::GreaterOrEqual),
            ("!=", Self::NotEqual),
            ("<", Self::Less),
            (">", Self::Greater),
            ("=", Self::Equal),
        ] {
            if let Some(rest) = text.strip_prefix(prefix) {
                return Some(make(number(rest)?));
            }
        }
        if let Some(rest) = text.strip_prefix('!') {
            return match rest.split_once('-') {
                Some((low, high)) => Some(Self::NotBetween(number(low)?, number(high)?)),
                None => Some(Self::NotEqual(number(rest)?)),
            };
        }
        if let Some((low, high)) = text.split_once('-') {
            let (low, high) = (number(low)?, number(high)?);
            return (low < high).then_some(Self::Between(low, high));
        }
        Some(Self::Equal(number(text)?))
    }

    /// Parses a numeric comparison. Numbers are decimal or begin with `0x`. Decimal numbers may
    /// have the suffix kb, mb or gb.
    pub fn parse(text: &str) -> Option<Self> {
        Self::parse_with(text, parse_number)
    }
}

/// Parses a number that is decimal or begins with `0x`. A decimal number may have the suffix kb, mb
/// or gb.
pub fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let lower = text.to_ascii_lowercase();
    let units = [("kib", 10), ("kb", 10), ("mib", 20), ("mb", 20), ("gib", 30), ("gb", 30)];
    for (suffix, shift) in units {
        if let Some(digits) = lower.strip_suffix(suffix) {
            return digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift);
        }
    }
    lower.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_every_form() {
        let parse = |text| NumberTest::parse(text).unwrap();
        assert_eq!(parse("5"), NumberTest::Equal(5));
        assert_eq!(parse("!5"), NumberTest::NotEqual(5));
        assert_eq!(parse("< 5"), NumberTest::Less(5));
        assert_eq!(parse(">=0x10"), NumberTest::GreaterOrEqual(16));
        assert_eq!(parse("10<>100"), NumberTest::Between(10, 100));
        assert_eq!(parse("1-9"), NumberTest::Between(1, 9));
        assert_eq!(parse("!1-9"), NumberTest::NotBetween(1, 9));
        assert_eq!(parse("&0x40=0x40"), NumberTest::Masked(64, 64));
        assert_eq!(parse(">1mb"), NumberTest::Greater(1 << 20));
        for bad in ["", "x", "9<>1", "5-", "<"] {
            assert!(NumberTest::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn compares() {
        assert!(NumberTest::Between(1, 9).matches(2) && !NumberTest::Between(1, 9).matches(9));
        assert!(NumberTest::NotBetween(1, 9).matches(9));
        assert!(NumberTest::NotMasked(1, 1).matches(2));
    }
}
