//! DPDK's environment (EAL): set up once a process, and the threads that it knows.

use std::cell::Cell;
use std::ffi::{CString, c_int};
use std::sync::Mutex;

use super::ffi;
use crate::Error;

/// What the environment was set up with. It cannot be set up twice in a process.
static ARGUMENTS: Mutex<Option<Result<Vec<String>, String>>> = Mutex::new(None);

/// The arguments where the configuration gives none: no hugepages, no PCI devices but those that are named.
pub(super) fn arguments(given: Option<&[String]>, needs_pci: bool, core: usize) -> Vec<String> {
    let mut all: Vec<String> = vec!["godwit".into()];
    let given = given.unwrap_or_default();
    if given.is_empty() {
        // Nothing lies in this memory but DPDK's own bookkeeping: packets are in the arena.
        all.extend(["--no-huge", "--no-shconf", "-m", "256"].map(str::to_owned));
        if !needs_pci {
            all.push("--no-pci".into());
        }
    }
    all.extend(given.iter().cloned());
    let says = |all: &[String], names: &[&str]| {
        all.iter().any(|said| names.iter().any(|name| said == name || said.starts_with(&format!("{name}="))))
    };
    if !says(&all, &["-l", "--lcores", "-c", "-s", "-S"]) {
        // Its main thread only. Workers are Godwit's and register themselves.
        all.extend(["--lcores".into(), format!("0@{core}")]);
    }
    if !says(&all, &["--no-telemetry", "--telemetry"]) {
        all.push("--no-telemetry".into());
    }
    if !says(&all, &["--iova-mode"]) {
        all.push("--iova-mode=va".into());
    }
    if !says(&all, &["--log-level"]) {
        all.push("--log-level=*:error".into());
    }
    all
}

/// Sets the environment up, unless it is.
pub(super) fn start(given: Option<&[String]>, needs_pci: bool) -> Result<(), Error> {
    let refused = |reason: String| Error::Environment { reason };
    let core = first_core();
    let arguments = arguments(given, needs_pci, core);
    let mut started = ARGUMENTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match &*started {
        Some(Ok(before)) if *before == arguments => return Ok(()),
        Some(Ok(before)) => {
            let (before, arguments) = (before[1..].join(" "), arguments[1..].join(" "));
            return Err(refused(format!(
                "this process has set it up with `{before}`, and cannot set it up again with `{arguments}`"
            )));
        }
        Some(Err(reason)) => return Err(refused(reason.clone())),
        None => {}
    }
    let words = arguments.clone();
    // On a thread of its own, because DPDK binds the one that calls to a core.
    let thread = std::thread::Builder::new().name("dpdk".into()).spawn(move || init(&words));
    let result = thread.map_err(|error| refused(error.to_string()))?.join();
    let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and_then(|()| {
        // SAFETY: asks for a setting; the environment is up.
        if unsafe { ffi::gw_dpdk_iova_is_va() } {
            return Ok(());
        }
        Err("devices are to use physical addresses; Godwit's arena is contiguous in virtual ones: use an IOMMU (vfio-pci), and leave \
             --iova-mode=va"
            .to_owned())
    });
    *started = Some(result.clone().map(|()| arguments.clone()));
    result.map_err(|reason| refused(format!("{reason} (arguments: {})", arguments[1..].join(" "))))
}

fn init(words: &[String]) -> Result<(), String> {
    let words = words.iter().map(|word| CString::new(word.as_str()).map_err(|_| format!("`{word}` holds a zero byte")));
    let words: Vec<CString> = words.collect::<Result<_, _>>()?;
    // DPDK keeps pointers into its arguments.
    let mut pointers: Vec<_> = words.into_iter().map(CString::into_raw).collect();
    let count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    let pointers = pointers.leak();
    // SAFETY: `count` strings, zero-terminated, that live for ever; called once a process.
    match unsafe { ffi::gw_dpdk_init(count, pointers.as_mut_ptr()) } {
        0 => Ok(()),
        error => Err(ffi::reason(error)),
    }
}

/// The first core that the process may use.
fn first_core() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    list.trim().split(['-', ',']).next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// Makes the calling thread one that DPDK knows, until it ends. Cheap when it is.
pub(super) fn register_thread() {
    struct Registered(Cell<bool>);
    impl Drop for Registered {
        fn drop(&mut self) {
            if self.0.get() {
                // SAFETY: this thread was registered, and calls DPDK no more.
                unsafe { ffi::gw_dpdk_thread_unregister() };
            }
        }
    }
    thread_local!(static REGISTERED: Registered = const { Registered(Cell::new(false)) });
    REGISTERED.with(|registered| {
        if !registered.0.get() {
            // More threads than DPDK has numbers for run without one: that costs caches which Godwit does not use.
            // SAFETY: the environment is up wherever there is a queue.
            registered.0.set(unsafe { ffi::gw_dpdk_thread_register() } == 0);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_configuration_says_replaces_what_would_be_said() {
        let joined = |given: Option<&[String]>, pci| arguments(given, pci, 3)[1..].join(" ");
        let rest = "--lcores 0@3 --no-telemetry --iova-mode=va --log-level=*:error";
        assert_eq!(joined(None, false), format!("--no-huge --no-shconf -m 256 --no-pci {rest}"));
        assert_eq!(joined(None, true), format!("--no-huge --no-shconf -m 256 {rest}"));
        let given = ["-l", "2", "--iova-mode=pa", "--log-level=7"].map(str::to_owned);
        assert_eq!(joined(Some(&given), false), "-l 2 --iova-mode=pa --log-level=7 --no-telemetry");
    }
}
