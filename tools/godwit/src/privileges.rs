//! Giving up root once everything is open.

use std::path::Path;

use nix::unistd::{Gid, Uid, User, chown, geteuid, setgroups, setresgid, setresuid};

use crate::failure::Failure;

/// Becomes `user` for good, with all threads: no capability is left, and none comes back. The control socket stays the
/// user's, who removes it at the end.
pub(crate) fn drop_to(user: &str, control: Option<&Path>) -> Result<(), Failure> {
    let found = User::from_name(user).map_err(|error| refuse(user, error))?;
    let Some(User { uid, gid, .. }) = found else {
        return Err(Failure::user(format!("[engine] user = \"{user}\": there is no such user on this machine")));
    };
    if geteuid() == uid {
        return Ok(());
    }
    if !geteuid().is_root() {
        return Err(Failure::user(format!("[engine] user = \"{user}\": only root can become another user")));
    }
    if let Some(control) = control {
        chown(control, Some(uid), Some(gid)).map_err(|error| refuse(user, error))?;
    }
    become_user(uid, gid).map_err(|error| refuse(user, error))
}

fn become_user(uid: Uid, gid: Gid) -> nix::Result<()> {
    setgroups(&[gid])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

fn refuse(user: &str, error: nix::Error) -> Failure {
    Failure::user(format!("cannot become user `{user}`: {}", error.desc()))
}
