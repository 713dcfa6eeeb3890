//! Drops root privileges after everything is open.

use std::path::Path;

use caps::{CapSet, errors::CapsError};
use nix::fcntl::{AT_FDCWD, AtFlags};
#[cfg(feature = "tls")]
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::prctl;
#[cfg(feature = "tls")]
use nix::sys::resource::{RLIM_INFINITY, getrlimit};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, User, fchownat, geteuid, setgroups, setresgid, setresuid};

use crate::failure::Failure;

/// Changes all threads to `user` permanently, without any capability. The user becomes the owner of
/// the control socket, which it must finally remove, and of the state folder with its files.
pub(crate) fn drop_to(user: &str, control: Option<&Path>, state: Option<&Path>) -> Result<(), Failure> {
    let found = User::from_name(user).map_err(|error| refuse(user, error))?;
    let Some(User { uid, gid, .. }) = found else {
        return Err(Failure::user(format!("[engine] user = \"{user}\": this user does not exist on this machine")));
    };
    give_up_programs();
    if geteuid() == uid {
        // systemd already changed the user, and kept the capabilities that open ports.
        return give_up_capabilities().map_err(|error| refuse_capabilities(user, &error));
    }
    if !geteuid().is_root() {
        return Err(Failure::user(format!(
            "[engine] user = \"{user}\": only root can change to another user: start godwit as root"
        )));
    }
    if let Some(control) = control {
        give(control, uid, gid).map_err(|error| refuse(user, error))?;
    }
    if let Some(state) = state.filter(|state| state.is_dir()) {
        give_folder(state, uid, gid).map_err(|error| refuse(user, error))?;
    }
    become_user(uid, gid).map_err(|error| refuse(user, error))?;
    give_up_capabilities().map_err(|error| refuse_capabilities(user, &error))
}

/// Prevents executed programs from gaining privileges. Applies to this thread and to threads that
/// it starts.
fn give_up_programs() {
    // The call fails only on kernels before Linux 3.5.
    let _ = prctl::set_no_new_privs();
    for capability in caps::all() {
        // This fails without CAP_SETPCAP, but no_new_privs has the same effect.
        let _ = caps::drop(None, CapSet::Bounding, capability);
    }
}

/// Gives up the capabilities of this thread and of threads that it starts.
fn give_up_capabilities() -> Result<(), CapsError> {
    // Clear the effective set before the permitted set, of which it is a subset.
    [CapSet::Ambient, CapSet::Effective, CapSet::Permitted, CapSet::Inheritable]
        .into_iter()
        .try_for_each(|set| caps::clear(None, set))
}

/// Changes the owner of a folder and of the files in it.
fn give_folder(path: &Path, uid: Uid, gid: Gid) -> nix::Result<()> {
    // No other user may change the folder, so its entries stay the same.
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        give(&entry.path(), uid, gid)?;
    }
    give(path, uid, gid)
}

/// Changes the owner of a file. Does not follow a link.
fn give(path: &Path, uid: Uid, gid: Gid) -> nix::Result<()> {
    fchownat(AT_FDCWD, path, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// Disables core dumps, and denies other processes of the same user access to this process's
/// memory.
pub(crate) fn disable_core_dumps() {
    // The first call fails only for unknown values. Any process may lower its limits.
    let _ = nix::sys::prctl::set_dumpable(false);
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// Locks all memory of this process in RAM, including later allocations. Returns false if the limit
/// for locked memory is too low.
#[cfg(feature = "tls")]
pub(crate) fn lock_memory() -> bool {
    // Root raises the limit, which then also applies to the user that the process changes to.
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    let unlimited = getrlimit(Resource::RLIMIT_MEMLOCK).is_ok_and(|(limit, _)| limit == RLIM_INFINITY);
    // With a limit, later allocations would fail.
    unlimited && mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE).is_ok()
}

fn become_user(uid: Uid, gid: Gid) -> nix::Result<()> {
    setgroups(&[gid])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

fn refuse(user: &str, error: nix::Error) -> Failure {
    Failure::user(format!("cannot change to user `{user}`: {}", error.desc()))
}

fn refuse_capabilities(user: &str, error: &CapsError) -> Failure {
    Failure::user(format!("cannot give up the capabilities of user `{user}`: {error}"))
}
