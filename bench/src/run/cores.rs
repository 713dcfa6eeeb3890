//! The cores of this process, and threads pinned to them.

use std::thread;

use godwit_device::is_synchronous;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::Error;
use crate::run::options::LaneOptions;

/// Returns the cores of this process, and how many of them feed the device: `--workers`, or one.
/// The feeding cores come first.
///
/// # Errors
/// Returns an error if the request names several devices or only the CPU, or if all cores would
/// feed the device.
pub(crate) fn with_device(options: &LaneOptions) -> Result<(Vec<usize>, usize), Error> {
    let cores = allowed()?;
    let feeding = options.workers.first().copied().unwrap_or(1);
    if let [_, second, ..] = options.devices()[..] {
        let message =
            format!("CPU and device together: only one device besides the CPU is supported, not also `{second}`");
        return Err(Error::Setup(message));
    }
    if is_synchronous(options.device()) || feeding >= cores.len() {
        return Err(Error::Setup(format!(
            "CPU and device together: needs a --device other than the CPU, and more cores than the {feeding} that feed \
             it; this process has {}",
            cores.len()
        )));
    }
    Ok((cores, feeding))
}

/// Returns the thread counts to measure, and the cores for these threads. All threads feed the
/// device. The list of cores is empty if a single thread feeds the device.
///
/// # Errors
/// Returns an error if several threads are requested for several devices or for the CPU, or if
/// there are too few cores.
pub(crate) fn feeding(options: &LaneOptions) -> Result<(Vec<usize>, Vec<usize>), Error> {
    let threads = if options.workers.is_empty() { vec![1] } else { options.workers.clone() };
    let largest = threads.iter().copied().max().unwrap_or(1);
    if largest == 1 {
        return Ok((threads, Vec::new()));
    }
    if options.devices().len() > 1 || is_synchronous(options.device()) {
        return Err(Error::Setup(format!(
            "--workers {largest}: several threads can only feed a single device other than the CPU, not `{}`",
            options.devices().join(",")
        )));
    }
    let cores = allowed()?;
    if largest > cores.len() {
        return Err(Error::Setup(format!(
            "--workers {largest}: each thread needs a core, and this process has {}",
            cores.len()
        )));
    }
    Ok((threads, cores))
}

/// Returns the number of cores of this machine.
pub(crate) fn count() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns two cores, for a server and for its clients. They are the same if this process has only
/// one core.
pub(crate) fn pair() -> Result<(usize, usize), Error> {
    let cores = allowed()?;
    let first = cores.first().copied().ok_or_else(|| Error::Setup("this process has no core".to_owned()))?;
    Ok((first, cores.get(1).copied().unwrap_or(first)))
}

/// Returns the cores of this process.
fn allowed() -> Result<Vec<usize>, Error> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(Error::setup)?;
    Ok((0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false)).collect())
}

/// Pins this thread, and the threads that it starts later, to these cores.
pub(crate) fn pin(cores: &[usize]) -> Result<(), Error> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|&core| set.set(core)).map_err(Error::setup)?;
    sched_setaffinity(Pid::from_raw(0), &set).map_err(Error::setup)
}

/// Runs `work` on a new thread that is pinned to these cores. Engine workers inherit them.
pub(crate) fn on<T: Send>(cores: &[usize], work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let run = || {
        let pinned = pin(cores);
        // Other threads may wait until `work` begins, so it begins even if pinning failed.
        let done = work();
        pinned.and(done)
    };
    thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err(Error::Setup("a thread of the bench panicked".to_owned())))
}
