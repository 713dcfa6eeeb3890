//! Keys and the library for unit tests.

use std::sync::Arc;

use godwit_test_support::repository;

use crate::{Class, Key, LanesError, Library};

/// Returns a test key of `class`. There are two, 0 and 1.
pub(crate) fn key(class: Class, number: usize) -> Key {
    let path = repository().join(format!("tests/vectors/sign/{}-{number}.pem", class.name()));
    let text = std::fs::read(path).expect("a test key");
    Key::from_pem(&text).expect("memory can be locked").expect("a valid key")
}

pub(crate) fn library() -> Result<Arc<Library>, LanesError> {
    Library::find().map(Arc::new)
}
