//! Parses keywords that test a field without a `content` option, such as file names, protocol
//! numbers and events.

use super::chains::Chains;
use super::content::Content;
use super::field::Field;
use super::number::{NumberTest, parse_number};
use super::rule::Test;
use super::text::unquote;

const BAD: &str = "the value is not valid";

/// Adds the test for a keyword of this module. Returns false for other keywords.
pub(super) fn option(chains: &mut Chains, name: &str, value: Option<&str>) -> Result<bool, &'static str> {
    let Some(value) = value else { return Ok(false) };
    match name {
        "urilen" => {
            let (test, field) = match value.split_once(',') {
                Some((test, kind)) if kind.trim() == "raw" => (test, Field::HttpUriRaw),
                Some((test, kind)) if kind.trim() == "norm" => (test, Field::HttpUri),
                Some(_) => return Err(BAD),
                None => (value, Field::HttpUri),
            };
            chains.push_to(field, Test::Size(NumberTest::parse(test).ok_or(BAD)?));
        }
        "filename" => whole(chains, Field::FileName, value, false)?,
        "fileext" => {
            let (negated, text) = unquote(value);
            let mut content = Content::parse(&format!(".{text}"), negated)?;
            content.set_nocase();
            content.ends = true;
            chains.push_to(Field::FileName, Test::Content(content));
        }
        "tls.fingerprint" => whole(chains, Field::TlsCertFingerprint, value, true)?,
        "tls.subject" => substring(chains, Field::TlsCertSubject, value)?,
        "tls.issuerdn" => substring(chains, Field::TlsCertIssuer, value)?,
        "ssh.protoversion" => whole(chains, Field::SshProto, value, true)?,
        "ssh.softwareversion" => substring(chains, Field::SshSoftware, value)?,
        _ => {
            let Some((field, number)) = number_field(name) else { return Ok(false) };
            let test = NumberTest::parse_with(unquote(value).1, number).ok_or(BAD)?;
            chains.push_to(field, Test::Number(test));
        }
    }
    Ok(true)
}

/// Conversion of an operand to a number.
type ParseNumber = fn(&str) -> Option<u64>;

/// Returns the field that a keyword tests as a number, and the parser for its operands.
fn number_field(name: &str) -> Option<(Field, ParseNumber)> {
    let field = Field::sticky(name)?;
    let number: fn(&str) -> Option<u64> = match field {
        Field::TlsVersion => tls_version,
        Field::DnsRrtype => record_type,
        Field::DnsRcode => response_code,
        Field::DnsOpcode | Field::SnmpVersion | Field::DceOpnum => parse_number,
        Field::SnmpPduType => snmp_pdu_type,
        _ => return None,
    };
    Some((field, number))
}

/// Adds a case-insensitive comparison of a field with `value`. If `exact` is true, both must be
/// equal. Otherwise, the field must contain the value.
fn whole(chains: &mut Chains, field: Field, value: &str, exact: bool) -> Result<(), &'static str> {
    let (negated, text) = unquote(value);
    let mut content = Content::parse(text, negated)?;
    content.set_nocase();
    content.starts = exact;
    content.ends = exact;
    chains.push_to(field, Test::Content(content));
    Ok(())
}

fn substring(chains: &mut Chains, field: Field, value: &str) -> Result<(), &'static str> {
    let (negated, text) = unquote(value);
    chains.push_to(field, Test::Content(Content::parse(text, negated)?));
    Ok(())
}

/// Adds a test of an event of an application protocol.
pub(super) fn app_event(chains: &mut Chains, app: &str, event: &str) -> Result<(), &'static str> {
    let event = crate::event::find_app(app, event).ok_or("the event is not supported")?;
    let mut content = Content::parse(event, false)?;
    content.starts = true;
    content.ends = true;
    chains.push_to(Field::AppEvent, Test::Content(content));
    Ok(())
}

fn tls_version(text: &str) -> Option<u64> {
    Some(match text {
        "1.0" => 0x0301,
        "1.1" => 0x0302,
        "1.2" => 0x0303,
        "1.3" => 0x0304,
        other => parse_number(other)?,
    })
}

fn record_type(text: &str) -> Option<u64> {
    Some(match text.to_ascii_uppercase().as_str() {
        "A" => 1,
        "NS" => 2,
        "CNAME" => 5,
        "SOA" => 6,
        "NULL" => 10,
        "PTR" => 12,
        "MX" => 15,
        "TXT" => 16,
        "AAAA" => 28,
        "SRV" => 33,
        "OPT" => 41,
        "HTTPS" => 65,
        "ANY" => 255,
        _ => parse_number(text)?,
    })
}

fn response_code(text: &str) -> Option<u64> {
    Some(match text.to_ascii_uppercase().as_str() {
        "NOERROR" => 0,
        "FORMERR" => 1,
        "SERVFAIL" => 2,
        "NXDOMAIN" => 3,
        "NOTIMP" => 4,
        "REFUSED" => 5,
        _ => parse_number(text)?,
    })
}

fn snmp_pdu_type(text: &str) -> Option<u64> {
    Some(match text {
        "get_request" => 0,
        "get_next_request" => 1,
        "response" => 2,
        "set_request" => 3,
        "trap_v1" => 4,
        "get_bulk_request" => 5,
        "inform_request" => 6,
        "trap_v2" => 7,
        "report" => 8,
        _ => parse_number(text)?,
    })
}
