//! Cores that this process may use, and threads that stay on some of them.

use std::thread;

use godwit_device::cpu;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::{BenchOptions, Error};

/// Cores that this process may use, and how many of them, from the first on, feed the one device that is asked for: `--workers`, or
/// one.
///
/// # Errors
/// Another number of devices than one is asked for, or only the CPU, or no core would be left beside those that feed.
pub(crate) fn beside_device(options: &BenchOptions) -> Result<(Vec<usize>, usize), Error> {
    let cores = allowed()?;
    let feeding = options.workers.first().copied().unwrap_or(1);
    if let [_, second, ..] = options.devices()[..] {
        return Err(Error::Setup(format!(
            "CPU and device together: one device beside the CPU, not `{second}` as well"
        )));
    }
    if options.device() == cpu::ID || feeding >= cores.len() {
        let message = format!(
            "CPU and device together need a --device that is not the CPU, and more cores than the {feeding} that feed it: \
             there are {}",
            cores.len()
        );
        return Err(Error::Setup(message));
    }
    Ok((cores, feeding))
}

/// How many threads feed the device asked for, one after the other: each `--workers`, or one; and the cores that they stay on, from
/// the first on, where there are several.
///
/// # Errors
/// Several threads are to feed several devices or the CPU, or there are fewer cores.
pub(crate) fn feeding(options: &BenchOptions) -> Result<(Vec<usize>, Vec<usize>), Error> {
    let threads = if options.workers.is_empty() { vec![1] } else { options.workers.clone() };
    let most = threads.iter().copied().max().unwrap_or(1);
    if most == 1 {
        return Ok((threads, Vec::new()));
    }
    if options.devices().len() > 1 || options.device() == cpu::ID {
        return Err(Error::Setup(format!(
            "device `{}`: {most} workers can feed one device that is not the CPU",
            options.device()
        )));
    }
    let cores = allowed()?;
    if most > cores.len() {
        let message = format!("{most} workers that feed a device need a core each: there are {}", cores.len());
        return Err(Error::Setup(message));
    }
    Ok((threads, cores))
}

/// Cores that this process may use.
fn allowed() -> Result<Vec<usize>, Error> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(Error::setup)?;
    Ok((0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false)).collect())
}

/// From now on this thread, and what it starts, may use these cores only.
pub(crate) fn pin(cores: &[usize]) -> Result<(), Error> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|&core| set.set(core)).map_err(Error::setup)?;
    sched_setaffinity(Pid::from_raw(0), &set).map_err(Error::setup)
}

/// Runs `work` on a thread that may use these cores only: the engine gives its workers what its thread has.
pub(crate) fn on<T: Send>(cores: &[usize], work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let run = || {
        let pinned = pin(cores);
        // Others may wait for this to begin, so it begins in any case.
        let done = work();
        pinned.and(done)
    };
    thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err(Error::Setup("a thread of the bench ended early".to_owned())))
}
