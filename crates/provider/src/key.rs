//! Key management. A key of this provider consists of a key of the engine and of the same key in a
//! context with OpenSSL's default provider, which answers all other questions about the key.
#![allow(unsafe_code, reason = "OpenSSL calls these functions with pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_sign::{Class, Key};
use zeroize::Zeroize;

use crate::engine::on_large_stack;
use crate::entry::{Provider, guard};
use crate::openssl::{
    self, Callback, Dispatch, Object, OsslParam, SELECT_PARAMETERS, SELECT_PRIVATE_KEY, SELECT_PUBLIC_KEY, Table, find,
    functions,
};

/// Type of a key in OpenSSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Rsa,
    Ec,
    Ed25519,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            Self::Rsa => c"RSA",
            Self::Ec => c"EC",
            Self::Ed25519 => c"ED25519",
        }
    }

    /// Returns the parameter that contains the private key.
    const fn private(self) -> &'static CStr {
        match self {
            Self::Rsa => c"d",
            Self::Ec | Self::Ed25519 => c"priv",
        }
    }

    fn of(class: Class) -> Self {
        match class {
            Class::Rsa2048 | Class::Rsa3072 | Class::Rsa4096 => Self::Rsa,
            Class::EcdsaP256 | Class::EcdsaP384 => Self::Ec,
            Class::Ed25519 => Self::Ed25519,
        }
    }
}

/// Key of the engine.
enum Held {
    /// Private key in this process, and the process that has created it. The memory of keys is
    /// empty in a forked process.
    Inside(Mutex<(u32, Arc<Key>)>),
    /// Key of the signer.
    Separate(Arc<Key>),
}

/// Key of this provider.
pub(crate) struct KeyData {
    provider: *const Provider,
    kind: Kind,
    /// The key in OpenSSL's default provider, or null before it is imported.
    inner: Object,
    /// Whether `inner` has a private key.
    is_private: bool,
    held: Option<Held>,
}

impl Drop for KeyData {
    fn drop(&mut self) {
        // SAFETY: the key belongs to this value, and may be null.
        unsafe { (functions().EVP_PKEY_free)(self.inner) };
    }
}

