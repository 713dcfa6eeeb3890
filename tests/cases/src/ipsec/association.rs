//! SAs of every kind in configuration format, and packets for them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use godwit_function::ipsec::suite::{Authentication, Cipher, Protocol, SUITES, Suite};
use godwit_test_support::Random;
use godwit_test_support::frame::set_ipv4_checksum;
use godwit_test_support::hex::hex;

/// SA whose keys are derived from its SPI.
#[derive(Clone, Debug)]
pub struct Association {
    /// Protocol and algorithms.
    pub suite: Suite,
    /// Security parameters index.
    pub spi: u32,
    /// Key of the cipher or of GMAC.
    pub key: Vec<u8>,
    /// Salt that precedes the IV in a nonce.
    pub salt: Vec<u8>,
    /// Key of the HMAC or of the AES MAC, or empty.
    pub hmac_key: Vec<u8>,
    /// Length of the ICV, in bytes.
    pub icv_bytes: usize,
    /// Tunnel mode instead of transport mode.
    pub tunnel: bool,
    /// Source address of the encapsulated packets.
    pub source: IpAddr,
    /// Destination address of the encapsulated packets.
    pub destination: IpAddr,
    /// Source address of the inner packets. Used in policies and selectors.
    pub inner_source: IpAddr,
    /// Destination address of the inner packets.
    pub inner_destination: IpAddr,
    /// Extended sequence numbers.
    pub esn: bool,
    /// UDP encapsulation (RFC 3948).
    pub udp: bool,
    /// Size of the replay window, in packets.
    pub replay_window: u32,
    /// Whether the SA needs `insecure = true`, because its keys look weak.
    pub insecure: bool,
}

fn encryption(name: &str, key: &str) -> String {
    format!("encryption = \"{name}\"\nencryption_key = \"{key}\"\n")
}

/// SPI of the first SA of [`every`].
const SPI_FIRST: u32 = 0x1000;

/// Returns an SA for every combination of suite, ICV length, mode, address families, sequence
/// number length, and ESP with or without UDP.
pub fn every() -> Vec<Association> {
    let mut all = Vec::new();
    // Tunnel mode, outer IPv6, inner IPv6.
    let modes = [
        (true, false, false),
        (true, false, true),
        (true, true, false),
        (true, true, true),
        (false, false, false),
        (false, true, true),
    ];
    for suite in SUITES {
        let udp: &[bool] = if suite.protocol == Protocol::Esp { &[false, true] } else { &[false] };
        for &icv_bytes in icv_bytes(suite) {
            for (tunnel, outer_ipv6, inner_ipv6) in modes {
                for esn in [false, true] {
                    for &udp in udp {
                        let mode = (tunnel, outer_ipv6, inner_ipv6);
                        all.push(Association::new(all.len() as u32, suite, icv_bytes, mode, esn, udp));
                    }
                }
            }
        }
    }
    all
}

/// Returns the ICV lengths that the standards allow (RFC 2404, RFC 3566, RFC 4494, RFC 4868,
/// RFC 4106, RFC 4309, RFC 4543, RFC 7634).
pub fn icv_bytes(suite: &Suite) -> &'static [usize] {
    match (suite.authentication, suite.cipher) {
        (Authentication::None, _) => &[0],
        (Authentication::Sha1 | Authentication::Xcbc | Authentication::Cmac, _) => &[12],
        (Authentication::Sha384, _) => &[24],
        (Authentication::Sha512, _) => &[32],
        (Authentication::Ghash, Cipher::Ctr) | (Authentication::Ccm, _) => &[8, 12, 16],
        _ => &[16],
    }
}

