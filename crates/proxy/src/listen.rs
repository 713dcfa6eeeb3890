//! Opens listening sockets. Each worker has its own socket for each address (`SO_REUSEPORT`), and
//! the kernel distributes connections over these sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of connections that wait to be accepted on a socket.
const BACKLOG: i32 = 4096;

/// Opens one socket per worker for `address`. If the port is 0, the kernel selects a free port,
/// which all these sockets use.
pub(crate) fn listen(mut address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::with_capacity(workers);
    for _ in 0..workers {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}
