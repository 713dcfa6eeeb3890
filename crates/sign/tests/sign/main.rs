//! Tests of the signing engine. One binary, because its modules share keys and models.

mod keys;
mod model;
mod openssl;
mod policy;
mod signer;

use std::path::PathBuf;
use std::sync::Arc;

use godwit_sign::{Class, Key, Library};
use godwit_test_support::{repository, skip};

/// Returns the file of a test key. There are two of each class, 0 and 1.
fn key_file(name: &str) -> PathBuf {
    repository().join(format!("tests/vectors/sign/{name}.pem"))
}

fn key(class: Class) -> Arc<Key> {
    let text = std::fs::read(key_file(&format!("{}-0", class.name()))).expect("a test key");
    Arc::new(Key::from_pem(&text).expect("memory can be locked").expect("a valid key"))
}

/// Returns the library, or reports that tests without it are skipped.
fn library() -> Option<Arc<Library>> {
    Library::find().map_err(|error| skip(format_args!("lanes: {error}"))).ok().map(Arc::new)
}
