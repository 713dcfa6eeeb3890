//! Kernels for special CPU features, such as AVX-512. They process several packets of a batch in
//! parallel.

use core::fmt;

use crate::BinCall;

/// Kernels that use special CPU features. A [`Level`](crate::Level) provides all other kernels and
/// variants.
pub struct Native {
    /// Name of the kernels, such as `avx512`.
    pub name: &'static str,
    /// C file of the kernels.
    pub source: &'static str,
    /// CPU features that these kernels require beyond the baseline of the architecture.
    pub features: &'static [&'static str],
    /// Compiler flags that enable these features.
    pub flags: &'static [&'static str],
    supported: fn() -> bool,
    covers: extern "C" fn(u32, u32) -> u32,
    run_bin: unsafe extern "C" fn(u32, *const BinCall),
    lookups: Option<Lookups>,
}

/// Lookups of many addresses at once.
#[allow(dead_code, reason = "a build without native forms constructs none")]
struct Lookups {
    ipv4_bulk: unsafe extern "C" fn(*const u8, u32, *const u32, *mut u32, u64, u64),
    ipv6_bulk: unsafe extern "C" fn(*const u8, u32, *const [u8; 16], *mut u32, u64),
}

include!(concat!(env!("OUT_DIR"), "/natives.rs"));

/// Returns the kernels for each special type of CPU.
pub fn natives() -> &'static [Native] {
    NATIVES
}

impl Native {
    /// Returns whether this CPU has all required features.
    pub fn supported(&self) -> bool {
        (self.supported)()
    }

    /// Returns whether these kernels include `kernel` and support its `variant`.
    pub fn covers(&self, kernel: u8, variant: u8) -> bool {
        (self.covers)(u32::from(kernel), u32::from(variant)) != 0
    }

    /// Processes one packet batch with a kernel. Does nothing if the kernel or its variant is not
    /// supported.
    ///
    /// # Safety
    ///
    /// See [`Level::run_bin`](crate::Level::run_bin).
    pub unsafe fn run_bin(&self, kernel: u8, call: &BinCall) {
        debug_assert!(self.supported(), "{} is not supported by this CPU", self.name);
        debug_assert!(call.arena.addr().is_multiple_of(64) && call.image.addr().is_multiple_of(64));
        // SAFETY: the caller fulfils the contract of this function, which is also that of the C
        // function.
        unsafe { (self.run_bin)(u32::from(kernel), call) }
    }

    /// Returns whether these kernels look up IPv4 and IPv6 addresses.
    pub fn looks_up(&self) -> bool {
        self.lookups.is_some()
    }

    /// Looks up IPv4 addresses as [`Level::ipv4_lookup_bulk`](crate::Level::ipv4_lookup_bulk) does.
    ///
    /// # Panics
    ///
    /// Panics if `next_hops` is shorter than `addresses`, or if [`Native::looks_up`] is false.
    ///
    /// # Safety
    ///
    /// See [`Level::ipv4_lookup_bulk`](crate::Level::ipv4_lookup_bulk).
    pub unsafe fn ipv4_lookup_bulk(
        &self,
        image: *const u8,
        variant: u32,
        addresses: &[u32],
        next_hops: &mut [u32],
        ahead: usize,
    ) {
        assert!(next_hops.len() >= addresses.len());
        debug_assert!(self.supported() && image.addr().is_multiple_of(64));
        let lookups = self.lookups.as_ref().expect("the form looks up addresses");
        // SAFETY: the assertion checks the lengths of the slices. The caller guarantees the rest.
        unsafe {
            let (addresses, count) = (addresses.as_ptr(), addresses.len() as u64);
            (lookups.ipv4_bulk)(image, variant, addresses, next_hops.as_mut_ptr(), count, ahead as u64);
        }
    }

    /// Looks up IPv6 addresses as [`Level::ipv6_lookup_bulk`](crate::Level::ipv6_lookup_bulk) does.
    ///
    /// # Panics
    ///
    /// Panics if `next_hops` is shorter than `addresses`, or if [`Native::looks_up`] is false.
    ///
    /// # Safety
    ///
    /// See [`Level::ipv6_lookup_bulk`](crate::Level::ipv6_lookup_bulk).
    pub unsafe fn ipv6_lookup_bulk(
        &self,
        image: *const u8,
        variant: u32,
        addresses: &[[u8; 16]],
        next_hops: &mut [u32],
    ) {
        assert!(next_hops.len() >= addresses.len());
        debug_assert!(self.supported() && image.addr().is_multiple_of(64));
        let lookups = self.lookups.as_ref().expect("the form looks up addresses");
        // SAFETY: the assertion checks the lengths of the slices. The caller guarantees the rest.
        unsafe {
            (lookups.ipv6_bulk)(image, variant, addresses.as_ptr(), next_hops.as_mut_ptr(), addresses.len() as u64);
        }
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
