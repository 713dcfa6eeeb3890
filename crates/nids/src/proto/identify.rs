//! Identifies the application protocol by the first bytes of a flow. Most protocols are recognised
//! on every port, because their first bytes are distinctive. All other protocols are tested only on
//! their well-known ports.

use crate::app::{App, Direction};

/// Result of an identification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identified {
    /// The protocol was identified.
    App {
        /// The identified protocol.
        app: App,
        /// Whether the presumed client is actually the server.
        reversed: bool,
    },
    /// More bytes are needed.
    More,
    /// The bytes belong to no known protocol.
    Unknown,
}

/// Maximum number of bytes that the identification examines. A protocol that is not identified by
/// then counts as unknown.
const BYTES_MAX: usize = 64;

/// Identifies the protocol of a TCP stream.
pub fn identify(direction: Direction, data: &[u8], client_port: u16, server_port: u16) -> Identified {
    match tcp(direction, data, client_port, server_port) {
        Some(app) => Identified::App { app, reversed: false },
        None => match tcp(direction.opposite(), data, server_port, client_port).filter(|app| *app == App::Http) {
            Some(app) => Identified::App { app, reversed: true },
            None if data.len() < BYTES_MAX => Identified::More,
            None => Identified::Unknown,
        },
    }
}

const METHODS: &[&[u8]] = &[
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"TRACE ",
    b"OPTIONS ",
    b"CONNECT ",
    b"PATCH ",
    b"PROPFIND ",
    b"PROPPATCH ",
    b"MKCOL ",
    b"COPY ",
    b"MOVE ",
    b"LOCK ",
    b"UNLOCK ",
    b"CHECKOUT ",
    b"MKACTIVITY ",
    b"MERGE ",
    b"REPORT ",
    b"SEARCH ",
    b"INVALID ",
    b"GET\t",
    b"POST\t",
];

fn tcp(direction: Direction, data: &[u8], client_port: u16, server_port: u16) -> Option<App> {
    let to_server = direction == Direction::ToServer;
    let ports = [client_port, server_port];
    let on = |port: u16| ports.contains(&port);
    let begins = |prefix: &[u8]| data.starts_with(prefix);
    let word = |prefix: &[u8]| data.len() >= prefix.len() && data[..prefix.len()].eq_ignore_ascii_case(prefix);
    if to_server && begins(b"PRI * HTTP/2.0\r\n") {
        return Some(App::Http2);
    }
    if to_server && METHODS.iter().any(|method| word(method)) {
        return Some(App::Http);
    }
    if !to_server && (begins(b"HTTP/1.") || begins(b"HTTP/0.")) {
        return Some(App::Http);
    }
    if begins(b"SSH-") {
        return Some(App::Ssh);
    }
    if is_tls(data) {
        return Some(App::Tls);
    }
    if data.len() >= 8 && data[4] & 0xfc == 0xfc && &data[5..8] == b"SMB" {
        return Some(App::Smb);
    }
    if to_server && (word(b"EHLO") || word(b"HELO") || word(b"QUIT\r\n") && on(25)) {
        return Some(App::Smtp);
    }
    if !to_server && begins(b"220") && (on(25) || on(587) || memchr::memmem::find(data, b"SMTP").is_some()) {
        return Some(App::Smtp);
    }
    if to_server
        && (word(b"USER ") || word(b"PASS ") || word(b"PORT "))
        && !on(110)
        && !on(194)
        && !(6660..=6670).contains(&server_port)
    {
        return Some(App::Ftp);
    }
    if !to_server && begins(b"220") && (on(21) || memchr::memmem::find(data, b"FTP").is_some()) {
        return Some(App::Ftp);
    }
    if data.len() >= 10
        && data[0] == 5
        && data[1] <= 1
        && matches!(data[2], 0 | 2 | 11 | 12 | 14)
        && data[4] & 0xee == 0
    {
        return Some(App::Dcerpc);
    }
    if on(53) && is_dns(data.get(2..)?) && usize::from(u16::from_be_bytes([data[0], data[1]])) >= 12 {
        return Some(App::Dns);
    }
    if is_sip(data) {
        return Some(App::Sip);
    }
    if to_server && data.len() > 12 && data[0] == 0x10 && memchr::memmem::find(&data[..12], b"MQ").is_some() {
        return Some(App::Mqtt);
    }
    None
}

