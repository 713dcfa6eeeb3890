//! Reads PEM files that name a key of `godwit signer` by its public half:
//!
//! ```text
//! -----BEGIN GODWIT PUBLIC KEY-----
//! (SubjectPublicKeyInfo, RFC 5280)
//! -----END GODWIT PUBLIC KEY-----
//! ```
//!
//! A program loads such a file as a private key, but only the signer has the private half.
#![allow(unsafe_code, reason = "OpenSSL calls these functions with pointers")]

use std::ffi::{CStr, c_int, c_long, c_uchar, c_void};
use std::ptr::{null, null_mut};

use crate::entry::{Provider, complain, guard};
use crate::key::{KeyData, Kind};
use crate::openssl::{
    self, Callback, Dispatch, OBJECT_PKEY, Object, OsslParam, Params, SELECT_PRIVATE_KEY, Table, functions,
};

const LABEL: &CStr = c"GODWIT PUBLIC KEY";
/// Result of a decoder that leaves the data to other decoders.
const CONTINUE: c_int = 1;

/// Reads the next section of a PEM file. Returns the bytes if it has this label.
fn read(provider: &Provider, file: Object) -> Option<Vec<u8>> {
    let openssl = functions();
    let (mut name, mut header, mut bytes, mut length) = (null_mut(), null_mut(), null_mut(), 0);
    // SAFETY: OpenSSL passes a file, and allocates the results.
    unsafe {
        let file = (openssl.BIO_new_from_core_bio)(provider.context(), file);
        if file.is_null() {
            return None;
        }
        let found = (openssl.PEM_read_bio)(file, &raw mut name, &raw mut header, &raw mut bytes, &raw mut length);
        (openssl.BIO_free)(file);
        if found <= 0 {
            return None;
        }
        let is_ours = CStr::from_ptr(name) == LABEL;
        let length = usize::try_from(length).unwrap_or(0);
        let content = is_ours.then(|| std::slice::from_raw_parts(bytes, length).to_vec());
        openssl.free(name);
        openssl.free(header);
        // The section may be a private key.
        (openssl.CRYPTO_clear_free)(bytes.cast(), length, c"".as_ptr(), 0);
        content
    }
}

/// Returns the key with this public half, or `None` if it has another type.
fn decode(provider: &Provider, kind: Kind, bytes: &[u8]) -> Result<Option<KeyData>, String> {
    let openssl = functions();
    let mut start: *const c_uchar = bytes.as_ptr();
    let length = c_long::try_from(bytes.len()).unwrap_or(0);
    // SAFETY: the bytes have this length.
    let inner = unsafe { (openssl.d2i_PUBKEY_ex)(null_mut(), &raw mut start, length, provider.context(), null()) };
    if inner.is_null() {
        // One of the decoders reports the mistake.
        return if kind == Kind::Rsa { Err("the GODWIT PUBLIC KEY is damaged".to_owned()) } else { Ok(None) };
    }
    // SAFETY: the key is valid, and freed once.
    unsafe {
        if (openssl.EVP_PKEY_is_a)(inner, kind.name().as_ptr()) != 1 {
            (openssl.EVP_PKEY_free)(inner);
            return Ok(None);
        }
    }
    KeyData::separate(provider, kind, inner).map(Some)
}

/// Passes a key to OpenSSL.
///
/// # Safety
///
/// `callback` is a function of OpenSSL, and `data` its argument.
unsafe fn deliver(key: KeyData, callback: Callback, data: *mut c_void) -> c_int {
    let kind = key.kind();
    let mut key = Box::into_raw(Box::new(key));
    let mut object = OBJECT_PKEY;
    // The function `load` of the key management takes the key, and leaves a null pointer.
    let place = (&raw mut key).cast::<u8>();
    // SAFETY: the place has the size of a pointer, and lives until the call returns.
    let reference = unsafe { std::slice::from_raw_parts(place, size_of::<*mut KeyData>()) };
    let params = Params::three(
        OsslParam::of_integer(c"type", &mut object),
        OsslParam::of_text(c"data-type", kind.name()),
        OsslParam::of_bytes(c"reference", reference),
    );
    // SAFETY: the array has an end.
    let result = unsafe { callback(params.as_ptr(), data) };
    // SAFETY: `load` may have changed the place.
    let rest = unsafe { std::ptr::read_volatile(&raw const key) };
    if !rest.is_null() {
        // SAFETY: nothing has taken the key.
        drop(unsafe { Box::from_raw(rest) });
    }
    result
}

const fn entry(number: c_int, function: *const c_void) -> Dispatch {
    Dispatch { number, function }
}

macro_rules! decoder {
    ($table:ident, $decode:ident, $kind:expr) => {
        unsafe extern "C" fn $decode(
            provider: *const Provider,
            file: Object,
            _selection: c_int,
            callback: Callback,
            data: *mut c_void,
            _passphrase: *const c_void,
            _passphrase_data: *mut c_void,
        ) -> c_int {
            // SAFETY: `new` returns the provider as the state of a decoder.
            let provider = unsafe { &*provider };
            guard(0, || {
                let Some(bytes) = read(provider, file) else { return Ok(CONTINUE) };
                let Some(key) = decode(provider, $kind, &bytes).map_err(complain)? else { return Ok(CONTINUE) };
                // SAFETY: OpenSSL passes the callback with its data.
                Ok(unsafe { deliver(key, callback, data) })
            })
        }

        pub(crate) static $table: Table<Dispatch, 5> = Table([
            entry(openssl::DECODER_NEWCTX, new as *const c_void),
            entry(openssl::DECODER_FREECTX, free as *const c_void),
            entry(openssl::DECODER_DOES_SELECTION, does_selection as *const c_void),
            entry(openssl::DECODER_DECODE, $decode as *const c_void),
            Dispatch::END,
        ]);
    };
}

decoder!(RSA, decode_rsa, Kind::Rsa);
decoder!(EC, decode_ec, Kind::Ec);
decoder!(ED25519, decode_ed25519, Kind::Ed25519);

/// Returns the provider, because a decoder has no further state.
unsafe extern "C" fn new(provider: *const Provider) -> *mut c_void {
    provider.cast_mut().cast()
}

unsafe extern "C" fn free(_decoder: *mut c_void) {}

unsafe extern "C" fn does_selection(_provider: *const Provider, selection: c_int) -> c_int {
    c_int::from(selection == 0 || selection & SELECT_PRIVATE_KEY != 0)
}
