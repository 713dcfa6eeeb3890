//! Control commands that add, delete and list names, and that change next hops.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use godwit_kernels::image::NDN_NONE;
use godwit_packet::Image;
use serde_json::{Value, json};
use toml::de::DeTable;

use super::config::Config;
use super::names::{Names, unknown_next_hop};
use super::shape::Shape;
use super::table::{Freed, Table, Written};
use super::{NextHop, Parts, hash, uri};
use crate::request::{refuse_unknown, refuse_unknown_in};
use crate::{Error, Running};

/// Maximum and default number of names in a reply to `list`.
const LIST_MAX: u64 = 10_000;

/// Commands with their keys.
const COMMANDS: [(&str, &[&str]); 5] = [
    ("add", &["route"]),
    ("delete", &["prefix"]),
    ("list", &["prefix", "below", "limit"]),
    ("next_hop", &["next_hop"]),
    ("next_hops", &[]),
];

/// Table of names, with the data that control commands need.
pub(super) struct Control {
    table: Table,
    /// All added, changed and deleted names, in order. An entry without a next hop records a
    /// deletion.
    names: Names,
    next_hops: Vec<(String, NextHop)>,
    next_hops_max: usize,
    ports: Vec<String>,
    udp_port: u16,
}

impl Control {
    pub(super) fn new(parts: Parts) -> Result<Self, Error> {
        let Parts { names, next_hops, ports, udp_port, spare_names, spare_next_hops, key, guide } = parts;
        let key = key.unwrap_or_else(hash::random_key);
        let next_hops_max = next_hops.len() + spare_next_hops;
        let shape = Shape::new(&names, key, guide);
        let mut table = Table::new(shape, key, spare_names, next_hops_max, udp_port)?;
        // No device has a copy of the table yet.
        let mut written = Written::default();
        for (index, (_, next_hop)) in (0..).zip(&next_hops) {
            table.set_next_hop(index, next_hop, &mut written);
        }
        for (name, next_hop) in names.iter() {
            assert!((next_hop as usize) < next_hops.len(), "next hop {next_hop} does not exist");
            let name_error = |error| Error::value(format!("{}: {error}", uri::show(name)));
            table.insert(name, next_hop, &mut written).map_err(name_error)?;
            written.contents.clear();
            written.words.clear();
        }
        Ok(Self { table, names, next_hops, next_hops_max, ports, udp_port })
    }

    #[cfg(test)]
    pub(super) fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    pub(super) fn image(&self) -> &Arc<Image> {
        self.table.image()
    }

    pub(super) fn len(&self) -> u64 {
        self.table.len()
    }

    pub(super) fn guide(&self) -> u32 {
        self.table.guide()
    }

    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    pub(super) fn next_hops(&self) -> Vec<NextHop> {
        self.next_hops.iter().map(|(_, next_hop)| *next_hop).collect()
    }

    /// Appends a name change to the log. Compacts the log if most entries are obsolete.
    fn log_change(&mut self, name: &[u8], next_hop: u32) {
        self.names.push(name, next_hop);
        if self.names.len() as u64 > 2 * self.table.len() + (1 << 16) {
            let mut last = HashMap::new();
            for (name, next_hop) in self.names.iter() {
                last.insert(name, next_hop);
            }
            let mut names = Names::new();
            last.into_iter().filter(|(_, next_hop)| *next_hop != NDN_NONE).for_each(|(name, next_hop)| {
                names.push(name, next_hop);
            });
            self.names = names;
        }
    }
}

/// Runs one control command. The command takes effect completely or not at all.
pub(super) fn run(
    control: &mut Control,
    request: &Value,
    running: &dyn Running,
    headroom_bytes: u16,
) -> Result<Value, Error> {
    refuse_unknown(request, &COMMANDS)?;
    match request.get("command").and_then(Value::as_str) {
        Some("add") => add(control, request, running),
        Some("delete") => delete(control, request, running),
        Some("list") => list(control, request),
        Some("next_hop") => next_hop(control, request, running, headroom_bytes),
        Some("next_hops") => Ok(next_hops(control)),
        _ => refuse("the commands of ndn are add, delete, list, next_hop and next_hops"),
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Command { message: message.into() })
}

/// Copies the changed ranges of the table to the devices. New records are copied before the
/// references to them.
fn upload(written: Written, running: &dyn Running) -> Result<(), Error> {
    for mut ranges in [written.contents, written.words] {
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let mut joined: Vec<Range<usize>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        joined.into_iter().try_for_each(|range| running.image_changed(range))?;
    }
    Ok(())
}

