//! Configuration of `aes`.

use serde::Deserialize;

use super::{Aes, Cipher, Direction};
use crate::key::{Key, is_weak};
use crate::{BuildContext, Error};

/// Configuration keys of a function of kind `aes`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Cipher.
    cipher: Cipher,
    /// Direction of the cipher.
    #[serde(default)]
    direction: Direction,
    /// Cryptographic key.
    key: Key,
    /// IV of every packet, which is 0 by default.
    iv: Option<Key>,
}

impl Config {
    /// Checks the values, and creates the function. Errors do not show the key.
    pub(super) fn resolve(&self, context: &BuildContext<'_>) -> Result<Aes, Error> {
        let (key_bytes, iv_bytes) = match self.cipher {
            Cipher::Aes128Cbc => (16, 16),
            Cipher::ChaCha20Poly1305 => (32, 12),
        };
        let read = |name: &str, key: &Key, bytes| {
            key.with_length(&[bytes]).map_err(|error| Error::value(format!("{name} of aes {error}")))
        };
        let key = read("key", &self.key, key_bytes)?;
        if is_weak(&key) {
            return Err(Error::value("key of aes repeats a few bytes: generate a random key"));
        }
        let iv = match &self.iv {
            Some(iv) => read("iv", iv, iv_bytes)?.to_vec(),
            None => vec![0; iv_bytes],
        };
        Aes::new(context.name, self.cipher, self.direction, key, iv)
    }
}
