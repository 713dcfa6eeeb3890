//! Drops root privileges after everything is open.

use std::path::Path;

use nix::unistd::{Gid, Uid, User, chown, geteuid, setgroups, setresgid, setresuid};

use crate::failure::Failure;

/// Changes all threads to `user` permanently, without any capability. The user becomes the owner of
/// the control socket, because it must remove the socket at the end.
pub(crate) fn drop_to(user: &str, control: Option<&Path>) -> Result<(), Failure> {
    let found = User::from_name(user).map_err(|error| refuse(user, error))?;
    let Some(User { uid, gid, .. }) = found else {
        return Err(Failure::user(format!("[engine] user = \"{user}\": this user does not exist on this machine")));
    };
    if geteuid() == uid {
        return Ok(());
    }
    if !geteuid().is_root() {
        return Err(Failure::user(format!(
            "[engine] user = \"{user}\": only root can change to another user: start godwit as root"
        )));
    }
    if let Some(control) = control {
        chown(control, Some(uid), Some(gid)).map_err(|error| refuse(user, error))?;
    }
    become_user(uid, gid).map_err(|error| refuse(user, error))
}

/// Forbids core dumps of this process, and access to its memory by other processes of its user.
#[cfg(feature = "tls")]
pub(crate) fn disable_core_dumps() {
    // The call fails only for unknown values.
    let _ = nix::sys::prctl::set_dumpable(false);
}

fn become_user(uid: Uid, gid: Gid) -> nix::Result<()> {
    setgroups(&[gid])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

fn refuse(user: &str, error: nix::Error) -> Failure {
    Failure::user(format!("cannot change to user `{user}`: {}", error.desc()))
}
