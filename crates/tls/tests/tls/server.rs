//! Test server that echoes bytes over TLS, and the certificates that it uses.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use godwit_sign::{Counters, Library, PolicyConfig, Signer};
use godwit_test_support::{Folder, certificate};
use godwit_tls::{Accepted, Acceptor, Certificates, Failure, KeyFiles, RustlsAcceptor, Service, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::{LocalSet, spawn_local};

/// Copies a test key to `folder`, and creates a certificate for the DNS names in `names`.
pub(crate) fn certify(folder: &Folder, key: &str, names: &[&str]) -> Option<KeyFiles> {
    let certified = certificate::certify(folder, key, names)?;
    Some(KeyFiles { certificate: certified.certificate, key: certified.key, ocsp: None })
}

/// Facts about an accepted connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fact {
    pub(crate) worker: usize,
    pub(crate) server_name: Option<String>,
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) version: &'static str,
    pub(crate) resumed: bool,
    pub(crate) client_certificate: bool,
}

/// Server with one or more threads.
pub(crate) struct Server {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) certificates: Arc<Certificates>,
    results: Mutex<Receiver<Result<Fact, Failure>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Counters>>,
}

impl Server {
    /// Starts `workers` threads, each with its own port.
    pub(crate) fn start(files: &[KeyFiles], settings: &Settings, workers: usize) -> Self {
        let certificates = Arc::new(Certificates::load(files, SystemTime::now()).unwrap());
        let acceptor = RustlsAcceptor::new(settings, Arc::clone(&certificates)).unwrap();
        let library = Library::find().ok().map(Arc::new);
        let (sender, results) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut addresses = Vec::new();
        let spawn = |worker: usize| {
            let listener = StdListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            addresses.push(listener.local_addr().unwrap());
            let (acceptor, library) = (acceptor.clone(), library.clone());
            let (sender, stop) = (sender.clone(), Arc::clone(&stop));
            std::thread::spawn(move || run(worker, listener, acceptor, library, &sender, &stop))
        };
        let threads = (0..workers).map(spawn).collect();
        Self { addresses, certificates, results: Mutex::new(results), stop, threads }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Returns the result of the next handshake.
    pub(crate) fn next(&self) -> Result<Fact, Failure> {
        self.results.lock().unwrap().recv_timeout(Duration::from_secs(20)).expect("a handshake ends")
    }

    /// Stops all threads. Returns the sum of their counters.
    pub(crate) fn stop(self) -> Counters {
        self.stop.store(true, Ordering::Relaxed);
        let mut sum = Counters::default();
        for thread in self.threads {
            sum.add(&thread.join().expect("a worker does not panic"));
        }
        assert!(sum.is_conserved(), "{sum:?}");
        sum
    }
}

fn run(
    worker: usize,
    listener: StdListener,
    acceptor: RustlsAcceptor,
    library: Option<Arc<Library>>,
    results: &Sender<Result<Fact, Failure>>,
    stop: &AtomicBool,
) -> Counters {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = LocalSet::new();
    local.block_on(&runtime, async move {
        let service = std::rc::Rc::new(Service::new(Signer::new(PolicyConfig::default(), library, vec![]).unwrap()));
        let signing = std::rc::Rc::clone(&service);
        spawn_local(async move { signing.run().await });
        let listener = TcpListener::from_std(listener).unwrap();
        while !stop.load(Ordering::Relaxed) {
            let accepted = tokio::time::timeout(Duration::from_millis(20), listener.accept()).await;
            let Ok(Ok((connection, _))) = accepted else { continue };
            let (acceptor, results) = (acceptor.clone(), results.clone());
            spawn_local(async move {
                let result = acceptor.accept(connection).await;
                let fact = result.as_ref().map(|accepted| Fact {
                    worker,
                    server_name: accepted.server_name.clone(),
                    alpn: accepted.alpn.clone(),
                    version: accepted.version,
                    resumed: accepted.resumed,
                    client_certificate: accepted.client_certificate,
                });
                // The test may have ended.
                let _ = results.send(fact.map_err(|failure| *failure));
                if let Ok(Accepted { mut stream, .. }) = result {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                        if stream.write_all(&bytes[..count]).await.is_err() || stream.flush().await.is_err() {
                            break;
                        }
                    }
                    let _ = stream.shutdown().await;
                }
            });
        }
        service.counters()
    })
}

/// Returns the path of `name` in the folder of the test as text.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
