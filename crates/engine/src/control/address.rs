//! Finds the function that a request of a client is for.

use serde_json::Value;

use crate::error::Error;

/// Name and kind of a configured function.
pub(crate) type Named<'a> = (&'a str, &'a str);

/// Returns the index of the function that a request addresses, or `None` if it addresses the
/// engine.
///
/// The request names the function in its member `function`. Its member `kind` lists the kinds that
/// the function may have. Without `function`, it addresses the only function of these kinds.
///
/// # Errors
///
/// Returns an error if no function matches the request, or if several do.
pub(crate) fn addressed(request: &Value, functions: &[Named<'_>]) -> Result<Option<usize>, Error> {
    let kinds = kinds(request)?;
    let Some(name) = request.get("function") else {
        return if kinds.is_empty() { Ok(None) } else { only(&kinds, functions).map(Some) };
    };
    let name = name.as_str().ok_or_else(|| Error::request("`function` must be the name of a function"))?;
    let Some(index) = functions.iter().position(|(known, _)| *known == name) else {
        let known: Vec<&str> = functions.iter().map(|(name, _)| *name).collect();
        return Err(Error::Request(godwit_chain::names::unknown("function", name, &known)));
    };
    let kind = functions[index].1;
    if kinds.is_empty() || kinds.contains(&kind) {
        return Ok(Some(index));
    }
    let other = match functions.iter().find(|(_, kind)| kinds.contains(kind)) {
        Some((other, _)) => format!(", such as `{other}`"),
        None => String::new(),
    };
    Err(Error::request(format_args!(
        "function `{name}` is of kind {}: this command is for functions of kind {}{other}",
        quoted(&[kind]),
        quoted(&kinds)
    )))
}

fn kinds(request: &Value) -> Result<Vec<&str>, Error> {
    let kinds = match request.get("kind") {
        None => return Ok(Vec::new()),
        Some(Value::Array(kinds)) => kinds.iter().map(Value::as_str).collect(),
        Some(kind) => kind.as_str().map(|kind| vec![kind]),
    };
    kinds.ok_or_else(|| Error::request("`kind` must be the kind of a function, or a list of kinds"))
}

/// Returns the only function of these kinds.
fn only(kinds: &[&str], functions: &[Named<'_>]) -> Result<usize, Error> {
    let mut found = functions.iter().enumerate().filter(|(_, (_, kind))| kinds.contains(kind));
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Ok(index),
        (None, _) => {
            let configured: Vec<String> = functions.iter().map(|(name, kind)| format!("`{name}` ({kind})")).collect();
            Err(Error::request(format_args!(
                "no function of kind {} runs here: the functions are {}",
                quoted(kinds),
                configured.join(", ")
            )))
        }
        (Some(_), Some(_)) => {
            let names: Vec<&str> =
                functions.iter().filter(|(_, kind)| kinds.contains(kind)).map(|(name, _)| *name).collect();
            let choice = quoted(&names);
            Err(Error::request(format_args!("name the function with `--function`: {choice} takes this command")))
        }
    }
}

/// Joins names in the form "`a`, `b` or `c`".
fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{}`", name.escape_debug())).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "no function".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FUNCTIONS: &[Named<'_>] = &[("route", "ipv4"), ("route6", "ipv6"), ("tunnel", "ipsec"), ("vpn", "ipsec")];

    #[test]
    fn a_request_is_for_the_named_or_the_only_function() {
        let found = |request: Value| addressed(&request, FUNCTIONS).unwrap();
        assert_eq!(found(json!({ "command": "status" })), None);
        assert_eq!(found(json!({ "function": "vpn" })), Some(3));
        assert_eq!(found(json!({ "function": "vpn", "kind": "ipsec" })), Some(3));
        assert_eq!(found(json!({ "kind": "ipv6" })), Some(1));
        assert_eq!(found(json!({ "kind": ["ndn", "ipv4"] })), Some(0));
    }

    #[test]
    fn a_request_for_no_function_or_for_several_is_refused() {
        for (request, expected) in [
            (json!({ "function": "vpm" }), "unknown function `vpm`, did you mean `vpn`?"),
            (json!({ "function": 1 }), "`function` must be the name of a function"),
            (json!({ "kind": [1] }), "`kind` must be the kind of a function, or a list of kinds"),
            (
                json!({ "function": "route", "kind": "ipsec" }),
                "function `route` is of kind `ipv4`: this command is for functions of kind `ipsec`, such as `tunnel`",
            ),
            (
                json!({ "kind": ["ipv4", "ipv6"] }),
                "name the function with `--function`: `route` or `route6` takes this command",
            ),
            (
                json!({ "kind": "l2" }),
                "no function of kind `l2` runs here: the functions are `route` (ipv4), `route6` (ipv6), `tunnel` (ipsec), \
                 `vpn` (ipsec)",
            ),
        ] {
            assert_eq!(addressed(&request, FUNCTIONS).unwrap_err().to_string(), expected);
        }
    }
}
