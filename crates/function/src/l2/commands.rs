//! Control commands of the Ethernet switch: `list`, `add`, `delete` and `flush`.

use std::sync::PoisonError;
use std::time::Duration;

use serde_json::{Value, json};

use super::config::member;
use super::control::{Control, Entry};
use super::{key, macs, vid_and_mac};
use crate::request::{refuse_unknown, refuse_unknown_in};
use crate::{Error, Running};

/// Maximum number of addresses in a reply.
const LISTED_MAX: usize = 10_000;

/// Commands with their keys.
const COMMANDS: [(&str, &[&str]); 4] = [
    ("list", &["vlan", "port", "after"]),
    ("add", &["mac"]),
    ("delete", &["mac"]),
    ("flush", &["vlan", "port", "static"]),
];

/// Executes a control command either completely or not at all.
pub(super) fn run(
    control: &mut Control,
    request: &Value,
    now: Duration,
    running: &dyn Running,
) -> Result<Value, Error> {
    refuse_unknown(request, &COMMANDS)?;
    let done = match request.get("command").and_then(Value::as_str) {
        Some("list") => return list(control, request, now),
        Some("add") => add(control, request, now)?,
        Some("delete") => delete(control, request)?,
        Some("flush") => flush(control, request)?,
        _ => return refuse("l2 takes the commands list, add, delete and flush"),
    };
    control.publish(Some(running))?;
    Ok(done)
}

fn refuse<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Command { message: message.into() })
}

/// Returns the addresses of a request.
fn objects(request: &Value) -> Result<&[Value], Error> {
    match request.get("mac").and_then(Value::as_array) {
        Some(objects) if !objects.is_empty() => Ok(objects),
        _ => refuse("the command needs \"mac\": [{\"vlan\": VLAN, \"mac\": \"ADDRESS\", ...}, ...]"),
    }
}

fn text<'a>(object: &'a Value, name: &str) -> Result<&'a str, Error> {
    let missing = || Error::Command { message: format!("an address needs the string \"{name}\"") };
    object.get(name).and_then(Value::as_str).ok_or_else(missing)
}

/// Returns the VLAN of a request, if it has one.
fn vlan(object: &Value) -> Result<Option<u16>, Error> {
    let Some(vlan) = object.get("vlan") else { return Ok(None) };
    let vid = vlan.as_u64().and_then(|vid| u16::try_from(vid).ok()).filter(|vid| macs::is_vid(*vid));
    vid.map_or_else(|| refuse("\"vlan\" must be a number from 1 to 4094"), |vid| Ok(Some(vid)))
}

/// Returns the VLAN and the lookup key of an Ethernet address in a request. The default VLAN is 1.
fn address(object: &Value) -> Result<(u16, u64), Error> {
    let vid = vlan(object)?.unwrap_or(1);
    Ok((vid, key(vid, macs::station(text(object, "mac")?).map_err(Error::in_command)?)))
}

fn add(control: &mut Control, request: &Value, now: Duration) -> Result<Value, Error> {
    let resolve = |object: &Value| {
        refuse_unknown_in(object, "an address", &["vlan", "mac", "port"])?;
        let (vid, key) = address(object)?;
        Ok((key, member(&control.switch, vid, text(object, "port")?).map_err(Error::in_command)?))
    };
    let addresses = objects(request)?.iter().map(resolve).collect::<Result<Vec<_>, Error>>()?;
    control.add(&addresses, now).or_else(|(index, message)| {
        let (vid, mac) = vid_and_mac(addresses[index].0);
        refuse(format!("VLAN {vid}, {mac}: {message}"))
    })?;
    Ok(json!({ "added": addresses.len() }))
}

fn delete(control: &mut Control, request: &Value) -> Result<Value, Error> {
    let keys = objects(request)?.iter().map(|object| Ok(address(object)?.1)).collect::<Result<Vec<_>, Error>>()?;
    control.delete(&keys).or_else(|index| {
        let (vid, mac) = vid_and_mac(keys[index]);
        refuse(format!("VLAN {vid}, {mac} is not in the table"))
    })?;
    Ok(json!({ "deleted": keys.len() }))
}

/// Filter that selects addresses by VLAN and port.
struct Filter {
    vid: Option<u16>,
    port: Option<u8>,
}

impl Filter {
    fn read(control: &Control, request: &Value) -> Result<Self, Error> {
        let port = match request.get("port") {
            Some(_) => Some(control.switch.number(text(request, "port")?).map_err(Error::in_command)?),
            None => None,
        };
        Ok(Self { vid: vlan(request)?, port })
    }

    fn matches(&self, key: u64, entry: &Entry) -> bool {
        self.vid.is_none_or(|vid| key >> 48 == u64::from(vid)) && self.port.is_none_or(|port| entry.port == port)
    }
}

/// Removes the addresses that the request selects. Static addresses stay, unless the request
/// includes them.
fn flush(control: &mut Control, request: &Value) -> Result<Value, Error> {
    let filter = Filter::read(control, request)?;
    let with_static = request.get("static").and_then(Value::as_bool).unwrap_or(false);
    let flushed = control.flush(|key, entry| (with_static || !entry.is_static) && filter.matches(key, entry));
    Ok(json!({ "flushed": flushed }))
}

/// Lists the addresses that the request selects, sorted by lookup key and beginning after `after`.
/// A reply holds at most [`LISTED_MAX`] addresses.
fn list(control: &Control, request: &Value, now: Duration) -> Result<Value, Error> {
    let filter = Filter::read(control, request)?;
    let after = request.get("after").map(address).transpose()?.map(|(_, key)| key);
    let entries = control.entries.read().unwrap_or_else(PoisonError::into_inner);
    let selected =
        entries.iter().filter(|(key, entry)| after.is_none_or(|after| **key > after) && filter.matches(**key, entry));
    let mut selected: Vec<(u64, Entry)> = selected.map(|(key, entry)| (*key, *entry)).collect();
    drop(entries);
    selected.sort_unstable_by_key(|(key, _)| *key);
    let left = selected.len().saturating_sub(LISTED_MAX);
    let shown = selected.iter().take(LISTED_MAX).map(|(key, entry)| {
        let (vid, mac) = vid_and_mac(*key);
        let port = control.switch.port(entry.port).map_or("", |port| &port.name);
        let mut shown = json!({ "vlan": vid, "mac": mac.to_string(), "port": port, "static": entry.is_static });
        if !entry.is_static {
            shown["silent_s"] = if entry.is_fresh { 0 } else { now.saturating_sub(entry.since).as_secs() }.into();
        }
        shown
    });
    Ok(json!({ "mac": shown.collect::<Vec<_>>(), "left": left, "addresses": control.len() }))
}
