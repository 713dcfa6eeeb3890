//! Runs the program `godwit signer`, which holds the private keys and signs for `godwit proxy`
//! processes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

pub use godwit_sign::remote::HostReport as SignerReport;
use godwit_sign::remote::{Host, HostConfig, KeyRing};
use godwit_sign::{Error as KeyError, Key};
use nix::unistd::{User, geteuid};

use crate::config::{self, Process};
use crate::{Config, Error, Flags, signing};

/// Runs the signer of `config` until a flag stops it, and returns the final report. Calls `started`
/// once the socket is open. A reload reads `file` again.
///
/// # Errors
/// Returns an error if the start or `started` fails. If a reload fails, the old keys stay in use,
/// and a warning reports the reason.
pub fn run<E: From<Error>>(
    file: &Path,
    config: &Config,
    flags: Flags<'_>,
    started: impl FnOnce(&SignerReport) -> Result<(), E>,
) -> Result<SignerReport, E> {
    let mut host = open(config)?;
    started(&host.0.report())?;
    let keys = Arc::clone(&host.1);
    let reload = || {
        if flags.reload.swap(false, Ordering::Relaxed) {
            match Config::load(file).map_err(Error::from).and_then(|config| Ok(load(&config.signer)?)) {
                Ok(new) => keys.replace(new),
                Err(error) => tracing::warn!(event = "reload_refused", "{error}; the old keys stay in use"),
            }
        }
    };
    host.0.run(flags.stop, reload);
    Ok(host.0.report())
}

/// Loads the keys and opens the socket.
fn open(config: &Config) -> Result<(Host, Arc<KeyRing>), Error> {
    let signer = &config.signer;
    if signer.process != Process::Separate {
        return Err(Error::Request(
            "[signer] process = \"inside\": the proxy holds the keys itself; set process = \"separate\"".to_owned(),
        ));
    }
    let loaded = load(signer)?;
    let (policy, library, lanes) = signing::policy(signer, &loaded)?;
    let socket = signing::socket(signer).to_owned();
    let host = HostConfig { socket: socket.clone(), users: users(config)?, policy, library, lanes };
    let keys = Arc::new(KeyRing::new(loaded));
    let host = Host::open(host, Arc::clone(&keys)).map_err(|source| Error::File { file: socket, source })?;
    Ok((host, keys))
}

fn load(signer: &config::Signer) -> Result<Vec<Arc<Key>>, KeyError> {
    let now = SystemTime::now();
    let key = |files: &config::Key| godwit_sign::load(&files.key, &files.certificate, now);
    signer.key.iter().map(|files| Ok(Arc::new(key(files)?.key))).collect()
}

/// Returns the users who may use the signer: root, the signer's user and the proxy's user. Root is
/// included because a proxy connects before it changes its user.
fn users(config: &Config) -> Result<Vec<u32>, Error> {
    let mut users = vec![0, geteuid().as_raw()];
    if let Some(name) = &config.user {
        let missing = || Error::Request(format!("user = \"{name}\": this user does not exist on this machine"));
        let user = User::from_name(name).ok().flatten().ok_or_else(missing)?;
        users.push(user.uid.as_raw());
    }
    Ok(users)
}