impl KeyData {
    pub(crate) fn provider(&self) -> &Provider {
        // SAFETY: OpenSSL frees all keys before it unloads the provider.
        unsafe { &*self.provider }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the key in OpenSSL's default provider.
    pub(crate) fn inner(&self) -> Object {
        self.inner
    }

    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Returns the key of the engine.
    pub(crate) fn key(&self) -> Result<Arc<Key>, String> {
        match &self.held {
            Some(Held::Separate(key)) => Ok(Arc::clone(key)),
            Some(Held::Inside(key)) => {
                let mut key = key.lock().unwrap_or_else(PoisonError::into_inner);
                let process = std::process::id();
                if key.0 != process {
                    *key = (process, Arc::new(private_key(self.inner)?));
                }
                Ok(Arc::clone(&key.1))
            }
            None => Err("the key has no private half".to_owned()),
        }
    }

    /// Creates the key for which the signer holds the private half. Takes `inner`.
    pub(crate) fn separate(provider: &Provider, kind: Kind, inner: Object) -> Result<Self, String> {
        let mut key = Self { provider, kind, inner, is_private: false, held: None };
        if provider.settings.socket.is_none() {
            return Err("a GODWIT PUBLIC KEY needs `godwit signer`: set socket in the configuration".to_owned());
        }
        let public = key.public()?;
        let held = provider.find_held(|held| Kind::of(held.class()) == kind && held.public_key() == public);
        key.held = Some(Held::Separate(held.ok_or("the signer does not hold this key: add it to its configuration")?));
        Ok(key)
    }

    /// Returns the public key, encoded as [`Key::public_key`].
    fn public(&self) -> Result<Vec<u8>, String> {
        let openssl = functions();
        let fail = || "the public key cannot be encoded".to_owned();
        if self.kind == Kind::Rsa {
            let mut bytes = null_mut();
            // SAFETY: OpenSSL allocates the result.
            let length = unsafe { (openssl.i2d_PublicKey)(self.inner, &raw mut bytes) };
            let length = usize::try_from(length).ok().filter(|_| !bytes.is_null()).ok_or_else(fail)?;
            // SAFETY: the result has this length.
            let public = unsafe { std::slice::from_raw_parts(bytes, length) }.to_vec();
            openssl.free(bytes);
            return Ok(public);
        }
        let (mut bytes, mut length) = ([0; PUBLIC_BYTES_MAX], 0);
        // SAFETY: the result has this size.
        let found = unsafe {
            let (name, bytes) = (c"pub".as_ptr(), bytes.as_mut_ptr());
            (openssl.EVP_PKEY_get_octet_string_param)(self.inner, name, bytes, PUBLIC_BYTES_MAX, &raw mut length)
        };
        if found == 1 { Ok(bytes[..length.min(PUBLIC_BYTES_MAX)].to_vec()) } else { Err(fail()) }
    }

    /// Imports a key of another provider. Returns an error if the engine cannot use it.
    fn import(&mut self, params: *const OsslParam) -> Result<(), String> {
        let openssl = functions();
        // SAFETY: OpenSSL passes an array with an end.
        self.is_private = unsafe { find(params, self.kind.private()) }.is_some();
        if !self.is_private {
            // OpenSSL itself verifies with public keys.
            return Err(String::new());
        }
        let mut inner = null_mut();
        // SAFETY: the context is freed once, and the result is valid.
        let imported = unsafe {
            let context =
                (openssl.EVP_PKEY_CTX_new_from_name)(self.provider().context(), self.kind.name().as_ptr(), null());
            let all = SELECT_PRIVATE_KEY | SELECT_PUBLIC_KEY | SELECT_PARAMETERS;
            let imported = (openssl.EVP_PKEY_fromdata_init)(context) == 1
                && (openssl.EVP_PKEY_fromdata)(context, &raw mut inner, all, params) == 1;
            (openssl.EVP_PKEY_CTX_free)(context);
            imported
        };
        if !imported {
            return Err(String::new());
        }
        if self.provider().settings.socket.is_some() {
            let mut key = Self::separate(self.provider(), self.kind, inner)?;
            (self.inner, self.held) = (std::mem::replace(&mut key.inner, null_mut()), key.held.take());
            return Ok(());
        }
        self.inner = inner;
        let key = Arc::new(private_key(inner)?);
        self.held = Some(Held::Inside(Mutex::new((std::process::id(), key))));
        Ok(())
    }
}

/// Longest encoded public key of an elliptic curve.
const PUBLIC_BYTES_MAX: usize = 256;

/// Converts a private key of OpenSSL.
fn private_key(inner: Object) -> Result<Key, String> {
    let openssl = functions();
    let fail = || "the private key cannot be encoded".to_owned();
    let mut bytes = null_mut();
    // SAFETY: the structure is freed once, and OpenSSL allocates the result.
    let length = unsafe {
        let structure = (openssl.EVP_PKEY2PKCS8)(inner);
        if structure.is_null() {
            return Err(fail());
        }
        let length = (openssl.i2d_PKCS8_PRIV_KEY_INFO)(structure, &raw mut bytes);
        (openssl.PKCS8_PRIV_KEY_INFO_free)(structure);
        length
    };
    let length = usize::try_from(length).ok().filter(|_| !bytes.is_null()).ok_or_else(fail)?;
    // SAFETY: the result has this length.
    let slice = unsafe { std::slice::from_raw_parts_mut(bytes, length) };
    let key = on_large_stack(|| Key::from_pkcs8(slice));
    slice.zeroize();
    openssl.free(bytes);
    match key {
        Ok(Ok(key)) => Ok(key),
        Ok(Err(reason)) => Err(format!("the key {reason}")),
        Err(error) => Err(error.to_string()),
    }
}

const fn entry(number: c_int, function: *const c_void) -> Dispatch {
    Dispatch { number, function }
}

macro_rules! key_management {
    ($table:ident, $new:ident, $kind:expr, $types:ident, $operation:ident) => {
        unsafe extern "C" fn $new(provider: *const Provider) -> *mut KeyData {
            Box::into_raw(Box::new(KeyData { provider, kind: $kind, inner: null_mut(), is_private: false, held: None }))
        }

        pub(crate) static $table: Table<Dispatch, 13> = Table([
            entry(openssl::KEYMGMT_NEW, $new as *const c_void),
            entry(openssl::KEYMGMT_LOAD, load as *const c_void),
            entry(openssl::KEYMGMT_FREE, free as *const c_void),
            entry(openssl::KEYMGMT_HAS, has as *const c_void),
            entry(openssl::KEYMGMT_MATCH, is_same as *const c_void),
            entry(openssl::KEYMGMT_GET_PARAMS, get_params as *const c_void),
            entry(openssl::KEYMGMT_GETTABLE_PARAMS, gettable_params as *const c_void),
            entry(openssl::KEYMGMT_IMPORT, import as *const c_void),
            entry(openssl::KEYMGMT_IMPORT_TYPES, $types as *const c_void),
            entry(openssl::KEYMGMT_EXPORT, export as *const c_void),
            entry(openssl::KEYMGMT_EXPORT_TYPES, $types as *const c_void),
            entry(openssl::KEYMGMT_QUERY_OPERATION_NAME, $operation as *const c_void),
            Dispatch::END,
        ]);
    };
}

key_management!(RSA, new_rsa, Kind::Rsa, rsa_types, rsa_operation);
key_management!(EC, new_ec, Kind::Ec, ec_types, ec_operation);
key_management!(ED25519, new_ed25519, Kind::Ed25519, ed25519_types, ed25519_operation);

unsafe extern "C" fn free(key: *mut KeyData) {
    if !key.is_null() {
        guard((), || {
            // SAFETY: OpenSSL frees each key once.
            drop(unsafe { Box::from_raw(key) });
            Ok(())
        });
    }
}

/// Takes the key that a decoder has created.
unsafe extern "C" fn load(reference: *mut *mut KeyData, bytes: usize) -> *mut KeyData {
    if bytes != size_of::<*mut KeyData>() {
        return null_mut();
    }
    // SAFETY: the decoder passes a pointer to its key, and must not free it afterwards.
    unsafe { std::mem::replace(&mut *reference, null_mut()) }
}

unsafe extern "C" fn has(key: *const KeyData, selection: c_int) -> c_int {
    // SAFETY: OpenSSL passes a key or null.
    let Some(key) = (unsafe { key.as_ref() }) else { return 0 };
    let has_private = key.held.is_some() || selection & SELECT_PRIVATE_KEY == 0;
    c_int::from(!key.inner.is_null() && has_private)
}

unsafe extern "C" fn is_same(one: *const KeyData, other: *const KeyData, _selection: c_int) -> c_int {
    // SAFETY: OpenSSL passes keys of this provider.
    unsafe { c_int::from((functions().EVP_PKEY_eq)((*one).inner, (*other).inner) == 1) }
}

unsafe extern "C" fn get_params(key: *const KeyData, params: *mut OsslParam) -> c_int {
    // SAFETY: OpenSSL passes a key of this provider and an array with an end.
    unsafe { (functions().EVP_PKEY_get_params)((*key).inner, params) }
}

unsafe extern "C" fn gettable_params(_provider: *const Provider) -> *const OsslParam {
    static PARAMS: Table<OsslParam, 10> = Table([
        OsslParam::integer(c"bits"),
        OsslParam::integer(c"security-bits"),
        OsslParam::integer(c"max-size"),
        OsslParam::text(c"default-digest"),
        OsslParam::text(c"mandatory-digest"),
        OsslParam::text(c"group"),
        OsslParam::unsigned(c"n"),
        OsslParam::unsigned(c"e"),
        OsslParam::bytes(c"pub"),
        OsslParam::END,
    ]);
    PARAMS.0.as_ptr()
}

unsafe extern "C" fn import(key: *mut KeyData, _selection: c_int, params: *const OsslParam) -> c_int {
    // SAFETY: OpenSSL passes a new key.
    guard(0, || unsafe { (*key).import(params) }.map(|()| 1))
}

unsafe extern "C" fn export(key: *const KeyData, selection: c_int, callback: Callback, data: *mut c_void) -> c_int {
    // SAFETY: OpenSSL passes a key of this provider.
    let key = unsafe { &*key };
    let selection = if key.is_private { selection } else { selection & !SELECT_PRIVATE_KEY };
    // SAFETY: the callback accepts the parameters of the key.
    unsafe { (functions().EVP_PKEY_export)(key.inner, selection, callback, data) }
}

unsafe extern "C" fn rsa_types(_selection: c_int) -> *const OsslParam {
    static TYPES: Table<OsslParam, 9> = Table([
        OsslParam::unsigned(c"n"),
        OsslParam::unsigned(c"e"),
        OsslParam::unsigned(c"d"),
        OsslParam::unsigned(c"rsa-factor1"),
        OsslParam::unsigned(c"rsa-factor2"),
        OsslParam::unsigned(c"rsa-exponent1"),
        OsslParam::unsigned(c"rsa-exponent2"),
        OsslParam::unsigned(c"rsa-coefficient1"),
        OsslParam::END,
    ]);
    TYPES.0.as_ptr()
}

unsafe extern "C" fn ec_types(_selection: c_int) -> *const OsslParam {
    static TYPES: Table<OsslParam, 4> =
        Table([OsslParam::text(c"group"), OsslParam::bytes(c"pub"), OsslParam::unsigned(c"priv"), OsslParam::END]);
    TYPES.0.as_ptr()
}

unsafe extern "C" fn ed25519_types(_selection: c_int) -> *const OsslParam {
    static TYPES: Table<OsslParam, 3> = Table([OsslParam::bytes(c"pub"), OsslParam::bytes(c"priv"), OsslParam::END]);
    TYPES.0.as_ptr()
}

unsafe extern "C" fn rsa_operation(_operation: c_int) -> *const c_char {
    Kind::Rsa.name().as_ptr()
}

unsafe extern "C" fn ec_operation(operation: c_int) -> *const c_char {
    match operation {
        openssl::OP_SIGNATURE => c"ECDSA".as_ptr(),
        openssl::OP_KEYEXCH => c"ECDH".as_ptr(),
        _ => null(),
    }
}

unsafe extern "C" fn ed25519_operation(_operation: c_int) -> *const c_char {
    Kind::Ed25519.name().as_ptr()
}
