//! Arrays of parameters, as OpenSSL passes them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};

/// Parameter. An array ends with a null key.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct OsslParam {
    pub(crate) key: *const c_char,
    kind: c_uint,
    data: *mut c_void,
    data_bytes: usize,
    return_bytes: usize,
}

const INTEGER: c_uint = 1;
const UNSIGNED: c_uint = 2;
const UTF8_STRING: c_uint = 4;
const OCTET_STRING: c_uint = 5;
const UTF8_POINTER: c_uint = 6;
/// Value of `return_bytes` before a function has set the parameter.
const UNMODIFIED: usize = usize::MAX;

impl OsslParam {
    pub(crate) const END: Self = Self { key: null(), kind: 0, data: null_mut(), data_bytes: 0, return_bytes: 0 };

    const fn described(key: &'static CStr, kind: c_uint) -> Self {
        Self { key: key.as_ptr(), kind, data: null_mut(), data_bytes: 0, return_bytes: UNMODIFIED }
    }

    /// Describes an integer in a table of parameters.
    pub(crate) const fn integer(key: &'static CStr) -> Self {
        Self::described(key, INTEGER)
    }

    /// Describes an unsigned integer in a table of parameters.
    pub(crate) const fn unsigned(key: &'static CStr) -> Self {
        Self::described(key, UNSIGNED)
    }

    /// Describes a text in a table of parameters.
    pub(crate) const fn text(key: &'static CStr) -> Self {
        Self::described(key, UTF8_STRING)
    }

    /// Describes a pointer to a text in a table of parameters.
    pub(crate) const fn text_pointer(key: &'static CStr) -> Self {
        Self::described(key, UTF8_POINTER)
    }

    /// Describes bytes in a table of parameters.
    pub(crate) const fn bytes(key: &'static CStr) -> Self {
        Self::described(key, OCTET_STRING)
    }

    /// Passes an integer.
    pub(crate) fn of_integer<'a>(key: &'static CStr, value: &'a mut c_int) -> Param<'a> {
        let data = std::ptr::from_mut(value).cast();
        let param = Self { data, data_bytes: size_of::<c_int>(), ..Self::described(key, INTEGER) };
        Param(param, PhantomData)
    }

    /// Passes a text.
    pub(crate) fn of_text<'a>(key: &'static CStr, value: &'a CStr) -> Param<'a> {
        let (data, data_bytes) = (value.as_ptr().cast_mut().cast(), value.count_bytes());
        Param(Self { data, data_bytes, ..Self::described(key, UTF8_STRING) }, PhantomData)
    }

    /// Passes bytes.
    pub(crate) fn of_bytes<'a>(key: &'static CStr, value: &'a [u8]) -> Param<'a> {
        let (data, data_bytes) = (value.as_ptr().cast_mut().cast(), value.len());
        Param(Self { data, data_bytes, ..Self::described(key, OCTET_STRING) }, PhantomData)
    }

    /// Asks for a pointer to a text.
    pub(crate) fn named_text_pointer<'a>(key: &'a CStr, value: &'a mut *const c_char) -> Param<'a> {
        let data = std::ptr::from_mut(value).cast();
        let param = Self { key: key.as_ptr(), kind: UTF8_POINTER, data, data_bytes: 0, return_bytes: UNMODIFIED };
        Param(param, PhantomData)
    }

    /// Returns the integer, or `None` if the parameter has another type.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        let is_integer = matches!(self.kind, INTEGER | UNSIGNED) && !self.data.is_null();
        match self.data_bytes {
            // SAFETY: OpenSSL passes a pointer to an integer of this size.
            4 if is_integer => Some(i64::from(unsafe { self.data.cast::<i32>().read_unaligned() })),
            // SAFETY: as above.
            8 if is_integer => Some(unsafe { self.data.cast::<i64>().read_unaligned() }),
            _ => None,
        }
    }

    /// Returns the text, or `None` if the parameter has another type.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if self.kind != UTF8_STRING || self.data.is_null() {
            return None;
        }
        // SAFETY: OpenSSL passes a pointer to this number of bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.data.cast::<u8>(), self.data_bytes) };
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).ok()
    }

    /// Answers a request for a pointer to a text.
    pub(crate) fn set_text_pointer(&mut self, value: &'static CStr) -> bool {
        if self.kind != UTF8_POINTER || self.data.is_null() {
            return false;
        }
        // SAFETY: OpenSSL passes a pointer to a pointer.
        unsafe { self.data.cast::<*const c_char>().write(value.as_ptr()) };
        self.return_bytes = value.count_bytes();
        true
    }

    /// Answers a request for an unsigned integer.
    pub(crate) fn set_unsigned(&mut self, value: u32) -> bool {
        if !matches!(self.kind, INTEGER | UNSIGNED) || self.data.is_null() {
            return false;
        }
        match self.data_bytes {
            // SAFETY: OpenSSL passes a pointer to an integer of this size.
            4 => unsafe { self.data.cast::<u32>().write_unaligned(value) },
            // SAFETY: as above.
            8 => unsafe { self.data.cast::<u64>().write_unaligned(u64::from(value)) },
            _ => return false,
        }
        self.return_bytes = self.data_bytes;
        true
    }
}

/// Parameter whose value lives for `'a`.
pub(crate) struct Param<'a>(OsslParam, PhantomData<&'a mut ()>);

/// Array of parameters for OpenSSL.
pub(crate) struct Params<'a, const N: usize>([OsslParam; N], PhantomData<&'a mut ()>);

impl<'a> Params<'a, 2> {
    pub(crate) fn one(first: Param<'a>) -> Self {
        Self([first.0, OsslParam::END], PhantomData)
    }
}

impl<'a> Params<'a, 4> {
    pub(crate) fn three(first: Param<'a>, second: Param<'a>, third: Param<'a>) -> Self {
        Self([first.0, second.0, third.0, OsslParam::END], PhantomData)
    }
}

impl<const N: usize> Params<'_, N> {
    pub(crate) fn as_ptr(&self) -> *const OsslParam {
        self.0.as_ptr()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut OsslParam {
        self.0.as_mut_ptr()
    }
}

/// Returns the parameters of an array.
///
/// # Safety
/// `params` is null or an array that ends with a null key, and lives for `'a`.
pub(crate) unsafe fn all<'a>(params: *const OsslParam) -> impl Iterator<Item = &'a OsslParam> {
    let mut next = params;
    std::iter::from_fn(move || {
        // SAFETY: by the contract, and the array has an end.
        let param = unsafe { next.as_ref() }.filter(|param| !param.key.is_null())?;
        // SAFETY: this is not the end of the array.
        next = unsafe { next.add(1) };
        Some(param)
    })
}

/// Returns the parameter `key`.
///
/// # Safety
/// As for [`all`].
pub(crate) unsafe fn find<'a>(params: *const OsslParam, key: &CStr) -> Option<&'a OsslParam> {
    // SAFETY: by the contract. Keys are texts.
    unsafe { all(params).find(|param| CStr::from_ptr(param.key) == key) }
}
