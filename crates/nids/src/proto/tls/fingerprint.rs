//! Computes fingerprints of TLS hello messages: JA3 and JA3S (Salesforce, BSD licence), and JA4
//! (FoxIO, BSD licence).

use super::hello::Hello;
use crate::detect::digest;

/// Returns whether a value is a GREASE value, which clients send to test extensibility (RFC 8701).
/// Fingerprints ignore these values.
fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

fn joined(values: &[u16]) -> String {
    let values: Vec<String> = values.iter().filter(|value| !is_grease(**value)).map(u16::to_string).collect();
    values.join("-")
}

/// Returns the JA3 string of a ClientHello.
pub(crate) fn ja3(hello: &Hello) -> String {
    let points: Vec<u16> = hello.points.iter().map(|point| u16::from(*point)).collect();
    format!(
        "{},{},{},{},{}",
        hello.version,
        joined(&hello.ciphers),
        joined(&hello.extensions),
        joined(&hello.groups),
        joined(&points)
    )
}

/// Returns the JA3S string of a ServerHello.
pub(crate) fn ja3s(hello: &Hello) -> String {
    format!("{},{},{}", hello.version, joined(&hello.ciphers), joined(&hello.extensions))
}

/// Returns the JA4 fingerprint of a ClientHello message. `transport` is `t` for TCP and `q` for
/// QUIC.
pub(crate) fn ja4(hello: &Hello, transport: char) -> String {
    let version = hello.versions.iter().copied().filter(|version| !is_grease(*version)).max().unwrap_or(hello.version);
    let version = match version {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        _ => "00",
    };
    let mut ciphers: Vec<u16> = hello.ciphers.iter().copied().filter(|cipher| !is_grease(*cipher)).collect();
    let mut extensions: Vec<u16> = hello.extensions.iter().copied().filter(|kind| !is_grease(*kind)).collect();
    let (cipher_count, extension_count) = (ciphers.len().min(99), extensions.len().min(99));
    ciphers.sort_unstable();
    extensions.retain(|kind| !matches!(kind, 0 | 16));
    extensions.sort_unstable();
    let hex = |values: &[u16]| values.iter().map(|value| format!("{value:04x}")).collect::<Vec<_>>().join(",");
    let mut inner = hex(&extensions);
    if !hello.signatures.is_empty() {
        let signatures: Vec<u16> = hello.signatures.iter().copied().filter(|value| !is_grease(*value)).collect();
        inner = format!("{inner}_{}", hex(&signatures));
    }
    let name = if hello.server_name.is_some() { 'd' } else { 'i' };
    format!(
        "{transport}{version}{name}{cipher_count:02}{extension_count:02}{}_{}_{}",
        protocol_letters(hello),
        short_digest(&hex(&ciphers), ciphers.is_empty()),
        short_digest(&inner, extensions.is_empty())
    )
}

/// Returns the first and last letter of the first ALPN protocol name, as JA4 defines.
fn protocol_letters(hello: &Hello) -> String {
    let Some((first, last)) = hello.protocols.first().and_then(|name| Some((*name.first()?, *name.last()?))) else {
        return "00".to_owned();
    };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        format!("{}{}", char::from(first), char::from(last))
    } else {
        format!("{:x}{:x}", first >> 4, last & 0xf)
    }
}

fn short_digest(text: &str, empty: bool) -> String {
    if empty { "000000000000".to_owned() } else { digest::hex(&digest::sha256(text.as_bytes())[..6]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grease_is_ignored() {
        assert!(is_grease(0x0a0a) && is_grease(0xfafa) && !is_grease(0x0a1a) && !is_grease(0x1301));
        let hello = Hello { version: 771, ciphers: vec![0x0a0a, 4865], extensions: vec![0, 23], ..Hello::default() };
        assert_eq!(ja3(&hello), "771,4865,0-23,,");
        assert_eq!(ja3s(&hello), "771,4865,0-23");
    }
}
