//! Checks and locks the state folder.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::O_NOFOLLOW;
use nix::unistd::geteuid;

use crate::error::Error;

/// Name of the lock file in the state folder.
const LOCK: &str = "lock";

/// Creates the state folder if it does not exist, and locks it. Dropping the returned value
/// releases the lock.
///
/// # Errors Returns an error if another process uses the folder, or if another user could change
/// the folder.
pub(crate) fn lock(path: &Path) -> Result<Flock<File>, Error> {
    let refuse = |problem: String| Error::Folder { path: path.to_owned(), problem };
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(refuse(format!("cannot create it: {error}")));
        }
        _ => {}
    }
    let metadata = std::fs::symlink_metadata(path).map_err(|error| refuse(error.to_string()))?;
    if !metadata.is_dir() {
        return Err(refuse("this is not a folder: name a folder of its own".to_owned()));
    }
    let own = geteuid();
    if metadata.uid() != own.as_raw() && !own.is_root() {
        return Err(refuse(format!("it belongs to user {}: make this process its owner", metadata.uid())));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(refuse(format!("other users may change it (mode {:o}): set mode 700", metadata.mode() & 0o777)));
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600).custom_flags(O_NOFOLLOW);
    let file = options.open(path.join(LOCK)).map_err(|error| refuse(format!("cannot open its lock: {error}")))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        Errno::EAGAIN => refuse("another process uses it: give each process a folder of its own".to_owned()),
        error => refuse(format!("cannot lock it: {}", error.desc())),
    })
}
