//! Reads HTTP fields for rules, and writes HTTP data to EVE records.

use super::htp::Tx;
use super::transaction::window_options;
use crate::app::Direction;
use crate::eve::Json;
use crate::proto::View;
use crate::proto::body::WindowOptions;
use crate::rules::Field;
use suricata_htp::log::HtpLogCode;

/// Returns an occurrence of a field.
pub(super) fn field<'a>(
    tx: &Tx<'a>,
    field: Field,
    view: View,
    index: usize,
    scratch: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    match field {
        Field::HttpRequestHeader | Field::HttpResponseHeader => {
            let (name, value) = tx.headers(view.direction).nth(index)?;
            scratch.clear();
            scratch.extend([name, b": ", value].concat());
            return Some(scratch);
        }
        Field::FileData => return file_data(tx, view, index),
        Field::FileName => return file_name(tx, view, index),
        _ if index > 0 => return None,
        _ => {}
    }
    let direction = view.direction;
    let end = view.end || tx.progress(direction) > 3;
    match field {
        Field::HttpUri => tx.uri(),
        Field::HttpUriRaw => tx.uri_raw(),
        Field::HttpMethod => tx.method(),
        Field::HttpProtocol => tx.protocol(direction),
        Field::HttpRequestLine => tx.request_line(),
        Field::HttpResponseLine => tx.response_line(),
        Field::HttpStatCode => tx.status(),
        Field::HttpStatMsg => tx.status_message(),
        Field::HttpHeader => joined(tx, direction, scratch),
        Field::HttpHeaderRaw => {
            Some(&tx.data()?.headers[direction as usize]).filter(|raw| !raw.is_empty()).map(Vec::as_slice)
        }
        Field::HttpHeaderNames => names(tx, direction, scratch),
        Field::HttpCookie if direction == Direction::ToServer => tx.header(direction, "cookie"),
        Field::HttpCookie => tx.header(direction, "set-cookie"),
        Field::HttpUserAgent => tx.header(direction, "user-agent"),
        Field::HttpHost => tx.host(),
        Field::HttpHostRaw => host_raw(tx),
        Field::HttpAccept => tx.header(direction, "accept"),
        Field::HttpAcceptEnc => tx.header(direction, "accept-encoding"),
        Field::HttpAcceptLang => tx.header(direction, "accept-language"),
        Field::HttpReferer => tx.header(direction, "referer"),
        Field::HttpConnection => tx.header(direction, "connection"),
        Field::HttpContentType => tx.header(direction, "content-type"),
        Field::HttpContentLen => tx.header(direction, "content-length"),
        Field::HttpLocation => tx.header(direction, "location"),
        Field::HttpServer => tx.header(direction, "server"),
        Field::HttpStart => start(tx, direction, scratch),
        Field::HttpRequestBody | Field::HttpResponseBody => {
            tx.data()?.bodies[direction as usize].window(window_options(direction), end, view.inline)
        }
        _ => None,
    }
}

fn file_data<'a>(tx: &Tx<'a>, view: View, index: usize) -> Option<&'a [u8]> {
    let data = tx.data()?;
    let end = view.end || tx.progress(view.direction) > 3;
    match view.direction {
        Direction::ToServer => data.files.get(index)?.body.window(&WindowOptions::REQUEST, end, view.inline),
        Direction::ToClient if index == 0 => data.bodies[1].window(window_options(view.direction), end, view.inline),
        Direction::ToClient => None,
    }
}

fn file_name<'a>(tx: &Tx<'a>, view: View, index: usize) -> Option<&'a [u8]> {
    let data = tx.data()?;
    match view.direction {
        Direction::ToServer => data.files.get(index).map(|file| file.name.as_slice()),
        Direction::ToClient if index == 0 => data.response.as_ref().map(|file| file.name.as_slice()),
        Direction::ToClient => None,
    }
}

