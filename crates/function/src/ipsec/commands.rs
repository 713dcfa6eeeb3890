//! Commands that the operator sends at run time to manage SAs and policies. Responses never contain
//! cryptographic keys.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value, json};
use toml::de::DeTable;
use zeroize::Zeroizing;

use super::config::{Config, PolicyConfig};
use super::config_sa::Mode;
use super::control::{Control, Refusal};
use super::policies::{Action, Policy};
use super::sa::{Lifetime, Sa};
use super::state::SaFacts;
use super::suite::Protocol;
use crate::request::refuse_unknown;
use crate::{Error, Running};

/// Commands with the names of their arguments. `policies` accepts `sa` only to refuse it with a
/// better message.
const COMMANDS: [(&str, &[&str]); 5] =
    [("add", SAS), ("replace", SAS), ("delete", &["sa"]), ("list", &["sa"]), ("policies", SAS)];
const SAS: &[&str] = &["sa", "policy"];

/// Executes one command completely or not at all. It is not inlined, so that its caller can
/// overwrite the used part of the stack, which may contain cryptographic keys.
#[inline(never)]
pub(super) fn run(control: &mut Control, request: &Value, running: &dyn Running) -> Result<Value, Error> {
    control.wipe_retired(running);
    refuse_unknown(request, &COMMANDS)?;
    match request.get("command").and_then(Value::as_str) {
        Some("add") => add(control, request, running),
        Some("replace") => replace(control, request, running),
        Some("delete") => delete(control, request, running),
        Some("list") => list(control, request),
        Some("policies") => policies(control, request),
        _ => refuse("unknown command: ipsec has the commands add, replace, delete, list and policies"),
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Command { message: message.into() })
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Command { message: refusal.message }
    }
}

/// Converts a configuration error to a command error. The result quotes no string of the request,
/// because the string may be a cryptographic key.
fn command_error(error: Error) -> Error {
    let message = match &error {
        Error::Toml(error) => match error.message().split_once("invalid type: string \"") {
            Some((_, quoted)) => format!("invalid type: a string{}", quoted.rsplit('"').next().unwrap_or_default()),
            None => error.message().to_owned(),
        },
        error => error.to_string(),
    };
    Error::Command { message }
}

/// Parses the SAs and policies in a request.
fn stanzas(request: &Value) -> Result<Config, Error> {
    let mut lists: Vec<(&str, &[Value])> = Vec::new();
    for key in ["sa", "policy"] {
        match request.get(key) {
            None => {}
            Some(Value::Array(values)) => lists.push((key, values)),
            Some(_) => return refuse(format!("the command needs \"{key}\": [{{...}}, ...]")),
        }
    }
    read(&lists).map_err(|error| {
        let stanzas = lists.iter().flat_map(|(key, values)| (1..).zip(*values).map(move |stanza| (*key, stanza)));
        let wrong = |(key, (number, value))| {
            let error = read(&[(key, std::slice::from_ref(value))]).err()?;
            let name = value.get("name").and_then(Value::as_str).filter(|_| key == "sa");
            let stanza = name.map_or_else(|| format!("{key} {number}"), |name| format!("SA \"{name}\""));
            Some(Error::Command { message: format!("{stanza}: {error}") })
        };
        stanzas.into_iter().find_map(wrong).unwrap_or(error)
    })
}

fn read(lists: &[(&str, &[Value])]) -> Result<Config, Error> {
    let mut text = Zeroizing::new(String::new());
    // A growing string leaves copies of its text in memory, which are not wiped. All memory for the
    // text is therefore reserved at once.
    text.reserve_exact(lists.iter().map(|(key, values)| 8 + key.len() + bytes_of(values)).sum());
    for (key, values) in lists {
        let _ = write!(*text, "{key} = ");
        emit_array(&mut text, values)?;
        text.push('\n');
    }
    let not_toml = |_| Error::Command { message: "the request cannot be converted to TOML".to_owned() };
    let document = DeTable::parse(&text).map_err(not_toml)?;
    crate::config::read(document).map_err(command_error)
}

