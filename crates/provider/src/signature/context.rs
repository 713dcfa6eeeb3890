//! State of a signature.
#![allow(unsafe_code, reason = "calls of OpenSSL")]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use godwit_sign::{Class, Hash, Key, MESSAGE_BYTES_MAX, Refusal, Scheme};

use crate::engine;
use crate::entry::Provider;
use crate::key::{KeyData, Kind};
use crate::openssl::{self, Object, OsslParam, Params, functions};
use crate::wait;

// Padding of RSA (`RSA_PKCS1_PADDING` and `RSA_PKCS1_PSS_PADDING`).
const PKCS1: c_int = 1;
const PSS: c_int = 6;
/// Length of the salt that equals that of the hash (`RSA_PSS_SALTLEN_DIGEST`).
const SALT_AS_HASH: c_int = -1;
/// Longest possible salt (`RSA_PSS_SALTLEN_AUTO` for signatures).
const SALT_LONGEST: c_int = -2;

/// Settings of a signature with RSA.
#[derive(Clone, Debug)]
struct Rsa {
    padding: c_int,
    salt: c_int,
    /// Hash function of the mask, or `None` for that of the message.
    mask: Option<CString>,
}

const RSA: Rsa = Rsa { padding: PKCS1, salt: SALT_LONGEST, mask: None };

/// State of a signature. OpenSSL calls it a context.
pub(super) struct Context {
    provider: *const Provider,
    /// The key in OpenSSL's default provider, or null before the first operation.
    pub(super) inner: Object,
    kind: Kind,
    pub(super) is_private: bool,
    key: Option<Arc<Key>>,
    pub(super) digest: Option<CString>,
    rsa: Rsa,
    /// Whether a setting is known to OpenSSL's default provider only.
    is_foreign: bool,
    /// Message so far, if the engine may sign it.
    message: Vec<u8>,
    /// Whether `hashing` has received the message, because it is long.
    is_long: bool,
    /// Signature or verification of a message by OpenSSL's default provider (`EVP_MD_CTX`), or
    /// null.
    pub(super) hashing: Object,
    /// Signature or verification of a hash by OpenSSL's default provider (`EVP_PKEY_CTX`), or null.
    pub(super) raw: Object,
}

impl Drop for Context {
    fn drop(&mut self) {
        self.reset();
        // SAFETY: the key belongs to this value, and may be null.
        unsafe { (functions().EVP_PKEY_free)(self.inner) };
    }
}

/// Returns the hash function with this name.
fn hash(name: &CStr) -> Option<Hash> {
    let is = |names: &[&str]| names.iter().any(|known| name.to_bytes().eq_ignore_ascii_case(known.as_bytes()));
    [
        (Hash::Sha256, ["SHA256", "SHA2-256", "SHA-256"]),
        (Hash::Sha384, ["SHA384", "SHA2-384", "SHA-384"]),
        (Hash::Sha512, ["SHA512", "SHA2-512", "SHA-512"]),
    ]
    .into_iter()
    .find_map(|(hash, names)| is(&names).then_some(hash))
}

const fn hash_bytes(hash: Hash) -> c_int {
    match hash {
        Hash::Sha256 => 32,
        Hash::Sha384 => 48,
        Hash::Sha512 => 64,
    }
}

/// Returns the longest signature of a key, in bytes.
fn signature_bytes_max(class: Class) -> usize {
    match class {
        Class::EcdsaP256 => 72,
        Class::EcdsaP384 => 104,
        Class::Ed25519 => 64,
        _ => class.rsa_bits().unwrap_or(0) / 8,
    }
}

/// Returns the error of a call, whose reason OpenSSL has already put on its error stack.
pub(super) fn check(result: c_int) -> Result<(), String> {
    if result > 0 { Ok(()) } else { Err(String::new()) }
}

impl Context {
    pub(super) fn new(provider: *const Provider) -> Self {
        Self {
            provider,
            inner: null_mut(),
            kind: Kind::Rsa,
            is_private: false,
            key: None,
            digest: None,
            rsa: RSA,
            is_foreign: false,
            message: Vec::new(),
            is_long: false,
            hashing: null_mut(),
            raw: null_mut(),
        }
    }

