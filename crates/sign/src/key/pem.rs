//! Parses the sections of PEM files (RFC 7468). Base64 text is decoded in constant time into locked
//! memory.

use base64ct::{Base64, Encoding};

use crate::error::{Error, Reason};
use crate::memory::Locked;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// One section of a PEM file.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    /// Text between `BEGIN` and the dashes, such as `PRIVATE KEY`.
    pub(super) label: &'a [u8],
    /// Lines between the two markers.
    body: &'a [u8],
}

/// Returns all sections of a PEM file. Other text in the file is ignored, as RFC 7468 permits.
pub(super) fn sections(text: &[u8]) -> Result<Vec<Section<'_>>, Reason> {
    let mut found = Vec::new();
    let mut open: Option<(&[u8], usize)> = None;
    let mut offset = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let start = offset;
        offset += line.len();
        let line = line.trim_ascii();
        if let Some(label) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(DASHES)) {
            if open.is_some() {
                return Err(Reason::Damaged("a PEM section begins inside another one"));
            }
            open = Some((label, offset));
        } else if let Some(label) = line.strip_prefix(END).and_then(|rest| rest.strip_suffix(DASHES)) {
            match open.take() {
                Some((opened, body)) if opened == label => found.push(Section { label, body: &text[body..start] }),
                _ => return Err(Reason::Damaged("a PEM section ends with another name than it begins")),
            }
        }
    }
    if open.is_some() { Err(Reason::Damaged("a PEM section has no end")) } else { Ok(found) }
}

impl Section<'_> {
    /// Returns whether OpenSSL's header marks the key as encrypted with a passphrase.
    pub(super) fn is_encrypted(&self) -> bool {
        self.body.starts_with(b"Proc-Type: 4,ENCRYPTED")
    }

    /// Decodes the body.
    pub(super) fn decode(&self) -> Result<Locked<u8>, Problem> {
        let mut text = Locked::zeroed(self.body.len())?;
        let mut length = 0;
        for &byte in self.body.iter().filter(|byte| !byte.is_ascii_whitespace()) {
            text[length] = byte;
            length += 1;
        }
        let mut bytes = Locked::zeroed(length / 4 * 3)?;
        let decoded = Base64::decode(&text[..length], &mut bytes).map(<[u8]>::len);
        let decoded = decoded.map_err(|_| Problem::Content(Reason::Damaged("its text is not Base64")))?;
        // Padding shortens the result by up to two bytes.
        if decoded == bytes.len() { Ok(bytes) } else { Ok(Locked::copy_of(&bytes[..decoded])?) }
    }
}

/// Error of a key that is not yet attached to a file.
#[derive(Debug)]
pub(super) enum Problem {
    /// The content is refused.
    Content(Reason),
    /// The machine cannot protect the key.
    Machine(Error),
}

impl From<Reason> for Problem {
    fn from(reason: Reason) -> Self {
        Self::Content(reason)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Machine(error)
    }
}
