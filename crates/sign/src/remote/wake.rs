//! Bytes on the socket of a connection, which wake the other side.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Wakes the other side. The socket does not block. If it is full, enough bytes wait to wake the
/// other side, and if it is closed, the other side has ended.
pub(super) fn wake(mut socket: &UnixStream) {
    let _ = socket.write(&[1]);
}

/// Removes all bytes from the socket, which does not block. Returns false if the other side has
/// ended.
pub(super) fn drain(mut socket: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}
