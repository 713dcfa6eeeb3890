//! What all functions share in reading what the operator writes.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::Spanned;
use toml::de::DeTable;

use crate::Error;

/// Reads a function's stanza. Its keys `name` and `kind` belong to who read the document, the rest to the function.
pub(crate) fn read<'de, T: Deserialize<'de>>(mut stanza: Spanned<DeTable<'de>>) -> Result<T, Error> {
    for key in ["name", "kind"] {
        stanza.as_mut().remove(key);
    }
    Ok(T::deserialize(stanza.into_deserializer())?)
}

/// A value at `span` that is understood but cannot work.
pub(crate) fn value(span: Range<usize>, message: String) -> Error {
    Error::Value { span: Some(span), message }
}

/// The file that a stanza names, with the path that errors show.
pub(crate) fn read_file(directory: &Path, name: &Path) -> Result<(PathBuf, Vec<u8>), Error> {
    let path = directory.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(source) => Err(Error::File { path, source }),
    }
}
