//! Finds the certificate for a server name. Certificates can be replaced while handshakes run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use godwit_sign::{Held, Key, Loaded};
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use crate::Error;
use crate::key::ServiceKey;

/// Largest OCSP response, in bytes.
const OCSP_BYTES_MAX: u64 = 64 << 10;

/// Files of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFiles {
    /// PEM file with the certificate chain. Its first certificate belongs to the key.
    pub certificate: PathBuf,
    /// Private key in PEM form.
    pub key: PathBuf,
    /// DER file with the OCSP response that the server sends in handshakes.
    pub ocsp: Option<PathBuf>,
}

/// Certificate and its private key.
#[derive(Debug)]
struct Entry {
    certified: Arc<CertifiedKey>,
    key: Arc<Key>,
    not_after: Duration,
}

/// Certificates that were loaded from the files at one time.
#[derive(Debug)]
struct Store {
    /// Certificates in configuration order. Clients with an unknown server name get the first one.
    entries: Vec<Entry>,
    /// Maps lowercase DNS names, such as `*.example.com`, to the indices of their certificates.
    names: HashMap<String, Vec<usize>>,
}

/// Certificates of a proxy, shared by all threads. After a replacement, handshakes that have not
/// yet selected a certificate use a new one.
#[derive(Debug)]
pub struct Certificates(ArcSwap<Store>);

impl Certificates {
    /// Loads and checks all certificates and keys.
    ///
    /// # Errors
    /// Returns an error that names the file and the reason.
    pub fn load(files: &[KeyFiles], now: SystemTime) -> Result<Self, Error> {
        Ok(Self(ArcSwap::from_pointee(Store::load(files, None, now)?)))
    }

    /// Loads and checks certificates whose private keys are in another process. `keys` are the
    /// matching public keys. The key files are not read.
    ///
    /// # Errors
    /// Returns an error that names the file and the reason.
    pub fn load_held(files: &[KeyFiles], keys: &[Arc<Key>], now: SystemTime) -> Result<Self, Error> {
        Ok(Self(ArcSwap::from_pointee(Store::load(files, Some(keys), now)?)))
    }

    /// Reloads all certificates and keys. After an error, the current certificates stay in use.
    ///
    /// # Errors
    /// Returns an error that names the file and the reason.
    pub fn reload(&self, files: &[KeyFiles], now: SystemTime) -> Result<(), Error> {
        self.0.store(Arc::new(Store::load(files, None, now)?));
        Ok(())
    }

    /// Returns all keys, in the order of the files.
    pub fn keys(&self) -> Vec<Arc<Key>> {
        self.0.load().entries.iter().map(|entry| Arc::clone(&entry.key)).collect()
    }

    /// Returns the earliest expiry time of all certificates, counted from 1970.
    pub fn not_after(&self) -> Option<Duration> {
        self.0.load().entries.iter().map(|entry| entry.not_after).min()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let store = self.0.load();
        let all: Vec<usize>;
        let candidates = match hello.server_name().and_then(|name| store.named(name)) {
            Some(indices) => indices,
            None => {
                all = vec![0];
                &all
            }
        };
        // If no certificate fits the client's signature schemes, return the first one. rustls then
        // reports the failure.
        let suits = |index: &&usize| {
            let key = &store.entries[**index].certified.key;
            key.choose_scheme(hello.signature_schemes()).is_some()
        };
        let index = candidates.iter().find(suits).or(candidates.first())?;
        Some(Arc::clone(&store.entries[*index].certified))
    }
}

impl Store {
    fn load(files: &[KeyFiles], held: Option<&[Arc<Key>]>, now: SystemTime) -> Result<Self, Error> {
        let mut store = Self { entries: Vec::new(), names: HashMap::new() };
        for files in files {
            let (key, chain, not_after) = match held {
                None => {
                    let Loaded { key, chain, not_after } = godwit_sign::load(&files.key, &files.certificate, now)?;
                    (Arc::new(key), chain, not_after)
                }
                Some(keys) => {
                    let Held { key, chain, not_after } = godwit_sign::load_held(&files.certificate, keys, now)?;
                    (key, chain, not_after)
                }
            };
            let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
            let names = names(&chain, &files.certificate)?;
            let mut certified = CertifiedKey::new(chain, Arc::new(ServiceKey(Arc::clone(&key))));
            certified.ocsp = files.ocsp.as_deref().map(read_ocsp).transpose()?;
            let index = store.entries.len();
            store.entries.push(Entry { certified: Arc::new(certified), key, not_after });
            for name in names {
                store.names.entry(name).or_default().push(index);
            }
        }
        // Sort RSA keys last, because RSA signatures take the longest. Only clients that support no
        // other key then use them.
        let is_rsa = |index: &usize| store.entries[*index].key.class().rsa_bits().is_some();
        store.names.values_mut().for_each(|indices| indices.sort_by_key(is_rsa));
        if store.entries.is_empty() { Err(Error::NoCertificates) } else { Ok(store) }
    }

    /// Returns the certificates for a host name, or else for a wildcard name that covers it.
    fn named(&self, name: &str) -> Option<&Vec<usize>> {
        let name = name.to_ascii_lowercase();
        self.names.get(&name).or_else(|| self.names.get(&format!("*.{}", name.split_once('.')?.1)))
    }
}

/// Returns the DNS names of a certificate in lower case.
fn names(chain: &[CertificateDer<'_>], file: &Path) -> Result<Vec<String>, Error> {
    let parse = |certificate| EndEntityCert::try_from(certificate);
    let certificate = chain.first().map(parse).transpose();
    let certificate = certificate.map_err(|source| Error::Certificate { file: file.to_owned(), source })?;
    Ok(certificate.iter().flat_map(|certificate| certificate.valid_dns_names()).map(str::to_ascii_lowercase).collect())
}

fn read_ocsp(file: &Path) -> Result<Vec<u8>, Error> {
    let refuse = |reason: String| Error::Ocsp { file: file.to_owned(), reason };
    let bytes = std::fs::metadata(file).map_err(|error| refuse(format!("cannot be read: {error}")))?.len();
    if bytes > OCSP_BYTES_MAX {
        return Err(refuse(format!("has more than {OCSP_BYTES_MAX} bytes, which no OCSP response needs")));
    }
    let response = std::fs::read(file).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    // An OCSPResponse is a DER sequence that begins with the status. The status 0 means success
    // (RFC 6960, section 4.2.1).
    let is_successful =
        response.first() == Some(&0x30) && response.windows(3).take(8).any(|bytes| bytes == [0x0a, 1, 0]);
    if is_successful { Ok(response) } else { Err(refuse("is not a successful OCSP response in DER form".to_owned())) }
}
