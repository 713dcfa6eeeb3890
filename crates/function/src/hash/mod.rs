//! The function `hash` computes the digest of every packet, and compares it with a list.

mod config;
mod digests;
mod reference;
mod tables;

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{ImageRef, Memory};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use crate::{BuildContext, Contract, Error, Function, Kind, Operate, Properties};

pub use config::Config;
pub use digests::{Listed, parse as parse_digests};

/// Properties, verdicts and drop reasons of the function, as declared in `kernels/hash/hash.h`.
pub use godwit_kernels::declared::hash::*;

/// Registration of the function kind `hash`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// MD5 (RFC 1321).
    Md5,
    /// SHA-1 (FIPS 180-4).
    Sha1,
    /// SHA-256 (FIPS 180-4).
    Sha256,
}

impl Algorithm {
    /// Returns the size of a digest in bytes.
    pub fn digest_bytes(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    fn variant(self) -> u8 {
        match self {
            Self::Md5 => VARIANT_MD5,
            Self::Sha1 => VARIANT_SHA1,
            Self::Sha256 => VARIANT_SHA256,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
        }
    }
}

/// Bytes of a packet that its digest covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// The frame, without FCS.
    #[default]
    Frame,
    /// The payload, as the function `dpi` defines it.
    Payload,
}

/// Configured function of kind `hash`.
#[derive(Debug)]
pub struct Hash {
    algorithm: Algorithm,
    over: Over,
    listed: Vec<Listed>,
    image: Memory,
    image_bytes: usize,
}

impl Hash {
    /// Creates a function that compares the digests of packets with `listed`. If a digest occurs
    /// several times, its first line counts.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if the machine has too little memory. Returns [`Error::Value`] if
    /// there are too many digests.
    pub fn new(algorithm: Algorithm, over: Over, mut listed: Vec<Listed>) -> Result<Self, Error> {
        listed.sort_unstable();
        listed.dedup_by_key(|entry| entry.digest);
        let (image, image_bytes) = tables::image(&listed, over)?;
        Ok(Self { algorithm, over, listed, image, image_bytes })
    }
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    Ok(Arc::new(config.resolve(context)?))
}

impl Function for Hash {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        self.image[..self.image_bytes].into()
    }

    fn properties(&self) -> Properties {
        Properties { variant: self.algorithm.variant(), ..Properties::of(&CONTRACT) }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, _parameter: u64) -> Outcome {
        let Some(text) = reference::covered(crate::frame_mut(buffer, descriptor), self.over) else {
            return Outcome::drop(DROP_TRUNCATED);
        };
        let digest = reference::digest(variant, text);
        match self.listed.iter().find(|entry| entry.digest[..digest.len()] == digest[..]) {
            Some(entry) => Outcome { value: entry.line, ..Outcome::verdict(VERDICT_LISTED) },
            None => {
                let value = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
                Outcome { value, ..Outcome::verdict(VERDICT_PASS) }
            }
        }
    }
}

impl Operate for Hash {
    fn tables(&self) -> Vec<(String, u64)> {
        vec![("digests".to_owned(), self.listed.len() as u64)]
    }
}

#[cfg(test)]
mod tests;
