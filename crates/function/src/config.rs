//! Reads the configuration of a function.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::Spanned;
use toml::de::DeTable;

use crate::Error;

/// Reads the stanza of a function. The keys `name` and `kind` are ignored, because the caller has
/// already read them.
pub(crate) fn read<'de, T: Deserialize<'de>>(mut stanza: Spanned<DeTable<'de>>) -> Result<T, Error> {
    for key in ["name", "kind"] {
        stanza.as_mut().remove(key);
    }
    Ok(T::deserialize(stanza.into_deserializer())?)
}

/// Creates an error for a well-formed but invalid value. `span` is its position in the text.
pub(crate) fn value(span: Range<usize>, message: String) -> Error {
    Error::Value { span: Some(span), message }
}

/// Reads a file named in a stanza. Returns the content, and the path for error messages.
pub(crate) fn read_file(directory: &Path, name: &Path) -> Result<(PathBuf, Vec<u8>), Error> {
    let path = directory.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(source) => Err(Error::File { path, source }),
    }
}
