//! Helper for tests that starts a proxy and reads its counters.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use godwit_proxy::{Config, Report, Running};
use godwit_test_support::{Folder, certificate, wait_for};

/// Maximum time to wait for an event. On an idle machine, the event follows immediately.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Running proxy with a certificate for `localhost`.
pub(crate) struct Proxy {
    pub(crate) folder: Folder,
    pub(crate) certificate: PathBuf,
    running: Mutex<Option<Running>>,
}

impl Proxy {
    /// Starts a proxy with one worker. `stanza` is the content of `[[proxy]]` without name, address
    /// and keys. Returns `None` if `openssl` is not installed.
    pub(crate) fn start(stanza: &str) -> Option<Arc<Self>> {
        Self::start_with("workers = 1", stanza)
    }

    /// Starts a proxy. `head` is the part of the configuration before all tables.
    pub(crate) fn start_with(head: &str, stanza: &str) -> Option<Arc<Self>> {
        let folder = Folder::new();
        let certified = certificate::certify(&folder, "rsa2048-0", &["localhost"])?;
        let config = parse(folder.path(), head, stanza);
        Some(Self::of(folder, certified.certificate, config))
    }

    /// Starts the proxy of a configuration.
    pub(crate) fn of(folder: Folder, certificate: PathBuf, config: Config) -> Arc<Self> {
        let running = Running::start(config).unwrap_or_else(|error| panic!("{error}"));
        Arc::new(Self { folder, certificate, running: Mutex::new(Some(running)) })
    }

    pub(crate) fn with<T>(&self, read: impl FnOnce(&Running) -> T) -> T {
        let running = self.running.lock().unwrap();
        read(running.as_ref().expect("the proxy runs"))
    }

    /// Returns the address of the listener with TLS.
    pub(crate) fn address(&self) -> SocketAddr {
        self.with(|running| running.addresses()[0].0)
    }

    /// Returns the address of the listener without TLS.
    pub(crate) fn plain_address(&self) -> SocketAddr {
        self.with(|running| running.addresses()[0].1).expect("a redirect listener")
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.with(|running| running.report().proxies[0].counters[name])
    }

    /// Waits until a counter has a value.
    #[track_caller]
    pub(crate) fn expect(&self, name: &str, value: u64) {
        wait_for(&format!("{name} = {value}"), SOON, || self.counter(name) == value);
    }

    /// Replaces the configuration.
    pub(crate) fn reload(&self, head: &str, stanza: &str) -> Result<u64, String> {
        let config = parse(self.folder.path(), head, stanza);
        self.with(|running| running.reload(config)).map_err(|error| error.to_string())
    }

    /// Waits until all connections have ended, and stops the proxy. Checks that the counters
    /// account for everything.
    pub(crate) fn stop(&self) -> Report {
        let running = self.running.lock().unwrap().take().expect("the proxy runs");
        let report = running.stop(&|| false);
        assert!(report.is_conserved(), "{report:#?}");
        let counters = &report.proxies[0].counters;
        let open = ["handshaking", "open", "requests_in_flight"].map(|name| counters[name]);
        assert_eq!(open, [0, 0, 0], "{counters:?}");
        report
    }
}

fn parse(folder: &Path, head: &str, stanza: &str) -> Config {
    let text = format!(
        "{head}\n[signer]\n[[signer.key]]\nname = \"key\"\ncertificate = \"rsa2048-0-localhost.crt\"\nkey = \"rsa2048-0.key\"\n\
         [[proxy]]\nname = \"front\"\nlisten = \"127.0.0.1:0\"\nkeys = [\"key\"]\n{stanza}\n"
    );
    Config::parse(&text, "test.toml", folder).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the configuration line `upstream` for servers at `addresses`.
pub(crate) fn upstream(addresses: &[SocketAddr]) -> String {
    let servers: Vec<String> = addresses.iter().map(|address| format!("{{ address = \"{address}\" }}")).collect();
    format!("upstream = [{}]", servers.join(", "))
}
