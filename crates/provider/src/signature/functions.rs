//! Functions of signatures that OpenSSL calls.
#![allow(unsafe_code, reason = "OpenSSL calls these functions with pointers")]

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::ptr::{null, null_mut};

use super::context::{Context, Out, check};
use crate::entry::{Provider, guard};
use crate::key::KeyData;
use crate::openssl::{self, Dispatch, Object, OsslParam, Table, functions};

const fn entry(number: c_int, function: *const c_void) -> Dispatch {
    Dispatch { number, function }
}

pub(crate) static FUNCTIONS: Table<Dispatch, 22> = Table([
    entry(openssl::SIGNATURE_NEWCTX, new as *const c_void),
    entry(openssl::SIGNATURE_FREECTX, free as *const c_void),
    entry(openssl::SIGNATURE_DUPCTX, copy as *const c_void),
    entry(openssl::SIGNATURE_SIGN_INIT, sign_init as *const c_void),
    entry(openssl::SIGNATURE_SIGN, sign as *const c_void),
    entry(openssl::SIGNATURE_VERIFY_INIT, verify_init as *const c_void),
    entry(openssl::SIGNATURE_VERIFY, verify as *const c_void),
    entry(openssl::SIGNATURE_VERIFY_RECOVER_INIT, verify_recover_init as *const c_void),
    entry(openssl::SIGNATURE_VERIFY_RECOVER, verify_recover as *const c_void),
    entry(openssl::SIGNATURE_DIGEST_SIGN_INIT, digest_sign_init as *const c_void),
    entry(openssl::SIGNATURE_DIGEST_SIGN_UPDATE, digest_sign_update as *const c_void),
    entry(openssl::SIGNATURE_DIGEST_SIGN_FINAL, digest_sign_final as *const c_void),
    entry(openssl::SIGNATURE_DIGEST_SIGN, digest_sign as *const c_void),
    entry(openssl::SIGNATURE_DIGEST_VERIFY_INIT, digest_verify_init as *const c_void),
    entry(openssl::SIGNATURE_DIGEST_VERIFY_UPDATE, digest_verify_update as *const c_void),
    entry(openssl::SIGNATURE_DIGEST_VERIFY_FINAL, digest_verify_final as *const c_void),
    entry(openssl::SIGNATURE_DIGEST_VERIFY, digest_verify as *const c_void),
    entry(openssl::SIGNATURE_GET_CTX_PARAMS, get_params as *const c_void),
    entry(openssl::SIGNATURE_GETTABLE_CTX_PARAMS, gettable_params as *const c_void),
    entry(openssl::SIGNATURE_SET_CTX_PARAMS, set_params as *const c_void),
    entry(openssl::SIGNATURE_SETTABLE_CTX_PARAMS, settable_params as *const c_void),
    Dispatch::END,
]);

/// Calls `work` with the context that OpenSSL passes. The result is 1 for success.
///
/// # Safety
/// `context` is a context that `new` or `copy` has returned.
unsafe fn with(context: *mut Context, work: impl FnOnce(&mut Context) -> Result<(), String>) -> c_int {
    // SAFETY: by the contract. OpenSSL uses a context in one thread at a time.
    guard(0, || work(unsafe { &mut *context }).map(|()| 1))
}

/// Returns the bytes that OpenSSL passes.
///
/// # Safety
/// `bytes` is null or has this length, and lives for `'a`.
unsafe fn slice<'a>(bytes: *const c_uchar, length: usize) -> &'a [u8] {
    if bytes.is_null() {
        return &[];
    }
    // SAFETY: by the contract.
    unsafe { std::slice::from_raw_parts(bytes, length) }
}

unsafe extern "C" fn new(provider: *const Provider, _query: *const c_char) -> *mut Context {
    Box::into_raw(Box::new(Context::new(provider)))
}

unsafe extern "C" fn free(context: *mut Context) {
    if !context.is_null() {
        guard((), || {
            // SAFETY: OpenSSL frees each context once.
            drop(unsafe { Box::from_raw(context) });
            Ok(())
        });
    }
}

