//! Files in transactions: names, sizes and digests.

use super::body::Body;
use crate::app::Direction;
use crate::detect::digest::hex;
use md5::Digest;

/// Digests of a file, computed as its bytes arrive.
#[derive(Clone)]
pub struct Digests {
    md5: md5::Md5,
    sha1: sha1::Sha1,
    sha256: sha2::Sha256,
}

impl std::fmt::Debug for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digests")
    }
}

/// File of a transaction.
#[derive(Debug, Default)]
pub struct File {
    /// Name of the file.
    pub name: Vec<u8>,
    /// Bytes of the file that rules inspect.
    pub body: Body,
    /// Whether bytes of the file are missing.
    pub gaps: bool,
    size: u64,
    digests: Option<Box<Digests>>,
    closed: bool,
    reported: bool,
}

/// Description of a file whose transfer has completed or ended early.
#[derive(Debug, Clone)]
pub struct FileRecord {
    /// Number of the transaction that contains the file.
    pub transaction: u64,
    /// Direction in which the file was sent.
    pub direction: Direction,
    /// Name of the file.
    pub name: Vec<u8>,
    /// Number of bytes in the file.
    pub size: u64,
    /// Whether bytes of the file are missing.
    pub gaps: bool,
    /// Whether all bytes of the file have arrived.
    pub closed: bool,
    /// MD5, SHA-1 and SHA-256, in hexadecimal digits.
    pub digests: Option<[String; 3]>,
}

impl File {
    /// Returns an empty file.
    pub fn new(name: Vec<u8>, hashed: bool) -> Self {
        let digests =
            || Box::new(Digests { md5: md5::Md5::new(), sha1: sha1::Sha1::new(), sha256: sha2::Sha256::new() });
        Self { name, digests: hashed.then(digests), ..Self::default() }
    }

    /// Adds bytes. At most `limit` bytes are kept for rules.
    pub fn add(&mut self, bytes: &[u8], limit: u64) {
        self.count(bytes);
        self.body.add(bytes, limit);
    }

    /// Adds bytes to the size and digests of the file. The caller stores these bytes elsewhere.
    pub fn count(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        if let Some(digests) = self.digests.as_mut() {
            digests.md5.update(bytes);
            digests.sha1.update(bytes);
            digests.sha256.update(bytes);
        }
    }

    /// Marks the file as complete.
    pub fn finish(&mut self) {
        self.closed = true;
        self.body.finish();
    }

    /// Returns whether the file is complete.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the file's description if the file is complete or `end` is true. Each file is
    /// described only once.
    pub fn take_record(&mut self, transaction: u64, direction: Direction, end: bool) -> Option<FileRecord> {
        if self.reported || !(self.closed || end) {
            return None;
        }
        self.reported = true;
        let digests = self.digests.take().map(|digests| {
            [hex(&digests.md5.finalize()), hex(&digests.sha1.finalize()), hex(&digests.sha256.finalize())]
        });
        Some(FileRecord {
            transaction,
            direction,
            name: self.name.clone(),
            size: self.size,
            gaps: self.gaps,
            closed: self.closed && !self.gaps,
            digests,
        })
    }
}