fn parsed(text: &str) -> Result<Vec<u8>, Error> {
    let mut names = Names::new();
    names.push_uri(text.as_bytes(), 0).map_err(Error::in_command)?;
    Ok(names.iter().next().map(|(name, _)| name.to_vec()).unwrap_or_default())
}

/// Parses the array of names in a request.
fn prefixes(request: &Value) -> Result<Vec<Vec<u8>>, Error> {
    let texts = request.get("prefix").and_then(Value::as_array).filter(|texts| !texts.is_empty());
    let Some(texts) = texts.and_then(|texts| texts.iter().map(Value::as_str).collect::<Option<Vec<_>>>()) else {
        return refuse("the command needs \"prefix\": [\"/NAME\", ...]");
    };
    texts.into_iter().map(parsed).collect()
}

fn index(control: &Control, name: &str) -> Result<u32, Error> {
    let found = control.next_hops.iter().position(|(known, _)| known == name);
    found.map(|index| index as u32).ok_or_else(|| Error::Command { message: unknown_next_hop(name.as_bytes()) })
}

fn add(control: &mut Control, request: &Value, running: &dyn Running) -> Result<Value, Error> {
    const NEEDS: &str = "the command needs \"route\": [{\"prefix\": \"/NAME\", \"next_hop\": \"NAME\"}, ...]";
    let Some(routes) = request.get("route").and_then(Value::as_array).filter(|routes| !routes.is_empty()) else {
        return refuse(NEEDS);
    };
    let mut requested = Vec::with_capacity(routes.len());
    for route in routes {
        refuse_unknown_in(route, "a route", &["prefix", "next_hop"])?;
        let text = |key| route.get(key).and_then(Value::as_str);
        let (Some(prefix), Some(next_hop)) = (text("prefix"), text("next_hop")) else { return refuse(NEEDS) };
        requested.push((parsed(prefix)?, index(control, next_hop)?));
    }
    // If a name occurs several times, only its last entry is kept. Lookups must not see the earlier
    // ones.
    let mut seen = std::collections::HashSet::new();
    requested.reverse();
    requested.retain(|(name, _)| seen.insert(name.clone()));
    let mut written = Written::default();
    let mut before = Vec::with_capacity(requested.len());
    let mut done = Ok(());
    for (name, next_hop) in &requested {
        let previous = control.table.next_hop(name);
        if let Err(error) = control.table.insert(name, *next_hop, &mut written) {
            done = refuse(format!("{}: {error}", uri::show(name)));
            break;
        }
        before.push((name, previous));
    }
    let done = done.and_then(|()| upload(written, running));
    if let Err(error) = done {
        undo(control, &before, running);
        return Err(error);
    }
    for (name, next_hop) in &requested {
        control.log_change(name, *next_hop);
    }
    // The next change must wait until all lookups that began before this change have ended.
    running.quiesce()?;
    Ok(json!({ "added": requested.len() }))
}

/// Restores the previous next hops after a failed change. If a device cannot receive the restored
/// table, the engine stops using the device.
fn undo(control: &mut Control, before: &[(&Vec<u8>, Option<u32>)], running: &dyn Running) {
    let mut written = Written::default();
    let mut freed = Freed::new();
    for (name, previous) in before.iter().rev() {
        match previous {
            // The name was in the table, so there is room for it.
            Some(next_hop) => drop(control.table.insert(name, *next_hop, &mut written)),
            None => freed.extend(control.table.remove(name, &mut written).unwrap_or_default()),
        }
    }
    let _ = upload(written, running);
    if running.quiesce().is_ok() {
        control.table.free_records(freed);
    }
}

fn delete(control: &mut Control, request: &Value, running: &dyn Running) -> Result<Value, Error> {
    let mut names = prefixes(request)?;
    names.sort_unstable();
    names.dedup();
    if let Some(unknown) = names.iter().find(|name| control.table.next_hop(name).is_none()) {
        return refuse(format!("{} is not in the table", uri::show(unknown)));
    }
    let mut written = Written::default();
    let mut freed = Freed::new();
    for name in &names {
        freed.extend(control.table.remove(name, &mut written).unwrap_or_default());
        control.log_change(name, NDN_NONE);
    }
    let count = names.len();
    let done = upload(written, running).and_then(|()| running.quiesce());
    if let Err(error) = done {
        return refuse(format!("{error}; the {count} names are deleted, but their memory is not reused"));
    }
    control.table.free_records(freed);
    Ok(json!({ "deleted": count }))
}

