//! Tests of the signing engine. All test modules are in one program, because they share keys and
//! device models.

mod keys;
mod model;
mod openssl;
mod policy;
mod remote;
mod signer;

use std::path::PathBuf;
use std::sync::Arc;

use godwit_sign::{Class, Key, Library};
use godwit_test_support::{repository, skip};

/// Returns the path of a test key. There are two test keys of each class, with the numbers 0 and 1.
fn key_file(name: &str) -> PathBuf {
    repository().join(format!("tests/vectors/sign/{name}.pem"))
}

fn key(class: Class) -> Arc<Key> {
    let text = std::fs::read(key_file(&format!("{}-0", class.name()))).expect("a test key");
    Arc::new(Key::from_pem(&text).expect("memory can be locked").expect("a valid key"))
}

/// Loads the library crypto_mb. If it is not available, reports that tests which need it are
/// skipped.
fn library() -> Option<Arc<Library>> {
    Library::find().map_err(|error| skip(format_args!("lanes: {error}"))).ok().map(Arc::new)
}
