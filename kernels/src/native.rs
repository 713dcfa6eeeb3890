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
    ipv4_bulk: unsafe extern "C" fn(*const u8, u32, *const u32, *mut u32, u64, u64),
    ipv6_bulk: unsafe extern "C" fn(*const u8, u32, *const [u8; 16], *mut u32, u64),
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

    /// As [`Level::ipv4_lookup_bulk`](crate::Level::ipv4_lookup_bulk).
    ///
    /// # Panics
    ///
    /// If `next_hops` is shorter than `addresses`.
    ///
    /// # Safety
    ///
    /// As [`Level::ipv4_lookup_bulk`](crate::Level::ipv4_lookup_bulk).
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
        // SAFETY: the slices are long enough, as asserted; the caller vouches for the rest.
        unsafe {
            let (addresses, count) = (addresses.as_ptr(), addresses.len() as u64);
            (self.ipv4_bulk)(image, variant, addresses, next_hops.as_mut_ptr(), count, ahead as u64);
        }
    }

    /// As [`Level::ipv6_lookup_bulk`](crate::Level::ipv6_lookup_bulk).
    ///
    /// # Panics
    ///
    /// If `next_hops` is shorter than `addresses`.
    ///
    /// # Safety
    ///
    /// As [`Level::ipv6_lookup_bulk`](crate::Level::ipv6_lookup_bulk).
    pub unsafe fn ipv6_lookup_bulk(
        &self,
        image: *const u8,
        variant: u32,
        addresses: &[[u8; 16]],
        next_hops: &mut [u32],
    ) {
        assert!(next_hops.len() >= addresses.len());
        debug_assert!(self.supported() && image.addr().is_multiple_of(64));
        // SAFETY: the slices are long enough, as asserted; the caller vouches for the rest.
        unsafe {
            (self.ipv6_bulk)(image, variant, addresses.as_ptr(), next_hops.as_mut_ptr(), addresses.len() as u64);
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
