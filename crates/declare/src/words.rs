//! Converts table keys to 64-bit words, which tables store and compare.

use crate::types::{Field, FieldType, Scalar};
use crate::value::Words;

/// Part of a 64-bit word of a table key: a field, or half of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index of the field in the key.
    pub field: usize,
    /// Index of the number within the field's value. Only the lower half of an IPv6 address has
    /// index 1.
    pub word: usize,
    /// Position of the value's lowest bit in the word.
    pub shift: u32,
    /// Number of significant bits of the value.
    pub bits: u32,
}

/// Layout of a table key in 64-bit words. Each word is a list of parts. Fields fill a word from its
/// low bits. A field that does not fit begins the next word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyWords(pub Vec<Vec<Part>>);

impl KeyWords {
    /// Assigns the fields of a table key to 64-bit words. Arrays and structs are left out.
    pub fn of(fields: &[Field]) -> Self {
        let mut words: Vec<Vec<Part>> = Vec::new();
        let mut used = 64;
        for (index, field) in fields.iter().enumerate() {
            let FieldType::Scalar(scalar) = field.kind else { continue };
            for word in 0..scalar.words() {
                let bits = word_bits(scalar);
                if used + bits > 64 {
                    words.push(Vec::new());
                    used = 0;
                }
                if let Some(parts) = words.last_mut() {
                    parts.push(Part { field: index, word, shift: used, bits });
                }
                used += bits;
            }
        }
        Self(words)
    }

    /// Returns the number of words.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the key has no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Packs the fields of a table key into words. `values` contains one value per field.
    pub fn pack(&self, values: &[Words]) -> Vec<u64> {
        let part = |part: &Part| values[part.field][part.word] << part.shift;
        self.0.iter().map(|parts| parts.iter().map(part).fold(0, |word, bits| word | bits)).collect()
    }

    /// Extracts the field values from the words of a table key, as the inverse of
    /// [`KeyWords::pack`].
    pub fn unpack(&self, words: &[u64]) -> Vec<Words> {
        let fields = self.0.iter().flatten().map(|part| part.field + 1).max().unwrap_or(0);
        let mut values = vec![[0; 2]; fields];
        for (parts, word) in self.0.iter().zip(words) {
            for part in parts {
                values[part.field][part.word] = word >> part.shift & u64::MAX >> (64 - part.bits);
            }
        }
        values
    }
}

fn word_bits(scalar: Scalar) -> u32 {
    scalar.bits().min(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(types: &[Scalar]) -> Vec<Field> {
        let field = |kind: &Scalar| Field { name: "x".to_owned(), kind: FieldType::Scalar(*kind), text: String::new() };
        types.iter().map(field).collect()
    }

    #[test]
    fn fields_fill_words_and_come_back() {
        let five = key(&[Scalar::Ipv4, Scalar::Ipv4, Scalar::Unsigned(16), Scalar::Unsigned(16), Scalar::Unsigned(8)]);
        let words = KeyWords::of(&five);
        assert_eq!(words.len(), 2);
        let values = [[1 << 31, 0], [u32::MAX.into(), 0], [80, 0], [65535, 0], [6, 0]];
        assert_eq!(words.pack(&values), [0xffff_ffff_8000_0000, 0x6_ffff_0050]);
        assert_eq!(words.unpack(&words.pack(&values)), values);

        let six = key(&[Scalar::Unsigned(8), Scalar::Ipv6]);
        let words = KeyWords::of(&six);
        assert_eq!(words.len(), 3);
        let values = [[17, 0], [0x2001_0db8 << 32, 1]];
        assert_eq!(words.pack(&values), [17, 0x2001_0db8 << 32, 1]);
        assert_eq!(words.unpack(&words.pack(&values)), values);
    }
}
