//! Reverse proxies with TLS 1.3, one after another on one core. Peers: nginx and HAProxy as the
//! distribution packages them.
//!
//! The server runs on the first core. The clients and the web server behind the proxy run on the
//! second one. Clients limit the rate as much as the server does, so the rate of a row is the
//! number of handshakes or requests divided by the CPU time of the server. Clients verify every
//! certificate and signature, and every answer.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use godwit_proxy::{Config, Running};
use godwit_sign::Class;
use tempfile::TempDir;

use crate::error::Error;
use crate::load::handshakes::{Clients, Work, web_server};
use crate::progress::Progress;
use crate::run::cores;
use crate::run::options::{CONNECTIONS, Common, Context, KEY, Value, WORK};
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};

/// Rounds of each server. They take turns.
const ROUNDS: usize = 5;
/// Time limit until a server accepts connections.
const START: Duration = Duration::from_secs(20);

impl Value for Work {
    const EXPECTED: &str = "full, resumed or requests";
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.name() == text)
    }
}

/// Measures each key with each kind of work and each number of connections. Resumed sessions and
/// requests need no private key, so only the first key is measured with them.
pub(super) fn run(context: &Context, progress: &mut Progress<'_>) -> Result<Vec<Row>, Error> {
    let Context { common, values } = context;
    let (classes, works): (Vec<Class>, Vec<Work>) = (values.list(KEY.name)?, values.list(WORK.name)?);
    let mut connections: Vec<usize> = values.list(CONNECTIONS.name)?;
    if common.brief() {
        connections.truncate(1);
    }
    let (server, client) = cores::pair()?;
    let web = cores::on(&[client], web_server)?;
    let mut rows = Vec::new();
    for (index, &class) in classes.iter().enumerate() {
        // A key of RSA-4096 takes seconds.
        if common.brief() && class != Class::EcdsaP256 {
            continue;
        }
        let folder = certificate(class)?;
        let clients = Clients::new(&folder.path().join("crt"))?;
        let mut servers = vec![Server::godwit(folder.path(), web, server)?];
        if common.peers {
            servers.extend(Server::peers(folder.path(), web, server, progress)?);
        }
        for &work in works.iter().filter(|work| **work == Work::Full || index == 0 || common.brief()) {
            for &connections in &connections {
                let load = Load { class, work, connections, client };
                rows.append(&mut load.measure(&clients, &servers, common, progress)?);
            }
        }
    }
    Ok(rows)
}

/// Creates a private key and a certificate in a new folder. The files are `crt`, `key`, and `pem`
/// with both.
fn certificate(class: Class) -> Result<TempDir, Error> {
    let algorithm: &[&str] = match class {
        Class::Rsa2048 => &["rsa:2048"],
        Class::Rsa3072 => &["rsa:3072"],
        Class::Rsa4096 => &["rsa:4096"],
        Class::EcdsaP256 => &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        Class::EcdsaP384 => &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
        Class::Ed25519 => &["ed25519"],
    };
    let folder = tempfile::tempdir().map_err(Error::setup)?;
    let mut command = Command::new("openssl");
    command.current_dir(folder.path()).args(["req", "-x509", "-noenc", "-days", "2", "-subj", "/CN=localhost"]);
    command.args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]);
    command.args(["-keyout", "key", "-out", "crt", "-newkey"]).args(algorithm);
    let output = command.output().map_err(|error| Error::Setup(format!("openssl, which creates keys: {error}")))?;
    if !output.status.success() {
        return Err(Error::Setup(format!("openssl req: {}", String::from_utf8_lossy(&output.stderr))));
    }
    let read = |name: &str| fs::read(folder.path().join(name)).map_err(Error::setup);
    let both = [read("crt")?, read("key")?].concat();
    fs::write(folder.path().join("pem"), both).map_err(Error::setup)?;
    Ok(folder)
}

