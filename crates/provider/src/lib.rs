//! OpenSSL 3 provider `godwit`. Programs that use OpenSSL, such as HAProxy, sign their TLS
//! handshakes with the signing engine of Godwit.
//!
//! The provider implements signatures and the management of private keys. OpenSSL keeps its keys in
//! its own provider, and exports a private key to this provider at its first signature. A key that
//! the engine cannot use is refused, and OpenSSL then signs itself. Everything else comes from
//! OpenSSL's default provider.
//!
//! If the program uses asynchronous jobs (`SSL_MODE_ASYNC`), a signature pauses its job. The jobs
//! of all connections of a thread then wait in one [`godwit_sign::Signer`], which signs them in
//! batches. Without asynchronous jobs, the call waits for the signature.
//!
//! | path | contents |
//! |---|---|
//! | `openssl/` | functions, constants and parameters of OpenSSL |
//! | `entry.rs` | function that OpenSSL calls to load the provider |
//! | `algorithms.rs` | tables of the algorithms |
//! | `settings.rs` | settings from `openssl.cnf` |
//! | `key.rs` | key management |
//! | `decoder.rs` | PEM files that name a key of `godwit signer` |
//! | `signature/` | signatures |
//! | `engine/` | engine of a thread, in this process or in the process of `godwit signer` |
//! | `wait.rs` | asynchronous jobs |
//! | `report.rs` | reports of the counters |
#![deny(unsafe_code)]

mod algorithms;
mod decoder;
mod engine;
mod entry;
mod key;
mod openssl;
mod report;
mod settings;
mod signature;
mod wait;
