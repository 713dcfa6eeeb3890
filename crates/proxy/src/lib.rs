//! TLS reverse proxy: one runtime per core, in mode `tcp` (decrypted bytes) and mode `http`.
//!
//! Every worker is a thread with one runtime, its own listening sockets and its own signing
//! service. Workers share the certificates, the session tickets and the state of servers.
//!
//! | path | contents |
//! |---|---|
//! | `config/` | the TOML file |
//! | `program.rs`, `control.rs` | signals and the control socket |
//! | `running.rs` | start, reload, stop |
//! | `worker.rs` | accept, handshake, and the life of a connection |
//! | `state.rs` | what all workers share, by generation of the configuration |
//! | `tcp.rs`, `relay.rs`, `proxy_protocol.rs` | mode `tcp` |
//! | `http/` | mode `http` |
//! | `upstream/` | servers: choice, connections, health checks |
//! | `counters.rs`, `report.rs`, `log.rs` | observation |
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
