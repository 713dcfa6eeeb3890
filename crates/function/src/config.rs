//! Helpers for reading the configuration of a function.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::Spanned;
use toml::de::DeTable;

use crate::Error;

/// Reads the stanza of a function. The reader of the document has already used the keys `name` and
/// `kind`.
pub(crate) fn read<'de, T: Deserialize<'de>>(mut stanza: Spanned<DeTable<'de>>) -> Result<T, Error> {
    for key in ["name", "kind"] {
        stanza.as_mut().remove(key);
    }
    Ok(T::deserialize(stanza.into_deserializer())?)
}

/// Creates an error for a well-formed but invalid value at `span`.
pub(crate) fn value(span: Range<usize>, message: String) -> Error {
    Error::Value { span: Some(span), message }
}

/// Reads a file that a stanza names. Returns its path, for errors, and its content.
pub(crate) fn read_file(directory: &Path, name: &Path) -> Result<(PathBuf, Vec<u8>), Error> {
    let path = directory.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(source) => Err(Error::File { path, source }),
    }
}
