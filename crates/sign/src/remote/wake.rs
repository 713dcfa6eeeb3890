//! Wakes the process at the other end of a socket by sending a byte.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Wakes the other process. The socket does not block, and its errors are ignored. A full socket
/// already wakes the other process, and a closed socket means that it has ended.
pub(super) fn wake(mut socket: &UnixStream) {
    let _ = socket.write(&[1]);
}

/// Removes all bytes from the socket, which does not block. Returns false if the other process has
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
