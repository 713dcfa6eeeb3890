//! Parses DNS over UDP and TCP (RFC 1035). Each DNS message is a separate transaction.

use super::{Parser, Status, View};
use crate::app::Direction;
use crate::eve::Json;
use crate::rules::Field;
use std::collections::VecDeque;
use std::ops::Range;

/// Maximum number of messages that wait for inspection.
const MESSAGES_MAX: usize = 256;
/// Maximum number of records of one message.
const RECORDS_MAX: usize = 256;
/// Maximum length of a name, in bytes.
const NAME_BYTES_MAX: usize = 1025;

/// Question or resource record.
#[derive(Debug, Clone, Default)]
struct Record {
    name: Vec<u8>,
    kind: u16,
    ttl: u32,
    data: Vec<u8>,
}

/// DNS message.
#[derive(Debug, Clone, Default)]
pub(super) struct Message {
    id: u16,
    flags: u16,
    questions: Vec<Record>,
    /// Resource records in the answer, authority and additional sections.
    sections: [Vec<Record>; 3],
}

#[derive(Debug)]
struct Transaction {
    direction: Direction,
    message: Message,
}

/// Parser of one flow.
#[derive(Debug)]
pub(super) struct Dns {
    tcp: bool,
    buffers: [Vec<u8>; 2],
    first: u64,
    transactions: VecDeque<Transaction>,
    trigger: [bool; 2],
}

impl Dns {
    /// Returns a parser for DNS over TCP or UDP.
    pub(super) fn new(tcp: bool) -> Self {
        Self { tcp, buffers: Default::default(), first: 0, transactions: VecDeque::new(), trigger: [false; 2] }
    }

    fn message(&mut self, direction: Direction, bytes: &[u8]) {
        let Some(message) = Message::parse(bytes) else { return };
        if self.transactions.len() < MESSAGES_MAX {
            self.transactions.push_back(Transaction { direction, message });
            self.trigger[direction as usize] = true;
        }
    }

    fn get(&self, id: u64) -> Option<&Transaction> {
        self.transactions.get(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }
}

impl Parser for Dns {
    fn data(&mut self, direction: Direction, data: &[u8], _end: bool) -> Status {
        if !self.tcp {
            self.message(direction, data);
            return Status::Ok;
        }
        let mut buffer = std::mem::take(&mut self.buffers[direction as usize]);
        buffer.extend_from_slice(data);
        let mut at = 0;
        while let Some(&[high, low]) = buffer.get(at..at + 2) {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let Some(message) = buffer.get(at + 2..at + 2 + length) else { break };
            self.message(direction, message);
            at += 2 + length;
        }
        buffer.drain(..at);
        self.buffers[direction as usize] = buffer;
        Status::Ok
    }

    fn transactions(&self) -> Range<u64> {
        self.first..self.first + self.transactions.len() as u64
    }

    fn progress(&self, _id: u64, _direction: Direction) -> u8 {
        1
    }

    fn complete(&self) -> u8 {
        1
    }

    fn inspects(&self, id: u64, direction: Direction) -> bool {
        self.get(id).is_none_or(|transaction| transaction.direction == direction)
    }

    fn field<'a>(
        &'a self,
        id: u64,
        field: Field,
        view: View,
        index: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let Transaction { direction, message } = self.get(id)?;
        if *direction != view.direction {
            return None;
        }
        message.field(field, index, scratch)
    }

    fn release(&mut self, id: u64) {
        if id == self.first && self.transactions.pop_front().is_some() {
            self.first += 1;
        }
    }

    fn take_trigger(&mut self, direction: Direction) -> bool {
        std::mem::take(&mut self.trigger[direction as usize])
    }

    fn record_direction(&self, id: u64) -> Direction {
        self.get(id).map_or(Direction::ToServer, |transaction| transaction.direction)
    }

    fn describe(&self, id: u64, json: &mut Json) {
        let Some(transaction) = self.get(id) else { return };
        transaction.message.describe(json);
    }
}

impl Message {
    /// Parses a DNS message. For a malformed message, returns the part before the error.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let mut message = Self { id: half(0)?, flags: half(2)?, ..Self::default() };
        let counts = [half(4)?, half(6)?, half(8)?, half(10)?];
        let mut at = 12;
        for _ in 0..counts[0] {
            if message.questions.len() >= RECORDS_MAX {
                break;
            }
            let Some((name, after)) = name(bytes, at) else { break };
            let kind = half(after).unwrap_or(0);
            message.questions.push(Record { name, kind, ..Record::default() });
            at = after + 4;
        }
        'sections: for (section, count) in counts[1..].iter().enumerate() {
            for _ in 0..*count {
                let Some((record, after)) = record(bytes, at) else { break 'sections };
                if message.sections[section].len() >= RECORDS_MAX {
                    break 'sections;
                }
                message.sections[section].push(record);
                at = after;
            }
        }
        Some(message)
    }

    /// Returns whether the message is a response.
    pub(super) fn is_response(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    /// Returns an occurrence of a field.
    pub(super) fn field<'a>(&'a self, field: Field, index: usize, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let mut number = |value: u64| {
            scratch.clear();
            scratch.extend_from_slice(&value.to_be_bytes());
        };
        match field {
            Field::DnsQuery if self.is_response() => return None,
            Field::DnsQuery | Field::DnsQueriesRrname => return Some(&self.questions.get(index)?.name),
            Field::DnsAnswersRrname => return Some(&self.sections[0].get(index)?.name),
            Field::DnsAuthoritiesRrname => return Some(&self.sections[1].get(index)?.name),
            Field::DnsAdditionalsRrname => return Some(&self.sections[2].get(index)?.name),
            Field::DnsOpcode if index == 0 => number(u64::from(self.flags >> 11 & 0xf)),
            Field::DnsRcode if index == 0 && self.is_response() => number(u64::from(self.flags & 0xf)),
            Field::DnsRrtype => {
                let mut records = self.questions.iter().chain(&self.sections[0]);
                number(u64::from(records.nth(index)?.kind));
            }
            _ => return None,
        }
        Some(scratch)
    }

    fn describe(&self, json: &mut Json) {
        json.number("version", 3);
        json.string("type", if self.is_response() { "response" } else { "request" });
        json.number("id", self.id.into());
        json.display("flags", format_args!("{:x}", self.flags));
        for (name, bit) in [("qr", 0x8000), ("aa", 0x400), ("tc", 0x200), ("rd", 0x100), ("ra", 0x80)] {
            if self.flags & bit != 0 {
                json.boolean(name, true);
            }
        }
        json.number("opcode", u64::from(self.flags >> 11 & 0xf));
        if self.is_response() {
            json.string("rcode", code_name(self.flags & 0xf));
        }
        for (name, records) in [
            ("queries", &self.questions),
            ("answers", &self.sections[0]),
            ("authorities", &self.sections[1]),
            ("additionals", &self.sections[2]),
        ] {
            if !records.is_empty() {
                json.array(name, |json| records.iter().for_each(|record| json.element(|json| record.describe(json))));
            }
        }
    }
}

