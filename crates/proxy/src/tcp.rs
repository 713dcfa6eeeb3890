//! Implements the mode `tcp`, which forwards decrypted bytes unchanged to a server.

use std::net::SocketAddr;
use std::rc::Rc;

use godwit_tls::Accepted;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::proxy_protocol::{self, Facts};
use crate::relay::{End, relay};
use crate::state::{Link, ProxyState};
use crate::upstream::Lease;
use crate::upstream::connect::Connection;

/// Serves one connection until it ends.
pub(crate) async fn serve<S>(link: &Rc<Link>, accepted: Accepted<S>, client: SocketAddr, local: SocketAddr)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (proxy, counters) = (&link.proxy, link.counters());
    let Some((_lease, mut server)) = connect(link, client, accepted.alpn.as_deref()).await else {
        counters.upstream_none.increment();
        return;
    };
    if proxy.config.proxy_protocol {
        let header = proxy_protocol::header(&Facts {
            client,
            server: local,
            alpn: accepted.alpn.as_deref(),
            server_name: accepted.server_name.as_deref(),
            version: accepted.version,
            client_certificate: accepted.client_certificate,
        });
        if server.write_all(&header).await.is_err() {
            counters.upstream_failed_response.increment();
            return;
        }
    }
    let mut stream = accepted.stream;
    let bytes = [&counters.bytes_in, &counters.bytes_out];
    if relay(&mut stream, &mut server, proxy.idle(), bytes).await == End::Idle {
        counters.closed_idle.increment();
    }
}

/// Connects to a server. If this fails, tries the other servers.
async fn connect(link: &Rc<Link>, client: SocketAddr, alpn: Option<&[u8]>) -> Option<(Lease, Connection)> {
    let (proxy, counters): (&ProxyState, _) = (&link.proxy, link.counters());
    let offered: Vec<Vec<u8>> = alpn.map(<[u8]>::to_vec).into_iter().collect();
    let mut tried = Vec::new();
    while let Some(lease) = proxy.upstreams.choose(client, &tried) {
        match proxy.connector.connect(lease.server(), &offered).await {
            Ok(connection) => {
                counters.upstream_connections.increment();
                return Some((lease, connection));
            }
            Err(_) => {
                lease.failed();
                counters.upstream_failed_connect.increment();
                tried.push(lease.index);
                if tried.len() < proxy.upstreams.servers.len() {
                    counters.upstream_retries.increment();
                }
            }
        }
    }
    None
}
