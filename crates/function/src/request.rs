//! Refuses unknown keys in control requests.

use serde_json::Value;

use crate::Error;

/// Keys that select the command and its function. Every request may have them.
const ADDRESS: [&str; 3] = ["command", "function", "kind"];

/// Refuses a request with a key that its command does not use. `commands` contains the keys of each
/// command. A command that is not listed is not checked, because the caller refuses it.
///
/// # Errors
/// Returns an error if the request has an unknown key, such as a typo.
pub fn refuse_unknown(request: &Value, commands: &[(&str, &[&str])]) -> Result<(), Error> {
    let command = request.get("command").and_then(Value::as_str).unwrap_or_default();
    match commands.iter().find(|(name, _)| *name == command) {
        Some((_, keys)) => refuse_other_keys(request, &format!("`{command}`"), keys, &ADDRESS),
        None => Ok(()),
    }
}

/// Refuses a request entry with a key outside `keys`. `what` names the entry in the error message.
pub(crate) fn refuse_unknown_in(entry: &Value, what: &str, keys: &[&str]) -> Result<(), Error> {
    refuse_other_keys(entry, what, keys, &[])
}

fn refuse_other_keys(object: &Value, what: &str, keys: &[&str], also: &[&str]) -> Result<(), Error> {
    let is_known = |key: &str| keys.contains(&key) || also.contains(&key);
    let Some(unknown) = object.as_object().into_iter().flatten().map(|(key, _)| key).find(|key| !is_known(key)) else {
        return Ok(());
    };
    let known = match keys {
        [] => "no keys".to_owned(),
        keys => format!("`{}`", keys.join("`, `")),
    };
    Err(Error::Command { message: format!("unknown key `{}`: {what} takes {known}", unknown.escape_debug()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_misspelt_key_is_refused() {
        let commands: &[(&str, &[&str])] = &[("list", &["prefix", "address"]), ("flush", &[])];
        let refused = |request: Value| refuse_unknown(&request, commands).err().map(|error| error.to_string());
        assert_eq!(refused(json!({ "command": "list", "kind": "ipv4", "function": "r", "prefix": "::/0" })), None);
        let expected = "unknown key `prefx`: `list` takes `prefix`, `address`";
        assert_eq!(refused(json!({ "command": "list", "prefx": "::/0" })).as_deref(), Some(expected));
        let expected = "unknown key `x`: `flush` takes no keys";
        assert_eq!(refused(json!({ "command": "flush", "x": 1 })).as_deref(), Some(expected));
        assert_eq!(refused(json!({ "command": "other", "x": 1 })), None, "the caller refuses the command");
    }
}
