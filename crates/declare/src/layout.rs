//! Memory layout of structs and table images, according to the rules of C compilers.

use crate::contract::KernelCounters;
use crate::declaration::{Declaration, Flows, Param, ParamShape, Record};
use crate::error::PaddingError;
use crate::types::{Field, FieldType, Scalar};
use crate::words::KeyWords;

/// Offsets of the fields of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// Offset of each field, in bytes.
    pub offsets: Vec<usize>,
    /// Size of the struct in bytes, including padding at its end.
    pub bytes: usize,
    /// Alignment, in bytes.
    pub align: usize,
}

impl RecordLayout {
    /// Returns the layout of a declared struct.
    ///
    /// # Errors
    /// Returns an error if the struct needs padding, because padding bytes are undefined.
    pub(crate) fn of(record: &Record, records: &[Record]) -> Result<Self, PaddingError> {
        let layout = Self::with(&record.fields, records);
        let name = || record.name.clone();
        let mut end = 0;
        for (field, offset) in record.fields.iter().zip(&layout.offsets) {
            if *offset != end {
                let bytes = offset - end;
                return Err(PaddingError::Before { record: name(), bytes, field: field.name.clone() });
            }
            end = offset + size(&field.kind, records).0;
        }
        match layout.bytes == end {
            true => Ok(layout),
            false => Err(PaddingError::AtEnd { record: name(), bytes: layout.bytes - end }),
        }
    }

    /// Returns the layout of a table key or a table row. Padding between fields contains zeros.
    pub fn padded(fields: &[Field]) -> Self {
        Self::with(fields, &[])
    }

    fn with(fields: &[Field], records: &[Record]) -> Self {
        let (mut end, mut align) = (0usize, 1);
        let mut offsets = Vec::new();
        for field in fields {
            let (bytes, field_align) = size(&field.kind, records);
            end = end.next_multiple_of(field_align);
            offsets.push(end);
            end += bytes;
            align = align.max(field_align);
        }
        Self { offsets, bytes: end.next_multiple_of(align), align }
    }
}

/// Returns the size and the alignment of a type, in bytes.
fn size(kind: &FieldType, records: &[Record]) -> (usize, usize) {
    let scalar = |scalar: Scalar| (scalar.word_bytes() * scalar.words(), scalar.word_bytes());
    let record = |name: &str| {
        let found = records.iter().find(|record| record.name == name);
        found.map_or((0, 1), |record| {
            let layout = RecordLayout::with(&record.fields, records);
            (layout.bytes, layout.align)
        })
    };
    let times = |(bytes, align): (usize, usize), count: usize| (bytes * count, align);
    match kind {
        FieldType::Scalar(of) => scalar(*of),
        FieldType::Array(of, count) => times(scalar(*of), *count),
        FieldType::Record(name) => record(name),
        FieldType::Records(name, count) => times(record(name), *count),
    }
}

/// Size of each table's header in a table image, in bytes.
const TABLE_HEADER_BYTES: usize = 128;
/// Size of the fixed start of a table image, in bytes: the magic number, a reserved word and the
/// image size.
const HEADER_BYTES: usize = 16;
/// Alignment of the parts of a table image, in bytes.
const PART_ALIGN_BYTES: usize = 64;

/// Layout of the headers in a table image. Godwit builds the image from the parameters and tables
/// of a function.
///
/// ```text
/// 0        16                    64 * n
/// | header | parameters          | header of each table, 128 bytes | counters | ... the tables
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageLayout {
    /// Offset of the parameters in the image, in bytes.
    pub params_offset: usize,
    /// Parameter layouts in declaration order. Offsets count from the start of the parameters.
    pub params: Vec<ParamLayout>,
    /// Size of the parameters in bytes.
    pub params_bytes: usize,
    /// Offset of the header of each table in the image, in bytes.
    pub tables: Vec<usize>,
    /// Counters that the kernel increments on devices other than the CPU.
    pub counters: KernelCounters,
    /// Offset of the first table, in bytes.
    pub bytes: usize,
}

/// Offsets of the members that a parameter has in C, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamLayout {
    /// Offset of the first C member: the length of a list, the address of a prefix, or any other
    /// value.
    pub first: usize,
    /// Offset of the second C member: the elements of a list, or the mask of a prefix.
    pub second: usize,
}

impl ImageLayout {
    /// Returns the layout of the image of a function.
    pub fn of(declaration: &Declaration) -> Self {
        let (params, params_bytes) = params(&declaration.params);
        let tables_offset = (HEADER_BYTES + params_bytes).next_multiple_of(PART_ALIGN_BYTES);
        let tables: Vec<usize> =
            (0..declaration.tables.len()).map(|index| tables_offset + index * TABLE_HEADER_BYTES).collect();
        let offset = tables_offset + tables.len() * TABLE_HEADER_BYTES;
        let counters = KernelCounters { offset, count: declaration.kernel_counters() };
        let bytes = counters.bytes().end.next_multiple_of(PART_ALIGN_BYTES);
        Self { params_offset: HEADER_BYTES, params, params_bytes, tables, counters, bytes }
    }

