//! Output file that appears under its name only when it is complete.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

const BUFFER_BYTES: usize = 256 << 10;

/// A file that is written to a temporary file in the same folder. [`Output::finish`] gives it its
/// name. If it is dropped before, the temporary file is removed.
///
/// An existing path that is not a regular file, such as a pipe or a device, is written directly.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    /// Path of the temporary file. `None` if the path is written directly, or after the file is
    /// finished.
    temporary: Option<PathBuf>,
    file: File,
    buffer: Vec<u8>,
    written_bytes: u64,
}

impl Output {
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let write_error = |source| Error::write(path, source);
        let special = fs::metadata(path).is_ok_and(|existing| !existing.is_file());
        let (file, temporary) = if special {
            (File::options().write(true).open(path).map_err(write_error)?, None)
        } else {
            let name = path.file_name().ok_or_else(|| write_error(std::io::ErrorKind::InvalidInput.into()))?;
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let temporary = format!(".{}.{}.{number}.part", name.to_string_lossy(), std::process::id());
            let temporary = path.with_file_name(temporary);
            (File::create(&temporary).map_err(write_error)?, Some(temporary))
        };
        let buffer = Vec::with_capacity(BUFFER_BYTES + (64 << 10));
        Ok(Self { path: path.to_owned(), temporary, file, buffer, written_bytes: 0 })
    }

    /// Returns the buffer for new records. [`Output::flush_if_full`] writes it to the file.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer to the file if it is full. Call it after every record.
    #[inline]
    pub(super) fn flush_if_full(&mut self) -> Result<(), Error> {
        if self.buffer.len() < BUFFER_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.file.write_all(&self.buffer).map_err(|source| Error::write(&self.path, source))?;
        self.written_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest of the buffer and syncs the file to the disk. A full disk may be detected
    /// only here.
    pub(super) fn sync(&mut self) -> Result<(), Error> {
        self.flush()?;
        match &self.temporary {
            Some(_) => self.file.sync_all().map_err(|source| Error::write(&self.path, source)),
            None => Ok(()),
        }
    }

    /// Writes the rest of the buffer and gives the file its name. Returns the size of the file in
    /// bytes.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        self.sync()?;
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, &self.path).map_err(|source| Error::write(&self.path, source))?;
            self.temporary = None;
        }
        Ok(self.written_bytes)
    }
}

impl Output {
    /// Removes the part of the last, failed write, and gives the file its name. The file then ends
    /// with a complete record.
    pub(super) fn finish_written(mut self) -> Result<(), Error> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        self.file
            .set_len(self.written_bytes)
            .and_then(|()| self.file.sync_all())
            .and_then(|()| fs::rename(temporary, &self.path))
            .map_err(|source| Error::write(&self.path, source))?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // An error is ignored, because a temporary file that cannot be removed does no harm.
            // The file with the final name was never changed.
            let _ = fs::remove_file(temporary);
        }
    }
}
