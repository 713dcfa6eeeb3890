//! Reads files that decide which code runs. Only trusted users may write to these files.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::Error;

/// Bit of a file mode that lets everybody write to the file.
const OTHERS_WRITE: u32 = 0o002;
/// Permission bit that gives the group of a file write access.
const GROUP_WRITE: u32 = 0o020;
/// Permission bit of folders in which only the owner of a file may delete it.
const STICKY: u32 = 0o1000;
/// Maximum size of a source file or of a package, in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// Reads a file that decides which code runs. Refuses files that users other than root and the
/// current user may change. Also refuses symbolic links to files in other folders.
///
/// # Errors
/// Returns [`Error::File`] if the file cannot be read, or [`Error::Refused`] if the file is not
/// trusted.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let refused = |message: String| Error::Refused { path: path.to_owned(), message };
    let file_error = |source| Error::File { path: path.to_owned(), source };
    let real = fs::canonicalize(path).map_err(file_error)?;
    let folder = real.parent().unwrap_or(Path::new("/"));
    if fs::symlink_metadata(path).map_err(file_error)?.is_symlink() {
        let own = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let own = fs::canonicalize(own).map_err(file_error)?;
        if !real.starts_with(&own) {
            return Err(refused(format!("the file is a link to {}, out of its folder", real.display())));
        }
    }
    let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&real);
    let mut file = opened.map_err(file_error)?;
    let metadata = file.metadata().map_err(file_error)?;
    if !metadata.is_file() {
        return Err(refused("this is not a file".to_owned()));
    }
    if metadata.len() > BYTES_MAX {
        return Err(refused(format!("the file has more than {} MiB", BYTES_MAX >> 20)));
    }
    if let Some(reason) = distrust(&metadata) {
        return Err(refused(format!("{reason}: run `chmod go-w` on the file")));
    }
    let parent = fs::metadata(folder).map_err(file_error)?;
    if others_write(&parent) && parent.mode() & STICKY == 0 {
        return Err(refused(format!("others may replace the file: run `chmod go-w {}`", folder.display())));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(file_error)?;
    Ok(bytes)
}

/// Returns the SHA-256 of a file in hexadecimal, like `sha256sum`.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns why a file or folder is not trusted. Only root and the current user may have write
/// access.
pub(crate) fn distrust(metadata: &fs::Metadata) -> Option<String> {
    // SAFETY: the call has no preconditions.
    let own = unsafe { libc::geteuid() };
    if metadata.uid() != 0 && metadata.uid() != own {
        return Some(format!("user {} owns it, who could change the code that runs", metadata.uid()));
    }
    others_write(metadata).then(|| "others may write it, and so change the code that runs".to_owned())
}

/// Returns whether users other than the owner may write to a file or folder. The current user's
/// group may write, because many systems give each user a separate group.
fn others_write(metadata: &fs::Metadata) -> bool {
    // SAFETY: the call has no preconditions.
    let own = unsafe { libc::getegid() };
    metadata.mode() & OTHERS_WRITE != 0 || (metadata.mode() & GROUP_WRITE != 0 && metadata.gid() != own)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_that_others_may_change_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.c");
        fs::write(&path, "text").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read(&path).unwrap(), b"text");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o646)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("others may write it"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("others may replace the file"));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_link_out_of_its_folder_is_refused() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (target, name) in [(folder.path(), "inside"), (other.path(), "outside")] {
            let target = target.join("my.c");
            fs::write(&target, name).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).unwrap();
            std::os::unix::fs::symlink(&target, folder.path().join(name)).unwrap();
        }
        assert_eq!(read(&folder.path().join("inside")).unwrap(), b"inside");
        assert!(read(&folder.path().join("outside")).unwrap_err().to_string().contains("out of its folder"));
    }
}
