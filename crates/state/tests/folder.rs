//! State folder and claims, with the real files.

use std::os::unix::fs::PermissionsExt as _;

use godwit_state::{Entry, Error, State};

#[test]
fn one_process_uses_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let state = State::open(Some(&path)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let refused = State::open(Some(&path)).err().unwrap().to_string();
    assert!(refused.ends_with("another process uses it: give each process a folder of its own"), "{refused}");
    state.reserve(&[Entry { name: [7; 32], number: 4096 }]).unwrap();
    drop(state);
    let state = State::open(Some(&path)).unwrap();
    assert_eq!((state.number(&[7; 32]), state.number(&[8; 32])), (4096, 0));
}

#[test]
fn a_folder_that_others_may_change_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = State::open(Some(folder.path())).err().unwrap().to_string();
    assert!(refused.contains("other users may change it (mode 777): set mode 700"), "{refused}");
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(State::open(Some(file.path())).err().unwrap().to_string().contains("this is not a folder"));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/tmp", &link).unwrap();
    assert!(State::open(Some(&link)).err().unwrap().to_string().contains("this is not a folder"));
}

#[test]
fn a_damaged_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let state = State::open(Some(&path)).unwrap();
    for number in [10, 20, 30] {
        state.reserve(&[Entry { name: [7; 32], number }]).unwrap();
    }
    drop(state);
    let file = path.join("sequence-numbers");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[64 + 5] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(matches!(State::open(Some(&path)), Err(Error::Damaged { at: 64 })));
}

/// Two states in one process exclude each other like two processes, because the locks belong to the
/// open file.
#[test]
fn a_key_has_one_user() {
    let key = [std::process::id() as u8; 32];
    let one = State::open(None).unwrap();
    one.claim(&key, "SA \"x\"", "a").unwrap();
    one.claim(&key, "SA \"x\"", "a").unwrap();
    let refused = one.claim(&key, "SA \"y\"", "b").unwrap_err().to_string();
    assert!(refused.starts_with("SA \"y\" uses a key that function `a` uses too"), "{refused}");
    let other = State::open(None).unwrap();
    let refused = other.claim(&key, "SA \"x\"", "a").unwrap_err().to_string();
    assert!(refused.contains("uses a key that another process uses too"), "{refused}");
    drop(one);
    other.claim(&key, "SA \"x\"", "a").unwrap();
}
