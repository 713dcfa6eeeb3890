//! Control command that adds routes over gateways to a table that follows the kernel.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::commands::{prefix, refuse, routes, text};
use super::kernel::KernelRoutes;
use super::{OwnAddresses, Prefix, Routing};
use crate::request::{refuse_unknown, refuse_unknown_in};
use crate::{Error, Running};

/// Adds the routes of a request in which every route has a gateway `via` and optionally a `port`.
/// Returns `None` for all other requests.
///
/// # Errors
/// Returns an error if the table does not follow the kernel, or if no interface leads to a gateway.
pub(crate) fn add_via(
    routing: &dyn Routing,
    kernel: Option<&KernelRoutes>,
    own: &OwnAddresses,
    request: &Value,
    running: &dyn Running,
) -> Result<Option<Value>, Error> {
    let is_add = request.get("command").and_then(Value::as_str) == Some("add");
    let entries = request.get("route").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !is_add || !entries.iter().any(|route| route.get("via").is_some()) {
        return Ok(None);
    }
    refuse_unknown(request, &[("add", &["route"])])?;
    let Some(kernel) = kernel else {
        return refuse(
            "this function does not follow the kernel, so it cannot resolve a gateway: name a configured next hop",
        );
    };
    let routes = routes(request)?.iter().map(|route| via(routing, route)).collect::<Result<Vec<_>, _>>()?;
    kernel.add_via(&routes, routing, own, running)?;
    Ok(Some(json!({ "added": routes.len() })))
}

fn via(routing: &dyn Routing, route: &Value) -> Result<(Prefix, IpAddr, Option<u16>), Error> {
    refuse_unknown_in(route, "a route over a gateway", &["prefix", "via", "port"])?;
    let gateway = text(route, "via")?;
    let Ok(gateway) = gateway.parse() else { return refuse(format!("\"{gateway}\" is not an IP address")) };
    let port = match route.get("port") {
        None => None,
        Some(_) => Some(port(routing, text(route, "port")?)?),
    };
    Ok((prefix(routing, route)?, gateway, port))
}

/// Returns the number of a port.
fn port(routing: &dyn Routing, name: &str) -> Result<u16, Error> {
    let names = routing.port_names();
    match names.iter().position(|known| known == name) {
        Some(port) => Ok(port as u16),
        None => refuse(format!("there is no port named \"{name}\": the ports are {}", names.join(", "))),
    }
}
