//! Commands to a function that has routes: added, deleted and listed.

use serde_json::{Value, json};

use super::{NextHop, Prefix, RouteChange, Routing};
use crate::{Error, Running};

/// Most routes that one reply lists.
const LISTED_MAX: usize = 10_000;

/// Does one command: `add` and `delete` with `route`, `list` with `prefix` or `address` if only these are to be told of.
///
/// # Errors
/// One sentence for the operator; nothing was changed then, but where it says so.
pub fn command(routing: &dyn Routing, request: &Value, running: &dyn Running) -> Result<Value, Error> {
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

fn refuse<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Command { message: message.into() })
}

fn change(routing: &dyn Routing, changes: &[RouteChange], running: &dyn Running) -> Result<(), Error> {
    routing.change(changes, running).map_err(|unchanged| match unchanged.made {
        0 => unchanged.error,
        made => Error::Command { message: format!("{}; {made} routes before were changed", unchanged.error) },
    })
}

fn routes(request: &Value) -> Result<&[Value], Error> {
    match request.get("route") {
        Some(Value::Array(routes)) if !routes.is_empty() => Ok(routes),
        _ => refuse("the command needs \"route\": [{\"prefix\": \"10.0.0.0/8\", ...}, ...]"),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, Error> {
    match value.get(key) {
        Some(Value::String(text)) => Ok(text),
        _ => refuse(format!("a route needs a text `{key}`")),
    }
}

fn prefix(routing: &dyn Routing, value: &Value) -> Result<Prefix, Error> {
    let prefix = Prefix::parse(text(value, "prefix")?).map_err(|message| Error::Command { message })?;
    if prefix.family() != routing.family() {
        return refuse(format!("{prefix} is of the other family than this function's routes"));
    }
    Ok(prefix)
}

fn added(routing: &dyn Routing, route: &Value) -> Result<RouteChange, Error> {
    let name = text(route, "next_hop")?;
    let names = routing.next_hop_names();
    let Some(next_hop) = names.iter().position(|known| known == name) else {
        let known = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
        return refuse(format!("this function has no next hop called \"{name}\"; {known}"));
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
            let address =
                address.parse().map_err(|_| Error::Command { message: format!("{address} is no address") })?;
            routing.find(address).into_iter().collect()
        }
        _ => return refuse("a list is of all routes, or of one `prefix`, or of what covers one `address`"),
    };
    let count = chosen.len();
    chosen.truncate(LISTED_MAX);
    let routes: Vec<Value> = chosen.iter().map(|(prefix, index)| describe(routing, *prefix, *index)).collect();
    Ok(json!({ "routes": count, "route": routes }))
}

fn describe(routing: &dyn Routing, prefix: Prefix, index: u32) -> Value {
    let mut said = json!({ "prefix": prefix.to_string() });
    if let Some(name) = routing.next_hop_names().get(index as usize) {
        said["next_hop"] = name.as_str().into();
    }
    let Some(next_hop) = routing.next_hop(index) else { return said };
    said["leads"] = match next_hop {
        NextHop::Forward(_) => "to a station",
        NextHop::Unresolved(_) => "to a station whose address is not known",
        NextHop::Local => "to this machine",
        NextHop::Blackhole => "nowhere: packets are dropped",
        NextHop::Unreachable => "nowhere: as if there were no route",
    }
    .into();
    if let Some(adjacency) = next_hop.adjacency() {
        said["port"] = adjacency.port.into();
        said["source_mac"] = adjacency.source.to_string().into();
        if adjacency.mtu != super::Adjacency::MTU_MAX {
            said["mtu"] = adjacency.mtu.into();
        }
    }
    if let NextHop::Forward(adjacency) = next_hop {
        said["destination_mac"] = adjacency.destination.to_string().into();
    }
    said
}
