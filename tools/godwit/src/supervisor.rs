//! Messages to systemd (sd_notify(3)): readiness, end, and the watchdog.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Connection to the supervisor of this process, if any.
#[derive(Debug)]
pub(crate) struct Supervisor(Option<(UnixDatagram, SocketAddr)>);

impl Supervisor {
    /// Reads the address from `NOTIFY_SOCKET`, which systemd sets for units with `Type=notify`.
    pub(crate) fn from_environment() -> Self {
        Self(std::env::var_os("NOTIFY_SOCKET").and_then(connect))
    }

    /// Reports that the ports are open.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that the run has ended.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Feeds the watchdog. Without this message for `WatchdogSec`, systemd restarts the process.
    pub(crate) fn is_alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.0 {
            // A missing supervisor needs no message. The socket does not block.
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

fn connect(path: OsString) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address.ok()?))
}
