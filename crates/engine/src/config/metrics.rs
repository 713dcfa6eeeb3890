//! The stanza `[metrics]`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::document::{Document, Stanza};
use super::error::ConfigError;

/// Address at which metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// Loopback address and port.
    Tcp(SocketAddr),
}

/// Reads the stanza `[metrics]`. Returns the address that serves metrics, or `None` if the key is
/// absent.
pub(super) fn read<'a>(
    document: &Document<'a>,
    mut stanza: Stanza<'a>,
    directory: &Path,
) -> Result<Option<MetricsAddress>, ConfigError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Keys {
        listen: Option<String>,
    }
    let keys: Keys = document.read(&mut stanza, &[])?;
    let Some(listen) = keys.listen else { return Ok(None) };
    if let Some(path) = listen.strip_prefix("unix:") {
        return Ok(Some(MetricsAddress::Unix(directory.join(path))));
    }
    match listen.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(Some(MetricsAddress::Tcp(address))),
        found => {
            let problem = if found.is_ok() { "is not a loopback address" } else { "is no address" };
            let message = format!(
                "listen = \"{}\" {problem}: use \"unix:PATH\", or a loopback address with a port such as \"127.0.0.1:9111\"",
                listen.escape_debug()
            );
            Err(document.refuse(stanza.span_of("listen"), message))
        }
    }
}
