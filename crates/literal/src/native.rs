//! Calls the C versions of the search, and selects the fastest version for this CPU.

use std::ffi::c_void;
use std::sync::OnceLock;

use crate::Image;

/// Version of the search code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Rust version, with which tests compare the other versions.
    Rust,
    /// Version in C that runs on every CPU.
    Portable,
    /// Version in C that uses AVX-512.
    Avx512,
}

/// Receives a match. Returns 0 to end the search.
type Found = unsafe extern "C" fn(*mut c_void, u32, u64) -> i32;
type Scan = unsafe extern "C" fn(*const u8, *const u8, u64, Found, *mut c_void) -> i32;

unsafe extern "C" {
    fn gw_literal_scan_portable(
        image: *const u8,
        text: *const u8,
        length: u64,
        found: Found,
        context: *mut c_void,
    ) -> i32;
    #[cfg(godwit_avx512)]
    fn gw_literal_scan_avx512(
        image: *const u8,
        text: *const u8,
        length: u64,
        found: Found,
        context: *mut c_void,
    ) -> i32;
}

impl Form {
    /// All versions of the search code.
    pub const ALL: [Self; 3] = [Self::Rust, Self::Portable, Self::Avx512];

    /// Returns the name of this version of the search code.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Portable => "scalar",
            Self::Avx512 => "avx512",
        }
    }

    /// Returns whether this CPU supports this version.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Rust | Self::Portable => true,
            #[cfg(godwit_avx512)]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(not(godwit_avx512))]
            Self::Avx512 => false,
        }
    }

    /// Returns the fastest supported version of the search code.
    pub fn best() -> Self {
        static BEST: OnceLock<Form> = OnceLock::new();
        *BEST.get_or_init(|| if Self::Avx512.is_supported() { Self::Avx512 } else { Self::Portable })
    }

    fn function(self) -> Option<Scan> {
        match self {
            Self::Rust => None,
            Self::Portable => Some(gw_literal_scan_portable),
            #[cfg(godwit_avx512)]
            Self::Avx512 => Some(gw_literal_scan_avx512),
            #[cfg(not(godwit_avx512))]
            Self::Avx512 => None,
        }
    }
}

/// Passes a match to the closure behind `context`.
unsafe extern "C" fn found<F: FnMut(u32, usize) -> bool>(context: *mut c_void, pattern: u32, end: u64) -> i32 {
    // SAFETY: `scan` passes a pointer to a closure of this type, which it borrows exclusively.
    let closure = unsafe { &mut *context.cast::<F>() };
    i32::from(closure(pattern, end as usize))
}

/// Searches `text` with one version of the search code. Returns whether the search reached the end
/// of the text.
///
/// # Panics
/// Panics if this CPU does not support the version.
pub(crate) fn scan<F: FnMut(u32, usize) -> bool>(form: Form, image: &Image, text: &[u8], mut closure: F) -> bool {
    assert!(form.is_supported(), "{form:?} is not supported by this CPU");
    let Some(function) = form.function() else { return image.scan_rust(text, &mut closure) };
    let (words, context) = (image.words(), (&raw mut closure).cast::<c_void>());
    // SAFETY: this crate built the image, so all offsets are within its words, and 64 bytes follow
    // the last entry. The function reads `length` bytes of the text. It calls `found` with
    // `context` only during this call. The CPU has the instructions.
    unsafe { function(words.as_ptr().cast(), text.as_ptr(), text.len() as u64, found::<F>, context) != 0 }
}
