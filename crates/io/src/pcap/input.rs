//! Reads a file through a buffer of limited size.

use std::io::{ErrorKind, Read};

/// Maximum number of bytes that [`Input::fill`] makes available at once. It is 256 KiB, the maximum
/// length of a record in libpcap.
pub(super) const PIECE_BYTES_MAX: usize = 256 << 10;

/// A data source and the buffer into which it is read. The bytes from `start` to `end` are
/// available to the caller:
///
/// ```text
/// buffer   |  consumed  |   available   |  free  |
///                     start            end
/// ```
pub(super) struct Input {
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the file, in bytes, of the first available byte.
    offset: u64,
}

impl Input {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        Self { source, buffer: vec![0; 2 * PIECE_BYTES_MAX], start: 0, end: 0, offset: 0 }
    }

    /// Returns the file offset of the first available byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the available bytes.
    #[inline]
    pub(super) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads from the source until `bytes` bytes are available. `bytes` is at most
    /// [`PIECE_BYTES_MAX`]. Returns `false` if the file ends earlier.
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

    /// Removes `bytes` bytes from the available bytes.
    #[inline]
    pub(super) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Skips `bytes` bytes of the source. The number may exceed the size of the buffer. Returns
    /// `false` if the file ends earlier.
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
