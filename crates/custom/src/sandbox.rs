//! Runs the C compiler and the programs of `godwit test` in an unprivileged child process. If
//! possible, the child runs as another user, with an empty environment and resource limits. System
//! calls that a compiler does not need fail.

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
/// Maximum CPU time of a test, in seconds.
const TEST_SECONDS: u64 = 3600;
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

/// Work of a child process, which decides its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// The child process compiles a text.
    Compiler,
    /// The child runs a kernel with sanitizers, which reserve a large address space.
    Test,
}

/// Returns a command that runs `program` in `folder`, where the child process may write.
pub(crate) fn command(program: &Path, folder: &Path, task: Task) -> Command {
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
        command.pre_exec(move || restrict(task, is_root, filter.as_ref()));
    }
    command
}

/// Makes the child process's user the owner of the folder.
pub(crate) fn give(folder: &Path) -> std::io::Result<()> {
    // SAFETY: the call has no preconditions.
    match unsafe { libc::geteuid() } {
        0 => std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)),
        _ => Ok(()),
    }
}

/// Restricts this child process before it executes the compiler.
fn restrict(task: Task, is_root: bool, filter: Option<&BpfProgram>) -> std::io::Result<()> {
    let check = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    let (memory_bytes, cpu_seconds) = match task {
        Task::Compiler => (MEMORY_BYTES, CPU_SECONDS),
        Task::Test => (libc::RLIM_INFINITY, TEST_SECONDS),
    };
    for (resource, most) in [
        (libc::RLIMIT_AS, memory_bytes),
        (libc::RLIMIT_CPU, cpu_seconds),
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

/// Returns the seccomp filter, or `None` if it does not support this architecture.
fn filter() -> Option<BpfProgram> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).ok()?;
    let rules = DENIED.iter().map(|&call| (call, Vec::new())).collect();
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture).ok()?;
    filter.try_into().ok()
}