/// Lists names with their next hops. The request contains either the names or their common prefix.
fn list(control: &Control, request: &Value) -> Result<Value, Error> {
    let show = |name: &[u8], next_hop: u32| {
        let next_hop = control.next_hops.get(next_hop as usize).map(|(name, _)| name.as_str());
        json!({ "prefix": uri::show(name), "next_hop": next_hop })
    };
    if request.get("prefix").is_some() {
        let names = prefixes(request)?;
        let listed = names.iter().map(|name| match control.table.next_hop(name) {
            Some(next_hop) => Ok(show(name, next_hop)),
            None => refuse(format!("{} is not in the table", uri::show(name))),
        });
        return Ok(json!({ "names": control.len(), "route": listed.collect::<Result<Vec<_>, _>>()? }));
    }
    let below = match request.get("below") {
        None => Vec::new(),
        Some(below) => match below.as_str() {
            Some(text) => parsed(text)?,
            None => return refuse("\"below\" must be a name such as \"/example\""),
        },
    };
    let max = request.get("limit").and_then(Value::as_u64).unwrap_or(LIST_MAX).min(LIST_MAX);
    let mut seen = std::collections::HashSet::new();
    let listed = control.names.iter().filter(|(name, _)| name.starts_with(&below)).filter_map(|(name, _)| {
        // The log may contain a name several times. The reply lists each name once, with its
        // current next hop.
        let next_hop = control.table.next_hop(name)?;
        seen.insert(name).then(|| show(name, next_hop))
    });
    let listed: Vec<Value> = listed.take(max as usize).collect();
    Ok(json!({ "names": control.len(), "route": listed }))
}

/// Adds or changes next hops. Each change takes effect for all names of the next hop at once.
fn next_hop(
    control: &mut Control,
    request: &Value,
    running: &dyn Running,
    headroom_bytes: u16,
) -> Result<Value, Error> {
    let Some(stanzas) = request.get("next_hop").filter(|stanzas| stanzas.is_array()) else {
        return refuse("the command needs \"next_hop\": [{...}, ...], with the keys of a stanza");
    };
    let command_error = |error: Error| match &error {
        Error::Toml(error) => Error::Command { message: error.message().to_owned() },
        error => Error::Command { message: error.to_string() },
    };
    let text = toml::to_string(&json!({ "next_hop": stanzas }));
    let text = text.map_err(|_| Error::Command { message: "the request cannot be written as TOML".to_owned() })?;
    let document = DeTable::parse(&text)
        .map_err(|_| Error::Command { message: "the request cannot be written as TOML".to_owned() })?;
    let config: Config = crate::config::read(document).map_err(command_error)?;
    let resolve = |config: &super::config::NextHopConfig| {
        let next_hop = config.resolve(&control.ports, control.udp_port)?;
        Ok((config.name.get_ref().clone(), next_hop))
    };
    let requested = config.next_hop.iter().map(resolve).collect::<Result<Vec<_>, _>>().map_err(command_error)?;
    let mut indices: Vec<usize> = Vec::with_capacity(requested.len());
    let mut fresh: Vec<&str> = Vec::new();
    for (name, next_hop) in &requested {
        if next_hop.carrier_bytes() > headroom_bytes {
            return refuse(format!("next hop \"{name}\" needs more headroom than the next hops of the configuration"));
        }
        let known = control.next_hops.iter().position(|(known, _)| known == name);
        let new = || control.next_hops.len() + fresh.iter().position(|known| known == name).unwrap_or(fresh.len());
        let index = known.unwrap_or_else(new);
        if indices.contains(&index) {
            return refuse(format!("next hop \"{name}\" occurs twice"));
        }
        if known.is_none() {
            fresh.push(name);
        }
        indices.push(index);
    }
    if control.next_hops.len() + fresh.len() > control.next_hops_max {
        let max = control.next_hops_max;
        return refuse(format!("the table has room for {max} next hops: increase spare_next_hops"));
    }
    let mut written = Written::default();
    for (&index, (name, next_hop)) in indices.iter().zip(&requested) {
        match control.next_hops.get_mut(index) {
            Some(known) => known.1 = *next_hop,
            None => control.next_hops.push((name.clone(), *next_hop)),
        }
        control.table.set_next_hop(index as u32, next_hop, &mut written);
    }
    upload(written, running)?;
    // Each next hop has two copies, and a change writes the unused one. Earlier lookups may still
    // use the old copy. The next change overwrites the old copy, so this command waits for these
    // lookups.
    running.quiesce()?;
    Ok(json!({ "next_hops": requested.len() }))
}

fn next_hops(control: &Control) -> Value {
    let shown = control.next_hops.iter().map(|(name, next_hop)| json!({ "name": name, "is": format!("{next_hop:?}") }));
    json!({ "next_hop": shown.collect::<Vec<_>>() })
}
