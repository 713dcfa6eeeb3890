//! Headers and bodies of a transaction, collected by callbacks of the parser.

use super::htp::Tx;
use super::multipart::Multipart;
use crate::app::Direction;
use crate::proto::body::{Body, WindowOptions};

/// Maximum number of raw header bytes that are kept in one direction.
const HEADERS_MAX: usize = 64 << 10;

/// File in a request body.
#[derive(Debug, Default)]
pub struct File {
    /// Name.
    pub name: Vec<u8>,
    /// Content.
    pub body: Body,
}

/// Collected data of a transaction.
#[derive(Debug, Default)]
pub struct TxData {
    /// Header lines as sent, by direction.
    pub headers: [Vec<u8>; 2],
    /// Bodies without transfer and content encodings, by direction.
    pub bodies: [Body; 2],
    /// Files in the request body.
    pub files: Vec<File>,
    /// Name of the file in the response.
    pub response_name: Option<Vec<u8>>,
    multipart: Option<Multipart>,
    begun: bool,
}

/// Window of the body in one direction.
pub fn window_options(direction: Direction) -> &'static WindowOptions {
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

    pub(super) fn add_body(&mut self, direction: Direction, tx: &Tx<'_>, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if direction == Direction::ToServer {
            self.add_files(tx, bytes);
        } else if self.response_name.is_none() {
            self.response_name = Some(response_name(tx));
        }
        self.bodies[direction as usize].add(bytes, window_options(direction).limit);
    }

    fn add_files(&mut self, tx: &Tx<'_>, bytes: &[u8]) {
        if !self.begun {
            self.begun = true;
            let content_type = tx.header(Direction::ToServer, "content-type").unwrap_or(b"");
            self.multipart = Multipart::new(content_type);
            if self.multipart.is_none() {
                self.files.push(File { name: path_name(tx.uri().unwrap_or(b"")), ..File::default() });
            }
        }
        match self.multipart.as_mut() {
            Some(multipart) => multipart.add(bytes, &mut self.files),
            None => {
                if let Some(file) = self.files.first_mut() {
                    file.body.add(bytes, WindowOptions::REQUEST.limit);
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
            self.files.iter_mut().for_each(|file| file.body.finish());
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

/// Returns the name of the file in a response: from Content-Disposition, or from the URI.
fn response_name(tx: &Tx<'_>) -> Vec<u8> {
    let disposition = tx.header(Direction::ToClient, "content-disposition");
    let name = disposition.and_then(|value| super::multipart::parameter(value, b"filename"));
    name.map_or_else(|| path_name(tx.uri().unwrap_or(b"")), <[u8]>::to_vec)
}
