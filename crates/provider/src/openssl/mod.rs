//! Functions, constants and data types of OpenSSL 3 (`openssl/core.h`, `openssl/core_dispatch.h`).
//! Their binary interface is stable for all versions 3.x.
#![allow(unsafe_code, reason = "OpenSSL is a C library")]

mod functions;
mod params;

pub(crate) use functions::{functions, load, raise};
pub(crate) use params::{OsslParam, Params, all, find};

use std::ffi::{c_char, c_int, c_void};

/// Entry of a table of functions. The table ends with the number 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispatch {
    pub(crate) number: c_int,
    pub(crate) function: *const c_void,
}

impl Dispatch {
    pub(crate) const END: Self = Self { number: 0, function: std::ptr::null() };
}

/// Entry of a table of algorithms. The table ends with a null pointer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Algorithm {
    pub(crate) names: *const c_char,
    pub(crate) properties: *const c_char,
    pub(crate) functions: *const Dispatch,
    pub(crate) description: *const c_char,
}

impl Algorithm {
    pub(crate) const END: Self = Self {
        names: std::ptr::null(),
        properties: std::ptr::null(),
        functions: std::ptr::null(),
        description: std::ptr::null(),
    };
}

/// Constant table for OpenSSL.
#[repr(transparent)]
pub(crate) struct Table<T, const N: usize>(pub(crate) [T; N]);

// SAFETY: the pointers in tables refer to constants and functions.
unsafe impl<T, const N: usize> Sync for Table<T, N> {}

/// Opaque object of OpenSSL.
pub(crate) type Object = *mut c_void;

/// Function that receives parameters.
pub(crate) type Callback = unsafe extern "C" fn(*const OsslParam, *mut c_void) -> c_int;

// Operations.
pub(crate) const OP_KEYMGMT: c_int = 10;
pub(crate) const OP_KEYEXCH: c_int = 11;
pub(crate) const OP_SIGNATURE: c_int = 12;
pub(crate) const OP_DECODER: c_int = 21;

// Parts of a key.
pub(crate) const SELECT_PRIVATE_KEY: c_int = 0x01;
pub(crate) const SELECT_PUBLIC_KEY: c_int = 0x02;
pub(crate) const SELECT_PARAMETERS: c_int = 0x84;

// Functions that OpenSSL passes to the provider.
pub(crate) const CORE_GET_PARAMS: c_int = 2;

// Functions of the provider.
pub(crate) const PROVIDER_TEARDOWN: c_int = 1024;
pub(crate) const PROVIDER_GETTABLE_PARAMS: c_int = 1025;
pub(crate) const PROVIDER_GET_PARAMS: c_int = 1026;
pub(crate) const PROVIDER_QUERY_OPERATION: c_int = 1027;

// Functions of the key management.
pub(crate) const KEYMGMT_NEW: c_int = 1;
pub(crate) const KEYMGMT_LOAD: c_int = 8;
pub(crate) const KEYMGMT_FREE: c_int = 10;
pub(crate) const KEYMGMT_GET_PARAMS: c_int = 11;
pub(crate) const KEYMGMT_GETTABLE_PARAMS: c_int = 12;
pub(crate) const KEYMGMT_QUERY_OPERATION_NAME: c_int = 20;
pub(crate) const KEYMGMT_HAS: c_int = 21;
pub(crate) const KEYMGMT_MATCH: c_int = 23;
pub(crate) const KEYMGMT_IMPORT: c_int = 40;
pub(crate) const KEYMGMT_IMPORT_TYPES: c_int = 41;
pub(crate) const KEYMGMT_EXPORT: c_int = 42;
pub(crate) const KEYMGMT_EXPORT_TYPES: c_int = 43;

// Functions of signatures.
pub(crate) const SIGNATURE_NEWCTX: c_int = 1;
pub(crate) const SIGNATURE_SIGN_INIT: c_int = 2;
pub(crate) const SIGNATURE_SIGN: c_int = 3;
pub(crate) const SIGNATURE_VERIFY_INIT: c_int = 4;
pub(crate) const SIGNATURE_VERIFY: c_int = 5;
pub(crate) const SIGNATURE_VERIFY_RECOVER_INIT: c_int = 6;
pub(crate) const SIGNATURE_VERIFY_RECOVER: c_int = 7;
pub(crate) const SIGNATURE_DIGEST_SIGN_INIT: c_int = 8;
pub(crate) const SIGNATURE_DIGEST_SIGN_UPDATE: c_int = 9;
pub(crate) const SIGNATURE_DIGEST_SIGN_FINAL: c_int = 10;
pub(crate) const SIGNATURE_DIGEST_SIGN: c_int = 11;
pub(crate) const SIGNATURE_DIGEST_VERIFY_INIT: c_int = 12;
pub(crate) const SIGNATURE_DIGEST_VERIFY_UPDATE: c_int = 13;
pub(crate) const SIGNATURE_DIGEST_VERIFY_FINAL: c_int = 14;
pub(crate) const SIGNATURE_DIGEST_VERIFY: c_int = 15;
pub(crate) const SIGNATURE_FREECTX: c_int = 16;
pub(crate) const SIGNATURE_DUPCTX: c_int = 17;
pub(crate) const SIGNATURE_GET_CTX_PARAMS: c_int = 18;
pub(crate) const SIGNATURE_GETTABLE_CTX_PARAMS: c_int = 19;
pub(crate) const SIGNATURE_SET_CTX_PARAMS: c_int = 20;
pub(crate) const SIGNATURE_SETTABLE_CTX_PARAMS: c_int = 21;

// Functions of decoders.
pub(crate) const DECODER_NEWCTX: c_int = 1;
pub(crate) const DECODER_FREECTX: c_int = 2;
pub(crate) const DECODER_DOES_SELECTION: c_int = 10;
pub(crate) const DECODER_DECODE: c_int = 11;

/// Type of the object that a decoder returns.
pub(crate) const OBJECT_PKEY: c_int = 2;
