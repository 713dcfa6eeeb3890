//! Format of a reservation record, and recovery of a journal after a power loss.
//!
//! Writes only append to the journal, so they never touch an older record. All records of one write
//! form a batch. A batch is durable before the next batch is written, so a power loss can only
//! damage the last batch:
//!
//! ```text
//! | header | batch 7: record 0, 1, 2 | batch 8: record 0 | batch 9: record 0, 1 ... torn
//!   64       64 each
//!
//! header | text 40 | first batch 8 | its count 8 | check 8 |
//! record | key name 32 | number 8 | batch 8 | index 4 | count 4 | check 8 |    little endian
//! ```
//!
//! The first batch is durable before the file becomes the journal.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::error::Error;

/// Digest of a key and the constant part of its nonces. It identifies the key without revealing it.
pub type KeyName = [u8; 32];

/// Size of a record and of the header, in bytes.
pub(crate) const RECORD_BYTES: usize = 64;
const CHECK_BYTES: usize = 8;

const TEXT: &[u8; 40] = b"godwit sequence numbers, version 1     \n";

/// Reservation of sequence numbers for a key. No number above `number` has been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the key.
    pub name: KeyName,
    /// Last reserved sequence number.
    pub number: u64,
}

/// Decoded record.
struct Record {
    entry: Entry,
    batch: u64,
    index: u32,
    count: u32,
}

fn check(record: &[u8]) -> [u8; CHECK_BYTES] {
    let digest: [u8; 32] = Sha256::digest(&record[..RECORD_BYTES - CHECK_BYTES]).into();
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&digest[..CHECK_BYTES]);
    check
}

/// Returns the bytes of a new journal, whose first batch contains the reservations in `entries`.
pub(crate) fn journal_bytes(batch: u64, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = TEXT.to_vec();
    bytes.extend(batch.to_le_bytes());
    bytes.extend((entries.len() as u64).to_le_bytes());
    let check = check(&[&bytes[..], &[0; CHECK_BYTES]].concat());
    bytes.extend(check);
    bytes.extend(batch_bytes(batch, entries));
    bytes
}

/// Parses a journal header. Returns the number of the first batch, and its record count.
fn parse_header(header: &[u8]) -> Option<(u64, u64)> {
    let rest = header.strip_prefix(TEXT)?;
    let (batch, rest) = rest.split_first_chunk::<8>()?;
    let (count, rest) = rest.split_first_chunk::<8>()?;
    (rest == check(header)).then(|| (u64::from_le_bytes(*batch), u64::from_le_bytes(*count)))
}

/// Returns the bytes of a batch.
pub(crate) fn batch_bytes(batch: u64, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * RECORD_BYTES);
    for (index, entry) in (0..).zip(entries) {
        let start = bytes.len();
        bytes.extend(entry.name);
        bytes.extend(entry.number.to_le_bytes());
        bytes.extend(batch.to_le_bytes());
        bytes.extend(u32::to_le_bytes(index));
        bytes.extend((entries.len() as u32).to_le_bytes());
        let check = check(&[&bytes[start..], &[0; CHECK_BYTES]].concat());
        bytes.extend(check);
    }
    bytes
}

fn parse(record: &[u8]) -> Option<Record> {
    let (body, check_bytes) = record.split_last_chunk::<CHECK_BYTES>()?;
    if record.len() != RECORD_BYTES || *check_bytes != check(record) {
        return None;
    }
    let (name, rest) = body.split_first_chunk::<32>()?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    let (batch, rest) = rest.split_first_chunk::<8>()?;
    let (index, count) = rest.split_first_chunk::<4>()?;
    Some(Record {
        entry: Entry { name: *name, number: u64::from_le_bytes(*number) },
        batch: u64::from_le_bytes(*batch),
        index: u32::from_le_bytes(*index),
        count: u32::from_le_bytes(*count.first_chunk()?),
    })
}

/// Contents of a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) numbers: HashMap<KeyName, u64>,
    /// Number of the last batch, which may be incomplete.
    pub(crate) batch: u64,
}

