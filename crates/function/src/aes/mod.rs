//! The function `aes` encrypts or decrypts every packet with one key and one IV, as a workload for
//! measurements.

mod config;
mod reference;
mod tables;

use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_packet::{Image, ImageRef};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;
use zeroize::Zeroizing;

use crate::{BuildContext, Contract, Error, Function, Kind, Operate, Properties};

pub use config::Config;

/// Properties, verdicts and drop reasons of the function, as declared in `kernels/aes/aes.h`.
pub use godwit_kernels::declared::aes::*;

/// Registration of the function kind `aes`.
pub const KIND: Kind = Kind { contract: &CONTRACT, build };

/// Cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Cipher {
    /// AES with a key of 128 bits in the mode CBC.
    #[serde(rename = "aes-128-cbc")]
    Aes128Cbc,
    /// ChaCha20-Poly1305 (RFC 8439).
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

/// Direction of the cipher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Encryption.
    #[default]
    Encrypt,
    /// Decryption.
    Decrypt,
}

/// Configured function of kind `aes`.
pub struct Aes {
    name: String,
    cipher: Cipher,
    direction: Direction,
    key: Zeroizing<Vec<u8>>,
    iv: Vec<u8>,
    image: Image,
}

impl Aes {
    fn new(
        name: &str,
        cipher: Cipher,
        direction: Direction,
        key: Zeroizing<Vec<u8>>,
        iv: Vec<u8>,
    ) -> Result<Self, Error> {
        let image = tables::image(cipher, direction, &key, &iv)?;
        Ok(Self { name: name.to_owned(), cipher, direction, key, iv, image })
    }
}

fn build(stanza: Spanned<DeTable<'_>>, context: &BuildContext<'_>) -> Result<Arc<dyn Function>, Error> {
    let config: Config = crate::config::read(stanza)?;
    Ok(Arc::new(config.resolve(context)?))
}

impl Function for Aes {
    fn contract(&self) -> &'static Contract {
        &CONTRACT
    }

    fn image(&self) -> ImageRef<'_> {
        (&self.image).into()
    }

    fn properties(&self) -> Properties {
        let variant = match (self.cipher, self.direction) {
            (Cipher::Aes128Cbc, Direction::Encrypt) => VARIANT_CBC_ENCRYPT,
            (Cipher::Aes128Cbc, Direction::Decrypt) => VARIANT_CBC_DECRYPT,
            (Cipher::ChaCha20Poly1305, Direction::Encrypt) => VARIANT_CHACHA20_POLY1305_ENCRYPT,
            (Cipher::ChaCha20Poly1305, Direction::Decrypt) => VARIANT_CHACHA20_POLY1305_DECRYPT,
        };
        let appends = variant == VARIANT_CHACHA20_POLY1305_ENCRYPT;
        let tailroom_bytes = if appends { CONTRACT.tailroom_bytes } else { 0 };
        Properties { variant, tailroom_bytes, ..Properties::of(&CONTRACT) }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, _parameter: u64) -> Outcome {
        reference::run_ref(buffer, descriptor, variant, &self.key, &self.iv)
    }
}

impl Operate for Aes {
    fn warnings(&self) -> Vec<String> {
        vec![format!(
            "function `{}` uses the same IV for every packet: it is a workload and protects nothing (`ipsec` protects \
             packets)",
            self.name
        )]
    }
}

#[cfg(test)]
mod tests;
