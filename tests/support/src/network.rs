//! Network namespaces.

use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::{output_of, skip};

/// Runs `body` on a new thread in a new network namespace. The namespace and its interfaces
/// disappear when `body` returns and all processes in it have ended. Threads and processes that
/// `body` starts are in the same namespace.
///
/// Returns `None` and reports a skipped test if this user has no right to create namespaces.
///
/// # Panics
///
/// Passes on a panic of `body`.
pub fn in_namespace<T: Send>(body: impl FnOnce() -> T + Send) -> Option<T> {
    let inside = || {
        if unshare(CloneFlags::CLONE_NEWNET).is_err() {
            skip("network namespaces need root");
            return None;
        }
        Some(body())
    };
    match thread::scope(|scope| scope.spawn(inside).join()) {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs `ip` with space-separated arguments and returns its output.
///
/// # Panics
///
/// Panics if `ip` fails.
#[track_caller]
pub fn ip(arguments: &str) -> String {
    output_of(Command::new("ip").args(arguments.split_whitespace()))
}

/// Runs a line of shell and returns its output.
///
/// # Panics
///
/// Panics if the line fails.
#[track_caller]
pub fn sh(line: &str) -> String {
    output_of(Command::new("sh").args(["-c", line]))
}

/// Creates a pair of virtual interfaces in the namespace of the calling thread, and sets them up.
/// IPv6 is disabled on both, so that the kernel sends nothing by itself.
#[track_caller]
pub fn veth_pair(names: [&str; 2]) {
    ip(&format!("link add {} type veth peer name {}", names[0], names[1]));
    for name in names {
        disable_ipv6(name);
        ip(&format!("link set {name} up"));
    }
}

/// Disables IPv6 on an interface, or on all later interfaces if `interface` is `default`.
pub fn disable_ipv6(interface: &str) {
    // A kernel without IPv6 has no such file.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1");
}
