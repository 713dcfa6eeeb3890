//! A file read through a buffer of bounded size.

use std::io::{ErrorKind, Read};

/// Longest piece that [`Input::fill`] can make available, bytes. libpcap caps records at 256 KiB too.
pub(super) const PIECE_BYTES_MAX: usize = 256 << 10;

/// ```text
/// buffer   |  consumed  |   available   |  free  |
///                     start            end
/// ```
pub(super) struct Input {
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Place of `start` in the file.
    offset: u64,
}

impl Input {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        Self { source, buffer: vec![0; 2 * PIECE_BYTES_MAX], start: 0, end: 0, offset: 0 }
    }

    /// Place in the file of the first byte that is available, or will be.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes that are available.
    #[inline]
    pub(super) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads until `bytes` (at most [`PIECE_BYTES_MAX`]) are available; false where the file ends before.
    #[inline]
    pub(super) fn fill(&mut self, bytes: usize) -> std::io::Result<bool> {
        if self.end - self.start >= bytes {
            return Ok(true);
        }
        self.fill_slowly(bytes)
    }

    fn fill_slowly(&mut self, bytes: usize) -> std::io::Result<bool> {
        assert!(bytes <= PIECE_BYTES_MAX);
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < bytes {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Passes over `bytes` available bytes.
    #[inline]
    pub(super) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Passes over `bytes` bytes, available or not; false where the file ends before.
    pub(super) fn skip(&mut self, mut bytes: u64) -> std::io::Result<bool> {
        while bytes > 0 {
            if !self.fill(1)? {
                return Ok(false);
            }
            let step = bytes.min(self.data().len() as u64);
            self.consume(step as usize);
            bytes -= step;
        }
        Ok(true)
    }
}
