//! Configurations, keys and reports.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use godwit_sign::remote::{Host, HostConfig, KeyRing};
use godwit_sign::{Key, PolicyConfig};
use godwit_test_support::certificate::{Certified, openssl};
use godwit_test_support::{Folder, certificate, repository};

/// Maximum time to wait for an event. On an idle machine, the event follows immediately.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Folder with a configuration of OpenSSL that loads the provider.
pub(crate) struct Setup {
    pub(crate) folder: Folder,
}

/// Returns the file of the provider.
fn module() -> PathBuf {
    let program = std::env::current_exe().expect("the program of this test");
    program.with_file_name("libgodwit_provider.so")
}

impl Setup {
    /// Writes the example configuration. `settings` are additional lines of the provider's section.
    pub(crate) fn new(settings: &str) -> Self {
        let setup = Self { folder: Folder::new() };
        setup.configure(settings);
        setup
    }

    pub(crate) fn configure(&self, settings: &str) {
        let example = fs::read_to_string(repository().join("examples/haproxy/openssl.cnf")).expect("the example");
        let report = self.folder.join("report");
        let text = example
            .replace("/usr/lib/godwit/godwit.so", &module().display().to_string())
            .replace("/var/log/godwit-provider.json", &report.display().to_string())
            .replace("#socket = /run/godwit-signer/socket", settings);
        self.folder.write("godwit.cnf", text);
    }

    /// Returns a command that uses the provider.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env("OPENSSL_CONF", self.folder.join("godwit.cnf"));
        command
    }

    /// Returns the last report of each process in order, or nothing if no process has signed.
    pub(crate) fn reports(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.folder.join("report")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Returns a counter of the only process that has signed.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let reports = self.reports();
        assert_eq!(reports.len(), 1, "{reports:?}");
        let value = if name.starts_with("paused") { &reports[0][name] } else { &reports[0]["signer"][name] };
        value.as_u64().expect("a number")
    }

    /// Creates a certificate for `localhost`. Returns `None` if `openssl` is not installed.
    pub(crate) fn certify(&self, key: &str) -> Option<Certified> {
        certificate::certify(&self.folder, key, &["localhost"])
    }

    /// Writes a file that names the key of a certificate. It does not contain the private key.
    pub(crate) fn name_key(&self, key: &str) -> Option<PathBuf> {
        let public = openssl(&self.folder, &["pkey", "-in", &format!("{key}.key"), "-pubout"])?;
        Some(self.folder.write("public.pem", public.replace(" PUBLIC KEY", " GODWIT PUBLIC KEY")))
    }
}

/// Running signer, as `godwit signer` runs it.
pub(crate) struct Signer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Signer {
    pub(crate) fn start(setup: &Setup, keys: &[&str]) -> Self {
        let load = |key: &&str| {
            let text = fs::read(repository().join(format!("tests/vectors/sign/{key}.pem"))).expect("a test key");
            Arc::new(Key::from_pem(&text).expect("memory can be locked").expect("a valid key"))
        };
        let keys = Arc::new(KeyRing::new(keys.iter().map(load).collect()));
        let config = HostConfig {
            socket: setup.folder.join("socket"),
            users: vec![0, nix::unistd::geteuid().as_raw()],
            policy: PolicyConfig::default(),
            library: None,
            lanes: "not used in this test".to_owned(),
        };
        let mut host = Host::open(config, keys).expect("a socket");
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        Self { stop, thread: Some(std::thread::spawn(move || host.run(&flag, || {}))) }
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
