//! Files in bodies of type `multipart/form-data` (RFC 7578).

use crate::proto::body::WindowOptions;
use crate::proto::file::File;

/// Maximum length of the headers of a part, in bytes.
const HEADERS_MAX: usize = 8 << 10;
/// Maximum number of files in one body.
const FILES_MAX: usize = 64;

/// Parser of a body.
#[derive(Debug)]
pub(super) struct Multipart {
    /// Boundary with its leading hyphens.
    boundary: Vec<u8>,
    pending: Vec<u8>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The parser skips bytes before the first boundary or in a part without a file name.
    Skip,
    /// The parser is in the headers of a part.
    Headers,
    /// The parser is in the content of the last file.
    File,
    /// The parser is after the last boundary.
    Done,
}

impl Multipart {
    /// Returns a parser if the content type is `multipart/form-data` and names a boundary.
    pub(super) fn new(content_type: &[u8]) -> Option<Self> {
        let lower = content_type.to_ascii_lowercase();
        if !lower.trim_ascii_start().starts_with(b"multipart/form-data") {
            return None;
        }
        let boundary = parameter(content_type, b"boundary").filter(|value| !value.is_empty() && value.len() <= 256)?;
        Some(Self { boundary: [b"--", boundary].concat(), pending: Vec::new(), state: State::Skip })
    }

    /// Adds bytes of the body.
    pub(super) fn add(&mut self, bytes: &[u8], files: &mut Vec<File>, hashed: bool) {
        self.pending.extend_from_slice(bytes);
        while self.step(files, hashed) {}
    }

    /// Ends the body. Bytes of an incomplete last part still belong to its file.
    pub(super) fn finish(&mut self, files: &mut [File]) {
        if self.state == State::File
            && let Some(file) = files.last_mut()
        {
            file.add(&std::mem::take(&mut self.pending), WindowOptions::REQUEST.limit);
        }
        self.state = State::Done;
    }

    /// Processes some pending bytes. Returns false if more bytes must arrive first.
    fn step(&mut self, files: &mut Vec<File>, hashed: bool) -> bool {
        match self.state {
            State::Done => {
                self.pending.clear();
                false
            }
            State::Headers => self.headers(files, hashed),
            State::Skip | State::File => self.content(files),
        }
    }

    fn headers(&mut self, files: &mut Vec<File>, hashed: bool) -> bool {
        if self.pending.starts_with(b"--") {
            self.state = State::Done;
            return true;
        }
        let Some(end) = memchr::memmem::find(&self.pending, b"\r\n\r\n") else {
            if self.pending.len() > HEADERS_MAX {
                self.state = State::Skip;
            }
            return false;
        };
        let name = file_name(&self.pending[..end]).map(<[u8]>::to_vec);
        self.pending.drain(..end + 4);
        self.state = match name {
            Some(name) if files.len() < FILES_MAX => {
                files.push(File::new(name, hashed));
                State::File
            }
            _ => State::Skip,
        };
        true
    }

    fn content(&mut self, files: &mut [File]) -> bool {
        let found = memchr::memmem::find(&self.pending, &self.boundary);
        let end = match found {
            Some(at) => at,
            // Keep the last bytes, because they may begin a boundary.
            None => self.pending.len().saturating_sub(self.boundary.len() + 2),
        };
        if self.state == State::File {
            let content = &self.pending[..end];
            let content = if found.is_some() { content.strip_suffix(b"\r\n").unwrap_or(content) } else { content };
            if let Some(file) = files.last_mut() {
                file.add(content, WindowOptions::REQUEST.limit);
                if found.is_some() {
                    file.finish();
                }
            }
        }
        match found {
            Some(at) => {
                self.pending.drain(..at + self.boundary.len());
                self.state = State::Headers;
                true
            }
            None => {
                self.pending.drain(..end);
                false
            }
        }
    }
}

/// Returns the file name in the headers of a part.
fn file_name(headers: &[u8]) -> Option<&[u8]> {
    headers.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        if !name.trim_ascii().eq_ignore_ascii_case(b"content-disposition") {
            return None;
        }
        parameter(&value[1..], b"filename")
    })
}

/// Returns a parameter of a header value, without quotes.
pub(super) fn parameter<'a>(value: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    value.split(|byte| *byte == b';').skip(1).find_map(|part| {
        let equals = part.iter().position(|byte| *byte == b'=')?;
        let (key, text) = (part[..equals].trim_ascii(), part[equals + 1..].trim_ascii());
        let text =
            text.strip_prefix(b"\"").map_or(text, |inner| inner.split(|byte| *byte == b'"').next().unwrap_or(inner));
        key.eq_ignore_ascii_case(name).then_some(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"--xx\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nskip\r\n--xx\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\nhello\r\n-- world\r\n--xx--\r\n";

    #[test]
    fn finds_files_however_the_body_is_cut() {
        for cut in 1..BODY.len() {
            let mut multipart = Multipart::new(b"multipart/form-data; boundary=\"xx\"").unwrap();
            let mut files = Vec::new();
            for part in BODY.chunks(cut) {
                multipart.add(part, &mut files, false);
            }
            multipart.finish(&mut files);
            assert_eq!(files.len(), 1, "{cut}");
            assert_eq!(files[0].name, b"a.txt");
            assert_eq!(
                files[0].body.window(&WindowOptions::FILE, true, false),
                Some(&b"hello\r\n-- world"[..]),
                "{cut}"
            );
        }
    }

    #[test]
    fn other_types_are_no_multipart() {
        assert!(Multipart::new(b"text/plain").is_none());
        assert!(Multipart::new(b"multipart/form-data").is_none());
    }
}
