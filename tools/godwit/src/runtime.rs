//! Runtime folder for control sockets without a configured path.
//!
//! The folder is `$RUNTIME_DIRECTORY`, as systemd sets it. Without this variable, it is
//! `/run/godwit` for root, and `$XDG_RUNTIME_DIR/godwit` for other users.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access, geteuid};

use crate::failure::Failure;

/// Folder of root and of system services.
const SYSTEM_FOLDER: &str = "/run/godwit";
/// Maximum number of characters of the configuration name in a socket name. A Unix socket path has
/// at most 107 bytes.
const NAME_MAX: usize = 32;

/// Returns the path of a new control socket for a run of `config`, or `None` if this user has no
/// runtime folder. Removes sockets that ended processes have left behind.
pub(crate) fn new_socket(config: &Path) -> Option<PathBuf> {
    let folder = folders().into_iter().next()?;
    let _ = DirBuilder::new().recursive(true).mode(0o755).create(&folder);
    access(&folder, AccessFlags::W_OK | AccessFlags::X_OK).ok()?;
    for (path, pid) in sockets(&folder).iter().filter_map(|path| Some((path, pid_of(path)?))) {
        if !Path::new("/proc").join(pid).exists() && UnixStream::connect(path).is_err() {
            let _ = std::fs::remove_file(path);
        }
    }
    let stem = config.file_stem().map_or_else(|| "godwit".into(), |stem| stem.to_string_lossy());
    let name: String = stem.chars().filter(|character| character.is_ascii_graphic()).take(NAME_MAX).collect();
    Some(folder.join(format!("{name}.{}.sock", std::process::id())))
}

/// Returns the control socket of the only running godwit.
///
/// # Errors
/// Returns an error if no godwit runs, or if several do.
pub(crate) fn only_socket() -> Result<PathBuf, Failure> {
    let folders = folders();
    let mut found: Vec<PathBuf> = folders.iter().flat_map(|folder| sockets(folder)).collect();
    found.retain(|path| UnixStream::connect(path).is_ok());
    found.sort();
    found.dedup();
    let join = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let folders = join(&folders);
            Err(Failure::User(format!("no godwit answers in {folders}: name its control socket with --control PATH")))
        }
        count => Err(Failure::User(format!(
            "{count} godwits run: choose one with --control PATH or $GODWIT_CONTROL: {}",
            join(&found)
        ))),
    }
}

/// Returns the folders that may contain control sockets. This user's folder comes first.
fn folders() -> Vec<PathBuf> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    // systemd separates several folders by colons.
    if let Some(folders) = variable("RUNTIME_DIRECTORY") {
        return folders.split(':').map(PathBuf::from).collect();
    }
    let mut folders: Vec<PathBuf> =
        variable("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("godwit")).into_iter().collect();
    // Root uses the folder of the system even in a login session.
    let at = if geteuid().is_root() { 0 } else { folders.len() };
    folders.insert(at, SYSTEM_FOLDER.into());
    folders
}

/// Returns all sockets of a folder and of its subfolders, which systemd creates for instances.
fn sockets(folder: &Path) -> Vec<PathBuf> {
    let list = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().collect::<Vec<_>>();
    let mut found = Vec::new();
    for entry in list(folder) {
        match entry.file_type() {
            Ok(kind) if kind.is_socket() => found.push(entry.path()),
            Ok(kind) if kind.is_dir() => {
                let inner = list(&entry.path()).into_iter();
                found.extend(
                    inner
                        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
                        .map(|entry| entry.path()),
                );
            }
            _ => {}
        }
    }
    found
}

/// Returns the process ID in a socket name that [`new_socket`] chose.
fn pid_of(path: &Path) -> Option<&str> {
    let (_, pid) = path.file_name()?.to_str()?.strip_suffix(".sock")?.rsplit_once('.')?;
    pid.bytes().all(|byte| byte.is_ascii_digit()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_process_id_are_own_sockets() {
        assert_eq!(pid_of(Path::new("/run/godwit/router.12.sock")), Some("12"));
        for other in ["/run/godwit/control", "/run/godwit/router.sock", "/run/godwit/a.b.sock"] {
            assert_eq!(pid_of(Path::new(other)), None, "{other}");
        }
    }
}
