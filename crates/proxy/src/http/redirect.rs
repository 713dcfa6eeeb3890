//! Plaintext listener that redirects clients to the TLS listener. It also serves ACME challenge
//! responses (RFC 8555, section 8.3) from a folder.

use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::body::ResponseBody;
use super::headers;
use crate::config;
use crate::state::{Link, Stop};
use crate::worker::{Worker, draining};

const CHALLENGES: &str = "/.well-known/acme-challenge/";
/// Maximum length of the response to a challenge, in bytes.
const CHALLENGE_BYTES_MAX: u64 = 4096;
/// Pause after a connection could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);

/// Accepts connections on the plaintext listener of a proxy.
pub(crate) async fn accept(worker: Rc<Worker>, connections: Rc<()>, index: usize, listener: TcpListener) {
    let mut phase = worker.phase.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = draining(&mut phase, Stop::Drain) => return,
        };
        let Ok((socket, _)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let generation = worker.generation.load();
        let link = Rc::new(Link::new(Arc::clone(&generation.proxies[index]), generation.number, &worker, index));
        let connections = Rc::clone(&connections);
        spawn_local(async move {
            serve(link, socket).await;
            drop(connections);
        });
    }
}

async fn serve(link: Rc<Link>, socket: TcpStream) {
    let mut phase = link.phase.clone();
    let wait = config::seconds(link.proxy.config.timeouts.header_s);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(wait)
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), service_fn(|request| answer(Rc::clone(&link), request)));
    tokio::select! {
        // Errors of the connection only concern the client.
        _ = connection => {}
        () = draining(&mut phase, Stop::Drain) => {}
    }
}

async fn answer(link: Rc<Link>, request: Request<Incoming>) -> Result<Response<ResponseBody>, Infallible> {
    let (head, _) = request.into_parts();
    let counters = link.counters();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    if let (Some(token), Some(folder)) = (path.strip_prefix(CHALLENGES), &link.proxy.config.acme) {
        return Ok(match challenge(folder, token) {
            Some(text) => {
                counters.acme.increment();
                respond(StatusCode::OK, text)
            }
            None => respond(StatusCode::NOT_FOUND, "there is no such challenge\n".to_owned()),
        });
    }
    let Ok(host) = headers::host(&head, link.proxy.config.limits.header_bytes) else {
        return Ok(respond(StatusCode::BAD_REQUEST, "the request needs one valid host\n".to_owned()));
    };
    // The host has been checked, so it is valid. Replace its port with the port of the TLS
    // listener.
    let authority = host.to_str().ok().and_then(|host| host.parse::<hyper::http::uri::Authority>().ok());
    let name = authority.as_ref().map_or("", |authority| authority.host());
    let port = link.proxy.config.listen.port();
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let mut response = respond(StatusCode::PERMANENT_REDIRECT, String::new());
    if let Ok(location) = HeaderValue::from_str(&format!("https://{name}{port}{path}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    counters.redirects.increment();
    Ok(response)
}

fn respond(status: StatusCode, text: String) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::own(text, None));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// Returns the response to an ACME challenge. Tokens with characters outside base64url are refused,
/// because their path could leave the folder.
fn challenge(folder: &Path, token: &str) -> Option<String> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if token.is_empty() || token.len() > 128 || !token.bytes().all(is_valid) {
        return None;
    }
    let path = folder.join(token);
    let metadata = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
    if metadata.len() > CHALLENGE_BYTES_MAX { None } else { std::fs::read_to_string(path).ok() }
}