    pub(super) fn provider(&self) -> &Provider {
        // SAFETY: OpenSSL frees all contexts before it unloads the provider.
        unsafe { &*self.provider }
    }

    /// Ends the operation.
    fn reset(&mut self) {
        let openssl = functions();
        let (hashing, raw) = (self.hashing, self.raw);
        (self.hashing, self.raw) = (null_mut(), null_mut());
        // SAFETY: both belong to this value, and may be null.
        unsafe {
            (openssl.EVP_MD_CTX_free)(hashing);
            (openssl.EVP_PKEY_CTX_free)(raw);
        }
        self.message.clear();
        self.digest = None;
        self.rsa = RSA;
        (self.is_foreign, self.is_long) = (false, false);
    }

    /// Starts an operation. Without `key`, the previous key is used.
    pub(super) fn start(&mut self, key: *const KeyData) -> Result<(), String> {
        self.reset();
        // SAFETY: OpenSSL passes a key of this provider or null.
        if let Some(key) = unsafe { key.as_ref() } {
            self.key = key.key().ok();
            (self.kind, self.is_private) = (key.kind(), key.is_private());
            let previous = std::mem::replace(&mut self.inner, key.inner());
            // SAFETY: both are keys or null.
            unsafe {
                (functions().EVP_PKEY_up_ref)(self.inner);
                (functions().EVP_PKEY_free)(previous);
            }
        }
        if self.inner.is_null() { Err("no key is set".to_owned()) } else { Ok(()) }
    }

    /// Returns the scheme if the engine signs with it.
    fn scheme(&self) -> Option<Scheme> {
        let key = self.key.as_ref().filter(|_| !self.is_foreign)?;
        let digest = self.digest.as_deref().filter(|name| !name.is_empty());
        let scheme = match self.kind {
            Kind::Ed25519 if digest.is_none() => Scheme::Ed25519,
            Kind::Ed25519 => return None,
            Kind::Ec => match hash(digest?)? {
                Hash::Sha256 => Scheme::EcdsaP256Sha256,
                Hash::Sha384 => Scheme::EcdsaP384Sha384,
                Hash::Sha512 => return None,
            },
            Kind::Rsa => {
                let hash_of_message = hash(digest?)?;
                let has_same_mask = self.rsa.mask.as_deref().is_none_or(|name| hash(name) == Some(hash_of_message));
                let has_same_salt = [SALT_AS_HASH, hash_bytes(hash_of_message)].contains(&self.rsa.salt);
                match self.rsa.padding {
                    PKCS1 => Scheme::RsaPkcs1(hash_of_message),
                    PSS if has_same_mask && has_same_salt => Scheme::RsaPss(hash_of_message),
                    _ => return None,
                }
            }
        };
        scheme.is_of(key.class()).then_some(scheme)
    }

    pub(super) fn digest_pointer(&self) -> *const c_char {
        self.digest.as_ref().filter(|name| !name.is_empty()).map_or(null(), |name| name.as_ptr())
    }

    /// Returns the signature of OpenSSL's default provider, with all settings.
    pub(super) fn hashing(&mut self) -> Result<Object, String> {
        if !self.hashing.is_null() {
            return Ok(self.hashing);
        }
        let openssl = functions();
        // SAFETY: the new context belongs to this value, and all other arguments are valid or null.
        unsafe {
            self.hashing = (openssl.EVP_MD_CTX_new)();
            let digest = self.digest_pointer();
            let (hashing, context) = (self.hashing, self.provider().context());
            check((openssl.EVP_DigestSignInit_ex)(hashing, null_mut(), digest, context, null(), self.inner, null()))?;
        }
        self.repeat_settings()?;
        Ok(self.hashing)
    }

    /// Passes the settings of RSA to OpenSSL's default provider.
    fn repeat_settings(&mut self) -> Result<(), String> {
        let Rsa { mut padding, mut salt, mask } = self.rsa.clone();
        if padding == PKCS1 {
            return Ok(());
        }
        let mask = mask.or_else(|| self.digest.clone()).unwrap_or_default();
        let params = Params::three(
            OsslParam::of_integer(c"pad-mode", &mut padding),
            OsslParam::of_integer(c"saltlen", &mut salt),
            OsslParam::of_text(c"mgf1-digest", &mask),
        );
        // SAFETY: the array has an end.
        check(unsafe { (functions().EVP_PKEY_CTX_set_params)(self.settings(), params.as_ptr()) })
    }

