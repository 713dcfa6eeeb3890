//! File operations of the journal.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Name of the journal in the state folder.
const JOURNAL: &str = "sequence-numbers";
/// Name of the new file while the journal is rewritten.
const NEXT: &str = "sequence-numbers.next";

/// File operations of the sequence number journal. Tests implement them with a simulated disk that
/// loses power.
pub trait Disk: Send {
    /// Returns the bytes of the journal, or `None` if no journal exists.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Creates an empty file, to which [`Disk::append`] then writes. The journal does not change.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    fn create_next(&mut self) -> io::Result<()>;

    /// Appends bytes to the file that [`Disk::create_next`] created last.
    ///
    /// # Errors
    /// Returns the error of the operating system. The file may then contain only a part of the
    /// bytes.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Waits until all appended bytes are durable.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    fn sync(&mut self) -> io::Result<()>;

    /// Replaces the journal with the file that [`Disk::create_next`] created last.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    fn rename_next(&mut self) -> io::Result<()>;

    /// Waits until the replacement of the journal is durable.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    fn sync_folder(&mut self) -> io::Result<()>;
}

/// File operations on real files in a folder.
pub struct FolderDisk {
    path: PathBuf,
    folder: File,
    file: Option<File>,
}

impl FolderDisk {
    /// Opens a folder.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), folder: File::open(path)?, file: None })
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl Disk for FolderDisk {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.path.join(JOURNAL)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => bytes.map(Some),
        }
    }

    fn create_next(&mut self) -> io::Result<()> {
        let path = self.path.join(NEXT);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        self.file = Some(options.write(true).create_new(true).mode(0o600).open(path)?);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file()?.sync_data()
    }

    fn rename_next(&mut self) -> io::Result<()> {
        std::fs::rename(self.path.join(NEXT), self.path.join(JOURNAL))
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        self.folder.sync_all()
    }
}
