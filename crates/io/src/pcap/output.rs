//! A file that appears under its name only when it is complete.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

const BUFFER_BYTES: usize = 256 << 10;

/// Written to a temporary file in the same folder; [`Output::finish`] gives it its name, dropping removes it.
///
/// A path that exists and is no regular file (a pipe, a device) is written to directly.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    /// Where it lies until it is complete.
    temporary: Option<PathBuf>,
    file: File,
    buffer: Vec<u8>,
    written_bytes: u64,
}

impl Output {
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let refuse = |source| Error::write(path, source);
        let special = fs::metadata(path).is_ok_and(|existing| !existing.is_file());
        let (file, temporary) = if special {
            (File::options().write(true).open(path).map_err(refuse)?, None)
        } else {
            let name = path.file_name().ok_or_else(|| refuse(std::io::ErrorKind::InvalidInput.into()))?;
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let temporary = format!(".{}.{}.{number}.part", name.to_string_lossy(), std::process::id());
            let temporary = path.with_file_name(temporary);
            (File::create(&temporary).map_err(refuse)?, Some(temporary))
        };
        let buffer = Vec::with_capacity(BUFFER_BYTES + (64 << 10));
        Ok(Self { path: path.to_owned(), temporary, file, buffer, written_bytes: 0 })
    }

    /// What is appended here is written by the next [`Output::flush_if_full`].
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Call after every record.
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

    /// Writes the rest and makes sure that it is on the disk: a full disk may show only here.
    pub(super) fn sync(&mut self) -> Result<(), Error> {
        self.flush()?;
        match &self.temporary {
            Some(_) => self.file.sync_all().map_err(|source| Error::write(&self.path, source)),
            None => Ok(()),
        }
    }

    /// Writes the rest and gives the file its name. Returns its size in bytes.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        self.sync()?;
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, &self.path).map_err(|source| Error::write(&self.path, source))?;
            self.temporary = None;
        }
        Ok(self.written_bytes)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nothing can be done about a file that cannot be removed; the one with the real name was never touched.
            let _ = fs::remove_file(temporary);
        }
    }
}