unsafe extern "C" fn copy(context: *const Context) -> *mut Context {
    // SAFETY: OpenSSL passes a context of this provider.
    guard(null_mut(), || Ok(Box::into_raw(Box::new(unsafe { &*context }.copy()?))))
}

type InitRaw = unsafe extern "C" fn(Object, *const OsslParam) -> c_int;

/// Starts an operation on hashes, which OpenSSL's default provider performs.
unsafe fn init_raw(context: *mut Context, key: *const KeyData, params: *const OsslParam, init: InitRaw) -> c_int {
    let work = |context: &mut Context| {
        context.start(key)?;
        // SAFETY: the context belongs to this value, and OpenSSL passes an array with an end or
        // null.
        unsafe {
            let libraries = context.provider().context();
            context.raw = (functions().EVP_PKEY_CTX_new_from_pkey)(libraries, context.inner, null());
            if context.raw.is_null() {
                return Err(String::new());
            }
            check(init(context.raw, params))
        }
    };
    // SAFETY: OpenSSL passes a context of this provider.
    unsafe { with(context, work) }
}

unsafe extern "C" fn sign_init(context: *mut Context, key: *const KeyData, params: *const OsslParam) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe { init_raw(context, key, params, functions().EVP_PKEY_sign_init_ex) }
}

unsafe extern "C" fn sign(
    context: *mut Context,
    signature: *mut c_uchar,
    length: *mut usize,
    size: usize,
    digest: *const c_uchar,
    digest_bytes: usize,
) -> c_int {
    let work = |context: &mut Context| {
        if !context.is_private {
            return Err("the signer signs messages, not hashes".to_owned());
        }
        // SAFETY: OpenSSL passes valid arguments.
        unsafe {
            *length = size;
            check((functions().EVP_PKEY_sign)(context.raw, signature, length, digest, digest_bytes))
        }
    };
    // SAFETY: OpenSSL passes a context of this provider.
    unsafe { with(context, work) }
}

unsafe extern "C" fn verify_init(context: *mut Context, key: *const KeyData, params: *const OsslParam) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe { init_raw(context, key, params, functions().EVP_PKEY_verify_init_ex) }
}

unsafe extern "C" fn verify(
    context: *mut Context,
    signature: *const c_uchar,
    signature_bytes: usize,
    digest: *const c_uchar,
    digest_bytes: usize,
) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe {
        with(context, |context| {
            check((functions().EVP_PKEY_verify)(context.raw, signature, signature_bytes, digest, digest_bytes))
        })
    }
}

unsafe extern "C" fn verify_recover_init(
    context: *mut Context,
    key: *const KeyData,
    params: *const OsslParam,
) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe { init_raw(context, key, params, functions().EVP_PKEY_verify_recover_init_ex) }
}

unsafe extern "C" fn verify_recover(
    context: *mut Context,
    digest: *mut c_uchar,
    length: *mut usize,
    size: usize,
    signature: *const c_uchar,
    signature_bytes: usize,
) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe {
        with(context, |context| {
            *length = size;
            check((functions().EVP_PKEY_verify_recover)(context.raw, digest, length, signature, signature_bytes))
        })
    }
}

unsafe extern "C" fn digest_sign_init(
    context: *mut Context,
    digest: *const c_char,
    key: *const KeyData,
    params: *const OsslParam,
) -> c_int {
    // SAFETY: OpenSSL passes a context of this provider, a text or null, and an array with an end
    // or null.
    unsafe {
        with(context, |context| {
            context.start(key)?;
            context.digest = (!digest.is_null()).then(|| CStr::from_ptr(digest).to_owned());
            context.set(params)
        })
    }
}

unsafe extern "C" fn digest_sign_update(context: *mut Context, part: *const c_uchar, length: usize) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe { with(context, |context| context.update(slice(part, length))) }
}