/// Returns an upper bound for the number of bytes that [`emit`] writes for a value.
fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => 6 * text.len() + 2,
        Value::Array(values) => bytes_of(values),
        Value::Object(map) => map.iter().map(|(key, value)| 6 * key.len() + 8 + bytes(value)).sum::<usize>() + 2,
        _ => 32,
    }
}

fn bytes_of(values: &[Value]) -> usize {
    values.iter().map(|value| 2 + bytes(value)).sum::<usize>() + 2
}

/// Writes a JSON value as TOML. In both formats, strings have the same escape sequences.
fn emit(out: &mut String, value: &Value) -> Result<(), Error> {
    match value {
        Value::Null => return refuse("null is not a valid value: leave the key out"),
        Value::String(text) => emit_text(out, text),
        Value::Array(values) => emit_array(out, values)?,
        Value::Object(map) => {
            out.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                emit_text(out, key);
                out.push('=');
                emit(out, value)?;
            }
            out.push('}');
        }
        Value::Bool(_) | Value::Number(_) => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

fn emit_array(out: &mut String, values: &[Value]) -> Result<(), Error> {
    out.push('[');
    for value in values {
        emit(out, value)?;
        out.push(',');
    }
    out.push(']');
    Ok(())
}

fn emit_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            character if character.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            character => out.push(character),
        }
    }
    out.push('"');
}

fn sas(request: &Value) -> Result<Vec<Sa>, Error> {
    let config = stanzas(request)?;
    if config.sa.is_empty() || !config.policy.is_empty() {
        return refuse("the command needs \"sa\": [{...}, ...] and nothing else");
    }
    config.sa.iter().map(|sa| sa.resolve().map_err(command_error)).collect()
}

fn warnings(sas: &[Sa]) -> Vec<String> {
    sas.iter().filter_map(Sa::warning).collect()
}

/// Returns the reply to a change, with warnings only if there are some.
fn done(key: &str, count: usize, warnings: Vec<String>) -> Value {
    match warnings.is_empty() {
        true => json!({ key: count }),
        false => json!({ key: count, "warnings": warnings }),
    }
}

/// Returns the names of SAs for a message.
fn names_of(sas: &[Sa]) -> String {
    listed(&sas.iter().map(|sa| sa.name.clone()).collect::<Vec<_>>())
}

/// Lists the first names in a message, and counts the others.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).map(|name| format!("SA \"{name}\"")).collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// Returns the SA names in a request, if there are any.
fn names(request: &Value) -> Result<Option<Vec<&str>>, Error> {
    match request.get("sa") {
        None => Ok(None),
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
            Ok(Some(names.iter().filter_map(Value::as_str).collect()))
        }
        Some(_) => refuse("the command needs \"sa\": [\"NAME\", ...]"),
    }
}

fn index(control: &Control, name: &str) -> Result<u32, Error> {
    let unknown = || Error::Command { message: format!("no SA is called \"{name}\"") };
    control.index(name).ok_or_else(unknown)
}

/// Installs all SAs, or none of them if an error occurs. Each SA may come with the index of the SA
/// that it replaces.
fn install(control: &mut Control, sas: Vec<(Sa, Option<u32>)>, running: &dyn Running) -> Result<Vec<u32>, Error> {
    let mut staged = Vec::with_capacity(sas.len());
    let mut done = Ok(());
    for (sa, replaced) in sas {
        match control.stage(sa, replaced) {
            Ok(index) => staged.push(index),
            Err(refusal) => {
                done = Err(refusal.into());
                break;
            }
        }
    }
    let done = done.and_then(|()| control.make_durable(&staged));
    let done = done.and_then(|()| control.upload(&staged, running));
    let done = done.and_then(|()| staged.iter().try_for_each(|index| Ok(control.publish(*index)?)));
    match done {
        Ok(()) => Ok(staged),
        Err(error) => {
            control.unpublish(&staged);
            // Only the first error is reported.
            let _ = control.retire(&staged, running);
            Err(error)
        }
    }
}