/// Reads a journal. After a power loss, the last batch of records may be incomplete. No sequence
/// number in such a batch was used.
///
/// # Errors
/// Returns [`Error::Damaged`] if any other batch is incomplete.
pub(crate) fn read(bytes: &[u8]) -> Result<Contents, Error> {
    let header = bytes.split_at_checked(RECORD_BYTES);
    let Some((body, (first, count))) = header.and_then(|(header, body)| Some((body, parse_header(header)?))) else {
        return Err(Error::Damaged { at: 0 });
    };
    let mut contents = Contents { numbers: HashMap::new(), batch: first };
    let mut expected = if count > 0 { (first, 0) } else { (first + 1, 0) };
    let mut at = RECORD_BYTES;
    let mut records = body.chunks(RECORD_BYTES);
    for chunk in &mut records {
        let record = parse(chunk).filter(|record| (record.batch, record.index) == expected);
        let Some(Record { entry, batch, index, count }) = record else { break };
        contents.numbers.insert(entry.name, entry.number);
        contents.batch = batch;
        expected = if index + 1 < count { (batch, index + 1) } else { (batch + 1, 0) };
        at += RECORD_BYTES;
    }
    // A power loss can damage only the last batch, because a batch is written only when the
    // previous one is stored durably.
    let (damaged, _) = expected;
    let is_later = |chunk: &[u8]| parse(chunk).is_some_and(|record| record.batch > damaged);
    if damaged == first || bytes.get(at..).unwrap_or_default().chunks(RECORD_BYTES).any(is_later) {
        return Err(Error::Damaged { at });
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(key: u8, number: u64) -> Entry {
        Entry { name: [key; 32], number }
    }

    fn journal(batches: &[Vec<Entry>]) -> Vec<u8> {
        let mut bytes = journal_bytes(3, &batches[0]);
        (4..).zip(&batches[1..]).for_each(|(batch, entries)| bytes.extend(batch_bytes(batch, entries)));
        bytes
    }

    #[test]
    fn the_last_number_of_a_key_counts() {
        let bytes = journal(&[vec![entry(1, 10), entry(2, 7)], vec![entry(1, 20)], vec![entry(1, 15)]]);
        let contents = read(&bytes).unwrap();
        assert_eq!(contents, Contents { numbers: HashMap::from([([1; 32], 15), ([2; 32], 7)]), batch: 5 });
        assert_eq!(read(&journal(&[vec![]])).unwrap(), Contents { numbers: HashMap::new(), batch: 3 });
    }

    #[test]
    fn a_file_of_another_kind_is_damaged() {
        for bytes in
            [&b""[..], b"godwit", &[0; 64], &batch_bytes(1, &[entry(1, 1)]), &journal(&[vec![entry(1, 1)]])[..64]]
        {
            assert!(matches!(read(bytes), Err(Error::Damaged { .. })), "{bytes:?}");
        }
    }

    proptest! {
        /// After a power loss, any of the records of the last batch may be missing. A damaged
        /// record in an earlier batch is an error.
        #[test]
        fn only_the_last_batch_may_be_incomplete(
            sizes in prop::collection::vec(1..6usize, 1..6),
            damage in any::<prop::sample::Index>(),
            flip in 0..64usize,
        ) {
            let batches: Vec<Vec<Entry>> =
                sizes.iter().enumerate().map(|(b, &n)| (0..n).map(|k| entry(k as u8, 100 * b as u64 + 1)).collect()).collect();
            let mut bytes = journal(&[vec![vec![entry(0, 0)]], batches.clone()].concat());
            let records = bytes.len() / RECORD_BYTES - 2;
            let record = damage.index(records);
            bytes[RECORD_BYTES * (record + 2) + flip] ^= 0x10;
            let in_last = record >= records - sizes[sizes.len() - 1];
            match read(&bytes) {
                Ok(contents) => {
                    prop_assert!(in_last);
                    for (name, number) in batches[..batches.len() - 1].iter().flatten().map(|entry| (entry.name, entry.number)) {
                        prop_assert!(contents.numbers[&name] >= number);
                    }
                }
                Err(_) => prop_assert!(!in_last),
            }
        }
    }
}
