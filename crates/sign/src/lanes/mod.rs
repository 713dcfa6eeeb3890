//! Signs up to eight jobs at once in SIMD lanes. This module prepares batches for the library
//! crypto_mb, and checks the signatures.
#![allow(unsafe_code, reason = "calls of crypto_mb take pointers to the data of each lane")]

mod ecdsa;
mod library;

use std::ptr::{null, null_mut};
use std::sync::Arc;

use zeroize::Zeroize;

pub use library::{LanesError, Library};

use crate::Error;
use crate::counters::LANES;
use crate::key::{Key, Words};
use crate::memory::Locked;
use crate::padding::pad;
use crate::scheme::{Class, Scheme};

/// Longest modulus, in bytes.
const MODULUS_BYTES_MAX: usize = 512;

/// Job for one SIMD lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneJob<'a> {
    pub(crate) key: &'a Key,
    pub(crate) scheme: Scheme,
    pub(crate) message: &'a [u8],
}

/// Library and buffers for signing in SIMD lanes on one thread.
#[derive(Debug)]
pub(crate) struct Lanes {
    library: Arc<Library>,
    /// Scratch memory of crypto_mb, which contains parts of keys.
    scratch: Locked<u64>,
    /// Padded messages. `signed` holds their signatures, and `checked` the messages that the public
    /// key recovers from the signatures.
    padded: Box<[[u8; MODULUS_BYTES_MAX]; LANES]>,
    signed: Box<[[u8; MODULUS_BYTES_MAX]; LANES]>,
    checked: Box<[[u8; MODULUS_BYTES_MAX]; LANES]>,
    nonces: Locked<u64>,
    /// Whether the library signs correctly, for each class.
    works: [bool; Class::ALL.len()],
}

impl Lanes {
    /// Allocates the buffers, and tests the library for each class of jobs.
    pub(crate) fn new(library: Arc<Library>) -> Result<Self, Error> {
        let rsa = Class::ALL.iter().filter_map(|class| library.rsa(*class));
        let scratch = Locked::zeroed(rsa.map(|rsa| rsa.scratch_words).max().unwrap_or(0))?;
        let rows = || Box::new([[0; MODULUS_BYTES_MAX]; LANES]);
        let (padded, signed, checked) = (rows(), rows(), rows());
        let nonces = Locked::zeroed(ecdsa::NONCE_WORDS)?;
        let mut lanes = Self { library, scratch, padded, signed, checked, nonces, works: [true; Class::ALL.len()] };
        for class in Class::ALL {
            lanes.works[class.index()] = lanes.test(class)?;
        }
        Ok(lanes)
    }

    /// Returns whether the library produces correct signatures for `class`. The library of Debian
    /// 13 (crypto_mb 11.15) produces wrong signatures for Ed25519.
    pub(crate) fn works(&self, class: Class) -> bool {
        self.works[class.index()]
    }

    /// Signs with a new key in all eight SIMD lanes, and verifies the signatures. RSA needs no
    /// test, because each RSA signature is checked when it is made.
    fn test(&mut self, class: Class) -> Result<bool, Error> {
        let scheme = match class {
            Class::Rsa2048 | Class::Rsa3072 | Class::Rsa4096 => return Ok(true),
            Class::EcdsaP256 => Scheme::EcdsaP256Sha256,
            Class::EcdsaP384 => Scheme::EcdsaP384Sha384,
            Class::Ed25519 => Scheme::Ed25519,
        };
        let key = Key::generate(class)?;
        let messages: [[u8; 150]; LANES] = std::array::from_fn(|lane| [lane as u8; 150]);
        let jobs = messages.each_ref().map(|message| LaneJob { key: &key, scheme, message });
        let signatures = self.sign(class, &jobs);
        let verifies = |(job, signature): (&LaneJob<'_>, &Option<Vec<u8>>)| {
            signature.as_ref().is_some_and(|signature| key.verifies(scheme, job.message, signature))
        };
        Ok(jobs.iter().zip(&signatures).all(verifies))
    }