fn add(control: &mut Control, request: &Value, running: &dyn Running) -> Result<Value, Error> {
    let sas = sas(request)?;
    let (names, warnings) = (names_of(&sas), warnings(&sas));
    let added = install(control, sas.into_iter().map(|sa| (sa, None)).collect(), running)?;
    control.notice("sa_added", format!("added {names}"));
    Ok(done("added", added.len(), warnings))
}

fn replace(control: &mut Control, request: &Value, running: &dyn Running) -> Result<Value, Error> {
    let with_old = |sa: Sa| {
        let old = index(control, &sa.name)?;
        if control.database.sa(old).is_some_and(|old| old.is_inbound() != sa.is_inbound()) {
            return refuse(format!("SA \"{}\" cannot be replaced by an SA of the other direction", sa.name));
        }
        Ok((sa, old))
    };
    let sas = sas(request)?;
    let (names, warnings) = (names_of(&sas), warnings(&sas));
    let pairs = sas.into_iter().map(with_old).collect::<Result<Vec<_>, _>>()?;
    let old: Vec<u32> = pairs.iter().map(|(_, old)| *old).collect();
    if old.iter().collect::<std::collections::HashSet<_>>().len() < old.len() {
        return refuse("a request can replace each SA only once");
    }
    let new = install(control, pairs.into_iter().map(|(sa, old)| (sa, Some(old))).collect(), running)?;
    for (old, new) in old.iter().zip(&new) {
        control.switch(*old, *new);
    }
    control.unpublish(&old);
    control.notice("sa_rekeyed", format!("new keys for {names}"));
    control.retire(&old, running).map_err(|error| Error::Command {
        message: format!("the new SAs are in use, but {error}: the old keys are wiped once these packets are gone"),
    })?;
    Ok(done("replaced", old.len(), warnings))
}

fn delete(control: &mut Control, request: &Value, running: &dyn Running) -> Result<Value, Error> {
    let Some(names) = names(request)? else { return refuse("the command needs \"sa\": [\"NAME\", ...]") };
    let mut indexes = names.into_iter().map(|name| index(control, name)).collect::<Result<Vec<_>, _>>()?;
    indexes.sort_unstable();
    indexes.dedup();
    if let Some(&used) = indexes.iter().find(|index| control.policies_of(**index) > 0) {
        let name = control.database.sa(used).map_or(String::new(), |sa| sa.name.clone());
        let count = control.policies_of(used);
        let policies = if count == 1 { "a policy".to_owned() } else { format!("{count} policies") };
        return refuse(format!("SA \"{name}\" is used by {policies}: replace it, or set other policies first"));
    }
    let deleted: Vec<String> =
        indexes.iter().filter_map(|index| Some(control.database.sa(*index)?.name.clone())).collect();
    control.unpublish(&indexes);
    if let Err(error) = running.quiesce() {
        indexes.iter().try_for_each(|index| control.publish(*index))?;
        return Err(error);
    }
    control.wipe(&indexes, Some(running));
    control.notice("sa_deleted", format!("deleted {}", listed(&deleted)));
    Ok(json!({ "deleted": indexes.len() }))
}

fn list(control: &Control, request: &Value) -> Result<Value, Error> {
    let indexes = match names(request)? {
        Some(names) => names.into_iter().map(|name| index(control, name)).collect::<Result<_, _>>()?,
        None => control.indexes(),
    };
    let described =
        indexes.into_iter().filter_map(|index| Some(describe(control, index, &*control.database.sa(index)?)));
    Ok(json!({ "sa": described.collect::<Vec<_>>() }))
}

