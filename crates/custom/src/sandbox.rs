//! Runs the C compiler in an unprivileged child process. The child process runs as another user if
//! possible, with an empty environment and resource limits. A system-call filter refuses all system
//! calls that a compiler does not need.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// Number of the user and of the group `nobody`.
const NOBODY: libc::uid_t = 65_534;
/// Maximum address space of the compiler, in bytes.
const MEMORY_BYTES: u64 = 4 << 30;
/// Maximum CPU time of the compiler, in seconds.
const CPU_SECONDS: u64 = 60;
/// Maximum size of a file that the compiler writes, in bytes.
const FILE_BYTES: u64 = 256 << 20;

/// System calls that fail in the child process.
const DENIED: &[libc::c_long] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_io_uring_setup,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_setuid,
    libc::SYS_setgid,
];

/// Returns a command that runs `program` in the folder `folder`. The child process may write to
/// this folder.
pub(crate) fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C").env("TMPDIR", folder);
    command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let filter = filter();
    // SAFETY: the call has no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    // SAFETY: the closure runs in the child before exec. It only makes system calls, and reads
    // memory that was allocated before.
    unsafe {
        command.pre_exec(move || restrict(is_root, filter.as_ref()));
    }
    command
}

/// Makes the user of the child process the owner of the folder.
pub(crate) fn give(folder: &Path) -> std::io::Result<()> {
    // SAFETY: the call has no preconditions.
    match unsafe { libc::geteuid() } {
        0 => std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)),
        _ => Ok(()),
    }
}

/// Restricts the rights of the calling process, which is the child process before it executes the
/// compiler.
fn restrict(is_root: bool, filter: Option<&BpfProgram>) -> std::io::Result<()> {
    let check = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    for (resource, most) in [
        (libc::RLIMIT_AS, MEMORY_BYTES),
        (libc::RLIMIT_CPU, CPU_SECONDS),
        (libc::RLIMIT_FSIZE, FILE_BYTES),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_NOFILE, 256),
    ] {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the limit is valid for the call.
        check(unsafe { libc::setrlimit(resource, &limit) })?;
    }
    if is_root {
        // SAFETY: the calls have no preconditions; an empty list of groups needs no memory.
        unsafe {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setgid(NOBODY))?;
            check(libc::setuid(NOBODY))?;
        }
    }
    // SAFETY: the call has no preconditions.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    match filter {
        Some(filter) => seccompiler::apply_filter(filter).map_err(|_| std::io::Error::from_raw_os_error(libc::EPERM)),
        None => Ok(()),
    }
}

/// Returns the system-call filter (seccomp), or `None` if the filter does not support this
/// architecture.
fn filter() -> Option<BpfProgram> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).ok()?;
    let rules = DENIED.iter().map(|&call| (call, Vec::new())).collect();
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture).ok()?;
    filter.try_into().ok()
}
