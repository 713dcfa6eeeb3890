//! Initializes the Environment Abstraction Layer (EAL) of DPDK once per process, and registers
//! threads with it.

use std::cell::Cell;
use std::ffi::{CString, c_int};
use std::sync::Mutex;

use super::ffi;
use crate::Error;

/// EAL arguments of this process, or the error of the initialization. A process can initialize the
/// EAL only once.
static ARGUMENTS: Mutex<Option<Result<Vec<String>, Refused>>> = Mutex::new(None);

/// Reason why the EAL was not initialized.
#[derive(Clone, Debug, thiserror::Error)]
enum Refused {
    /// DPDK reported an error.
    #[error("{0}")]
    Dpdk(String),
    /// DPDK uses addresses that the arena does not have.
    #[error(
        "DPDK uses physical addresses, but the arena is contiguous only in virtual addresses: use an IOMMU (vfio-pci) \
         and keep --iova-mode=va"
    )]
    PhysicalAddresses,
}

/// Adds default arguments to the configured EAL arguments. With these defaults, DPDK uses no
/// hugepages, and PCI devices only if a port needs one.
pub(super) fn arguments(given: Option<&[String]>, needs_pci: bool, core: usize) -> Vec<String> {
    let mut all: Vec<String> = vec!["godwit".into()];
    let given = given.unwrap_or_default();
    if given.is_empty() {
        // DPDK needs memory only for its management data, because this program allocates the memory
        // for packets.
        all.extend(["--no-huge", "--no-shconf", "-m", "256"].map(str::to_owned));
        if !needs_pci {
            all.push("--no-pci".into());
        }
    }
    all.extend(given.iter().cloned());
    let has_option = |all: &[String], names: &[&str]| {
        all.iter().any(|word| names.iter().any(|name| word == name || word.starts_with(&format!("{name}="))))
    };
    if !has_option(&all, &["-l", "--lcores", "-c", "-s", "-S"]) {
        // DPDK creates only its main thread. The workers are threads of this program and register
        // themselves with DPDK.
        all.extend(["--lcores".into(), format!("0@{core}")]);
    }
    if !has_option(&all, &["--no-telemetry", "--telemetry"]) {
        all.push("--no-telemetry".into());
    }
    if !has_option(&all, &["--iova-mode"]) {
        all.push("--iova-mode=va".into());
    }
    if !has_option(&all, &["--log-level"]) {
        all.push("--log-level=*:error".into());
    }
    all
}

/// Initializes the EAL of DPDK if it is not initialized yet.
pub(super) fn start(given: Option<&[String]>, needs_pci: bool) -> Result<(), Error> {
    let environment_error = |reason: String| Error::Environment { reason };
    let core = first_core();
    let arguments = arguments(given, needs_pci, core);
    let mut started = ARGUMENTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match &*started {
        Some(Ok(before)) if *before == arguments => return Ok(()),
        Some(Ok(before)) => {
            let (before, arguments) = (before[1..].join(" "), arguments[1..].join(" "));
            return Err(environment_error(format!(
                "this process has initialized the EAL with `{before}` and cannot initialize it again with `{arguments}`"
            )));
        }
        Some(Err(reason)) => return Err(environment_error(reason.to_string())),
        None => {}
    }
    let word = |word: &String| {
        CString::new(word.as_str()).map_err(|_| environment_error(format!("`{word}` contains a zero byte")))
    };
    let words = arguments.iter().map(word).collect::<Result<Vec<_>, _>>()?;
    // DPDK binds the calling thread to a core. A separate thread therefore initializes it.
    let thread = std::thread::Builder::new().name("dpdk".into()).spawn(move || init(words));
    let result = thread.map_err(|error| environment_error(error.to_string()))?.join();
    let reason = match result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        // SAFETY: the call reads a setting, and the EAL is initialized.
        0 if unsafe { ffi::gw_dpdk_iova_is_va() } => None,
        0 => Some(Refused::PhysicalAddresses),
        error => Some(Refused::Dpdk(ffi::reason(error))),
    };
    *started = Some(reason.clone().map_or_else(|| Ok(arguments.clone()), Err));
    match reason {
        None => Ok(()),
        Some(reason) => Err(environment_error(format!("{reason} (arguments: {})", arguments[1..].join(" ")))),
    }
}

/// Initializes the EAL. Returns 0 or an error number of DPDK.
fn init(words: Vec<CString>) -> c_int {
    // These strings are never freed, because DPDK keeps pointers to its arguments.
    let mut pointers: Vec<_> = words.into_iter().map(CString::into_raw).collect();
    let count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    let pointers = pointers.leak();
    // SAFETY: `pointers` has `count` zero-terminated strings that live forever. The call is made
    // once per process.
    unsafe { ffi::gw_dpdk_init(count, pointers.as_mut_ptr()) }
}

/// Returns the first core on which the process may run.
fn first_core() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    list.trim().split(['-', ',']).next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// Registers the calling thread with DPDK until the thread ends. Has no effect on a registered
/// thread.
pub(super) fn register_thread() {
    struct Registered(Cell<bool>);
    impl Drop for Registered {
        fn drop(&mut self) {
            if self.0.get() {
                // SAFETY: this thread is registered and makes no more calls to DPDK.
                unsafe { ffi::gw_dpdk_thread_unregister() };
            }
        }
    }
    thread_local!(static REGISTERED: Registered = const { Registered(Cell::new(false)) });
    REGISTERED.with(|registered| {
        if !registered.0.get() {
            // DPDK has a limited number of thread ids. A thread without an id lacks only caches
            // that Godwit does not use.
            // SAFETY: the EAL is initialized when a queue exists.
            registered.0.set(unsafe { ffi::gw_dpdk_thread_register() } == 0);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_arguments_replace_the_defaults() {
        let joined = |given: Option<&[String]>, pci| arguments(given, pci, 3)[1..].join(" ");
        let rest = "--lcores 0@3 --no-telemetry --iova-mode=va --log-level=*:error";
        assert_eq!(joined(None, false), format!("--no-huge --no-shconf -m 256 --no-pci {rest}"));
        assert_eq!(joined(None, true), format!("--no-huge --no-shconf -m 256 {rest}"));
        let given = ["-l", "2", "--iova-mode=pa", "--log-level=7"].map(str::to_owned);
        assert_eq!(joined(Some(&given), false), "-l 2 --iova-mode=pa --log-level=7 --no-telemetry");
    }
}
