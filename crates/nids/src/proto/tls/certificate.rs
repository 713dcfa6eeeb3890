//! Parses the parts of X.509 certificates (RFC 5280) that rules and log records use.

use crate::detect::digest;

/// Parts of a certificate.
#[derive(Debug, Clone, Default)]
pub(super) struct Certificate {
    /// Subject, as in `C=US, O=Example, CN=example.com`.
    pub subject: Vec<u8>,
    /// Issuer of the certificate, such as `C=US, O=Example, CN=example.com`.
    pub issuer: Vec<u8>,
    /// Serial number: hexadecimal bytes with colons.
    pub serial: String,
    /// SHA-1 digest: hexadecimal bytes with colons.
    pub fingerprint: String,
    /// Start of the validity.
    pub not_before: String,
    /// End of the validity.
    pub not_after: String,
    /// Alternative names.
    pub names: Vec<Vec<u8>>,
}

/// Returns the certificates of a Certificate message.
pub(super) fn chain(body: &[u8]) -> Vec<Vec<u8>> {
    let mut certificates = Vec::new();
    let mut rest = body.get(3..).unwrap_or(&[]);
    while let Some((length, after)) = rest.split_at_checked(3) {
        let length = usize::from(length[0]) << 16 | usize::from(length[1]) << 8 | usize::from(length[2]);
        let Some((certificate, after)) = after.split_at_checked(length) else { break };
        certificates.push(certificate.to_vec());
        rest = after;
        if certificates.len() >= 16 {
            break;
        }
    }
    certificates
}

/// Element of a DER encoding with its tag and its content.
#[derive(Clone, Copy)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
}

/// Returns the first element and the bytes after it.
fn element(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (tag, first) = (*bytes.first()?, *bytes.get(1)?);
    let (length, header) = match first {
        0..=0x7f => (usize::from(first), 2),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let digits = bytes.get(2..2 + count)?;
            (digits.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), 2 + count)
        }
        _ => return None,
    };
    let content = bytes.get(header..header.checked_add(length)?)?;
    Some((Element { tag, content }, &bytes[header + length..]))
}

fn elements(bytes: &[u8]) -> impl Iterator<Item = Element<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (first, after) = element(rest)?;
        rest = after;
        Some(first)
    })
}

impl Certificate {
    /// Parses a certificate.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (outer, _) = element(bytes)?;
        let (body, _) = element(outer.content)?;
        let mut parts = elements(body.content).peekable();
        if parts.peek()?.tag == 0xa0 {
            parts.next();
        }
        let serial = parts.next()?;
        let _algorithm = parts.next()?;
        let issuer = parts.next()?;
        let validity = parts.next()?;
        let subject = parts.next()?;
        let mut times = elements(validity.content);
        let mut certificate = Self {
            subject: name(subject.content),
            issuer: name(issuer.content),
            serial: colons(serial.content, true),
            fingerprint: colons(&digest::sha1(bytes), false),
            not_before: times.next().map(time).unwrap_or_default(),
            not_after: times.next().map(time).unwrap_or_default(),
            names: Vec::new(),
        };
        if let Some(extensions) = parts.find(|part| part.tag == 0xa3)
            && let Some((list, _)) = element(extensions.content)
        {
            certificate.names = elements(list.content).find_map(alternative_names).unwrap_or_default();
        }
        Some(certificate)
    }
}

/// Returns the names of a subjectAltName extension.
fn alternative_names(extension: Element<'_>) -> Option<Vec<Vec<u8>>> {
    let parts: Vec<Element<'_>> = elements(extension.content).collect();
    if parts.first()?.content != [0x55, 0x1d, 0x11] {
        return None;
    }
    let value = parts.last().filter(|part| part.tag == 0x04)?;
    let (list, _) = element(value.content)?;
    let text = |name: Element<'_>| match (name.tag, name.content) {
        (0x81 | 0x82 | 0x86, text) => Some(text.to_vec()),
        (0x87, &[a, b, c, d]) => Some(format!("{a}.{b}.{c}.{d}").into_bytes()),
        _ => None,
    };
    Some(elements(list.content).filter_map(text).take(256).collect())
}

/// Returns a distinguished name as text.
fn name(content: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for set in elements(content) {
        for pair in elements(set.content) {
            let mut parts = elements(pair.content);
            let (Some(oid), Some(value)) = (parts.next(), parts.next()) else { continue };
            if !text.is_empty() {
                text.extend_from_slice(b", ");
            }
            text.extend_from_slice(attribute(oid.content).as_bytes());
            text.push(b'=');
            match value.tag {
                // A BMPString has two bytes per character.
                0x1e => text.extend(value.content.chunks_exact(2).map(|pair| pair[1])),
                _ => text.extend_from_slice(value.content),
            }
        }
    }
    text
}

fn attribute(oid: &[u8]) -> String {
    let known = match oid {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 4] => "SN",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "street",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x55, 4, 12] => "title",
        [0x55, 4, 17] => "postalCode",
        [0x55, 4, 42] => "GN",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "Email",
        _ => "",
    };
    if known.is_empty() { dotted(oid) } else { known.to_owned() }
}

fn dotted(oid: &[u8]) -> String {
    let Some(first) = oid.first() else { return String::new() };
    let mut text = format!("{}.{}", (first / 40).min(2), first - (first / 40).min(2) * 40);
    let mut number = 0u64;
    for byte in &oid[1..] {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            text.push_str(&format!(".{number}"));
            number = 0;
        }
    }
    text
}

fn colons(bytes: &[u8], upper: bool) -> String {
    let digits = bytes.iter().map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") });
    digits.collect::<Vec<_>>().join(":")
}

/// Converts a UTCTime or GeneralizedTime to text such as `2022-12-01T06:47:31`.
fn time(element: Element<'_>) -> String {
    let text = String::from_utf8_lossy(element.content);
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let full = match digits.len() {
        12 => format!("{}{digits}", if &digits[..2] < "50" { "20" } else { "19" }),
        14 => digits,
        _ => return text.into_owned(),
    };
    let part = |from: usize, to: usize| &full[from..to];
    format!("{}-{}-{}T{}:{}:{}", part(0, 4), part(4, 6), part(6, 8), part(8, 10), part(10, 12), part(12, 14))
}
