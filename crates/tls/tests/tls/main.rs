//! Tests the acceptor with OpenSSL and rustls clients. All test modules are in one program, because
//! they share the server.

mod clients;
mod load;
mod refusals;
mod server;