    /// Returns whether the function needs an image.
    pub fn is_needed(declaration: &Declaration) -> bool {
        !declaration.params.is_empty() || !declaration.tables.is_empty() || declaration.kernel_counters() > 0
    }
}

/// Returns the parameter layouts and their total size in bytes. Parameters start at a multiple of 8
/// bytes.
fn params(params: &[Param]) -> (Vec<ParamLayout>, usize) {
    let mut end = 0usize;
    let mut layouts = Vec::new();
    let mut place = |bytes: usize, align: usize| {
        let offset = end.next_multiple_of(align);
        end = offset + bytes;
        offset
    };
    for param in params {
        let (first, second) = match param.shape {
            ParamShape::Scalar(scalar) => {
                let offset = place(scalar.word_bytes() * scalar.words(), scalar.word_bytes());
                (offset, offset)
            }
            ParamShape::Prefix4 => (place(4, 4), place(4, 4)),
            ParamShape::Prefix6 => (place(16, 8), place(16, 8)),
            ParamShape::List(scalar, max) => {
                let count = place(4, 4);
                (count, place(scalar.word_bytes() * scalar.words() * max as usize, scalar.word_bytes()))
            }
        };
        layouts.push(ParamLayout { first, second });
    }
    (layouts, end.next_multiple_of(8))
}

/// Bit fields in an entry of a packed hash table. A 64-bit entry holds the row, two flags, and a
/// part of the permuted key. The bucket number determines the rest of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Half the number of bits in the permuted table key. The permuted key is at least as long as
    /// the key itself.
    pub half_bits: u32,
    /// Number of bits of a row.
    pub row_bits: u32,
    /// Minimum binary logarithm of the number of buckets.
    pub bucket_bits_min: u32,
}

impl Packing {
    /// Number of flag bits at the low end of an entry. The first flag marks a valid entry. The
    /// second flag marks an entry in the second bucket of its key.
    pub const FLAG_BITS: u32 = 2;
    /// Maximum of [`Packing::bucket_bits_min`], for 512 KiB of buckets. Tables that need more
    /// buckets do not use packed entries.
    const BUCKET_BITS_MIN_MAX: u32 = 14;

    /// Returns the bit fields of a table's entries, or `None` if a key and a row need more than 64
    /// bits.
    pub fn of(key: &[Field], row: &[Field]) -> Option<Self> {
        let bits = |fields: &[Field]| -> u32 {
            let bits = fields.iter().map(|field| match field.kind {
                FieldType::Scalar(scalar) => scalar.bits(),
                _ => u32::MAX / 64,
            });
            bits.sum()
        };
        let (key_bits, row_bits) = (bits(key), bits(row));
        // A permutation of fewer bits would mix the key too little.
        let half_bits = key_bits.div_ceil(2).max(16);
        if half_bits > 31 {
            return None;
        }
        // The bucket number replaces these bits of the key.
        let needed = (2 * half_bits + row_bits + Self::FLAG_BITS).saturating_sub(64).max(8);
        (needed <= Self::BUCKET_BITS_MIN_MAX).then_some(Self { half_bits, row_bits, bucket_bits_min: needed })
    }

    /// Returns the number of low bits in an entry that hold the row and the flags. The higher bits
    /// hold a part of the key.
    pub fn rest_shift(&self) -> u32 {
        self.row_bits + Self::FLAG_BITS
    }
}

/// Layout of the record that a worker keeps for each flow.
///
/// ```text
/// 0      8                24 or 8      ...             ...   record_bytes
/// | meta | packets, bytes | key words  | reverse words | row |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLayout {
    /// Offset of the key's 64-bit words, in bytes.
    pub key_offset: usize,
    /// Number of 64-bit words in the key.
    pub key_words: usize,
    /// Offset of the key for the opposite direction, in bytes.
    pub reverse_offset: usize,
    /// Number of 64-bit words in the key for the opposite direction.
    pub reverse_words: usize,
    /// Offset of the row, in bytes.
    pub row_offset: usize,
    /// Size of the row, in bytes.
    pub row_bytes: usize,
    /// Size of the record in bytes, a power of two or a multiple of 64.
    pub record_bytes: usize,
}

impl FlowLayout {
    /// Returns the layout of the records of flows.
    pub fn of(flows: &Flows) -> Self {
        let (key_words, reverse_words) = (KeyWords::of(&flows.key).len(), KeyWords::of(&flows.reverse).len());
        let key_offset = if flows.counts { 24 } else { 8 };
        let reverse_offset = key_offset + 8 * key_words;
        let row_offset = reverse_offset + 8 * reverse_words;
        let row_bytes = crate::generate::row_layout(flows).bytes;
        let end = row_offset + row_bytes;
        let record_bytes = if end <= 64 { end.next_power_of_two() } else { end.next_multiple_of(64) };
        Self { key_offset, key_words, reverse_offset, reverse_words, row_offset, row_bytes, record_bytes }
    }
}
