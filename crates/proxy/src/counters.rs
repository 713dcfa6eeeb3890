//! Counters of a proxy. Each worker has its own set of counters.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($name:ident: $sentence:literal;)*) => {
        /// Counters of one proxy and one worker.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(#[doc = $sentence] pub(crate) $name: Counter,)*
        }

        /// Names and meanings of all counters, in the order of the report.
        pub const COUNTERS: &[(&str, &str)] = &[$((stringify!($name), $sentence),)*];

        impl Counters {
            /// Returns all values, in the order of [`COUNTERS`].
            pub(crate) fn values(&self) -> Vec<u64> {
                vec![$(self.$name.get(),)*]
            }
        }
    };
}

counters! {
    accepted: "Connections accepted.";
    refused_limit: "Connections closed because the worker had too many.";
    handshaking: "Connections in the handshake.";
    handshakes: "Handshakes completed, including resumed ones.";
    handshakes_resumed: "Handshakes that resumed a session, without a signature.";
    handshake_failed_closed: "Handshakes ended by the client without a reason.";
    handshake_failed_timeout: "Handshakes that took too long.";
    handshake_failed_protocol: "Handshakes without valid TLS, or without a common version, suite or protocol.";
    handshake_failed_alert: "Handshakes ended by an alert of the client.";
    handshake_failed_client_certificate: "Handshakes without a valid client certificate.";
    handshake_failed_signing: "Handshakes for which the signing engine refused the signature.";
    open: "Connections after the handshake.";
    closed: "Connections closed after the handshake.";
    closed_idle: "Connections closed because no byte arrived for too long.";
    closed_drain: "Connections closed because the time to drain was over.";
    closed_protocol: "Connections closed because of invalid HTTP.";
    requests: "HTTP requests received.";
    requests_in_flight: "HTTP requests without a complete response.";
    responses: "HTTP responses completed, by the proxy or by a server.";
    requests_aborted: "HTTP requests that ended without a complete response.";
    responses_2xx: "HTTP responses with status 2xx.";
    responses_3xx: "HTTP responses with status 3xx.";
    responses_4xx: "HTTP responses with status 4xx.";
    responses_5xx: "HTTP responses with status 5xx.";
    requests_refused_header: "HTTP requests refused because of their header: no host, or an invalid one.";
    requests_refused_body: "HTTP requests whose body exceeded the limit.";
    upgrades: "WebSocket connections established.";
    upstream_connections: "Connections to servers established.";
    upstream_reused: "Requests on a kept connection to a server.";
    upstream_retries: "Requests or connections moved to another server.";
    upstream_failed_connect: "Connections to servers that failed or took too long.";
    upstream_failed_response: "Requests for which the server closed the connection or sent invalid HTTP.";
    upstream_failed_timeout: "Requests whose response took too long.";
    upstream_none: "Connections and requests for which no server was available.";
    bytes_in: "Decrypted bytes from clients (mode tcp and WebSocket), or bytes of request bodies.";
    bytes_out: "Bytes to clients before encryption (mode tcp and WebSocket), or bytes of response bodies.";
    redirects: "Requests of the listener without TLS that were redirected.";
    acme: "ACME challenges answered from the folder.";
    log_lost: "Lines of the access log lost because the disk was too slow.";
}

/// Counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // Only one thread writes the counter, so an atomic addition is not needed.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn decrement(&self) {
        self.add(u64::MAX);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
