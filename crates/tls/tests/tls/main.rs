//! Tests of the acceptor against OpenSSL and against rustls as clients. One binary, because its
//! modules share the server.

mod clients;
mod load;
mod refusals;
mod server;