/// Identifies the protocol of a UDP datagram.
pub fn identify_udp(direction: Direction, data: &[u8], client_port: u16, server_port: u16) -> Option<App> {
    let _ = direction;
    let ports = [client_port, server_port];
    let on = |port: u16| ports.contains(&port);
    if (on(53) || on(5353)) && is_dns(data) {
        return Some(App::Dns);
    }
    if on(5355) && is_dns(data) {
        return Some(App::Llmnr);
    }
    if is_sip(data) {
        return Some(App::Sip);
    }
    if (on(161) || on(162)) && data.len() > 8 && data[0] == 0x30 {
        return Some(App::Snmp);
    }
    if on(443) && data.len() > 16 && data[0] & 0x40 != 0 || on(80) && data.len() > 16 && data[0] & 0xc0 == 0xc0 {
        return Some(App::Quic);
    }
    if (on(500) || on(4500)) && data.len() >= 28 {
        return Some(App::Ike);
    }
    if on(123) && data.len() >= 48 {
        return Some(App::Ntp);
    }
    None
}

/// Returns whether the bytes begin a TLS record or an SSL 2 hello message.
fn is_tls(data: &[u8]) -> bool {
    match data {
        [0x14..=0x18, 3, 0..=4, ..] => true,
        [high, _, 1, 0 | 3, _, ..] if high & 0x80 != 0 => data.len() > 5 && data[3] <= 3,
        _ => false,
    }
}

fn is_sip(data: &[u8]) -> bool {
    const WORDS: &[&[u8]] = &[
        b"REGISTER sip:",
        b"INVITE sip:",
        b"ACK sip:",
        b"BYE sip:",
        b"CANCEL sip:",
        b"UPDATE sip:",
        b"REFER sip:",
        b"PRACK sip:",
        b"SUBSCRIBE sip:",
        b"NOTIFY sip:",
        b"PUBLISH sip:",
        b"MESSAGE sip:",
        b"INFO sip:",
        b"OPTIONS sip:",
        b"SIP/2.0 ",
    ];
    WORDS.iter().any(|word| data.starts_with(word))
}

/// Returns whether the bytes are a plausible DNS message.
pub(super) fn is_dns(data: &[u8]) -> bool {
    if data.len() < 12 {
        return false;
    }
    let half = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
    let (flags, questions) = (half(2), half(4));
    let opcode = flags >> 11 & 0xf;
    let counts = u32::from(half(6)) + u32::from(half(8)) + u32::from(half(10));
    if opcode > 6 || questions > 16 || questions == 0 && counts == 0 {
        return false;
    }
    // A query has a name with labels of at most 63 bytes.
    questions == 0 || data.get(12).is_none_or(|label| *label < 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(direction: Direction, data: &[u8], port: u16) -> Identified {
        identify(direction, data, 40000, port)
    }

    fn found(app: App) -> Identified {
        Identified::App { app, reversed: false }
    }

    #[test]
    fn identifies_by_first_bytes() {
        let to_server = Direction::ToServer;
        assert_eq!(app(to_server, b"GET / HTTP/1.1\r\n", 9000), found(App::Http));
        assert_eq!(app(to_server, b"SSH-2.0-x\r\n", 22), found(App::Ssh));
        assert_eq!(app(to_server, b"\x16\x03\x01\x00\x10", 443), found(App::Tls));
        assert_eq!(app(to_server, b"\0\0\0\x30\xffSMBr", 445), found(App::Smb));
        assert_eq!(app(Direction::ToClient, b"220 x ESMTP", 25), found(App::Smtp));
        assert_eq!(app(to_server, b"HTTP/1.1 200 OK\r\n", 80), Identified::App { app: App::Http, reversed: true });
        assert_eq!(app(to_server, b"xyz", 80), Identified::More);
        assert_eq!(app(to_server, &[0xee; 100], 80), Identified::Unknown);
    }
}
