//! Temporary folders.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Temporary folder of one test. It is removed when the value is dropped.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// Creates an empty folder.
    #[allow(clippy::new_without_default, reason = "a test states that it creates a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("the folder for temporary files is writable"))
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of the file `name`, which need not exist.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes the file `name` and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// Returns the names of all files and folders in it, sorted. Includes hidden ones.
    pub fn names(&self) -> Vec<String> {
        names(self.path())
    }
}

/// Returns the names of all files and folders in `folder`, sorted. Includes hidden ones.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("a readable folder").file_name();
    let mut names: Vec<String> = entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
