//! Parses SSH version lines and algorithm lists (RFC 4253, sections 4.2 and 7.1). Computes the
//! fingerprints hassh and hasshServer (Salesforce, 2018) from the algorithm lists.

use super::{Parser, Status, View};
use crate::app::Direction;
use crate::detect::digest;
use crate::eve::Json;
use crate::rules::Field;
use std::ops::Range;

/// Maximum length of a version line (RFC 4253, section 4.2).
const LINE_BYTES_MAX: usize = 255;
/// Maximum length of a packet (RFC 4253, section 6.1).
const PACKET_BYTES_MAX: usize = 35_000;
/// Parser progress after the version line.
const VERSION: u8 = 1;
/// Parser progress from which all data is encrypted.
const COMPLETE: u8 = 2;
/// Message numbers (RFC 4253, section 12).
const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;

/// One direction of a connection.
#[derive(Debug, Default)]
struct Side {
    /// Bytes of an incomplete line or packet.
    buffer: Vec<u8>,
    protocol: Vec<u8>,
    software: Vec<u8>,
    /// Names of the offered algorithms, and their HASSH fingerprint.
    hassh: Option<(String, String)>,
    progress: u8,
    /// Whether encrypted data has arrived in this direction. Rules still inspect earlier packets.
    encrypted: bool,
}

impl Side {
    /// Parses the SSH version line and skips the lines before it. Returns false if the version line
    /// has not arrived yet.
    fn version_line(&mut self) -> Result<bool, ()> {
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = line.trim_ascii_end();
            let Some(rest) = line.strip_prefix(b"SSH-") else { continue };
            let Some(dash) = rest.iter().position(|byte| *byte == b'-') else { return Err(()) };
            let software = &rest[dash + 1..];
            let length = software.iter().position(|byte| *byte == b' ').unwrap_or(software.len());
            self.protocol = rest[..dash].to_vec();
            self.software = software[..length].to_vec();
            return Ok(true);
        }
        if self.buffer.len() > LINE_BYTES_MAX { Err(()) } else { Ok(false) }
    }

    /// Processes the packets in the buffer.
    fn packets(&mut self, direction: Direction) -> Result<(), ()> {
        while let Some(&[a, b, c, d, padding, kind]) = self.buffer.first_chunk::<6>() {
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            if !(2..=PACKET_BYTES_MAX).contains(&length) || usize::from(padding) + 1 > length {
                return Err(());
            }
            if self.buffer.len() < 4 + length {
                return Ok(());
            }
            match kind {
                KEXINIT => {
                    let payload = &self.buffer[6..4 + length - usize::from(padding).min(length - 2)];
                    self.hassh = fingerprint(payload, direction);
                }
                NEWKEYS => {
                    self.progress = COMPLETE;
                    self.buffer = Vec::new();
                    return Ok(());
                }
                _ => {}
            }
            self.buffer.drain(..4 + length);
        }
        Ok(())
    }
}

