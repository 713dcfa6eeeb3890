//! Contents of the slots of both rings, as 64-bit words.

use super::statement::Kind;
use crate::policy::Processor;
use crate::scheme::Scheme;

/// Size of a job in words: its identity, its key, a header, and the bytes to sign. The header
/// contains the scheme, the kind and the length.
pub(super) const JOB_WORDS: usize = 64;
const JOB_HEAD: usize = 3;
/// Maximum number of bytes that a client sends for one job.
const JOB_BYTES_MAX: usize = (JOB_WORDS - JOB_HEAD) * 8;
/// Size of an answer in words: the job's identity, a header, and the signature. The header contains
/// the status and the length.
pub(super) const ANSWER_WORDS: usize = 72;
const ANSWER_HEAD: usize = 2;
const SIGNATURE_BYTES_MAX: usize = (ANSWER_WORDS - ANSWER_HEAD) * 8;

/// Job as a client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobSlot {
    /// Identity that the client chose for the job. The answer repeats it.
    pub(super) id: u64,
    /// Identity of the key ([`crate::Key::id`]).
    pub(super) key: u64,
    pub(super) scheme: Scheme,
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
}

impl JobSlot {
    /// Returns `None` if there are too many bytes.
    pub(super) fn to_words(&self) -> Option<[u64; JOB_WORDS]> {
        if self.bytes.len() > JOB_BYTES_MAX {
            return None;
        }
        let scheme = Scheme::ALL.iter().position(|scheme| *scheme == self.scheme)?;
        let mut words = [0; JOB_WORDS];
        let head = scheme as u64 | (self.kind as u64) << 8 | (self.bytes.len() as u64) << 16;
        words[..JOB_HEAD].copy_from_slice(&[self.id, self.key, head]);
        pack(&self.bytes, words.get_mut(JOB_HEAD..)?).then_some(words)
    }

    /// Returns the job's identity and the job, which is `None` if a field is invalid.
    pub(super) fn from_words(words: &[u64; JOB_WORDS]) -> (u64, Option<Self>) {
        let [id, key, head, ..] = *words;
        let read = || {
            let scheme = *Scheme::ALL.get((head & 0xff) as usize)?;
            let kind = Kind::from_number(head >> 8 & 0xff)?;
            let bytes = unpack(&words[JOB_HEAD..], (head >> 16) as usize)?;
            Some(Self { id, key, scheme, kind, bytes })
        };
        (id, read())
    }
}

/// Answer of the signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerSlot {
    pub(super) id: u64,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The signature, and the processor that made it.
    Signed(Processor, Vec<u8>),
    /// Too many jobs wait in the signer.
    Backlog,
    /// The signer does not have the key, or the bytes are not part of a TLS handshake.
    Invalid,
    /// AWS-LC reported an error.
    Failed,
}

impl AnswerSlot {
    pub(super) fn to_words(&self) -> [u64; ANSWER_WORDS] {
        let mut words = [0; ANSWER_WORDS];
        let (status, bytes) = match &self.outcome {
            Outcome::Signed(Processor::Single, bytes) => (1, &bytes[..]),
            Outcome::Signed(Processor::Lanes, bytes) => (2, &bytes[..]),
            Outcome::Signed(Processor::Device(_), bytes) => (3, &bytes[..]),
            Outcome::Backlog => (4, &[][..]),
            Outcome::Invalid => (5, &[][..]),
            Outcome::Failed => (6, &[][..]),
        };
        words[0] = self.id;
        // The longest signature is that of RSA-4096, which fits.
        let fits = bytes.len() <= SIGNATURE_BYTES_MAX && pack(bytes, &mut words[ANSWER_HEAD..]);
        words[1] = if fits { status | (bytes.len() as u64) << 16 } else { 6 };
        words
    }

    /// Returns `None` if the answer is invalid.
    pub(super) fn from_words(words: &[u64; ANSWER_WORDS]) -> Option<Self> {
        let [id, head, ..] = *words;
        let bytes = unpack(&words[ANSWER_HEAD..], (head >> 16) as usize)?;
        let outcome = match head & 0xff {
            1 => Outcome::Signed(Processor::Single, bytes),
            2 => Outcome::Signed(Processor::Lanes, bytes),
            3 => Outcome::Signed(Processor::Device(0), bytes),
            4 => Outcome::Backlog,
            5 => Outcome::Invalid,
            6 => Outcome::Failed,
            _ => return None,
        };
        Some(Self { id, outcome })
    }
}

/// Writes bytes to words, least significant byte first. Returns false if the bytes do not fit.
fn pack(bytes: &[u8], words: &mut [u64]) -> bool {
    if bytes.len() > words.len() * 8 {
        return false;
    }
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(eight);
    }
    true
}

fn unpack(words: &[u64], bytes: usize) -> Option<Vec<u8>> {
    if bytes > words.len() * 8 {
        return None;
    }
    let mut all: Vec<u8> = words[..bytes.div_ceil(8)].iter().flat_map(|word| word.to_le_bytes()).collect();
    all.truncate(bytes);
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_contain_what_was_written() {
        for length in [0, 1, 7, 8, 9, JOB_BYTES_MAX] {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            for scheme in Scheme::ALL {
                let job = JobSlot { id: 7, key: 9, scheme, kind: Kind::Tls12, bytes: bytes.clone() };
                assert_eq!(JobSlot::from_words(&job.to_words().unwrap()), (7, Some(job)));
            }
            let outcome = Outcome::Signed(Processor::Lanes, bytes);
            let answer = AnswerSlot { id: 8, outcome };
            assert_eq!(AnswerSlot::from_words(&answer.to_words()), Some(answer));
        }
        let long = vec![0; JOB_BYTES_MAX + 1];
        let job = JobSlot { id: 7, key: 9, scheme: Scheme::Ed25519, kind: Kind::Tls13, bytes: long };
        assert_eq!(job.to_words(), None);
    }

    #[test]
    fn invalid_slots_are_refused() {
        for head in [9, 0xff, 2 << 8, (JOB_BYTES_MAX as u64 + 1) << 16, u64::MAX] {
            let mut words = [0; JOB_WORDS];
            words[0] = 5;
            words[2] = head;
            assert_eq!(JobSlot::from_words(&words), (5, None), "{head:x}");
            let mut words = [0; ANSWER_WORDS];
            words[1] = head << 1 | 0x80;
            assert_eq!(AnswerSlot::from_words(&words), None);
        }
    }
}