    /// Signs up to eight jobs of `class`. A result is `None` if the SIMD lanes cannot use the key,
    /// if the library reports an error, or if the signature is wrong.
    pub(crate) fn sign(&mut self, class: Class, jobs: &[LaneJob<'_>]) -> [Option<Vec<u8>>; LANES] {
        debug_assert!(jobs.len() <= LANES);
        match class {
            Class::Rsa2048 | Class::Rsa3072 | Class::Rsa4096 => self.rsa(class, jobs),
            Class::EcdsaP256 | Class::EcdsaP384 => {
                ecdsa::sign(&self.library, class, jobs, &mut self.nonces).unwrap_or_default()
            }
            Class::Ed25519 => ed25519(&self.library, jobs),
        }
    }

    fn rsa(&mut self, class: Class, jobs: &[LaneJob<'_>]) -> [Option<Vec<u8>>; LANES] {
        let Some(rsa) = self.library.rsa(class) else { return Default::default() };
        let bytes = class.rsa_bits().map_or(0, |bits| bits / 8);
        let (mut from, mut crt, mut modulus) = ([null(); LANES], [[null(); LANES]; 5], [null(); LANES]);
        let (mut to, mut back, mut signed) = ([null_mut(); LANES], [null_mut(); LANES], [null(); LANES]);
        for (lane, job) in jobs.iter().enumerate() {
            let Some(words) = job.key.rsa().filter(|_| job.key.class() == class) else { continue };
            if pad(job.scheme, job.message, &mut self.padded[lane][..bytes]).is_none() {
                continue;
            }
            from[lane] = self.padded[lane].as_ptr();
            to[lane] = self.signed[lane].as_mut_ptr();
            back[lane] = self.checked[lane].as_mut_ptr();
            signed[lane] = to[lane].cast_const();
            for (part, words) in crt.iter_mut().zip(words.crt()) {
                part[lane] = words.as_ptr();
            }
            modulus[lane] = words.modulus().as_ptr();
        }
        // SAFETY: rows have MODULUS_BYTES_MAX bytes, at least the size of the modulus. Keys of this
        // class have its number of words, which `Words::of` ensures. `scratch` has the largest size
        // of all classes.
        let [private, public] = unsafe {
            [
                self.library.rsa_private(rsa, &from, &to, &crt, &mut self.scratch),
                self.library.rsa_public(rsa, &signed, &back, &modulus, &mut self.scratch),
            ]
        };
        self.scratch[..rsa.scratch_words].zeroize();
        std::array::from_fn(|lane| {
            let done = !from[lane].is_null() && is_ok(private, lane) && is_ok(public, lane);
            // A wrong signature is never returned, because it can reveal a prime factor of the RSA
            // modulus (Bellcore attack).
            let correct = done && self.checked[lane][..bytes] == self.padded[lane][..bytes];
            let signature = correct.then(|| self.signed[lane][..bytes].to_vec());
            self.signed[lane].zeroize();
            signature
        })
    }
}

/// Status 0 means success.
fn is_ok(status: u32, lane: usize) -> bool {
    status >> (4 * lane) & 0xf == 0
}

fn ed25519(library: &Library, jobs: &[LaneJob<'_>]) -> [Option<Vec<u8>>; LANES] {
    let mut signatures = [[0; 64]; LANES];
    let (mut r, mut s) = ([null_mut(); LANES], [null_mut(); LANES]);
    let (mut message, mut length) = ([null(); LANES], [0; LANES]);
    let (mut keys, mut public) = ([null(); LANES], [null(); LANES]);
    for (lane, job) in jobs.iter().enumerate() {
        let Some(Words::Ed25519 { seed, public: point }) = job.key.words() else { continue };
        let (first, second) = signatures[lane].split_at_mut(32);
        (r[lane], s[lane]) = (first.as_mut_ptr(), second.as_mut_ptr());
        (message[lane], length[lane]) = (job.message.as_ptr(), job.message.len() as u32);
        (keys[lane], public[lane]) = (seed.as_ptr(), point.as_ptr());
    }
    // SAFETY: signatures have two halves of 32 bytes, seeds and points have 32 bytes, and each
    // message has its length.
    let status = unsafe { library.ed25519_sign([&r, &s], &message, &length, &keys, &public) };
    std::array::from_fn(|lane| (!r[lane].is_null() && is_ok(status, lane)).then(|| signatures[lane].to_vec()))
}

#[cfg(test)]
mod tests;
