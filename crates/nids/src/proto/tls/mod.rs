//! Parses the unencrypted part of TLS and SSL handshakes (RFC 8446, RFC 5246).
//!
//! | file | contents |
//! |---|---|
//! | `hello.rs` | ClientHello and ServerHello |
//! | `certificate.rs` | certificates (X.509) |
//! | `fingerprint.rs` | JA3, JA3S and JA4 |

mod certificate;
pub(super) mod fingerprint;
pub(super) mod hello;

use super::{Parser, Status, View};
use crate::app::Direction;
use crate::detect::digest;
use crate::eve::Json;
use crate::rules::Field;
use certificate::Certificate;
use hello::Hello;
use std::ops::Range;

/// Maximum number of handshake bytes that one direction keeps.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Progress value of a direction after its handshake.
const COMPLETE: u8 = 4;

/// One direction of a connection.
#[derive(Debug, Default)]
struct Side {
    /// Bytes of an incomplete record.
    record: Vec<u8>,
    /// Bytes of an incomplete handshake message.
    handshake: Vec<u8>,
    hello: Option<Hello>,
    certificates: Vec<Vec<u8>>,
    /// First certificate.
    leaf: Option<Certificate>,
    progress: u8,
}

/// Parser of one connection.
#[derive(Debug, Default)]
pub(super) struct Tls {
    sides: [Side; 2],
    version: u16,
    released: bool,
    ja3: Option<String>,
    ja3s: Option<String>,
    ja4: Option<String>,
    trigger: [bool; 2],
}

impl Tls {
    /// Returns a parser.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Processes the buffered TLS records of one direction.
    fn records(&mut self, direction: Direction) -> Status {
        let mut buffer = std::mem::take(&mut self.sides[direction as usize].record);
        let mut at = 0;
        let mut status = Status::Ok;
        while let Some(header) = buffer.get(at..at + 5) {
            let is_v2 = header[0] & 0x80 != 0 && header[2] <= 4 && !matches!(header[0], 0x14..=0x18);
            let (skip, length) = if is_v2 {
                (2, usize::from(u16::from_be_bytes([header[0] & 0x7f, header[1]])))
            } else {
                (5, usize::from(u16::from_be_bytes([header[3], header[4]])))
            };
            if !is_v2 && (!(0x14..=0x18).contains(&header[0]) || length > (1 << 14) + 2048) {
                status = Status::Stop;
                break;
            }
            let Some(body) = buffer.get(at + skip..at + skip + length) else { break };
            if is_v2 {
                self.sides[direction as usize].progress = self.sides[direction as usize].progress.max(2);
            } else {
                let kind = header[0];
                let body = body.to_vec();
                self.record(direction, kind, &body);
            }
            at += skip + length;
        }
        buffer.drain(..at);
        self.sides[direction as usize].record = buffer;
        status
    }

    fn record(&mut self, direction: Direction, kind: u8, body: &[u8]) {
        let side = &mut self.sides[direction as usize];
        match kind {
            0x16 if side.progress < COMPLETE => {
                let room = HANDSHAKE_BYTES_MAX.saturating_sub(side.handshake.len());
                side.handshake.extend_from_slice(&body[..body.len().min(room)]);
                self.handshake(direction);
            }
            0x14 | 0x17 => {
                side.progress = COMPLETE;
                self.trigger[direction as usize] = true;
            }
            _ => {}
        }
    }

    fn handshake(&mut self, direction: Direction) {
        let buffer = std::mem::take(&mut self.sides[direction as usize].handshake);
        let mut at = 0;
        while let Some(header) = buffer.get(at..at + 4) {
            let length = usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
            let Some(body) = buffer.get(at + 4..at + 4 + length) else { break };
            self.handshake_message(direction, header[0], body);
            at += 4 + length;
        }
        self.sides[direction as usize].handshake = buffer[at..].to_vec();
    }

    fn handshake_message(&mut self, direction: Direction, kind: u8, body: &[u8]) {
        let side = &mut self.sides[direction as usize];
        match kind {
            1 | 2 if side.hello.is_none() => {
                side.hello = Hello::parse(body, kind == 1);
                side.progress = side.progress.max(2);
                self.trigger[direction as usize] = true;
                let hello = side.hello.as_ref();
                match (kind, hello) {
                    (1, Some(hello)) => {
                        self.ja3 = Some(fingerprint::ja3(hello));
                        self.ja4 = Some(fingerprint::ja4(hello, 't'));
                    }
                    (2, Some(hello)) => {
                        self.version = hello.negotiated;
                        self.ja3s = Some(fingerprint::ja3s(hello));
                    }
                    _ => {}
                }
            }
            11 if side.certificates.is_empty() => {
                side.certificates = certificate::chain(body);
                side.leaf = side.certificates.first().and_then(|bytes| Certificate::parse(bytes));
                side.progress = side.progress.max(3);
                self.trigger[direction as usize] = true;
            }
            14 => side.progress = COMPLETE,
            _ => {}
        }
    }
}

