//! Loads a private key and its certificate chain from files. Checks the file permissions, the
//! validity period, and that the certificate matches the key.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Key;
use super::certificate::Certificate;
use super::pem::{Problem, sections};
use crate::error::{Error, Reason};
use crate::memory::Locked;

/// Largest file with a key or a certificate chain, in bytes.
const FILE_BYTES_MAX: usize = 1 << 20;
/// File permission bits for users other than the owner and the group.
const OTHERS: u32 = 0o007;

/// Key and certificate chain from files.
#[derive(Debug)]
pub struct Loaded {
    /// Private key.
    pub key: Key,
    /// Certificates in DER form. The first one belongs to the key.
    pub chain: Vec<Vec<u8>>,
    /// Expiry time of the first certificate, counted from 1970.
    pub not_after: Duration,
}

/// Loads a private key from the file `key`, and a certificate chain from the file `certificate`.
///
/// # Errors
/// Returns [`Error::Key`] if a file is refused. A key is refused if all users can access it, if it
/// is weak, or if it does not match the certificate. A certificate is refused if it is not valid at
/// the time `now`.
///
/// Returns [`Error::Memory`] if key memory cannot be locked.
pub fn load(key: &Path, certificate: &Path, now: SystemTime) -> Result<Loaded, Error> {
    let parsed = read_key(key).map_err(|problem| at(key, problem))?;
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (chain, not_after) = read_chain(certificate, &parsed, since_1970).map_err(|problem| match problem {
        Problem::Content(Reason::Mismatch { .. }) => at(key, problem),
        _ => at(certificate, problem),
    })?;
    Ok(Loaded { key: parsed, chain, not_after })
}

/// Certificate chain whose private key is in another process.
#[derive(Debug)]
pub struct Held {
    /// Public half of the key.
    pub key: Arc<Key>,
    /// Certificates in DER form. The first one belongs to the key.
    pub chain: Vec<Vec<u8>>,
    /// Expiry time of the first certificate, counted from 1970.
    pub not_after: Duration,
}

/// Loads a certificate chain from the file `certificate`. The key of the first certificate must be
/// among `keys`.
///
/// # Errors
/// Returns [`Error::Key`] if the certificate is not valid at the time `now`, or if the signer does
/// not hold its key.
pub fn load_held(certificate: &Path, keys: &[Arc<Key>], now: SystemTime) -> Result<Held, Error> {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let read = || {
        let chain = read_certificates(certificate)?;
        let leaf = leaf(&chain)?;
        let key = keys.iter().find(|key| key.public_key() == leaf.public_key).ok_or(Reason::NotHeld)?;
        leaf.check_validity(since_1970)?;
        let (key, not_after) = (Arc::clone(key), leaf.not_after);
        Ok(Held { key, chain, not_after })
    };
    read().map_err(|problem| at(certificate, problem))
}

fn at(file: &Path, problem: Problem) -> Error {
    match problem {
        Problem::Content(reason) => Error::Key { file: file.to_owned(), reason },
        Problem::Machine(error) => error,
    }
}

fn read_key(path: &Path) -> Result<Key, Problem> {
    let file = open(path)?;
    let mode = file.metadata().map_err(Reason::Read)?.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(Reason::WorldReadable { mode }.into());
    }
    Key::parse(&read(file)?)
}

fn read_chain(path: &Path, key: &Key, now: Duration) -> Result<(Vec<Vec<u8>>, Duration), Problem> {
    let chain = read_certificates(path)?;
    let leaf = leaf(&chain)?;
    if leaf.public_key != key.public_key() {
        return Err(Reason::Mismatch { certificate: path.to_owned() }.into());
    }
    leaf.check_validity(now)?;
    let not_after = leaf.not_after;
    Ok((chain, not_after))
}

/// Reads the certificates of a PEM file.
fn read_certificates(path: &Path) -> Result<Vec<Vec<u8>>, Problem> {
    let text = read(open(path)?)?;
    let mut chain = Vec::new();
    for section in sections(&text)?.iter().filter(|section| section.label == b"CERTIFICATE") {
        chain.push(section.decode()?.to_vec());
    }
    Ok(chain)
}

/// Parses the certificate that belongs to the key.
fn leaf(chain: &[Vec<u8>]) -> Result<Certificate<'_>, Reason> {
    Certificate::parse(chain.first().ok_or(Reason::NoCertificate)?)
}

/// Opens a file without waiting for the writer of a FIFO.
fn open(path: &Path) -> Result<File, Reason> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path).map_err(Reason::Read)
}

/// Reads a whole file into locked memory.
fn read(mut file: File) -> Result<Locked<u8>, Problem> {
    let expected = usize::try_from(file.metadata().map_err(Reason::Read)?.len()).unwrap_or(usize::MAX);
    if expected > FILE_BYTES_MAX {
        return Err(Reason::Large(FILE_BYTES_MAX).into());
    }
    let mut bytes = Locked::zeroed(expected)?;
    let mut filled = 0;
    while filled < expected {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Reason::Read(error).into()),
        }
    }
    Ok(bytes)
}