    /// Returns the context of OpenSSL's default provider that receives settings (`EVP_PKEY_CTX`).
    pub(super) fn settings(&self) -> Object {
        if self.hashing.is_null() {
            return self.raw;
        }
        // SAFETY: the context is valid.
        unsafe { (functions().EVP_MD_CTX_get_pkey_ctx)(self.hashing) }
    }

    /// Applies settings. Those that the engine does not know are left to OpenSSL.
    ///
    /// # Safety
    /// `params` is null or an array with an end.
    pub(super) unsafe fn set(&mut self, params: *const OsslParam) -> Result<(), String> {
        if params.is_null() {
            return Ok(());
        }
        if self.hashing.is_null() && self.raw.is_null() {
            // SAFETY: by the contract.
            let is_known = self.kind == Kind::Rsa && unsafe { openssl::all(params) }.all(|param| self.set_rsa(param));
            if is_known {
                return Ok(());
            }
            self.is_foreign = true;
            self.hashing()?;
        }
        self.is_foreign = true;
        // SAFETY: by the contract.
        check(unsafe { (functions().EVP_PKEY_CTX_set_params)(self.settings(), params) })
    }

    /// Applies a setting of RSA. Returns false if the engine does not know it.
    fn set_rsa(&mut self, param: &OsslParam) -> bool {
        // SAFETY: keys are texts.
        let key = unsafe { CStr::from_ptr(param.key) };
        let number = param.as_integer().and_then(|number| c_int::try_from(number).ok());
        match (key.to_bytes(), number, param.as_text()) {
            (b"pad-mode", Some(padding @ (PKCS1 | PSS)), _) => self.rsa.padding = padding,
            (b"pad-mode", _, Some("pkcs1")) => self.rsa.padding = PKCS1,
            (b"pad-mode", _, Some("pss")) => self.rsa.padding = PSS,
            (b"saltlen", _, Some("digest")) if self.rsa.padding == PSS => self.rsa.salt = SALT_AS_HASH,
            (b"saltlen", Some(salt), _) if self.rsa.padding == PSS && salt >= SALT_AS_HASH => self.rsa.salt = salt,
            (b"mgf1-digest", _, Some(name)) if self.rsa.padding == PSS => {
                let Ok(name) = CString::new(name) else { return false };
                self.rsa.mask = Some(name);
            }
            _ => return false,
        }
        true
    }

    /// Adds a part of the message.
    pub(super) fn update(&mut self, part: &[u8]) -> Result<(), String> {
        if !self.is_long && self.scheme().is_some() && self.message.len() + part.len() <= MESSAGE_BYTES_MAX {
            self.message.extend_from_slice(part);
            return Ok(());
        }
        self.hash_message()?;
        self.hash(part)
    }

    /// Leaves the message to OpenSSL's default provider.
    fn hash_message(&mut self) -> Result<(), String> {
        if !std::mem::replace(&mut self.is_long, true) {
            let message = std::mem::take(&mut self.message);
            if !message.is_empty() {
                return self.hash(&message);
            }
        }
        Ok(())
    }

    fn hash(&mut self, part: &[u8]) -> Result<(), String> {
        let hashing = self.hashing()?;
        // SAFETY: `part` is valid.
        check(unsafe { (functions().EVP_DigestSignUpdate)(hashing, part.as_ptr().cast(), part.len()) })
    }

