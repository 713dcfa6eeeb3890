//! Decides which processes may announce routes. A TCP connection carries no credentials. If both
//! ends are on this machine, the kernel reports the user that owns the other end
//! (`NETLINK_SOCK_DIAG`, sock_diag(7)). Other machines are identified only by their addresses.

use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};

use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress};

/// Rule that decides whether the FPM listener accepts a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peers {
    /// Uids of the users whose processes may connect.
    pub(super) users: Vec<u32>,
    /// Addresses of other machines that may connect.
    pub(super) machines: Vec<IpAddr>,
}

impl Peers {
    /// Returns the reason to refuse a connection, or `None` to accept it.
    pub(super) fn refusal(&self, stream: &TcpStream) -> Option<String> {
        let (peer, local) = match (stream.peer_addr(), stream.local_addr()) {
            (Ok(peer), Ok(local)) => (peer, local),
            (Err(error), _) | (_, Err(error)) => return Some(format!("its address is unknown: {error}")),
        };
        if self.machines.contains(&peer.ip().to_canonical()) {
            return None;
        }
        match owner(peer, local) {
            Ok(user) if self.users.contains(&user) => None,
            Ok(user) => Some(format!("the process of uid {user} is refused: add the user to fpm_users to accept it")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Some(format!("{} is refused: add the address to fpm_peers to accept it", peer.ip()))
            }
            Err(error) => Some(format!("the owner of a connection is unknown: {error}")),
        }
    }
}

/// Returns the uid of the user that owns a TCP socket of this machine. The socket has the local
/// address `from` and is connected to `to`.
///
/// # Errors
/// Returns [`ErrorKind::NotFound`] if this machine has no such socket.
fn owner(from: SocketAddr, to: SocketAddr) -> std::io::Result<u32> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.send_to(&request(from, to), &NetlinkAddress::new(0, 0), 0)?;
    let (reply, _) = socket.recv_from_full()?;
    parse(&reply)
}

const HEADER_BYTES: usize = 16;
/// Type of a request, and of its reply (linux/sock_diag.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Type of an error message (netlink(7)).
const NLMSG_ERROR: u16 = 2;

/// Returns a netlink request (`struct inet_diag_req_v2` of linux/inet_diag.h) for the owner of
/// exactly one TCP socket.
fn request(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    const IPPROTO_TCP: u8 = 6;
    const NLM_F_REQUEST: u16 = 1;
    const LENGTH: u32 = HEADER_BYTES as u32 + 56;
    let family = if from.is_ipv4() { 2 } else { 10 };
    let mut message = Vec::with_capacity(LENGTH as usize);
    message.extend(LENGTH.to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]); // sequence number, port of the sender
    message.extend([family, IPPROTO_TCP, 0, 0]);
    message.extend([0xff; 4]); // all TCP states
    message.extend(from.port().to_be_bytes());
    message.extend(to.port().to_be_bytes());
    for address in [from.ip(), to.ip()] {
        let mut octets = [0; 16];
        match address {
            IpAddr::V4(v4) => octets[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => octets = v6.octets(),
        }
        message.extend(octets);
    }
    message.extend([0; 4]); // any interface
    message.extend([0xff; 8]); // any cookie
    message
}

/// Reads `idiag_uid` of a `struct inet_diag_msg`.
fn parse(reply: &[u8]) -> std::io::Result<u32> {
    const UID_AT: usize = HEADER_BYTES + 64;
    let number = |at: usize| reply.get(at..at + 4)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let kind = reply.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    match kind {
        Some(SOCK_DIAG_BY_FAMILY) => number(UID_AT).ok_or_else(|| Error::from(ErrorKind::UnexpectedEof)),
        Some(NLMSG_ERROR) => {
            let code = number(HEADER_BYTES).unwrap_or_default().cast_signed();
            Err(Error::from_raw_os_error(code.saturating_neg()))
        }
        _ => Err(Error::from(ErrorKind::InvalidData)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn owner_of_a_loopback_connection_is_found() {
        let own = nix::unistd::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let to = listener.local_addr().unwrap();
            let to = match address {
                "[::]:0" => SocketAddr::from(([127, 0, 0, 1], to.port())),
                _ => to,
            };
            let client = TcpStream::connect(to).unwrap();
            let (stream, _) = listener.accept().unwrap();
            let peers = Peers { users: vec![own], machines: Vec::new() };
            assert_eq!(peers.refusal(&stream), None, "{address}");
            let others = Peers { users: vec![own + 1], machines: Vec::new() };
            assert!(others.refusal(&stream).unwrap().contains(&format!("uid {own}")), "{address}");
            let machine = Peers { users: Vec::new(), machines: vec![to.ip()] };
            assert_eq!(machine.refusal(&stream), None, "{address}");
            drop(client);
        }
    }

    #[test]
    fn a_socket_of_another_machine_is_not_found() {
        let from = SocketAddr::from(([192, 0, 2, 1], 5));
        assert_eq!(owner(from, SocketAddr::from(([127, 0, 0, 1], 6))).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn short_replies_are_errors() {
        let mut reply = vec![0; HEADER_BYTES + 72];
        reply[4] = 20;
        assert!(parse(&reply).is_ok());
        for length in 0..HEADER_BYTES + 68 {
            assert!(parse(&reply[..length]).is_err(), "{length}");
        }
    }
}
