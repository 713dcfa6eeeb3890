//! Checks the health of servers. The first worker does this for all workers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Server;
use crate::config::{self, Health};
use crate::state::ProxyState;

/// Checks all servers of a proxy once, one after another.
pub(crate) async fn check_all(proxy: &ProxyState, health: &Health) {
    for server in &proxy.upstreams.servers {
        let timeout = config::seconds(health.timeout_s);
        let healthy = tokio::time::timeout(timeout, is_healthy(proxy, health, server)).await.unwrap_or(false);
        if healthy != server.healthy.swap(healthy, Ordering::Relaxed) {
            let state = if healthy { "is healthy again" } else { "does not pass its health check" };
            let (proxy, server) = (&proxy.config.name, &server.name);
            match healthy {
                true => tracing::info!(event = "server_up", proxy, server, "proxy `{proxy}`: server {server} {state}"),
                false => {
                    tracing::warn!(event = "server_down", proxy, server, "proxy `{proxy}`: server {server} {state}")
                }
            }
        }
    }
}

/// Returns the time between two checks.
pub(crate) fn interval(health: &Health) -> Duration {
    config::seconds(health.every_s)
}

async fn is_healthy(proxy: &ProxyState, health: &Health, server: &Server) -> bool {
    let Ok(mut connection) = proxy.connector.connect(server, &[]).await else { return false };
    let Some(path) = &health.path else { return true };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.name);
    if connection.write_all(request.as_bytes()).await.is_err() || connection.flush().await.is_err() {
        return false;
    }
    // The first ten bytes, such as "HTTP/1.1 2", are enough to recognise a 2xx status.
    let mut status = [0; 10];
    connection.read_exact(&mut status).await.is_ok() && status.starts_with(b"HTTP/1.") && status[9] == b'2'
}