impl Association {
    fn new(
        index: u32,
        suite: &Suite,
        icv_bytes: usize,
        (tunnel, outer_ipv6, inner_ipv6): (bool, bool, bool),
        esn: bool,
        udp: bool,
    ) -> Self {
        let spi = SPI_FIRST + index;
        let [inner_source, inner_destination] = [1u8, 2].map(|end| match inner_ipv6 {
            true => IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, end.into(), index as u16, 0, 0, 0, 1)),
            false => IpAddr::from([10, end, (index >> 8) as u8, index as u8]),
        });
        let [source, destination] = match (tunnel, outer_ipv6) {
            (true, false) => [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from),
            (true, true) => [1, 2].map(|end| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, end))),
            (false, _) => [inner_source, inner_destination],
        };
        let hmac_bytes = match suite.authentication {
            Authentication::Sha1 => 20,
            Authentication::Sha256 => 32,
            Authentication::Sha384 => 48,
            Authentication::Sha512 => 64,
            Authentication::Xcbc | Authentication::Cmac => 16,
            _ => 0,
        };
        Self {
            suite: *suite,
            spi,
            key: key(spi, 1, suite.key_bytes),
            salt: key(spi, 2, suite.salt_bytes()),
            hmac_key: key(spi, 3, hmac_bytes),
            icv_bytes,
            tunnel,
            source,
            destination,
            inner_source,
            inner_destination,
            esn,
            udp,
            replay_window: 64,
            insecure: false,
        }
    }

    /// Returns whether inner packets are IPv6.
    pub fn inner_ipv6(&self) -> bool {
        self.inner_source.is_ipv6()
    }

    /// Returns the stanzas of the outbound SA and of a policy for its packets.
    pub fn outbound(&self) -> String {
        let (source, destination) = (self.inner_source, self.inner_destination);
        format!(
            "{}[[policy]]\naction = \"protect\"\nsource = \"{source}\"\ndestination = \"{destination}\"\nsa = \"{}\"\n",
            self.stanza("out"),
            self.name(),
        )
    }

    /// Returns the stanza of the inbound SA. Its selector matches only its own packets, or any
    /// packet if the inner addresses are unspecified.
    pub fn inbound(&self) -> String {
        let (source, destination) = (self.inner_source, self.inner_destination);
        let stanza = format!("{}replay_window = {}\n", self.stanza("in"), self.replay_window);
        if source.is_unspecified() {
            return stanza;
        }
        format!("{stanza}selectors = [{{ source = \"{source}\", destination = \"{destination}\" }}]\n")
    }

    fn name(&self) -> String {
        format!("{}-{:x}", self.suite.name, self.spi)
    }

    /// Returns the stanza of the SA for a direction, `in` or `out`.
    pub fn stanza(&self, direction: &str) -> String {
        let (suite, bits) = (&self.suite, 8 * self.suite.key_bytes);
        // The salt follows the key.
        let key = hex(&[&self.key[..], &self.salt[..]].concat());
        let mut stanza =
            format!("[[sa]]\nname = \"{}\"\nspi = {}\ndirection = \"{direction}\"\n", self.name(), self.spi);
        stanza += &format!("source = \"{}\"\ndestination = \"{}\"\n", self.source, self.destination);
        stanza += if self.tunnel { "mode = \"tunnel\"\n" } else { "mode = \"transport\"\n" };
        stanza += &match (suite.protocol, suite.cipher, suite.authentication) {
            (Protocol::Ah, _, Authentication::Ghash) => {
                format!("protocol = \"ah\"\nauthentication = \"aes-{bits}-gmac\"\nauthentication_key = \"{key}\"\n")
            }
            (Protocol::Ah, ..) => "protocol = \"ah\"\n".to_owned(),
            (_, Cipher::Null, Authentication::Ghash) => encryption(&format!("aes-{bits}-gmac"), &key),
            (_, Cipher::Null, _) => "encryption = \"null\"\n".to_owned(),
            (_, Cipher::Cbc, _) => encryption(&format!("aes-{bits}-cbc"), &key),
            (_, Cipher::Ctr, Authentication::Ghash) => encryption(&format!("aes-{bits}-gcm"), &key),
            (_, Cipher::Ctr, Authentication::Ccm) => encryption(&format!("aes-{bits}-ccm"), &key),
            (_, Cipher::Ctr, _) => encryption(&format!("aes-{bits}-ctr"), &key),
            (_, Cipher::ChaCha20, _) => encryption("chacha20-poly1305", &key),
        };
        let authentication =
            |name: &str| format!("authentication = \"{name}\"\nauthentication_key = \"{}\"\n", hex(&self.hmac_key));
        stanza += &match suite.authentication {
            Authentication::Sha1 => authentication("hmac-sha1-96"),
            Authentication::Sha256 => authentication("hmac-sha-256-128"),
            Authentication::Sha384 => authentication("hmac-sha-384-192"),
            Authentication::Sha512 => authentication("hmac-sha-512-256"),
            Authentication::Xcbc => authentication("aes-xcbc-96"),
            Authentication::Cmac => authentication("aes-cmac-96"),
            Authentication::None => "authentication = \"none\"\n".to_owned(),
            Authentication::Ccm => format!("icv_bytes = {}\n", self.icv_bytes),
            Authentication::Ghash if suite.cipher == Cipher::Ctr => format!("icv_bytes = {}\n", self.icv_bytes),
            Authentication::Ghash | Authentication::Poly1305 => String::new(),
        };
        if self.insecure || suite.authentication == Authentication::None {
            stanza += "insecure = true\n";
        }
        if self.esn {
            stanza += "esn = true\n";
        }
        if self.udp {
            stanza += "udp_encapsulation = {}\n";
        }
        stanza
    }

    /// Returns the SA in the format of `tests/peers/ipsec_scapy.py`. `upper` is the upper half of
    /// extended sequence numbers.
    pub fn scapy(&self, upper: u32) -> String {
        let salted = || hex(&[&self.key[..], &self.salt[..]].concat());
        let protocol = if self.suite.protocol == Protocol::Ah { "AH" } else { "ESP" };
        let mut line = format!("sa protocol={protocol} spi={}", self.spi);
        line += &match (self.suite.cipher, self.suite.authentication) {
            (Cipher::Null, _) => String::new(),
            (Cipher::Cbc, _) => format!(" crypt=AES-CBC crypt_key={}", hex(&self.key)),
            (Cipher::Ctr, Authentication::Ghash) => {
                format!(" crypt=AES-GCM crypt_key={} icv={}", salted(), self.icv_bytes)
            }
            (Cipher::Ctr, Authentication::Ccm) => {
                format!(" crypt=AES-CCM crypt_key={} icv={}", salted(), self.icv_bytes)
            }
            (Cipher::Ctr, _) => format!(" crypt=AES-CTR crypt_key={}", salted()),
            (Cipher::ChaCha20, _) => format!(" crypt=CHACHA20-POLY1305 crypt_key={}", salted()),
        };
        line += &match (self.suite.cipher, self.suite.authentication) {
            (_, Authentication::Sha1) => format!(" auth=HMAC-SHA1-96 auth_key={}", hex(&self.hmac_key)),
            (_, Authentication::Sha256) => format!(" auth=SHA2-256-128 auth_key={}", hex(&self.hmac_key)),
            (_, Authentication::Sha384) => format!(" auth=SHA2-384-192 auth_key={}", hex(&self.hmac_key)),
            (_, Authentication::Sha512) => format!(" auth=SHA2-512-256 auth_key={}", hex(&self.hmac_key)),
            (_, Authentication::Xcbc) => format!(" auth=AES-XCBC-96 auth_key={}", hex(&self.hmac_key)),
            (_, Authentication::Cmac) => format!(" auth=AES-CMAC-96 auth_key={}", hex(&self.hmac_key)),
            (Cipher::Null, Authentication::Ghash) => format!(" auth=AES-GMAC auth_key={}", salted()),
            _ => String::new(),
        };
        if self.tunnel {
            line += &format!(" tunnel={},{}", self.source, self.destination);
        }
        if self.udp {
            line += " udp=4500,4500";
        }
        if self.esn {
            line += &format!(" esn={upper}");
        }
        line
    }
}