impl Parser for Tls {
    fn data(&mut self, direction: Direction, data: &[u8], _end: bool) -> Status {
        if self.sides.iter().all(|side| side.progress >= COMPLETE) {
            return Status::Ok;
        }
        self.sides[direction as usize].record.extend_from_slice(data);
        self.records(direction)
    }

    fn transactions(&self) -> Range<u64> {
        u64::from(self.released)..1
    }

    fn progress(&self, _id: u64, direction: Direction) -> u8 {
        self.sides[direction as usize].progress
    }

    fn complete(&self) -> u8 {
        COMPLETE
    }

    fn field<'a>(
        &'a self,
        _id: u64,
        field: Field,
        view: View,
        index: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let side = &self.sides[view.direction as usize];
        let hello = side.hello.as_ref();
        match field {
            Field::TlsAlpn => return hello?.protocols.get(index).map(Vec::as_slice),
            Field::TlsCerts => return side.certificates.get(index).map(Vec::as_slice),
            Field::TlsSubjectAltName => return side.leaf.as_ref()?.names.get(index).map(Vec::as_slice),
            _ if index > 0 => return None,
            _ => {}
        }
        let text = |text: Option<&'a String>| text.map(String::as_bytes);
        match field {
            Field::TlsSni => hello?.server_name.as_deref(),
            Field::TlsRandom => Some(&hello?.random),
            Field::TlsRandomTime => Some(&hello?.random[..4]),
            Field::TlsRandomBytes => Some(&hello?.random[4..]),
            Field::TlsCertSubject => Some(&side.leaf.as_ref()?.subject),
            Field::TlsCertIssuer => Some(&side.leaf.as_ref()?.issuer),
            Field::TlsCertSerial => text(Some(&side.leaf.as_ref()?.serial)),
            Field::TlsCertFingerprint => text(Some(&side.leaf.as_ref()?.fingerprint)),
            Field::Ja3String => text(self.ja3.as_ref()),
            Field::Ja3sString => text(self.ja3s.as_ref()),
            Field::Ja4Hash => text(self.ja4.as_ref()),
            Field::Ja3Hash | Field::Ja3sHash => {
                let string = if field == Field::Ja3Hash { self.ja3.as_ref()? } else { self.ja3s.as_ref()? };
                *scratch = digest::hex(&digest::md5(string.as_bytes())).into_bytes();
                Some(scratch)
            }
            Field::TlsVersion => {
                let version = if self.version != 0 { self.version } else { hello?.version };
                scratch.clear();
                scratch.extend_from_slice(&u64::from(version).to_be_bytes());
                Some(scratch)
            }
            _ => None,
        }
    }

    fn release(&mut self, _id: u64) {
        self.released = true;
    }

    fn is_encrypted(&self, direction: Direction) -> bool {
        self.sides[direction as usize].progress >= COMPLETE
    }

    fn take_trigger(&mut self, direction: Direction) -> bool {
        std::mem::take(&mut self.trigger[direction as usize])
    }

    fn describe(&self, _id: u64, json: &mut Json) {
        let [client, server] = &self.sides;
        if let Some(leaf) = &server.leaf {
            json.bytes("subject", &leaf.subject);
            json.bytes("issuerdn", &leaf.issuer);
            json.string("serial", &leaf.serial);
            json.string("fingerprint", &leaf.fingerprint);
            if !leaf.names.is_empty() {
                json.array("subjectaltname", |json| leaf.names.iter().for_each(|name| json.text_element(name)));
            }
            json.string("notbefore", &leaf.not_before);
            json.string("notafter", &leaf.not_after);
        }
        if let Some(name) = client.hello.as_ref().and_then(|hello| hello.server_name.as_ref()) {
            json.bytes("sni", name);
        }
        if self.version != 0 {
            json.string("version", &version_name(self.version));
        }
        for (name, side) in [("client_alpns", client), ("server_alpns", server)] {
            let Some(hello) = side.hello.as_ref().filter(|hello| !hello.protocols.is_empty()) else { continue };
            json.array(name, |json| hello.protocols.iter().for_each(|protocol| json.text_element(protocol)));
        }
        for (name, string) in [("ja3", &self.ja3), ("ja3s", &self.ja3s)] {
            if let Some(string) = string {
                json.nested(name, |json| {
                    json.string("hash", &digest::hex(&digest::md5(string.as_bytes())));
                    json.string("string", string);
                });
            }
        }
        if let Some(ja4) = &self.ja4 {
            json.string("ja4", ja4);
        }
    }
}

fn version_name(version: u16) -> String {
    match version {
        0x0002 => "SSLv2".to_owned(),
        0x0300 => "SSLv3".to_owned(),
        0x0301 => "TLSv1".to_owned(),
        0x0302 => "TLS 1.1".to_owned(),
        0x0303 => "TLS 1.2".to_owned(),
        0x0304 => "TLS 1.3".to_owned(),
        other => format!("0x{other:04x}"),
    }
}