/// A running proxy.
struct Server {
    name: &'static str,
    /// Version, or the state of the SIMD lanes.
    about: String,
    address: SocketAddr,
    process: Process,
}

enum Process {
    /// Godwit runs in threads of this process.
    Inside(Option<Box<Running>>),
    Child(Child),
}

impl Server {
    fn godwit(folder: &Path, web: SocketAddr, core: usize) -> Result<Self, Error> {
        let text = format!(
            "workers = 1\n[signer]\n[[signer.key]]\nname = \"key\"\ncertificate = \"crt\"\nkey = \"key\"\n[[proxy]]\n\
             name = \"bench\"\nlisten = \"127.0.0.1:0\"\nmode = \"http\"\nkeys = [\"key\"]\n\
             upstream = [{{ address = \"{web}\" }}]\n"
        );
        let config = Config::parse(&text, "bench", folder).map_err(Error::setup)?;
        // The worker inherits the core of the thread that starts it.
        let running = cores::on(&[core], || Running::start(config).map_err(Error::setup))?;
        let (address, about) = (running.addresses()[0].0, running.report().lanes);
        Ok(Self { name: "cpu", about, address, process: Process::Inside(Some(Box::new(running))) })
    }

    /// Starts the peers that are installed.
    fn peers(folder: &Path, web: SocketAddr, core: usize, progress: &mut Progress<'_>) -> Result<Vec<Self>, Error> {
        let mut servers = Vec::new();
        for (name, text) in [("nginx", NGINX), ("haproxy", HAPROXY)] {
            let version = match Command::new(name).arg("-v").output() {
                Ok(output) => [output.stdout, output.stderr].concat(),
                Err(_) => {
                    progress(&format!("peer {name} is left out: it is not installed"));
                    continue;
                }
            };
            let about = String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned();
            let address = free_address()?;
            let text = text.replace("ADDRESS", &address.to_string()).replace("WEB", &web.to_string());
            let file = folder.join(name);
            fs::write(&file, text.replace("FOLDER", &folder.display().to_string())).map_err(Error::setup)?;
            let mut command = Command::new(name);
            match name {
                "nginx" => command.arg("-e").arg("stderr").arg("-p").arg(folder).arg("-c").arg(&file),
                _ => command.arg("-db").arg("-f").arg(&file),
            };
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let child = cores::on(&[core], || command.spawn().map_err(Error::setup))?;
            let server = Self { name, about, address, process: Process::Child(child) };
            let started = Instant::now();
            while TcpStream::connect(address).is_err() {
                if started.elapsed() > START {
                    return Err(Error::Setup(format!("peer {name}: does not listen on {address}")));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            servers.push(server);
        }
        Ok(servers)
    }

    /// Returns the CPU time of the server so far, in nanoseconds.
    fn cpu_ns(&self) -> u64 {
        let id = match &self.process {
            Process::Inside(_) => std::process::id(),
            Process::Child(child) => child.id(),
        };
        let time = |task: &Path| {
            let name = fs::read_to_string(task.join("comm")).ok()?;
            // The process of the bench has other threads as well.
            let counts = matches!(self.process, Process::Child(_)) || name.starts_with("proxy-");
            let stat = fs::read_to_string(task.join("schedstat")).ok()?;
            counts.then(|| stat.split(' ').next()?.parse::<u64>().ok())?
        };
        let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| time(&task.path())).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match &mut self.process {
            Process::Inside(running) => {
                if let Some(running) = running.take() {
                    running.stop(&|| true);
                }
            }
            Process::Child(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// One process without a master, as in the other servers.
const NGINX: &str = "daemon off; master_process off; pid FOLDER/nginx.pid; error_log stderr crit;
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path FOLDER/1; proxy_temp_path FOLDER/2; fastcgi_temp_path FOLDER/3;
    uwsgi_temp_path FOLDER/4; scgi_temp_path FOLDER/5;
    upstream web { server WEB; keepalive 64; }
    server {
        listen ADDRESS ssl backlog=4096;
        ssl_certificate FOLDER/crt; ssl_certificate_key FOLDER/key;
        ssl_protocols TLSv1.3; ssl_ecdh_curve X25519; keepalive_requests 1000000000;
        location / { proxy_pass http://web; proxy_http_version 1.1; proxy_set_header Connection \"\"; }
    }
}
";

const HAPROXY: &str = "global
    nbthread 1
    maxconn 4096
    ssl-default-bind-options ssl-min-ver TLSv1.3
defaults
    mode http
    timeout client 30s
    timeout connect 5s
    timeout server 30s
    http-reuse always
    option http-ignore-probes
frontend bench
    bind ADDRESS ssl crt FOLDER/pem curves X25519
    default_backend web
backend web
    server web WEB
";

/// Returns an address of this machine that nothing listens on.
fn free_address() -> Result<SocketAddr, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).map_err(Error::setup)
}

/// One row for each server.
struct Load {
    class: Class,
    work: Work,
    connections: usize,
    /// Core of the clients.
    client: usize,
}

/// Rounds of one server.
#[derive(Default)]
struct Rounds {
    /// Server CPU time per handshake or request in each round, in nanoseconds.
    cpu_ns: Vec<f64>,
    per_second: Vec<f64>,
    times_ns: Vec<f64>,
}

impl Load {
    fn measure(
        &self,
        clients: &Clients,
        servers: &[Server],
        common: &Common,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Row>, Error> {
        let duration = common.time / ROUNDS as u32;
        let mut all: Vec<Rounds> = servers.iter().map(|_| Rounds::default()).collect();
        for _ in 0..if common.brief() { 1 } else { ROUNDS } {
            for (server, rounds) in servers.iter().zip(&mut all) {
                let round = || clients.round(server.address, self.work, self.connections, duration, || server.cpu_ns());
                let (mut round, before, after) = cores::on(&[self.client], round)?;
                let count = round.times_ns.len() as f64;
                rounds.cpu_ns.push((after - before) as f64 / count);
                rounds.per_second.push(count / round.elapsed.as_secs_f64());
                rounds.times_ns.append(&mut round.times_ns);
            }
        }
        let mut rows: Vec<Row> = servers.iter().zip(all).map(|(server, rounds)| self.row(server, rounds)).collect();
        let rate = |row: &Row| row.mpps * 1e6;
        let ours = rate(&rows[0]);
        let mut details = std::mem::take(&mut rows[0].details);
        let mut text = format!("{} {} {}: {ours:.0} /s", self.class.name(), self.work.name(), self.connections);
        for peer in &rows[1..] {
            let ratio = ours / rate(peer);
            details = details.with(&format!("ratio_{}", peer.device), ratio);
            text += &format!(", {:.0} /s of {}: ratio {ratio:.2}", rate(peer), peer.device);
        }
        rows[0].details = details;
        progress(&text);
        Ok(rows)
    }

    fn row(&self, server: &Server, mut rounds: Rounds) -> Row {
        let (cpu_ns, _) = median_p99(&mut rounds.cpu_ns);
        let (per_second, _) = median_p99(&mut rounds.per_second);
        let (p50_ns, p99_ns) = median_p99(&mut rounds.times_ns);
        let details = Details::default()
            .with("key", self.class.name())
            .with("per_second", 1e9 / cpu_ns)
            .with("per_second_of_clients", per_second)
            .with("cpu_us", cpu_ns / 1e3)
            .with("about", server.about.as_str());
        Row {
            device: server.name.to_owned(),
            implementation: self.work.name().to_owned(),
            mode: "process".to_owned(),
            batch: self.connections,
            mpps: 1e3 / cpu_ns,
            p50_us: p50_ns / 1e3,
            p99_us: p99_ns / 1e3,
            peer: server.name != "cpu",
            details,
            ..Row::default()
        }
    }
}
