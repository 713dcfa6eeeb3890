//! Wakes the process at the other end of a socket with one byte.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Wakes the other process through a non-blocking socket. Errors are ignored, because a full socket
/// already wakes the process and a closed socket means that it has ended.
pub(super) fn wake(mut socket: &UnixStream) {
    let _ = socket.write(&[1]);
}

/// Removes all bytes from the non-blocking socket. Returns false if the other process has ended.
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
