//! Assigns threads to the CPU cores of the machine.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Returns the CPU cores on which the calling thread may run. The list is empty if the system does
/// not report them.
pub(crate) fn cores() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0));
    let is_allowed = |core: &usize| allowed.is_ok_and(|allowed| allowed.is_set(*core).unwrap_or(false));
    (0..CpuSet::count()).filter(is_allowed).collect()
}

/// Pins the calling thread to the CPU cores `cores`. If the system refuses, logs a warning.
pub(crate) fn pin_to(cores: &[usize]) {
    let mut set = CpuSet::new();
    let pinned = !cores.is_empty() && cores.iter().all(|&core| set.set(core).is_ok());
    if !pinned || sched_setaffinity(Pid::from_raw(0), &set).is_err() {
        tracing::warn!(
            event = "thread_unpinned",
            "{} runs unpinned: the system refuses to pin it",
            std::thread::current().name().unwrap_or_default()
        );
    }
}

/// Returns the CPU core of the worker with this index. If there are too few cores, several workers
/// run on one core.
pub(crate) fn cores_of_worker(cores: &[usize], index: usize) -> &[usize] {
    let first = index % cores.len().max(1);
    cores.get(first..=first).unwrap_or_default()
}

/// Returns the CPU cores on which the sender thread of a worker may run.
///
/// A busy worker would leave no time for a sender on the same core. The sender therefore gets a
/// core without a worker. If there is none, the result contains all cores.
pub(crate) fn cores_of_sender(cores: &[usize], workers: usize, index: usize) -> &[usize] {
    let first = workers + index;
    cores.get(first..=first).unwrap_or(cores)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn senders_get_the_cores_without_workers() {
        let cores = [2, 3, 5, 7, 11];
        let workers: Vec<_> = (0..6).map(|index| cores_of_worker(&cores, index)).collect();
        assert_eq!(workers, [[2], [3], [5], [7], [11], [2]]);
        let senders: Vec<_> = (0..3).map(|index| cores_of_sender(&cores, 3, index)).collect();
        assert_eq!(senders, [&[7][..], &[11], &cores]);
        assert_eq!(cores_of_sender(&cores, 8, 0), cores);
        assert!(cores_of_worker(&[], 1).is_empty() && cores_of_sender(&[], 1, 0).is_empty());
    }

    #[test]
    fn sender_does_not_keep_the_core_of_its_parent() {
        let all = cores();
        let pinned = |cores: &[usize]| {
            pin_to(cores);
            super::cores()
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(pinned(cores_of_worker(&all, 0)), all[..1]);
                let sender = |index| {
                    thread::scope(|scope| scope.spawn(|| pinned(cores_of_sender(&all, 1, index))).join().unwrap())
                };
                assert_eq!(sender(all.len()), all);
                assert_eq!(sender(0), if all.len() > 1 { &all[1..2] } else { &all[..] });
            });
        });
    }
}
