//! Writes PROXY protocol headers, version 2 (HAProxy, doc/proxy-protocol.txt, section 2.2).

use std::net::SocketAddr;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2 of the protocol with the command PROXY.
const VERSION_COMMAND: u8 = 0x21;
const TCP_IPV4: u8 = 0x11;
const TCP_IPV6: u8 = 0x21;
// Types of the optional fields in PROXY protocol headers (section 2.2 of the specification).
const ALPN: u8 = 0x01;
const AUTHORITY: u8 = 0x02;
const SSL: u8 = 0x20;
const SSL_VERSION: u8 = 0x21;
// Flags of the field that describes TLS.
const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERTIFICATE: u8 = 0x02;

/// Facts about a connection that the header reports.
pub(crate) struct Facts<'a> {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) alpn: Option<&'a [u8]>,
    pub(crate) server_name: Option<&'a str>,
    /// TLS version, such as `1.3`.
    pub(crate) version: &'a str,
    pub(crate) client_certificate: bool,
}

/// Returns the header for a connection.
pub(crate) fn header(facts: &Facts<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(128);
    let family = match (facts.client, facts.server) {
        (SocketAddr::V4(client), SocketAddr::V4(server)) => {
            body.extend_from_slice(&client.ip().octets());
            body.extend_from_slice(&server.ip().octets());
            TCP_IPV4
        }
        (client, server) => {
            for address in [client, server] {
                let octets = match address {
                    SocketAddr::V4(address) => address.ip().to_ipv6_mapped().octets(),
                    SocketAddr::V6(address) => address.ip().octets(),
                };
                body.extend_from_slice(&octets);
            }
            TCP_IPV6
        }
    };
    body.extend_from_slice(&facts.client.port().to_be_bytes());
    body.extend_from_slice(&facts.server.port().to_be_bytes());
    if let Some(alpn) = facts.alpn {
        field(&mut body, ALPN, alpn);
    }
    if let Some(name) = facts.server_name {
        field(&mut body, AUTHORITY, name.as_bytes());
    }
    let flags = CLIENT_SSL | if facts.client_certificate { CLIENT_CERTIFICATE } else { 0 };
    // In the PROXY protocol, `verify` is 0 if the client has a valid certificate.
    let verify = u32::from(!facts.client_certificate);
    let mut ssl = vec![flags];
    ssl.extend_from_slice(&verify.to_be_bytes());
    field(&mut ssl, SSL_VERSION, format!("TLSv{}", facts.version).as_bytes());
    field(&mut body, SSL, &ssl);

    let mut header = Vec::with_capacity(16 + body.len());
    header.extend_from_slice(&SIGNATURE);
    header.extend_from_slice(&[VERSION_COMMAND, family]);
    header.extend_from_slice(&(body.len() as u16).to_be_bytes());
    header.extend_from_slice(&body);
    header
}

fn field(into: &mut Vec<u8>, kind: u8, value: &[u8]) {
    into.push(kind);
    into.extend_from_slice(&(value.len() as u16).to_be_bytes());
    into.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_layout_of_the_specification() {
        let facts = Facts {
            client: "192.0.2.1:4660".parse().unwrap(),
            server: "198.51.100.2:443".parse().unwrap(),
            alpn: Some(b"h2"),
            server_name: Some("a.b"),
            version: "1.3",
            client_certificate: false,
        };
        let expected = [
            &b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x11\x00\x29"[..],
            &[192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x34, 0x01, 0xbb],
            &[1, 0, 2, b'h', b'2', 2, 0, 3, b'a', b'.', b'b'],
            &[0x20, 0, 15, 1, 0, 0, 0, 1, 0x21, 0, 7],
            b"TLSv1.3",
        ];
        assert_eq!(header(&facts), expected.concat());
        let mixed = header(&Facts { server: "[2001:db8::1]:443".parse().unwrap(), ..facts });
        assert_eq!((mixed[13], &mixed[16..32]), (0x21, &b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x01"[..]));
    }
}
