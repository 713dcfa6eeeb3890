//! Signatures. The engine signs messages with the schemes of TLS. OpenSSL's default provider signs
//! everything else, and verifies.

mod context;
mod functions;

pub(crate) use functions::FUNCTIONS;
