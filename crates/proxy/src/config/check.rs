//! Checks of a configuration that its types do not express.

use std::collections::BTreeSet;

use super::{Config, ConfigError, Mode, Proxy};

/// Longest time of a setting, in seconds: one day.
const SECONDS_MAX: f64 = 86_400.0;

pub(super) fn check(config: &Config, text: &str, origin: &str) -> Result<(), ConfigError> {
    let refuse = |stanza: usize, message: String| Err(ConfigError::at(origin, stanza, message));
    let keys = lines_of(text, "[[signer.key]]");
    let proxies = lines_of(text, "[[proxy]]");
    let line = |lines: &[usize], index: usize| lines.get(index).copied().unwrap_or(1);
    if config.workers.is_some_and(|workers| !(1..=1024).contains(&workers)) {
        return refuse(1, "workers: expected a number from 1 to 1024".to_owned());
    }
    check_seconds("drain_s", config.drain_s).or_else(|message| refuse(1, message))?;
    if config.signer.jobs_max == 0 {
        return refuse(line(&lines_of(text, "[signer]"), 0), "jobs_max: expected a number above 0".to_owned());
    }
    let mut names = BTreeSet::new();
    for (index, key) in config.signer.key.iter().enumerate() {
        if !names.insert(&key.name) {
            return refuse(line(&keys, index), format!("two keys have the name `{}`: give each its own", key.name));
        }
    }
    if config.proxy.is_empty() {
        return refuse(1, "there is no [[proxy]]: add one with name, listen, mode, keys and upstream".to_owned());
    }
    let (mut found, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for (index, proxy) in config.proxy.iter().enumerate() {
        let problem = if !found.insert(&proxy.name) {
            Err(format!("two proxies have the name `{}`: give each its own", proxy.name))
        } else if let Some(unknown) = proxy.keys.iter().find(|key| !names.contains(key)) {
            let known: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            Err(format!("there is no key `{unknown}`; the keys are {}", known.join(", ")))
        } else if let Some(twice) = [Some(proxy.listen), proxy.redirect].into_iter().flatten().find(|address| {
            // Port 0 selects a free port each time.
            address.port() != 0 && !addresses.insert(*address)
        }) {
            Err(format!("{twice} is already the address of another listener: choose another port"))
        } else {
            check_proxy(proxy)
        };
        problem.or_else(|message| refuse(line(&proxies, index), message))?;
    }
    Ok(())
}

fn check_proxy(proxy: &Proxy) -> Result<(), String> {
    if proxy.keys.is_empty() {
        return Err("keys: expected the name of at least one [[signer.key]]".to_owned());
    }
    if proxy.upstream.is_empty() {
        return Err("upstream: expected at least one server, such as [{ address = \"10.0.0.5:8080\" }]".to_owned());
    }
    if proxy.groups.is_empty() {
        return Err("groups: expected at least one of x25519mlkem768, x25519, p256, p384".to_owned());
    }
    for server in &proxy.upstream {
        let port = server
            .address
            .rsplit_once(':')
            .and_then(|(host, port)| port.parse::<u16>().ok().filter(|port| *port > 0 && !host.is_empty()));
        if port.is_none() {
            return Err(format!("upstream address `{}`: expected host:port, such as 10.0.0.5:8080", server.address));
        }
    }
    if let Some(long) = proxy.alpn.iter().flatten().find(|name| name.is_empty() || name.len() > 255) {
        return Err(format!("alpn: the name `{long}` must have 1 to 255 bytes"));
    }
    match proxy.mode {
        Mode::Tcp => {
            for (set, key) in [(proxy.redirect.is_some(), "redirect"), (proxy.acme.is_some(), "acme")] {
                if set {
                    return Err(format!("{key}: needs mode = \"http\""));
                }
            }
        }
        Mode::Http => {
            if proxy.proxy_protocol {
                return Err("proxy_protocol: needs mode = \"tcp\"; mode http sends X-Forwarded-For".to_owned());
            }
            if let Some(other) = proxy.alpn.iter().flatten().find(|name| !["h2", "http/1.1"].contains(&name.as_str())) {
                return Err(format!("alpn: mode http has the protocols h2 and http/1.1, not `{other}`"));
            }
            if proxy.acme.is_some() && proxy.redirect.is_none() {
                return Err("acme: needs `redirect`, a listener without TLS, usually on port 80".to_owned());
            }
        }
    }
    check_health(proxy)?;
    let limits = &proxy.limits;
    if limits.connections == 0 || limits.header_fields == 0 || limits.streams == 0 {
        return Err("limits: expected numbers above 0".to_owned());
    }
    if !(8192..=1 << 20).contains(&limits.header_bytes) {
        return Err("limits.header_bytes: expected a number from 8192 to 1048576".to_owned());
    }
    let timeouts = &proxy.timeouts;
    check_seconds("timeouts.handshake_s", timeouts.handshake_s)?;
    check_seconds("timeouts.header_s", timeouts.header_s)?;
    check_seconds("timeouts.idle_s", timeouts.idle_s)?;
    check_seconds("timeouts.connect_s", timeouts.connect_s)?;
    check_seconds("timeouts.response_s", timeouts.response_s)?;
    check_seconds("timeouts.keep_alive_s", timeouts.keep_alive_s)
}

fn check_health(proxy: &Proxy) -> Result<(), String> {
    let Some(health) = &proxy.health else { return Ok(()) };
    check_seconds("health.every_s", health.every_s)?;
    check_seconds("health.timeout_s", health.timeout_s)?;
    match &health.path {
        Some(path) if !path.starts_with('/') || path.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            Err(format!("health.path `{path}`: expected a path, such as /ok"))
        }
        _ => Ok(()),
    }
}

fn check_seconds(key: &str, seconds: f64) -> Result<(), String> {
    let valid = seconds.is_finite() && seconds > 0.0 && seconds <= SECONDS_MAX;
    if valid { Ok(()) } else { Err(format!("{key}: expected seconds above 0, at most {SECONDS_MAX}")) }
}

/// Returns the line numbers of the headers `name`.
fn lines_of(text: &str, name: &str) -> Vec<usize> {
    let is_header = |line: &str| line.split('#').next().unwrap_or_default().trim() == name;
    text.lines().enumerate().filter(|(_, line)| is_header(line)).map(|(index, _)| index + 1).collect()
}
