//! TLS reverse proxy with one async runtime per core. In mode `tcp` it forwards decrypted bytes,
//! and in mode `http` it forwards requests.
//!
//! Every worker is a thread with a separate runtime, separate listening sockets and a separate
//! signing service. Workers share the certificates, the session tickets and the state of servers.
//!
//! | path | contents |
//! |---|---|
//! | `config/` | TOML configuration file |
//! | `program.rs`, `control.rs` | signals and the control socket |
//! | `running.rs` | start, reload and stop |
//! | `signing.rs` | signing engines of the workers |
//! | `signer.rs` | program `godwit signer`, which holds the keys in a separate process |
//! | `worker.rs` | accepts connections, performs handshakes and serves connections |
//! | `state.rs` | state that all workers share, for each version of the configuration |
//! | `tcp.rs`, `relay.rs`, `proxy_protocol.rs` | mode `tcp` |
//! | `http/` | mode `http` |
//! | `upstream/` | selection of servers, connections to them and health checks |
//! | `counters.rs`, `report.rs`, `log.rs` | counters, report and access log |
#![forbid(unsafe_code)]

mod config;
mod control;
mod counters;
mod error;
mod http;
mod listen;
mod log;
mod program;
mod proxy_protocol;
mod relay;
mod report;
mod running;
mod signer;
mod signing;
mod state;
mod tcp;
mod upstream;
mod worker;

pub use config::{Config, ConfigError};
pub use counters::COUNTERS;
pub use error::Error;
pub use program::{Flags, run};
pub use report::{ProxyReport, Report, UpstreamReport};
pub use running::Running;
pub use signer::{SignerReport, run as run_signer};
