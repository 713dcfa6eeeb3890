//! Signing services of the workers. They sign in this process, or in a `godwit signer` process.

use std::io;
use std::sync::Arc;

use godwit_sign::remote::{Connection, Remote};
use godwit_sign::{Key, Library, PolicyConfig, Signer, measure_costs};
use godwit_tls::Service;

use crate::Error;
use crate::config::{self, Process};

pub(crate) enum Seed {
    Inside(PolicyConfig, Option<Arc<Library>>),
    Separate(Box<Remote>),
}

impl Seed {
    /// Creates the signing service of this thread.
    pub(crate) fn service(self) -> io::Result<Service> {
        match self {
            Self::Inside(policy, library) => {
                let signer = Signer::new(policy, library, Vec::new()).map_err(io::Error::other)?;
                Ok(Service::new(signer))
            }
            Self::Separate(remote) => Ok(Service::separate(*remote)),
        }
    }
}

/// Returns the public keys of the signer process, or `None` if this process holds the private keys.
pub(crate) fn held(signer: &config::Signer) -> Result<Option<Vec<Arc<Key>>>, Error> {
    match signer.process {
        Process::Inside => Ok(None),
        Process::Separate => Ok(Some(Connection::open(socket(signer))?.keys().to_vec())),
    }
}

/// Prepares the signing services of all workers. `keys` are the private keys of this process. Also
/// returns the crypto_mb version, or the reason why the library is not used.
pub(crate) fn seeds(signer: &config::Signer, workers: usize, keys: &[Arc<Key>]) -> Result<(Vec<Seed>, String), Error> {
    match signer.process {
        Process::Inside => {
            let (policy, library, lanes) = policy(signer, keys)?;
            Ok(((0..workers).map(|_| Seed::Inside(policy.clone(), library.clone())).collect(), lanes))
        }
        Process::Separate => {
            let connect = |_| Ok(Connection::open(socket(signer))?);
            let connections = (0..workers).map(connect).collect::<Result<Vec<_>, Error>>()?;
            let lanes = connections.first().map(|connection| connection.lanes().to_owned()).unwrap_or_default();
            let remote =
                |connection| Seed::Separate(Box::new(Remote::new(socket(signer), connection, signer.jobs_max)));
            Ok((connections.into_iter().map(remote).collect(), lanes))
        }
    }
}

/// Loads crypto_mb and measures the signing times of `keys`.
pub(crate) fn policy(
    signer: &config::Signer,
    keys: &[Arc<Key>],
) -> Result<(PolicyConfig, Option<Arc<Library>>, String), Error> {
    let (library, lanes) = library(signer)?;
    let costs = measure_costs(keys, library.as_ref())?;
    let policy = PolicyConfig { costs, jobs_max: signer.jobs_max, ..PolicyConfig::default() };
    Ok((policy, library, lanes))
}

/// Returns the path of the signer's socket. The configuration check ensures that it is set.
pub(crate) fn socket(signer: &config::Signer) -> &std::path::Path {
    signer.socket.as_deref().unwrap_or(std::path::Path::new(""))
}

/// Loads the library crypto_mb, which signs in SIMD lanes. Also returns its version, or the reason
/// why it is not used.
fn library(signer: &config::Signer) -> Result<(Option<Arc<Library>>, String), Error> {
    if !signer.lanes {
        return Ok((None, "disabled by the configuration".to_owned()));
    }
    let found = match &signer.crypto_mb {
        Some(file) => Library::load(file).map_err(Error::Lanes)?,
        None => match Library::find() {
            Ok(library) => library,
            Err(error) => return Ok((None, error.to_string())),
        },
    };
    let version = found.version().to_owned();
    Ok((Some(Arc::new(found)), version))
}