/// Describes the SA in failure messages.
impl fmt::Display for Association {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.tunnel { "tunnel" } else { "transport" };
        let family = |address: IpAddr| if address.is_ipv6() { "IPv6" } else { "IPv4" };
        write!(f, "{}, ICV of {} bytes, {mode}, ", self.suite.name, self.icv_bytes)?;
        write!(f, "{} in {}", family(self.inner_source), family(self.source))?;
        write!(f, "{}{}", if self.esn { ", ESN" } else { "" }, if self.udp { ", UDP" } else { "" })
    }
}

/// Returns pseudorandom bytes that differ for every SPI and part.
fn key(spi: u32, part: u32, bytes: usize) -> Vec<u8> {
    Random::new(u64::from(spi) << 8 | u64::from(part)).bytes(bytes)
}

/// Headers that [`Association::plain`] generates before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// Only the IP header.
    Plain,
    /// Random IPv4 options and IPv6 extension headers.
    Any,
    /// Like `Any`, but without routing headers.
    Unrouted,
}

impl Association {
    /// Returns a packet for the SA with a payload of `bytes` bytes. Its protocol is one for
    /// experiments (RFC 3692), which no peer interprets.
    pub fn plain(&self, random: &mut Random, bytes: usize, headers: Headers) -> Vec<u8> {
        let data = random.bytes(bytes);
        match (self.inner_source, self.inner_destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                ipv4(random, source.octets(), destination.octets(), headers, &data)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                ipv6(random, source.octets(), destination.octets(), headers, &data)
            }
            _ => unreachable!("one family"),
        }
    }
}