/// Returns the header lines, without cookies.
fn joined<'a>(tx: &Tx<'a>, direction: Direction, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let cookie: &[u8] = if direction == Direction::ToServer { b"cookie" } else { b"set-cookie" };
    scratch.clear();
    for (name, value) in tx.headers(direction).filter(|(name, _)| !name.eq_ignore_ascii_case(cookie)) {
        for part in [name, b": ", value, b"\r\n"] {
            scratch.extend_from_slice(part);
        }
    }
    (!scratch.is_empty()).then_some(scratch.as_slice())
}

/// Returns the header names, separated by line ends.
fn names<'a>(tx: &Tx<'a>, direction: Direction, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    scratch.clear();
    scratch.extend_from_slice(b"\r\n");
    for (name, _) in tx.headers(direction) {
        scratch.extend_from_slice(name);
        scratch.extend_from_slice(b"\r\n");
    }
    if scratch.len() == 2 {
        return None;
    }
    scratch.extend_from_slice(b"\r\n");
    Some(scratch)
}

/// Returns the first line and the headers.
fn start<'a>(tx: &Tx<'a>, direction: Direction, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let line = match direction {
        Direction::ToServer => tx.request_line()?,
        Direction::ToClient => tx.response_line()?,
    };
    let headers = &tx.data()?.headers[direction as usize];
    scratch.clear();
    scratch.extend_from_slice(line);
    if !line.ends_with(b"\n") {
        scratch.extend_from_slice(b"\r\n");
    }
    scratch.extend_from_slice(headers);
    Some(scratch)
}

/// Returns the host name exactly as the client sent it, from an absolute URI or the Host header.
fn host_raw<'a>(tx: &Tx<'a>) -> Option<&'a [u8]> {
    let uri = tx.uri_raw().unwrap_or(b"");
    if let Some(at) = memchr::memmem::find(uri, b"://") {
        let rest = &uri[at + 3..];
        return rest.split(|byte| *byte == b'/').next();
    }
    tx.header(Direction::ToServer, "host")
}

/// Returns the name that rules use for an irregularity.
pub(super) fn event_name(code: HtpLogCode) -> Option<&'static str> {
    Some(match code {
        HtpLogCode::GZIP_DECOMPRESSION_FAILED => "gzip_decompression_failed",
        HtpLogCode::UNABLE_TO_MATCH_RESPONSE_TO_REQUEST => "unable_to_match_response_to_request",
        HtpLogCode::MISSING_HOST_HEADER => "missing_host_header",
        HtpLogCode::HOST_HEADER_AMBIGUOUS => "host_header_ambiguous",
        HtpLogCode::INVALID_REQUEST_CHUNK_LEN => "invalid_request_chunk_len",
        HtpLogCode::INVALID_RESPONSE_CHUNK_LEN => "invalid_response_chunk_len",
        _ => return None,
    })
}

/// Writes the members of the `http` object.
pub(super) fn describe(tx: &Tx<'_>, json: &mut Json) {
    let response = |name| tx.header(Direction::ToClient, name);
    for (name, value) in [
        ("hostname", tx.host()),
        ("url", tx.uri_raw()),
        ("http_user_agent", tx.header(Direction::ToServer, "user-agent")),
        ("http_content_type", response("content-type").map(media_type)),
        ("http_refer", tx.header(Direction::ToServer, "referer")),
        ("http_method", tx.method()),
        ("protocol", tx.protocol(Direction::ToServer)),
        ("redirect", response("location")),
    ] {
        if let Some(value) = value {
            json.bytes(name, value);
        }
    }
    if let Some(status) = tx.status().and_then(|text| std::str::from_utf8(text).ok()).and_then(|text| text.parse().ok())
    {
        json.number("status", status);
    }
    if let Some(data) = tx.data() {
        json.number("length", data.bodies[1].total());
    }
}

/// Returns a content type without parameters.
fn media_type(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == b';').next().unwrap_or(value).trim_ascii()
}