impl Record {
    fn describe(&self, json: &mut Json) {
        json.bytes("rrname", &self.name);
        json.string("rrtype", &type_name(self.kind));
        if !self.data.is_empty() {
            json.number("ttl", self.ttl.into());
        }
        match (self.kind, self.data.as_slice()) {
            (1, &[a, b, c, d]) => json.display("rdata", std::net::Ipv4Addr::new(a, b, c, d)),
            (28, data) => {
                if let Ok(octets) = <[u8; 16]>::try_from(data) {
                    json.string("rdata", &crate::eve::record::address(octets.into()));
                }
            }
            (2 | 5 | 12 | 15 | 16, data) => json.bytes("rdata", data),
            _ => {}
        }
    }
}

/// Parses a DNS resource record. Returns the record and the offset after the record.
fn record(bytes: &[u8], at: usize) -> Option<(Record, usize)> {
    let (name_bytes, at) = name(bytes, at)?;
    let header = bytes.get(at..at + 10)?;
    let kind = u16::from_be_bytes([header[0], header[1]]);
    let ttl = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let length = usize::from(u16::from_be_bytes([header[8], header[9]]));
    let data = bytes.get(at + 10..at + 10 + length)?;
    let data = match kind {
        2 | 5 | 12 => name(bytes, at + 10).map(|name| name.0).unwrap_or_default(),
        15 => name(bytes, at + 12).map(|name| name.0).unwrap_or_default(),
        16 => data.get(1..).unwrap_or(&[]).to_vec(),
        _ => data.to_vec(),
    };
    Some((Record { name: name_bytes, kind, ttl, data }, at + 10 + length))
}

/// Parses a domain name. Returns it as dotted text, with the offset after the encoded name.
fn name(bytes: &[u8], at: usize) -> Option<(Vec<u8>, usize)> {
    let (mut at, mut after, mut jumps) = (at, None, 0);
    let mut name = Vec::new();
    loop {
        let length = usize::from(*bytes.get(at)?);
        match length {
            0 => return Some((name, after.unwrap_or(at + 1))),
            1..=63 => {
                if !name.is_empty() {
                    name.push(b'.');
                }
                let label = bytes.get(at + 1..).map(|rest| &rest[..rest.len().min(length)])?;
                name.extend_from_slice(label);
                at += 1 + length;
                if label.len() < length || name.len() > NAME_BYTES_MAX {
                    return Some((name, after.unwrap_or(at)));
                }
            }
            0xc0..=0xff => {
                after = after.or(Some(at + 2));
                at = (length & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
                jumps += 1;
                if jumps > 64 {
                    return None;
                }
            }
            _ => return None,
        }
    }
}

fn type_name(kind: u16) -> String {
    let name = match kind {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        12 => "PTR",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        41 => "OPT",
        65 => "HTTPS",
        255 => "ANY",
        other => return other.to_string(),
    };
    name.to_owned()
}

fn code_name(code: u16) -> &'static str {
    match code {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        _ => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x06google\x03com\0\0\x01\0\x01";

    #[test]
    fn parses_queries_and_compressed_answers() {
        let message = Message::parse(QUERY).unwrap();
        let mut scratch = Vec::new();
        assert_eq!(message.field(Field::DnsQuery, 0, &mut scratch), Some(&b"www.google.com"[..]));
        let mut answer = QUERY.to_vec();
        answer[2] = 0x81;
        answer[7] = 1;
        answer.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x01\x02\x03\x04");
        let message = Message::parse(&answer).unwrap();
        assert!(message.is_response());
        assert_eq!(message.field(Field::DnsAnswersRrname, 0, &mut scratch), Some(&b"www.google.com"[..]));
    }

    #[test]
    fn loops_and_truncation_end() {
        let mut looped = QUERY.to_vec();
        looped[12] = 0xc0;
        looped[13] = 12;
        assert!(Message::parse(&looped).unwrap().questions.is_empty());
        for length in 0..QUERY.len() {
            let _ = Message::parse(&QUERY[..length]);
        }
    }

    #[test]
    fn streams_have_lengths() {
        let mut dns = Dns::new(true);
        let framed = [&(QUERY.len() as u16).to_be_bytes()[..], QUERY].concat();
        for byte in framed.iter().chain(&framed) {
            dns.data(Direction::ToServer, &[*byte], false);
        }
        assert_eq!(dns.transactions(), 0..2);
    }
}