const EXPERIMENT: u8 = 253;

fn ipv4(random: &mut Random, source: [u8; 4], destination: [u8; 4], headers: Headers, data: &[u8]) -> Vec<u8> {
    // Router Alert is immutable, Record Route is mutable, and No Operation is immutable.
    let options: &[u8] = match random.below(4) {
        0 if headers != Headers::Plain => &[0x94, 4, 0, 0],
        1 if headers != Headers::Plain => &[7, 7, 4, 10, 0, 0, 9, 1],
        _ => &[],
    };
    let flags = random.pick(&[0, 0x40]);
    let [id_high, id_low, class, hops] = random.array();
    // Without ECN, which a tunnel may change. Other tests cover ECN.
    let mut packet = vec![0x45 + (options.len() / 4) as u8, class & !3, 0, 0, id_high, id_low, flags, 0];
    packet.extend([hops, EXPERIMENT, 0, 0]);
    packet.extend(source);
    packet.extend(destination);
    packet.extend(options);
    packet.extend(data);
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    set_ipv4_checksum(&mut packet);
    packet
}

fn ipv6(random: &mut Random, source: [u8; 16], destination: [u8; 16], headers: Headers, data: &[u8]) -> Vec<u8> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION_OPTIONS: u8 = 60;
    let [class, flow, label, hops]: [u8; 4] = random.array();
    let mut packet = vec![0x60 | class >> 4, (class & 0xc) << 4 | flow & 15, label, 7, 0, 0, EXPERIMENT, hops];
    packet.extend(source);
    packet.extend(destination);
    let mut extensions: Vec<(u8, Vec<u8>)> = Vec::new();
    if headers != Headers::Plain {
        if random.below(2) == 0 {
            // Router Alert, followed by a mutable option.
            extensions.push((HOP_BY_HOP, vec![5, 2, 0, 0, 0x3e, 8, 1, 2, 3, 4, 5, 6, 7, 8]));
        }
        if random.below(2) == 0 {
            extensions.push((DESTINATION_OPTIONS, vec![0x3e, 2, 9, 9, 1, 0]));
        }
        if headers == Headers::Any && random.below(2) == 0 {
            extensions.push((ROUTING, [vec![0; 6], random.bytes(16)].concat()));
            extensions.push((DESTINATION_OPTIONS, vec![1, 4, 0, 0, 0, 0]));
        }
    }
    let mut protocol_at = 6;
    for (kind, body) in extensions {
        packet[protocol_at] = kind;
        protocol_at = packet.len();
        packet.extend([EXPERIMENT, ((body.len() + 2) / 8 - 1) as u8]);
        packet.extend(body);
    }
    packet.extend(data);
    let payload = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&payload.to_be_bytes());
    packet
}
