//! Loads the library Intel crypto_mb at run time. It performs eight private-key operations at once
//! with AVX-512 IFMA, one in each SIMD lane.
#![allow(unsafe_code, reason = "crypto_mb is a C library")]

use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};

use crate::counters::LANES;
use crate::scheme::Class;

/// File name of the library. The number is its binary interface version.
const NAME: &str = "libcrypto_mb.so.11";

/// Input pointers of all SIMD lanes. A lane without a job has a null pointer.
type In<T> = [*const T; LANES];
type Out = [*mut u8; LANES];

type RsaPrivate = unsafe extern "C" fn(
    *const *const u8,
    *const *mut u8,
    *const *const u64,
    *const *const u64,
    *const *const u64,
    *const *const u64,
    *const *const u64,
    c_int,
    *const RsaMethod,
    *mut u8,
) -> u32;
type RsaPublic =
    unsafe extern "C" fn(*const *const u8, *const *mut u8, *const *const u64, c_int, *const RsaMethod, *mut u8) -> u32;
type RsaMethodOf = unsafe extern "C" fn(c_int) -> *const RsaMethod;
type RsaBufferBytes = unsafe extern "C" fn(*const RsaMethod) -> c_int;
type EcdsaSign = unsafe extern "C" fn(
    *const *mut u8,
    *const *mut u8,
    *const *const u8,
    *const *const u64,
    *const *const u64,
    *mut u8,
) -> u32;
type Ed25519Sign = unsafe extern "C" fn(
    *const *mut u8,
    *const *mut u8,
    *const *const u8,
    *const u32,
    *const *const u8,
    *const *const u8,
) -> u32;
type Features = unsafe extern "C" fn() -> u64;
type IsApplicable = unsafe extern "C" fn(u64) -> c_int;
type GetVersion = unsafe extern "C" fn() -> *const Version;

/// Opaque description of an RSA operation.
#[repr(C)]
pub(super) struct RsaMethod {
    _private: [u8; 0],
}

#[repr(C)]
struct Version {
    numbers: [c_int; 3],
    name: *const c_char,
    build_date: *const c_char,
    text: *const c_char,
}

/// Reason why SIMD lanes are not available. The CPU then signs one job at a time.
#[derive(Debug, thiserror::Error)]
pub enum LanesError {
    /// The library is not installed, or its file cannot be loaded.
    #[error("{}: cannot be loaded ({message}): install libcrypto-mb11 (Debian 13) or run scripts/crypto_mb.sh", file.display())]
    Load {
        /// File of the library, or the name that the dynamic loader searched for.
        file: PathBuf,
        /// Message of the loader.
        message: String,
    },
    /// The CPU lacks AVX-512 IFMA.
    #[error("this CPU has no AVX-512 IFMA, which crypto_mb needs")]
    Cpu,
}

/// RSA operations for one modulus size, and the size of their scratch memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rsa {
    bits: c_int,
    private: *const RsaMethod,
    public: *const RsaMethod,
    pub(super) scratch_words: usize,
}

// SAFETY: the methods are constants of the library.
unsafe impl Send for Rsa {}
// SAFETY: as above.
unsafe impl Sync for Rsa {}

/// The loaded library crypto_mb. It has no state, so all threads share it.
#[derive(Debug)]
pub struct Library {
    file: PathBuf,
    version: String,
    rsa: [Rsa; 3],
    rsa_private: RsaPrivate,
    rsa_public: RsaPublic,
    p256_sign: EcdsaSign,
    p384_sign: EcdsaSign,
    ed25519_sign: Ed25519Sign,
    /// Keeps the library loaded while its functions are used.
    _library: libloading::Library,
}

impl Library {
    /// Loads crypto_mb from the search path of the dynamic loader, or else from a folder
    /// `crypto_mb` near this program. The script `scripts/crypto_mb.sh` creates this folder.
    ///
    /// # Errors
    /// Returns [`LanesError`] if the library is missing, or if the CPU cannot run it.
    pub fn find() -> Result<Self, LanesError> {
        let missing = match Self::load(Path::new(NAME)) {
            Err(missing @ LanesError::Load { .. }) => missing,
            found => return found,
        };
        let program = std::env::current_exe().unwrap_or_default();
        // The program of a test is in target/debug/deps.
        let folders = program.ancestors().skip(1).take(3);
        let mut files = folders.map(|folder| folder.join("crypto_mb").join(NAME));
        files.find(|file| file.is_file()).map_or(Err(missing), |file| Self::load(&file))
    }

