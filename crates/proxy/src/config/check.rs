//! Checks a configuration for errors that the parser does not detect.

use std::collections::BTreeSet;

use super::{Config, ConfigError, Mode, Process, Proxy, Signer};

/// Maximum value of a time setting, in seconds. It is one day.
const SECONDS_MAX: f64 = 86_400.0;

pub(super) fn check(config: &Config, text: &str, origin: &str) -> Result<(), ConfigError> {
    let at = |line: usize| Place { origin, line };
    let keys = lines_of(text, "[[signer.key]]");
    let proxies = lines_of(text, "[[proxy]]");
    let line = |lines: &[usize], index: usize| lines.get(index).copied().unwrap_or(1);
    if config.workers.is_some_and(|workers| !(1..=1024).contains(&workers)) {
        return at(1).refuse("workers: expected a number from 1 to 1024");
    }
    check_seconds("drain_s", config.drain_s, at(1))?;
    if config.signer.jobs_max == 0 {
        return at(line(&lines_of(text, "[signer]"), 0)).refuse("jobs_max: expected a number above 0");
    }
    check_process(&config.signer, at(line(&lines_of(text, "[signer]"), 0)))?;
    let mut names = BTreeSet::new();
    for (index, key) in config.signer.key.iter().enumerate() {
        if !names.insert(&key.name) {
            let message = format!("two keys have the name `{}`: give each its own", key.name);
            return at(line(&keys, index)).refuse(message);
        }
    }
    if config.proxy.is_empty() {
        return at(1).refuse("there is no [[proxy]]: add one with name, listen, mode, keys and upstream");
    }
    let (mut found, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for (index, proxy) in config.proxy.iter().enumerate() {
        let place = at(line(&proxies, index));
        if !found.insert(&proxy.name) {
            return place.refuse(format!("two proxies have the name `{}`: give each its own", proxy.name));
        }
        if let Some(unknown) = proxy.keys.iter().find(|key| !names.contains(key)) {
            let known: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            return place.refuse(format!("there is no key `{unknown}`; the keys are {}", known.join(", ")));
        }
        if let Some(twice) = [Some(proxy.listen), proxy.redirect].into_iter().flatten().find(|address| {
            // Several listeners may use port 0, because each one gets a different free port.
            address.port() != 0 && !addresses.insert(*address)
        }) {
            return place.refuse(format!("{twice} is already the address of another listener: choose another port"));
        }
        check_proxy(proxy, place)?;
    }
    Ok(())
}

/// Position of a stanza in the configuration file.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// Name of the file.
    origin: &'a str,
    /// Line of the stanza, from 1.
    line: usize,
}

impl Place<'_> {
    fn refuse<T>(self, message: impl ToString) -> Result<T, ConfigError> {
        Err(ConfigError::at(self.origin, self.line, message))
    }
}

fn check_process(signer: &Signer, place: Place<'_>) -> Result<(), ConfigError> {
    match (signer.process, &signer.socket) {
        (Process::Separate, None) => {
            place.refuse("process = \"separate\" needs `socket`, such as \"/run/godwit/signer\"")
        }
        (Process::Inside, Some(_)) => place.refuse("socket: needs process = \"separate\""),
        (Process::Inside, None) if signer.user.is_some() => place.refuse("user: needs process = \"separate\""),
        _ => Ok(()),
    }
}

fn check_proxy(proxy: &Proxy, place: Place<'_>) -> Result<(), ConfigError> {
    if proxy.keys.is_empty() {
        return place.refuse("keys: expected the name of at least one [[signer.key]]");
    }
    if proxy.upstream.is_empty() {
        return place.refuse("upstream: expected at least one server, such as [{ address = \"10.0.0.5:8080\" }]");
    }
    if proxy.groups.is_empty() {
        return place.refuse("groups: expected at least one of x25519mlkem768, x25519, p256, p384");
    }
    for server in &proxy.upstream {
        let port = server
            .address
            .rsplit_once(':')
            .and_then(|(host, port)| port.parse::<u16>().ok().filter(|port| *port > 0 && !host.is_empty()));
        if port.is_none() {
            return place
                .refuse(format!("upstream address `{}`: expected host:port, such as 10.0.0.5:8080", server.address));
        }
    }
    if let Some(long) = proxy.alpn.iter().flatten().find(|name| name.is_empty() || name.len() > 255) {
        return place.refuse(format!("alpn: the name `{long}` must have 1 to 255 bytes"));
    }
    match proxy.mode {
        Mode::Tcp => {
            for (set, key) in [(proxy.redirect.is_some(), "redirect"), (proxy.acme.is_some(), "acme")] {
                if set {
                    return place.refuse(format!("{key}: needs mode = \"http\""));
                }
            }
        }
        Mode::Http => {
            if proxy.proxy_protocol {
                return place.refuse("proxy_protocol: needs mode = \"tcp\"; mode http sends X-Forwarded-For");
            }
            if let Some(other) = proxy.alpn.iter().flatten().find(|name| !["h2", "http/1.1"].contains(&name.as_str())) {
                return place.refuse(format!("alpn: mode http has the protocols h2 and http/1.1, not `{other}`"));
            }
            if proxy.acme.is_some() && proxy.redirect.is_none() {
                return place.refuse("acme: needs `redirect`, a listener without TLS, usually on port 80");
            }
        }
    }
    check_health(proxy, place)?;
    let limits = &proxy.limits;
    if limits.connections == 0 || limits.header_fields == 0 || limits.streams == 0 {
        return place.refuse("limits: expected numbers above 0");
    }
    if !(8192..=1 << 20).contains(&limits.header_bytes) {
        return place.refuse("limits.header_bytes: expected a number from 8192 to 1048576");
    }
    let timeouts = &proxy.timeouts;
    check_seconds("timeouts.handshake_s", timeouts.handshake_s, place)?;
    check_seconds("timeouts.header_s", timeouts.header_s, place)?;
    check_seconds("timeouts.idle_s", timeouts.idle_s, place)?;
    check_seconds("timeouts.connect_s", timeouts.connect_s, place)?;
    check_seconds("timeouts.response_s", timeouts.response_s, place)?;
    check_seconds("timeouts.keep_alive_s", timeouts.keep_alive_s, place)
}

fn check_health(proxy: &Proxy, place: Place<'_>) -> Result<(), ConfigError> {
    let Some(health) = &proxy.health else { return Ok(()) };
    check_seconds("health.every_s", health.every_s, place)?;
    check_seconds("health.timeout_s", health.timeout_s, place)?;
    match &health.path {
        Some(path) if !path.starts_with('/') || path.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            place.refuse(format!("health.path `{path}`: expected a path, such as /ok"))
        }
        _ => Ok(()),
    }
}

fn check_seconds(key: &str, seconds: f64, place: Place<'_>) -> Result<(), ConfigError> {
    let valid = seconds.is_finite() && seconds > 0.0 && seconds <= SECONDS_MAX;
    if valid { Ok(()) } else { place.refuse(format!("{key}: expected seconds above 0, at most {SECONDS_MAX}")) }
}

/// Returns the line numbers of the headers `name`.
fn lines_of(text: &str, name: &str) -> Vec<usize> {
    let is_header = |line: &str| line.split('#').next().unwrap_or_default().trim() == name;
    text.lines().enumerate().filter(|(_, line)| is_header(line)).map(|(index, _)| index + 1).collect()
}
