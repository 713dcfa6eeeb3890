//! Output file that appears under its name only when it is complete.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::linkat;

use crate::Error;

const BUFFER_BYTES: usize = 256 << 10;

/// Permissions of a new file. Only its owner may read it, because it may contain decrypted data.
const MODE: u32 = 0o600;

/// A file that appears under its name only when [`Output::finish`] is called. If the value is
/// dropped before this call, no file remains. If the file system supports unnamed files, no file
/// remains even after the process is killed.
///
/// If the path names a pipe or a device, the data is written to it directly.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    temporary: Temporary,
    file: File,
    buffer: Vec<u8>,
    written_bytes: u64,
}

/// Location of the data before the file gets its name.
#[derive(Debug)]
enum Temporary {
    /// The data is written directly to the path, or the file already has its final name.
    None,
    /// The file has no name yet.
    Unnamed,
    /// The file has a temporary name in the same folder.
    Named(PathBuf),
}

/// Creates a file without a name in the folder of `path`.
fn create_unnamed(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = File::options().write(true).mode(MODE).custom_flags(libc::O_TMPFILE).open(folder)?;
    // Without this link, the file could not get a name later.
    fs::symlink_metadata(link_of(&file))?;
    Ok(file)
}

/// Returns the link to an open file in /proc.
fn link_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns an unpredictable name in the folder of `path`.
fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let random = RandomState::new().hash_one(std::process::id());
    Ok(path.with_file_name(format!(".{}.{random:016x}.part", name.to_string_lossy())))
}

impl Output {
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let write_error = |source| Error::write(path, source);
        let special = fs::metadata(path).is_ok_and(|existing| !existing.is_file());
        let (file, temporary) = if special {
            (File::options().write(true).open(path).map_err(write_error)?, Temporary::None)
        } else {
            let temporary = temporary_path(path).map_err(write_error)?;
            match create_unnamed(path) {
                Ok(file) => (file, Temporary::Unnamed),
                Err(_) => {
                    let mut options = File::options();
                    let file = options.write(true).create_new(true).mode(MODE).open(&temporary).map_err(write_error)?;
                    (file, Temporary::Named(temporary))
                }
            }
        };
        let buffer = Vec::with_capacity(BUFFER_BYTES + (64 << 10));
        Ok(Self { path: path.to_owned(), temporary, file, buffer, written_bytes: 0 })
    }

    /// Returns the buffer for new records. [`Output::flush_if_full`] writes this buffer to the
    /// file.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer to the file if it is full. The caller calls this method after every
    /// record.
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

    /// Writes the remaining data and flushes the file to the disk. Some file systems report a full
    /// disk only then.
    pub(super) fn sync(&mut self) -> Result<(), Error> {
        self.flush()?;
        match &self.temporary {
            Temporary::None => Ok(()),
            _ => self.file.sync_all().map_err(|source| Error::write(&self.path, source)),
        }
    }

    /// Writes the remaining data and gives the file its name. Returns the size of the file in
    /// bytes.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        self.sync()?;
        self.give_name().map_err(|source| Error::write(&self.path, source))?;
        Ok(self.written_bytes)
    }

    /// Gives the file its name after a failed write. Removes the incomplete data first, so the file
    /// ends with a complete record.
    pub(super) fn finish_written(mut self) -> Result<(), Error> {
        if matches!(self.temporary, Temporary::None) {
            return Ok(());
        }
        self.file
            .set_len(self.written_bytes)
            .and_then(|()| self.file.sync_all())
            .and_then(|()| self.give_name())
            .map_err(|source| Error::write(&self.path, source))
    }

    fn give_name(&mut self) -> io::Result<()> {
        if matches!(self.temporary, Temporary::Unnamed) {
            // A link cannot replace an existing file, but a rename can.
            let name = temporary_path(&self.path)?;
            linkat(AT_FDCWD, &link_of(&self.file), AT_FDCWD, &name, AtFlags::AT_SYMLINK_FOLLOW)?;
            self.temporary = Temporary::Named(name);
        }
        if let Temporary::Named(temporary) = &self.temporary {
            fs::rename(temporary, &self.path)?;
            self.temporary = Temporary::None;
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Temporary::Named(temporary) = &self.temporary {
            // A temporary file that cannot be removed does no harm.
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use godwit_test_support::{Folder, folder};

    use super::*;

    #[test]
    fn a_file_appears_when_it_is_finished_and_only_its_owner_reads_it() {
        let place = Folder::new();
        let path = place.write("out.pcap", b"an older file");
        let mut output = Output::create(&path).unwrap();
        output.buffer().extend(b"packets");
        assert_eq!(fs::read(&path).unwrap(), b"an older file");
        let is_unnamed = matches!(output.temporary, Temporary::Unnamed);
        assert_eq!(folder::names(place.path()).len(), if is_unnamed { 1 } else { 2 }, "a kill would leave nothing");
        assert_eq!(output.finish().unwrap(), 7);
        assert_eq!((fs::read(&path).unwrap(), folder::names(place.path()).len()), (b"packets".to_vec(), 1));
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.nlink()), (0o600, 1));
        drop(Output::create(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"packets");
    }

    /// Some file systems do not support files without a name.
    #[test]
    fn a_temporary_name_is_new_each_time() {
        let place = Folder::new();
        let path = place.join("out.pcap");
        let names: Vec<PathBuf> = (0..4).map(|_| temporary_path(&path).unwrap()).collect();
        names.iter().for_each(|name| assert_eq!(names.iter().filter(|other| *other == name).count(), 1));
        assert!(temporary_path(Path::new("/")).is_err());
    }
}