/// Describes an SA as JSON, without the cryptographic keys.
fn describe(control: &Control, index: u32, sa: &Sa) -> Value {
    let states = &control.database.states;
    let (hot, cold) = (states.hot(index), states.cold(index));
    let facts = hot.facts();
    let state = match facts {
        facts if facts.is(SaFacts::ENDED) => "ended",
        facts if facts.is(SaFacts::SOFT | SaFacts::WARNED) => "to be replaced",
        _ => "in use",
    };
    let mut description = json!({
        "name": sa.name,
        "spi": sa.spi,
        "direction": if sa.is_inbound() { "in" } else { "out" },
        "protocol": if sa.suite().protocol == Protocol::Ah { "ah" } else { "esp" },
        "mode": if sa.mode == Mode::Transport { "transport" } else { "tunnel" },
        "suite": sa.suite().name,
        "source": sa.source,
        "destination": sa.destination,
        "state": state,
        "sequence": hot.sequence(),
        "esn": sa.esn,
        "packets": hot.packets(sa.is_inbound(), states.grants.first(index)),
        "bytes": hot.bytes(),
        "dropped_ended": cold.ended.load(Relaxed),
        "dropped_other": cold.other_drops.load(Relaxed),
    });
    if sa.is_inbound() {
        description["replay_window"] = sa.replay_window.into();
        description["dropped_replayed"] = cold.replayed.load(Relaxed).into();
        description["dropped_authentication"] = cold.not_authentic.load(Relaxed).into();
    } else {
        description["policies"] = control.policies_of(index).into();
    }
    if let Some(udp) = sa.udp {
        description["udp_encapsulation"] =
            json!({ "source_port": udp.source_port, "destination_port": udp.destination_port });
    }
    if sa.lifetime != Lifetime::ENDLESS {
        let Lifetime { soft_bytes, hard_bytes, soft_packets, hard_packets } = sa.lifetime;
        let limits = [
            ("soft_bytes", soft_bytes),
            ("hard_bytes", hard_bytes),
            ("soft_packets", soft_packets),
            ("hard_packets", hard_packets),
        ];
        let given = limits.into_iter().filter(|(_, limit)| *limit != u64::MAX);
        description["lifetime"] = given.map(|(name, limit)| (name.to_owned(), Value::from(limit))).collect();
    }
    description
}

/// Lists the IPsec policies in order, or replaces all of them.
fn policies(control: &mut Control, request: &Value) -> Result<Value, Error> {
    if request.get("policy").is_none() && request.get("sa").is_none() {
        let described = control.policies().iter().map(|policy| describe_policy(control, policy));
        return Ok(json!({ "policy": described.collect::<Vec<_>>() }));
    }
    let config = stanzas(request)?;
    if request.get("policy").is_none() || !config.sa.is_empty() {
        return refuse("the command needs \"policy\": [{...}, ...] and nothing else");
    }
    let resolve = |(number, policy): (usize, &PolicyConfig)| {
        let of_policy = |error| Error::Command { message: format!("policy {number}: {}", command_error(error)) };
        policy.resolve(&|name| control.outbound(name)).map_err(of_policy)
    };
    let resolved = (1..).zip(&config.policy).map(resolve).collect::<Result<Vec<_>, _>>()?;
    let count = resolved.len();
    control.set_policies(resolved);
    control.notice("policies_replaced", format!("{count} policies are in use"));
    Ok(json!({ "policies": count }))
}

fn describe_policy(control: &Control, policy: &Policy) -> Value {
    let Policy { selector, action } = policy;
    let mut description = selector.describe();
    match *action {
        Action::Protect(index) => {
            description["action"] = "protect".into();
            description["sa"] = control.database.sa(index).map_or(Value::Null, |sa| sa.name.clone().into());
        }
        Action::Bypass => description["action"] = "bypass".into(),
        Action::Discard => description["action"] = "discard".into(),
    }
    description
}
