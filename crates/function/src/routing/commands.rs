//! Control commands for routes: `add`, `delete` and `list`.

use serde_json::{Value, json};

use super::{NextHop, Prefix, RouteChange, Routing};
use crate::request::{refuse_unknown, refuse_unknown_in};
use crate::{Error, Running};

/// Maximum number of routes in a reply to the command `list`.
const LISTED_MAX: usize = 10_000;

/// Executes a control command. The commands `add` and `delete` take the argument `route`. The
/// command `list` takes `prefix` or `address`, and lists all routes without these arguments.
///
/// # Errors
/// Returns a message for the operator. Unless the message reports an effect, the command had none.
pub fn command(routing: &dyn Routing, request: &Value, running: &dyn Running) -> Result<Value, Error> {
    refuse_unknown(request, &[("add", &["route"]), ("delete", &["route"]), ("list", &["prefix", "address"])])?;
    match request.get("command").and_then(Value::as_str) {
        Some("add") => {
            let changes = routes(request)?.iter().map(|route| added(routing, route)).collect::<Result<Vec<_>, _>>()?;
            change(routing, &changes, running).map(|()| json!({ "added": changes.len() }))
        }
        Some("delete") => {
            let changes = routes(request)?.iter().map(|route| deleted(routing, route));
            let changes = changes.collect::<Result<Vec<_>, _>>()?;
            change(routing, &changes, running).map(|()| json!({ "deleted": changes.len() }))
        }
        Some("list") => list(routing, request),
        _ => refuse("this function takes the commands add, delete and list"),
    }
}

pub(super) fn refuse<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Command { message: message.into() })
}

fn change(routing: &dyn Routing, changes: &[RouteChange], running: &dyn Running) -> Result<(), Error> {
    routing.change(changes, running).map_err(|unchanged| match unchanged.made {
        0 => unchanged.error,
        made => Error::Command { message: format!("{}; the {made} routes before it were changed", unchanged.error) },
    })
}

/// Returns the valid route prefixes in a request.
pub(super) fn prefixes(request: &Value) -> impl Iterator<Item = Prefix> {
    let routes = request.get("route").and_then(Value::as_array).into_iter().flatten();
    let text = |route: &Value| Some(route.as_str().or_else(|| route.get("prefix")?.as_str())?.to_owned());
    routes.filter_map(move |route| Prefix::parse(&text(route)?).ok())
}

pub(super) fn routes(request: &Value) -> Result<&[Value], Error> {
    match request.get("route") {
        Some(Value::Array(routes)) if !routes.is_empty() => Ok(routes),
        _ => refuse("the command needs \"route\": [{\"prefix\": \"10.0.0.0/8\", ...}, ...]"),
    }
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, Error> {
    match value.get(key) {
        Some(Value::String(text)) => Ok(text),
        _ => refuse(format!("a route needs the string `{key}`")),
    }
}

pub(super) fn prefix(routing: &dyn Routing, value: &Value) -> Result<Prefix, Error> {
    let prefix = Prefix::parse(text(value, "prefix")?).map_err(Error::in_command)?;
    if prefix.family() != routing.family() {
        return refuse(format!("{prefix} belongs to the other address family than this function's routes"));
    }
    Ok(prefix)
}

fn added(routing: &dyn Routing, route: &Value) -> Result<RouteChange, Error> {
    refuse_unknown_in(route, "a route", &["prefix", "next_hop"])?;
    let name = text(route, "next_hop")?;
    let names = routing.next_hop_names();
    let Some(next_hop) = names.iter().position(|known| known == name) else {
        let known = if names.is_empty() {
            "with [function.follow], name a gateway by `via`".to_owned()
        } else {
            format!("it has {}", names.join(", "))
        };
        return refuse(format!("this function has no next hop named \"{name}\"; {known}"));
    };
    Ok(RouteChange { prefix: prefix(routing, route)?, next_hop: Some(next_hop as u32) })
}

fn deleted(routing: &dyn Routing, route: &Value) -> Result<RouteChange, Error> {
    let prefix = match route {
        Value::String(_) => prefix(routing, &json!({ "prefix": route }))?,
        _ => prefix(routing, route)?,
    };
    if routing.route(prefix).is_none() {
        return refuse(format!("there is no route for {prefix}"));
    }
    Ok(RouteChange { prefix, next_hop: None })
}

fn list(routing: &dyn Routing, request: &Value) -> Result<Value, Error> {
    let mut chosen = match (request.get("prefix"), request.get("address")) {
        (None, None) => routing.routes(),
        (Some(_), None) => {
            let prefix = prefix(routing, request)?;
            routing.route(prefix).map(|next_hop| (prefix, next_hop)).into_iter().collect()
        }
        (None, Some(Value::String(address))) => {
            let address = address
                .parse()
                .map_err(|_| Error::Command { message: format!("\"{address}\" is not an IP address") })?;
            routing.find(address).into_iter().collect()
        }
        _ => return refuse("list takes one `prefix` or one `address` (a string), or neither"),
    };
    let count = chosen.len();
    chosen.truncate(LISTED_MAX);
    let routes: Vec<Value> = chosen.iter().map(|(prefix, index)| describe(routing, *prefix, *index)).collect();
    Ok(json!({ "routes": count, "route": routes }))
}

fn describe(routing: &dyn Routing, prefix: Prefix, index: u32) -> Value {
    let mut description = json!({ "prefix": prefix.to_string() });
    if let Some(name) = routing.next_hop_names().get(index as usize) {
        description["next_hop"] = name.as_str().into();
    }
    let Some(next_hop) = routing.next_hop(index) else { return description };
    description["leads"] = match next_hop {
        NextHop::Forward(_) => "to a station",
        NextHop::Unresolved(_) => "to a station whose address is unknown",
        NextHop::Local => "to this machine",
        NextHop::Blackhole => "nowhere: packets are dropped",
        NextHop::Unreachable => "nowhere: packets are treated as without a route",
    }
    .into();
    if let Some(adjacency) = next_hop.adjacency() {
        description["port"] = match routing.port_names().get(usize::from(adjacency.port)) {
            Some(name) => name.as_str().into(),
            None => adjacency.port.into(),
        };
        description["source_mac"] = adjacency.source.to_string().into();
        if adjacency.mtu != super::Adjacency::MTU_MAX {
            description["mtu"] = adjacency.mtu.into();
        }
    }
    if let NextHop::Forward(adjacency) = next_hop {
        description["destination_mac"] = adjacency.destination.to_string().into();
    }
    description
}