    /// Signs the message followed by `rest`. `rest` is `None` if the message is complete.
    pub(super) fn sign(&mut self, rest: Option<&[u8]>, signature: &mut Out<'_>) -> Result<(), String> {
        let scheme = self.scheme().filter(|_| !self.is_long);
        if signature.is_query() {
            if let Some(key) = self.key.as_ref().filter(|_| scheme.is_some()) {
                signature.set_length(signature_bytes_max(key.class()));
                return Ok(());
            }
        } else if let Some(scheme) = scheme
            && self.message.len() + rest.map_or(0, <[u8]>::len) <= MESSAGE_BYTES_MAX
        {
            let mut message = std::mem::take(&mut self.message);
            message.extend_from_slice(rest.unwrap_or_default());
            return signature.write(&self.sign_in_engine(scheme, &message)?);
        }
        if !self.is_private {
            return Err("the signer has this key, but does not sign with this scheme".to_owned());
        }
        let openssl = functions();
        match rest {
            // OpenSSL signs some messages in one part only.
            Some(rest) if self.message.is_empty() && !self.is_long => {
                let hashing = self.hashing()?;
                let (length, tbs, tbs_bytes) = (&raw mut *signature.length, rest.as_ptr(), rest.len());
                // SAFETY: the signature has the size `*length`, and `rest` is valid.
                check(unsafe { (openssl.EVP_DigestSign)(hashing, signature.bytes, length, tbs, tbs_bytes) })
            }
            _ => {
                self.hash_message()?;
                if let Some(rest) = rest {
                    self.hash(rest)?;
                }
                let hashing = self.hashing()?;
                // SAFETY: the signature has the size `*length`.
                check(unsafe { (openssl.EVP_DigestSignFinal)(hashing, signature.bytes, &raw mut *signature.length) })
            }
        }
    }

    fn sign_in_engine(&self, scheme: Scheme, message: &[u8]) -> Result<Vec<u8>, String> {
        let key = self.key.as_ref().ok_or("no key is set")?;
        let provider = self.provider();
        let engine = engine::of_thread(provider)?;
        let answer = wait::sign(&engine, &provider.statistics, key, scheme, message);
        provider.statistics.report();
        answer.map_err(|refusal| {
            let sentence = match refusal {
                Refusal::Backlog => "too many signatures wait: raise jobs_max, or use more threads",
                Refusal::Invalid => "the signer signs TLS handshakes only, with its own keys",
                Refusal::Failed => "the signature failed",
                Refusal::Lost => "the signer has ended: start `godwit signer` again",
            };
            sentence.to_owned()
        })
    }

    pub(super) fn copy(&self) -> Result<Self, String> {
        let openssl = functions();
        let mut copy = Self::new(self.provider);
        copy.inner = self.inner;
        // SAFETY: all objects are valid or null, and the copies belong to the new value.
        unsafe {
            if !copy.inner.is_null() {
                (openssl.EVP_PKEY_up_ref)(copy.inner);
            }
            if !self.hashing.is_null() {
                copy.hashing = (openssl.EVP_MD_CTX_new)();
                check((openssl.EVP_MD_CTX_copy_ex)(copy.hashing, self.hashing))?;
            }
            if !self.raw.is_null() {
                copy.raw = (openssl.EVP_PKEY_CTX_dup)(self.raw);
                if copy.raw.is_null() {
                    return Err(String::new());
                }
            }
        }
        (copy.kind, copy.is_private, copy.key) = (self.kind, self.is_private, self.key.clone());
        (copy.digest, copy.rsa) = (self.digest.clone(), self.rsa.clone());
        (copy.message, copy.is_foreign, copy.is_long) = (self.message.clone(), self.is_foreign, self.is_long);
        Ok(copy)
    }
}

/// Place for a signature.
pub(super) struct Out<'a> {
    /// Null if only the length is asked for.
    bytes: *mut c_uchar,
    /// On entry the size of `bytes`, on exit the length.
    length: &'a mut usize,
}

impl<'a> Out<'a> {
    /// # Safety
    /// `bytes` is null or has the given size.
    pub(super) unsafe fn new(bytes: *mut c_uchar, length: &'a mut usize, size: usize) -> Self {
        *length = size;
        Self { bytes, length }
    }

    fn is_query(&self) -> bool {
        self.bytes.is_null()
    }

    fn set_length(&mut self, length: usize) {
        *self.length = length;
    }

    fn write(&mut self, signature: &[u8]) -> Result<(), String> {
        if signature.len() > *self.length {
            return Err(format!("the signature needs {} bytes, but the buffer has {}", signature.len(), *self.length));
        }
        // SAFETY: the size has just been checked.
        unsafe { std::ptr::copy_nonoverlapping(signature.as_ptr(), self.bytes, signature.len()) };
        self.set_length(signature.len());
        Ok(())
    }
}