    /// Loads crypto_mb from `file`.
    ///
    /// # Errors
    /// Returns [`LanesError`] if the library cannot be loaded, or if the CPU cannot run it.
    pub fn load(file: &Path) -> Result<Self, LanesError> {
        let fail = |error: libloading::Error| LanesError::Load { file: file.to_owned(), message: error.to_string() };
        // SAFETY: the constructors of crypto_mb and of libcrypto have no preconditions. The types
        // are those of the headers of interface version 11, which NAME selects.
        unsafe {
            let library = libloading::Library::new(file).map_err(fail)?;
            macro_rules! symbol {
                ($name:literal, $kind:ty) => {
                    *library.get::<$kind>($name).map_err(fail)?
                };
            }
            let features = symbol!(b"mbx_get_cpu_features\0", Features);
            let is_applicable = symbol!(b"mbx_is_crypto_mb_applicable\0", IsApplicable);
            if is_applicable(features()) == 0 {
                return Err(LanesError::Cpu);
            }
            let private = symbol!(b"mbx_RSA_private_crt_Method\0", RsaMethodOf);
            let public = symbol!(b"mbx_RSA_pub65537_Method\0", RsaMethodOf);
            let buffer_bytes = symbol!(b"mbx_RSA_Method_BufSize\0", RsaBufferBytes);
            let rsa = [2048, 3072, 4096].map(|bits| {
                let (private, public) = (private(bits), public(bits));
                let bytes = buffer_bytes(private).max(buffer_bytes(public));
                Rsa { bits, private, public, scratch_words: (bytes.max(0) as usize).div_ceil(8) }
            });
            let version = symbol!(b"mbx_getversion\0", GetVersion)();
            Ok(Self {
                file: file.to_owned(),
                version: CStr::from_ptr((*version).text).to_string_lossy().into_owned(),
                rsa,
                rsa_private: symbol!(b"mbx_rsa_private_crt_mb8\0", RsaPrivate),
                rsa_public: symbol!(b"mbx_rsa_public_mb8\0", RsaPublic),
                p256_sign: symbol!(b"mbx_nistp256_ecdsa_sign_mb8\0", EcdsaSign),
                p384_sign: symbol!(b"mbx_nistp384_ecdsa_sign_mb8\0", EcdsaSign),
                ed25519_sign: symbol!(b"mbx_ed25519_sign_mb8\0", Ed25519Sign),
                _library: library,
            })
        }
    }

    /// Returns the library's file, or its name in the loader's search path.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the name and version that the library reports.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn rsa(&self, class: Class) -> Option<&Rsa> {
        let bits = class.rsa_bits()?;
        self.rsa.iter().find(|rsa| rsa.bits as usize == bits)
    }

    /// Computes `message ^ d mod n` in each lane with the Chinese remainder theorem. Returns a
    /// 4-bit status for each lane.
    ///
    /// # Safety
    /// In each lane without null pointers, `from` and `to` have as many bytes as the modulus. Each
    /// key component has half as many words as the modulus. `scratch` has `scratch_words`.
    pub(super) unsafe fn rsa_private(
        &self,
        rsa: &Rsa,
        from: &In<u8>,
        to: &Out,
        crt: &[In<u64>; 5],
        scratch: &mut [u64],
    ) -> u32 {
        debug_assert!(scratch.len() >= rsa.scratch_words);
        let [p, q, dp, dq, qinv] = crt.each_ref().map(|part| part.as_ptr());
        let (from, to) = (from.as_ptr(), to.as_ptr());
        // SAFETY: by the contract of this function.
        unsafe { (self.rsa_private)(from, to, p, q, dp, dq, qinv, rsa.bits, rsa.private, scratch.as_mut_ptr().cast()) }
    }

    /// Computes `signature ^ 65537 mod n` in each lane. Returns a 4-bit status for each lane.
    ///
    /// # Safety
    /// In each lane without null pointers, `from` and `to` have as many bytes as the modulus, and
    /// the modulus is complete. `scratch` has `scratch_words`.
    pub(super) unsafe fn rsa_public(
        &self,
        rsa: &Rsa,
        from: &In<u8>,
        to: &Out,
        modulus: &In<u64>,
        scratch: &mut [u64],
    ) -> u32 {
        debug_assert!(scratch.len() >= rsa.scratch_words);
        let (from, to, modulus) = (from.as_ptr(), to.as_ptr(), modulus.as_ptr());
        // SAFETY: by the contract of this function.
        unsafe { (self.rsa_public)(from, to, modulus, rsa.bits, rsa.public, scratch.as_mut_ptr().cast()) }
    }

    /// Signs a digest in each SIMD lane. Returns a 4-bit status for each lane.
    ///
    /// # Safety
    /// In each lane without null pointers, all pointers refer to 32 bytes for P-256 and 48 bytes
    /// for P-384.
    pub(super) unsafe fn ecdsa_sign(
        &self,
        class: Class,
        [r, s]: [&Out; 2],
        digest: &In<u8>,
        nonce: &In<u64>,
        key: &In<u64>,
    ) -> u32 {
        let sign = if class == Class::EcdsaP256 { self.p256_sign } else { self.p384_sign };
        let (digest, nonce, key) = (digest.as_ptr(), nonce.as_ptr(), key.as_ptr());
        // SAFETY: by the contract of this function. The library does not use the scratch buffer.
        unsafe { sign(r.as_ptr(), s.as_ptr(), digest, nonce, key, std::ptr::null_mut()) }
    }

    /// Signs a message in each SIMD lane. Returns a 4-bit status for each lane.
    ///
    /// # Safety
    /// In each lane without null pointers, the message has its `length`, and all other pointers
    /// refer to 32 bytes.
    pub(super) unsafe fn ed25519_sign(
        &self,
        [r, s]: [&Out; 2],
        message: &In<u8>,
        length: &[u32; LANES],
        seed: &In<u8>,
        public: &In<u8>,
    ) -> u32 {
        let (r, s, message) = (r.as_ptr(), s.as_ptr(), message.as_ptr());
        // SAFETY: by the contract of this function.
        unsafe { (self.ed25519_sign)(r, s, message, length.as_ptr(), seed.as_ptr(), public.as_ptr()) }
    }
}