/// Returns the algorithm lists and the fingerprint from `payload`, the body of an `SSH_MSG_KEXINIT`
/// message.
fn fingerprint(payload: &[u8], direction: Direction) -> Option<(String, String)> {
    let mut lists = Vec::with_capacity(8);
    let mut rest = payload.get(16..)?;
    for _ in 0..8 {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (list, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        lists.push(String::from_utf8_lossy(list).into_owned());
        rest = after;
    }
    // The fingerprint covers the key exchange algorithms, and then the ciphers, MACs and
    // compression methods of this direction.
    let own = direction as usize;
    let algorithms = [0, 2 + own, 4 + own, 6 + own].map(|index| lists[index].as_str()).join(";");
    let hash = digest::hex(&digest::md5(algorithms.as_bytes()));
    Some((algorithms, hash))
}

/// Parser of one connection.
#[derive(Debug, Default)]
pub(super) struct Ssh {
    sides: [Side; 2],
    released: bool,
    trigger: [bool; 2],
}

impl Parser for Ssh {
    fn data(&mut self, direction: Direction, data: &[u8], _end: bool) -> Status {
        let side = &mut self.sides[direction as usize];
        if side.progress == COMPLETE {
            side.encrypted = true;
            return Status::Ok;
        }
        side.buffer.extend_from_slice(data);
        if side.progress < VERSION {
            match side.version_line() {
                Ok(true) => {
                    side.progress = VERSION;
                    self.trigger[direction as usize] = true;
                }
                Ok(false) => return Status::Ok,
                Err(()) => return Status::Stop,
            }
        }
        let result = side.packets(direction);
        if side.progress == COMPLETE {
            self.trigger[direction as usize] = true;
        }
        match result {
            Ok(()) => Status::Ok,
            Err(()) => Status::Stop,
        }
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
        _scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        if index > 0 {
            return None;
        }
        let side = &self.sides[view.direction as usize];
        let present = side.progress >= VERSION;
        match field {
            Field::SshProto => present.then_some(side.protocol.as_slice()),
            Field::SshSoftware => present.then_some(side.software.as_slice()),
            Field::SshHassh | Field::SshHasshServer => side.hassh.as_ref().map(|hassh| hassh.1.as_bytes()),
            Field::SshHasshString | Field::SshHasshServerString => side.hassh.as_ref().map(|hassh| hassh.0.as_bytes()),
            _ => None,
        }
    }

    fn release(&mut self, _id: u64) {
        self.released = true;
    }

    fn is_encrypted(&self, direction: Direction) -> bool {
        self.sides[direction as usize].encrypted
    }

    fn take_trigger(&mut self, direction: Direction) -> bool {
        std::mem::take(&mut self.trigger[direction as usize])
    }

    fn is_recorded(&self, _id: u64) -> bool {
        self.sides.iter().any(|side| side.progress >= VERSION)
    }

    fn describe(&self, _id: u64, json: &mut Json) {
        for (name, side) in [("client", &self.sides[0]), ("server", &self.sides[1])] {
            if side.progress < VERSION {
                continue;
            }
            json.nested(name, |json| {
                json.bytes("proto_version", &side.protocol);
                json.bytes("software_version", &side.software);
                if let Some((string, hash)) = &side.hassh {
                    json.nested("hassh", |json| {
                        json.string("hash", hash);
                        json.string("string", string);
                    });
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut packet = (payload.len() as u32 + 5).to_be_bytes().to_vec();
        packet.push(4);
        packet.extend_from_slice(payload);
        packet.extend([0; 4]);
        packet
    }

    fn kexinit() -> Vec<u8> {
        let mut payload = vec![KEXINIT];
        payload.extend([7; 16]);
        for list in ["kex", "key", "c-enc", "s-enc", "c-mac", "s-mac", "c-zip", "s-zip", "", ""] {
            payload.extend((list.len() as u32).to_be_bytes());
            payload.extend(list.as_bytes());
        }
        payload.extend([0; 5]);
        packet(&payload)
    }

    fn field(ssh: &Ssh, direction: Direction, field: Field) -> Option<String> {
        let view = View { direction, end: false, inline: false };
        let mut scratch = Vec::new();
        ssh.field(0, field, view, 0, &mut scratch).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn versions_and_algorithms_arrive_in_pieces() {
        let mut stream = b"a greeting\r\nSSH-2.0-OpenSSH_9.2p1 Debian\r\n".to_vec();
        stream.extend(kexinit());
        stream.extend(packet(&[NEWKEYS]));
        for size in [1, 2, 7, 1000] {
            let mut ssh = Ssh::default();
            for direction in Direction::BOTH {
                for piece in stream.chunks(size) {
                    assert_eq!(ssh.data(direction, piece, false), Status::Ok);
                }
                assert_eq!(ssh.progress(0, direction), COMPLETE);
                assert_eq!(ssh.data(direction, b"encrypted", false), Status::Ok);
                assert_eq!(field(&ssh, direction, Field::SshProto).as_deref(), Some("2.0"));
                assert_eq!(field(&ssh, direction, Field::SshSoftware).as_deref(), Some("OpenSSH_9.2p1"));
            }
            let client = field(&ssh, Direction::ToServer, Field::SshHasshString);
            assert_eq!(client.as_deref(), Some("kex;c-enc;c-mac;c-zip"));
            let server = field(&ssh, Direction::ToClient, Field::SshHasshServerString);
            assert_eq!(server.as_deref(), Some("kex;s-enc;s-mac;s-zip"));
        }
    }

    #[test]
    fn bytes_that_are_not_ssh_end_the_parser() {
        let stops = |bytes: &[u8]| Ssh::default().data(Direction::ToServer, bytes, false) == Status::Stop;
        assert!(stops(b"SSH-nothing\r\n") && stops(&[b'x'; 300]));
        assert!(stops(b"SSH-2.0-x\r\n\xff\xff\xff\xff\x00\x14") && stops(b"SSH-2.0-x\r\n\x00\x00\x00\x02\x09\x14"));
        assert!(!stops(b"SSH-2.0-x\r\n\x00\x00\x00\x02\x00\x14"));
    }
}
