//! Collects request and response headers and bodies from the HTTP parser.

use super::htp::Tx;
use super::multipart::Multipart;
use crate::app::Direction;
use crate::proto::body::{Body, WindowOptions};
use crate::proto::file::{File, FileRecord};

/// Maximum number of raw header bytes stored per direction.
const HEADERS_MAX: usize = 64 << 10;

/// Collected data of a transaction.
#[derive(Debug, Default)]
pub(super) struct TxData {
    /// Header lines as sent, by direction.
    pub headers: [Vec<u8>; 2],
    /// Bodies of the request and the response, after transfer and content decoding.
    pub bodies: [Body; 2],
    /// Files in the request body.
    pub files: Vec<File>,
    /// File in the response, whose bytes are stored in the response body.
    pub response: Option<File>,
    multipart: Option<Multipart>,
    begun: bool,
}

/// Returns the options that select body bytes for rules.
pub(super) fn window_options(direction: Direction) -> &'static WindowOptions {
    match direction {
        Direction::ToServer => &WindowOptions::REQUEST,
        Direction::ToClient => &WindowOptions::RESPONSE,
    }
}

impl TxData {
    pub(super) fn add_headers(&mut self, direction: Direction, bytes: &[u8]) {
        let headers = &mut self.headers[direction as usize];
        let room = HEADERS_MAX.saturating_sub(headers.len()).min(bytes.len());
        headers.extend_from_slice(&bytes[..room]);
    }

    pub(super) fn add_body(&mut self, direction: Direction, tx: &Tx<'_>, bytes: &[u8], hashed: bool) {
        if bytes.is_empty() {
            return;
        }
        if direction == Direction::ToServer {
            self.add_files(tx, bytes, hashed);
        } else {
            self.response.get_or_insert_with(|| File::new(response_name(tx), hashed)).count(bytes);
        }
        self.bodies[direction as usize].add(bytes, window_options(direction).limit);
    }

    fn add_files(&mut self, tx: &Tx<'_>, bytes: &[u8], hashed: bool) {
        if !self.begun {
            self.begun = true;
            let content_type = tx.header(Direction::ToServer, "content-type").unwrap_or(b"");
            self.multipart = Multipart::new(content_type);
            if self.multipart.is_none() {
                self.files.push(File::new(path_name(tx.uri().unwrap_or(b"")), hashed));
            }
        }
        match self.multipart.as_mut() {
            Some(multipart) => multipart.add(bytes, &mut self.files, hashed),
            None => {
                if let Some(file) = self.files.first_mut() {
                    file.add(bytes, WindowOptions::REQUEST.limit);
                }
            }
        }
    }

    pub(super) fn complete(&mut self, direction: Direction) {
        self.bodies[direction as usize].finish();
        if direction == Direction::ToServer {
            if let Some(multipart) = self.multipart.as_mut() {
                multipart.finish(&mut self.files);
            }
            self.files.iter_mut().for_each(File::finish);
        } else if let Some(file) = self.response.as_mut() {
            file.finish();
        }
    }

    /// Returns the complete files. If `end` is true, also returns incomplete files.
    pub(super) fn take_files(&mut self, id: u64, end: bool) -> Vec<FileRecord> {
        let requests = self.files.iter_mut().filter_map(|file| file.take_record(id, Direction::ToServer, end));
        let response = self.response.as_mut().and_then(|file| file.take_record(id, Direction::ToClient, end));
        requests.chain(response).collect()
    }

    /// Records that bytes are missing.
    pub(super) fn gap(&mut self, direction: Direction) {
        match direction {
            Direction::ToServer => self.files.iter_mut().for_each(|file| file.gaps = true),
            Direction::ToClient => self.response.iter_mut().for_each(|file| file.gaps = true),
        }
    }

    pub(super) fn inspected(&mut self, direction: Direction) {
        self.bodies[direction as usize].mark_inspected(window_options(direction));
        if direction == Direction::ToServer {
            self.files.iter_mut().for_each(|file| file.body.mark_inspected(&WindowOptions::FILE));
        }
    }
}

/// Returns the last part of a path.
fn path_name(uri: &[u8]) -> Vec<u8> {
    let path = uri.split(|byte| *byte == b'?').next().unwrap_or(b"");
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(b"").to_vec()
}

/// Returns the file name from the response's Content-Disposition header, or else from the URI.
fn response_name(tx: &Tx<'_>) -> Vec<u8> {
    let disposition = tx.header(Direction::ToClient, "content-disposition");
    let name = disposition.and_then(|value| super::multipart::parameter(value, b"filename"));
    name.map_or_else(|| path_name(tx.uri().unwrap_or(b"")), <[u8]>::to_vec)
}
