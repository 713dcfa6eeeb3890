//! Tests of the OpenSSL provider in `openssl` and in HAProxy. OpenSSL without the provider, or
//! rustls, verifies all signatures.

mod clients;
mod haproxy;
mod servers;
mod settings;
mod setup;
mod signatures;
