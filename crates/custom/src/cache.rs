//! Caches compiled libraries on disk. A library is named by the SHA-256 digest of its source text,
//! the compiler and the compiler flags.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::{Error, source};

/// Permission bits of all users except the owner of a file.
const OTHERS: u32 = 0o077;

/// Folder of compiled libraries, with mode 0700.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
}

/// Returns the SHA-256 digest of several byte strings, in hexadecimal. The digest covers the length
/// of each string, so different lists have different digests.
pub(crate) fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the cache folder, `$XDG_CACHE_HOME/godwit/functions` or `~/.cache/godwit/functions`. For
/// root without a home folder, it is `/var/cache/godwit/functions`.
pub(crate) fn folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    // SAFETY: the call has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let base = base.or_else(|| is_root.then(|| PathBuf::from("/var/cache")))?;
    Some(base.join("godwit/functions"))
}

impl Cache {
    /// Opens the cache, and creates its folder if necessary.
    pub(crate) fn open() -> Result<Self, Error> {
        let Some(folder) = folder() else {
            return Err(Error::Refused {
                path: PathBuf::from("cache"),
                message: "there is no folder for compiled functions: set HOME or XDG_CACHE_HOME".to_owned(),
            });
        };
        Self::at(folder)
    }

    fn at(folder: PathBuf) -> Result<Self, Error> {
        let file_error = |source| Error::File { path: folder.clone(), source };
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(file_error)?;
        }
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(file_error(error)),
            _ => {}
        }
        let metadata = fs::symlink_metadata(&folder).map_err(file_error)?;
        let refused = |message: String| Error::Refused { path: folder.clone(), message };
        if !metadata.is_dir() {
            return Err(refused("this is not a folder: remove it".to_owned()));
        }
        if let Some(reason) = source::distrust(&metadata) {
            return Err(refused(format!("{reason}: remove the folder, or run `chmod 700` on it")));
        }
        if metadata.mode() & OTHERS != 0 {
            return Err(refused(
                "others may read or write the compiled functions: run `chmod 700` on the folder".to_owned(),
            ));
        }
        Ok(Self { folder })
    }

    fn path(&self, key: &str, extension: &str) -> PathBuf {
        self.folder.join(key).with_extension(extension)
    }

    /// Returns the path of the cached library `key`, or `None` if the library is missing or has
    /// changed.
    pub(crate) fn find(&self, key: &str) -> Result<Option<PathBuf>, Error> {
        let path = self.path(key, "so");
        let (Ok(object), Ok(sum)) = (fs::read(&path), fs::read_to_string(self.path(key, "sha256"))) else {
            return Ok(None);
        };
        let metadata = fs::symlink_metadata(&path).map_err(|source| Error::File { path: path.clone(), source })?;
        if let Some(reason) = source::distrust(&metadata) {
            return Err(Error::Refused { path, message: format!("{reason}: remove the file") });
        }
        // A damaged library is compiled again.
        Ok((sum.trim() == digest(&[&object])).then_some(path))
    }

    /// Stores a library under the name `key`. Files are renamed atomically, because another process
    /// may store the same library.
    pub(crate) fn store(&self, key: &str, object: &[u8]) -> Result<PathBuf, Error> {
        let path = self.path(key, "so");
        self.write(&path, object)?;
        self.write(&self.path(key, "sha256"), digest(&[object]).as_bytes())?;
        Ok(path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let file_error = |source| Error::File { path: path.to_owned(), source };
        let unfinished = path.with_extension(
            format!("{}.{:?}.tmp", std::process::id(), std::thread::current().id()).replace(['(', ')'], ""),
        );
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished).map_err(file_error)?;
        std::io::Write::write_all(&mut file, bytes).map_err(file_error)?;
        drop(file);
        fs::rename(&unfinished, path).map_err(file_error)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn libraries_are_found_until_they_change() {
        let base = tempfile::tempdir().unwrap();
        let cache = Cache::at(base.path().join("functions")).unwrap();
        assert_eq!(cache.find("key").unwrap(), None);
        let path = cache.store("key", b"library").unwrap();
        assert_eq!(cache.find("key").unwrap(), Some(path.clone()));
        fs::write(&path, b"changed").unwrap();
        assert_eq!(cache.find("key").unwrap(), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(cache.find("key").unwrap_err().to_string().contains("others may write"));
    }

    #[test]
    fn a_folder_that_others_may_enter_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("functions");
        Cache::at(folder.clone()).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        for mode in [0o777, 0o750] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert!(Cache::at(folder.clone()).unwrap_err().to_string().contains("chmod 700"));
        }
    }

    #[test]
    fn parts_are_hashed_with_their_lengths() {
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_eq!(digest(&[]), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
