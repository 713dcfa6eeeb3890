//! Claims on cryptographic keys. Each key may have only one user, because two users of one key
//! would repeat nonces.
//!
//! All processes of an operating system user lock bytes of the same file in shared memory. The key
//! identifier determines the position of the byte. When a process ends, the kernel releases its
//! locks.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_WRLCK, O_NOFOLLOW, SEEK_SET, flock};
use nix::unistd::geteuid;

use crate::error::Error;
use crate::record::KeyName;

/// Claims of this process.
pub(crate) struct Claims {
    file: File,
    /// Function that holds the claim on each key.
    owners: HashMap<KeyName, String>,
}

impl Claims {
    /// Opens the lock file of the current operating system user. The file stays open after the
    /// process changes to another user.
    pub(crate) fn open() -> Result<Self, Error> {
        let user = geteuid();
        let path = PathBuf::from(format!("/dev/shm/godwit-keys-{user}"));
        let refuse = |problem: String| Error::Folder { path: path.clone(), problem };
        // Another user may have created a file with this name first. Only root can then remove the
        // file, because the folder has the sticky bit.
        if let Ok(metadata) = std::fs::symlink_metadata(&path)
            && metadata.uid() != user.as_raw()
        {
            let removed = if user.is_root() { std::fs::remove_file(&path) } else { Err(Errno::EPERM.into()) };
            removed.map_err(|error: io::Error| {
                refuse(format!("user {} has created this name: remove it ({error})", metadata.uid()))
            })?;
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600).custom_flags(O_NOFOLLOW);
        let file = options.open(&path).map_err(|error| refuse(format!("cannot open it to claim keys: {error}")))?;
        if !file.metadata().is_ok_and(|metadata| metadata.uid() == user.as_raw() && metadata.is_file()) {
            return Err(refuse("another user has created this name: remove it".to_owned()));
        }
        Ok(Self { file, owners: HashMap::new() })
    }

    /// Claims a key for `function`. The claim lasts until the process ends, because packets may
    /// already have used the key. Error messages name `owner` as the user of the key.
    pub(crate) fn claim(&mut self, name: &KeyName, owner: &str, function: &str) -> Result<(), Error> {
        let refuse = |other: String| Err(Error::Claimed { owner: owner.to_owned(), other });
        match self.owners.get(name) {
            Some(other) if other == function => return Ok(()),
            Some(other) => return refuse(format!("function `{other}`")),
            None => {}
        }
        // File offsets are signed 64-bit numbers, so only 63 bits of the identifier are used.
        let position = u64::from_le_bytes(*name.first_chunk().unwrap_or(&[0; 8])) >> 1;
        let lock = flock {
            l_type: F_WRLCK as i16,
            l_whence: SEEK_SET as i16,
            l_start: position.min(i64::MAX as u64 - 1) as i64,
            l_len: 1,
            l_pid: 0,
        };
        match fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => {
                self.owners.insert(*name, function.to_owned());
                Ok(())
            }
            Err(Errno::EAGAIN | Errno::EACCES) => refuse("another process".to_owned()),
            Err(error) => Err(Error::Io { action: "claim a key", source: error.into() }),
        }
    }
}
