//! Forms of kernels that work on a whole bin at once, for one kind of CPU each.

use core::fmt;

use crate::BinCall;

/// A form of some kernels for CPUs with certain features; what it does not cover is for a [`Level`](crate::Level).
pub struct Native {
    /// `avx512`.
    pub name: &'static str,
    /// CPU features beyond the base of the architecture that it uses.
    pub features: &'static [&'static str],
    supported: fn() -> bool,
    covers: extern "C" fn(u32, u32) -> u32,
    run_bin: unsafe extern "C" fn(u32, *const BinCall),
}

include!(concat!(env!("OUT_DIR"), "/natives.rs"));

/// Every native form compiled in.
pub fn natives() -> &'static [Native] {
    NATIVES
}

impl Native {
    /// Whether this CPU has every feature that the form uses.
    pub fn supported(&self) -> bool {
        (self.supported)()
    }

    /// Whether it runs bins of this kernel and variant, where it is supported.
    pub fn covers(&self, kernel: u8, variant: u8) -> bool {
        (self.covers)(u32::from(kernel), u32::from(variant)) != 0
    }

    /// Runs kernel `kernel` over one bin; what it does not cover changes nothing.
    ///
    /// # Safety
    ///
    /// As [`Level::run_bin`](crate::Level::run_bin).
    pub unsafe fn run_bin(&self, kernel: u8, call: &BinCall) {
        debug_assert!(self.supported(), "{} is not supported by this CPU", self.name);
        debug_assert!(call.arena.addr().is_multiple_of(64) && call.image.addr().is_multiple_of(64));
        // SAFETY: the caller keeps this function's contract, which is that of the C function.
        unsafe { (self.run_bin)(u32::from(kernel), call) }
    }
}

impl fmt::Debug for Native {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Native")
            .field("name", &self.name)
            .field("supported", &self.supported())
            .finish_non_exhaustive()
    }
}
