//! Tests of running proxies with clients and servers over loopback. All test modules are in one
//! program, because they share the set-up.

mod backend;
mod client;
mod config;
mod hostile;
mod http;
mod http2;
mod interop;
mod losses;
mod page;
mod reload;
mod setup;
mod signer;
mod tcp;
