//! Header fields that the proxy removes, adds or checks (RFC 9110, section 7.6).

use std::net::SocketAddr;

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{Method, Uri};

const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    TE,
    TRAILER,
    UPGRADE,
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");

/// Reason why a request is refused because of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    /// The Host field is missing, repeated, or differs from the request target (RFC 9112, section
    /// 3.2).
    Host,
    /// The proxy does not support the method CONNECT.
    Connect,
    /// The request has both Content-Length and Transfer-Encoding (RFC 9112, section 6.1).
    Length,
    /// The header is larger than `limits.header_bytes`.
    Size,
}

/// Returns the size of the request header in HTTP/1.1 form, in bytes.
fn size_bytes(request: &Parts) -> usize {
    let target = request.uri.path_and_query().map_or(1, |target| target.as_str().len());
    let fields = request.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    request.method.as_str().len() + target + "  HTTP/1.1\r\n\r\n".len() + fields.sum::<usize>()
}

/// Returns the host of a request.
///
/// # Errors
/// Returns an error if the request header exceeds `limit` bytes or is invalid.
pub(super) fn host(request: &Parts, limit: usize) -> Result<HeaderValue, Invalid> {
    if size_bytes(request) > limit {
        return Err(Invalid::Size);
    }
    if request.method == Method::CONNECT {
        return Err(Invalid::Connect);
    }
    if request.headers.contains_key(TRANSFER_ENCODING) && request.headers.contains_key(CONTENT_LENGTH) {
        return Err(Invalid::Length);
    }
    let mut hosts = request.headers.get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let authority = request.uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    let host = match (authority, first, second) {
        (_, _, Some(_)) => return Err(Invalid::Host),
        (Some(authority), host, None) => {
            let authority = authority.map_err(|_| Invalid::Host)?;
            if host.is_some_and(|host| !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes())) {
                return Err(Invalid::Host);
            }
            authority
        }
        (None, Some(host), None) => host.clone(),
        (None, None, None) => return Err(Invalid::Host),
    };
    // The host must be a valid authority without user information.
    let is_valid =
        host.to_str().is_ok_and(|host| host.parse::<hyper::http::uri::Authority>().is_ok() && !host.contains('@'));
    if is_valid { Ok(host) } else { Err(Invalid::Host) }
}

/// Returns whether the request asks for a WebSocket (RFC 6455, section 4.1).
pub(super) fn is_websocket(request: &Parts) -> bool {
    let has = |name: HeaderName, token: &str| {
        let values = request.headers.get_all(name);
        let mut tokens = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        tokens.any(|found| found.trim().eq_ignore_ascii_case(token))
    };
    request.method == Method::GET && has(CONNECTION, "upgrade") && has(UPGRADE, "websocket")
}

/// Removes the header fields that only concern one connection.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&listed) {
        headers.remove(name);
    }
    // hyper sets this field again for the forwarded message.
    headers.remove(TRANSFER_ENCODING);
}

/// Converts a client's request header to the header for a server. Fields that state the client's
/// address are overwritten, because clients could forge them.
pub(super) fn to_server(request: &mut Parts, host: &HeaderValue, client: SocketAddr, websocket: bool) {
    let headers = &mut request.headers;
    remove_hop_by_hop(headers);
    headers.remove(EXPECT);
    headers.remove(FORWARDED);
    headers.insert(HOST, host.clone());
    headers.insert(FORWARDED_HOST, host.clone());
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
    // An address in text form is always a valid header value.
    if let Ok(address) = HeaderValue::from_str(&client.ip().to_canonical().to_string()) {
        headers.insert(FORWARDED_FOR, address);
    }
    join_cookies(headers);
    if websocket {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    let path = request.uri.path_and_query().cloned();
    request.uri = path.map(Uri::from).unwrap_or_default();
    request.version = hyper::Version::HTTP_11;
    request.extensions.clear();
}

/// Joins all Cookie fields, because HTTP/2 requests may have several (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}
