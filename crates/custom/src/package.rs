//! Packages: compiled functions for machines without a compiler. `godwit build` writes them.
//!
//! ```text
//! "GODWITF1" | SHA-256 of the rest | parts: name length, name, length, bytes
//! ```
//!
//! Lengths are 32-bit little-endian numbers. The parts are `version`, `file`, `source`, the
//! library `ref`, and one library per level. Devices compile `source`.

use std::path::{Path, PathBuf};

use godwit_kernels::custom::CustomText;
use godwit_kernels::{Level, levels};
use sha2::{Digest, Sha256};

use crate::cache::{self, Cache};
use crate::compiler::{self, Libraries, Targets};
use crate::{Error, NUMBER_FIRST, declare, inspect, source};

/// First bytes of a package.
const MAGIC: &[u8] = b"GODWITF1";
/// Size of the digest, in bytes.
const DIGEST_BYTES: usize = 32;
/// Name of the part that contains the reference library.
const REFERENCE: &str = "ref";

/// The parts of a package, by name.
#[derive(Debug)]
pub(crate) struct Package<'a> {
    parts: Vec<(&'a str, &'a [u8])>,
}

/// Returns whether a file is a package.
pub(crate) fn is_package(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns the version that packages must have. It identifies the program, its built-in C code and
/// the processor architecture.
fn version() -> String {
    format!("{} {:016x} {}", env!("CARGO_PKG_VERSION"), CustomText::digest(), std::env::consts::ARCH)
}

/// Compiles a function for all x86-64 levels, and returns its package.
///
/// # Errors
/// Returns an error with one sentence for the user, like [`load`](crate::load).
pub fn create(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = source::read(path)?;
    let refused = |message: &str| Error::Refused { path: path.to_owned(), message: message.to_owned() };
    let text = std::str::from_utf8(&bytes).map_err(|_| refused("the file is not UTF-8 text"))?;
    let declaration = declare(path, text)?;
    let file = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let custom = CustomText { declaration: &declaration, number: NUMBER_FIRST, file: &file, text };
    let libraries = compiler::libraries(path, &custom, Targets::All)?;
    let read =
        |library: &PathBuf| std::fs::read(library).map_err(|source| Error::File { path: library.clone(), source });
    let version = version();
    let mut parts: Vec<(&str, Vec<u8>)> = vec![
        ("version", version.into_bytes()),
        ("file", file.clone().into_bytes()),
        ("source", bytes.clone()),
        (REFERENCE, read(&libraries.reference)?),
    ];
    for (level, library) in &libraries.levels {
        parts.push((level.name, read(library)?));
    }
    Ok(pack(&parts))
}

/// Returns a package with these parts.
fn pack(parts: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (name, bytes) in parts {
        for part in [name.as_bytes(), bytes] {
            content.extend((part.len() as u32).to_le_bytes());
            content.extend(part);
        }
    }
    [MAGIC, &Sha256::digest(&content)[..], &content].concat()
}

impl<'a> Package<'a> {
    /// Reads a package.
    ///
    /// # Errors
    /// Returns an error if the package is damaged, or if another version of Godwit wrote it.
    pub(crate) fn read(path: &Path, bytes: &'a [u8]) -> Result<Self, Error> {
        let refused = |message: &str| Error::Refused { path: path.to_owned(), message: message.to_owned() };
        let damaged = || refused("the package is damaged: build it again");
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let (digest, content) = rest.split_at_checked(DIGEST_BYTES).ok_or_else(damaged)?;
        if Sha256::digest(content)[..] != *digest {
            return Err(damaged());
        }
        let parts = unpack(content).ok_or_else(damaged)?;
        let package = Self { parts };
        if package.part("version") != Some(version().as_bytes()) {
            return Err(refused(
                "the package belongs to another version of Godwit or to another architecture: build it again",
            ));
        }
        Ok(package)
    }

    fn part(&self, name: &str) -> Option<&'a [u8]> {
        self.parts.iter().find(|(other, _)| *other == name).map(|(_, bytes)| *bytes)
    }

    /// Returns a part of the package as text.
    ///
    /// # Errors
    /// Returns an error if there is no such text.
    pub(crate) fn text(&self, path: &Path, name: &str) -> Result<&'a str, Error> {
        self.part(name).and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or_else(|| Error::Refused {
            path: path.to_owned(),
            message: format!("the package has no text `{name}`: build it again"),
        })
    }

    /// Inspects the libraries that this machine supports, and stores them in the cache for loading.
    ///
    /// # Errors
    /// Returns an error if a library is missing or refused, or if the cache cannot be used.
    pub(crate) fn libraries(&self, path: &Path) -> Result<Libraries, Error> {
        let refused = |message: String| Error::Refused { path: path.to_owned(), message };
        let cache = Cache::open()?;
        let store = |name: &str, bytes: &[u8]| {
            inspect::inspect(bytes).map_err(|reason| refused(format!("library `{name}`: {reason}")))?;
            let key = cache::digest(&[b"package", bytes]);
            match cache.find(&key)? {
                Some(library) => Ok(library),
                None => cache.store(&key, bytes),
            }
        };
        let supported: Vec<&'static Level> = levels().iter().filter(|level| level.supported()).collect();
        let mut stored = Vec::new();
        for level in supported {
            if let Some(bytes) = self.part(level.name) {
                stored.push((level, store(level.name, bytes)?));
            }
        }
        match self.part(REFERENCE) {
            Some(bytes) if !stored.is_empty() => {
                Ok(Libraries { levels: stored, reference: store(REFERENCE, bytes)?, is_compiled: false })
            }
            _ => Err(refused("the package has no library for this machine: build it again".to_owned())),
        }
    }
}

/// Returns the parts of a package, or `None` if a length is wrong.
fn unpack(mut content: &[u8]) -> Option<Vec<(&str, &[u8])>> {
    fn take<'a>(content: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, rest) = content.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        *content = rest;
        Some(part)
    }
    let mut parts = Vec::new();
    while !content.is_empty() {
        let name = std::str::from_utf8(take(&mut content)?).ok()?;
        parts.push((name, take(&mut content)?));
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        pack(&[("version", version().into_bytes()), ("source", b"text".to_vec()), ("ref", vec![7; 300])])
    }

    #[test]
    fn parts_are_read_back() {
        let bytes = sample();
        assert!(is_package(&bytes));
        let package = Package::read(Path::new("my.gwf"), &bytes).unwrap();
        assert_eq!(package.text(Path::new("my.gwf"), "source").unwrap(), "text");
        assert_eq!(package.part("ref"), Some(&[7; 300][..]));
        assert_eq!(package.part("x86-64-v3"), None);
        assert!(package.text(Path::new("my.gwf"), "file").unwrap_err().to_string().contains("no text `file`"));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let bytes = sample();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Package::read(Path::new("my.gwf"), &damaged).is_err(), "byte {at}");
            assert!(Package::read(Path::new("my.gwf"), &bytes[..at]).is_err(), "end at {at}");
        }
        // A correct digest does not make wrong lengths valid.
        let content = [255; 9];
        let wrong = [MAGIC, &Sha256::digest(content)[..], &content].concat();
        assert!(Package::read(Path::new("my.gwf"), &wrong).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn other_versions_are_refused() {
        let bytes = pack(&[("version", b"0.0.1 0 x86_64".to_vec())]);
        let message = Package::read(Path::new("my.gwf"), &bytes).unwrap_err().to_string();
        assert!(message.contains("another version"), "{message}");
    }
}