unsafe extern "C" fn digest_sign_final(
    context: *mut Context,
    signature: *mut c_uchar,
    length: *mut usize,
    size: usize,
) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe { with(context, |context| context.sign(None, &mut Out::new(signature, &mut *length, size))) }
}

unsafe extern "C" fn digest_sign(
    context: *mut Context,
    signature: *mut c_uchar,
    length: *mut usize,
    size: usize,
    message: *const c_uchar,
    message_bytes: usize,
) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe {
        let message = slice(message, message_bytes);
        with(context, |context| context.sign(Some(message), &mut Out::new(signature, &mut *length, size)))
    }
}

unsafe extern "C" fn digest_verify_init(
    context: *mut Context,
    digest: *const c_char,
    key: *const KeyData,
    params: *const OsslParam,
) -> c_int {
    // SAFETY: OpenSSL passes valid arguments, and the new context belongs to this value.
    unsafe {
        with(context, |context| {
            context.start(key)?;
            context.digest = (!digest.is_null()).then(|| CStr::from_ptr(digest).to_owned());
            context.hashing = (functions().EVP_MD_CTX_new)();
            let (hashing, name, libraries) = (context.hashing, context.digest_pointer(), context.provider().context());
            let init = functions().EVP_DigestVerifyInit_ex;
            check(init(hashing, null_mut(), name, libraries, null(), context.inner, params))
        })
    }
}

unsafe extern "C" fn digest_verify_update(context: *mut Context, part: *const c_uchar, length: usize) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe {
        with(context, |context| check((functions().EVP_DigestVerifyUpdate)(context.hashing, part.cast(), length)))
    }
}

unsafe extern "C" fn digest_verify_final(context: *mut Context, signature: *const c_uchar, length: usize) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe { with(context, |context| check((functions().EVP_DigestVerifyFinal)(context.hashing, signature, length))) }
}

unsafe extern "C" fn digest_verify(
    context: *mut Context,
    signature: *const c_uchar,
    length: usize,
    message: *const c_uchar,
    message_bytes: usize,
) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe {
        with(context, |context| {
            check((functions().EVP_DigestVerify)(context.hashing, signature, length, message, message_bytes))
        })
    }
}

unsafe extern "C" fn get_params(context: *mut Context, params: *mut OsslParam) -> c_int {
    let work = |context: &mut Context| {
        if context.raw.is_null() {
            context.hashing()?;
        }
        // SAFETY: OpenSSL passes an array with an end.
        check(unsafe { (functions().EVP_PKEY_CTX_get_params)(context.settings(), params) })
    };
    // SAFETY: OpenSSL passes a context of this provider.
    unsafe { with(context, work) }
}

unsafe extern "C" fn set_params(context: *mut Context, params: *const OsslParam) -> c_int {
    // SAFETY: OpenSSL passes valid arguments.
    unsafe { with(context, |context| context.set(params)) }
}

unsafe extern "C" fn gettable_params(_context: *const Context, _provider: *const Provider) -> *const OsslParam {
    static PARAMS: Table<OsslParam, 6> = Table([
        OsslParam::bytes(c"algorithm-id"),
        OsslParam::text(c"digest"),
        OsslParam::text(c"pad-mode"),
        OsslParam::text(c"mgf1-digest"),
        OsslParam::text(c"saltlen"),
        OsslParam::END,
    ]);
    PARAMS.0.as_ptr()
}

unsafe extern "C" fn settable_params(_context: *const Context, _provider: *const Provider) -> *const OsslParam {
    static PARAMS: Table<OsslParam, 7> = Table([
        OsslParam::text(c"digest"),
        OsslParam::text(c"properties"),
        OsslParam::text(c"pad-mode"),
        OsslParam::text(c"mgf1-digest"),
        OsslParam::text(c"mgf1-properties"),
        OsslParam::text(c"saltlen"),
        OsslParam::END,
    ]);
    PARAMS.0.as_ptr()
}
