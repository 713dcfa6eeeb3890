//! Tests that each wrong configuration gives one error with the file, the line, the problem and a
//! remedy.

use std::path::Path;

use godwit_proxy::{Config, Running};
use godwit_test_support::{Folder, certificate};

const VALID: &str = r#"
workers = 1

[signer]
[[signer.key]]
name = "key"
certificate = "rsa2048-0-localhost.crt"
key = "rsa2048-0.key"

[[proxy]]
name = "front"
listen = "127.0.0.1:0"
mode = "http"
keys = ["key"]
upstream = [{ address = "127.0.0.1:80" }]
"#;

fn error(text: &str) -> String {
    Config::parse(text, "p.toml", Path::new("")).expect_err(text).to_string()
}

/// Each row replaces one part of the text [`VALID`].
#[test]
fn mistakes_are_reported_with_their_line() {
    Config::parse(VALID, "p.toml", Path::new("")).unwrap();
    let upstream = "upstream = [{ address = \"127.0.0.1:80\" }]";
    let after = |extra: &str| format!("{upstream}\n{extra}");
    let rows = [
        ("workers = 1", "workers = 0", "p.toml:1: workers: expected a number from 1 to 1024"),
        ("workers = 1", "drain_s = 0", "p.toml:1: drain_s: expected seconds above 0"),
        ("workers = 1", "wokers = 1", "p.toml:2: unknown field `wokers`"),
        ("[signer]\n", "[signer]\njobs_max = 0\n", "p.toml:4: jobs_max: expected a number above 0"),
        ("[signer]\n", "[signer]\nprocess = \"other\"\n", "p.toml:5: unknown variant `other`"),
        ("mode = \"http\"", "mode = \"udp\"", "p.toml:13: unknown variant `udp`"),
        ("mode = \"http\"\n", "", "missing field `mode`"),
        ("keys = [\"key\"]", "keys = []", "p.toml:10: keys: expected the name of at least one"),
        ("keys = [\"key\"]", "keys = [\"kye\"]", "p.toml:10: there is no key `kye`; the keys are key"),
        ("listen = \"127.0.0.1:0\"", "listen = \"localhost:1\"", "p.toml:12: invalid socket address"),
        (upstream, "upstream = []", "p.toml:10: upstream: expected at least one server"),
        ("127.0.0.1:80", "127.0.0.1", "p.toml:10: upstream address `127.0.0.1`: expected host:port"),
        ("127.0.0.1:80", "127.0.0.1:0", "expected host:port"),
        ("name = \"key\"", "name = \"key\"\npassword = \"x\"", "p.toml:7: unknown field `password`"),
    ];
    for (from, to, expected) in rows {
        assert!(VALID.contains(from), "{from}");
        let found = error(&VALID.replace(from, to));
        assert!(found.contains(expected) && !found.contains('\n'), "{to}: {found}");
    }
    let rows = [
        ("groups = []", "groups: expected at least one of"),
        ("groups = [\"p521\"]", "unknown variant `p521`"),
        ("alpn = [\"h3\"]", "alpn: mode http has the protocols h2 and http/1.1, not `h3`"),
        ("proxy_protocol = true", "proxy_protocol: needs mode = \"tcp\""),
        ("acme = \"folder\"", "acme: needs `redirect`"),
        ("limits = { connections = 0 }", "limits: expected numbers above 0"),
        ("limits = { header_bytes = 100 }", "limits.header_bytes: expected a number from 8192"),
        ("timeouts = { header_s = -1.0 }", "timeouts.header_s: expected seconds above 0"),
        ("timeouts = { idle_s = 1e9 }", "timeouts.idle_s: expected seconds above 0, at most 86400"),
        ("timeouts = { idle_s = nan }", "timeouts.idle_s: expected seconds above 0"),
        ("health = { path = \"ok\" }", "health.path `ok`: expected a path, such as /ok"),
        ("health = { path = \"/a b\" }", "health.path `/a b`: expected a path"),
        ("balance = \"random\"", "unknown variant `random`"),
    ];
    for (extra, expected) in rows {
        let found = error(&VALID.replace(upstream, &after(extra)));
        assert!(found.contains(expected) && !found.contains('\n'), "{extra}: {found}");
    }
    let stanza = VALID.split_once("[[proxy]]").unwrap().1;
    let twice = format!("{VALID}[[proxy]]{stanza}");
    assert_eq!(error(&twice), "p.toml:16: two proxies have the name `front`: give each its own");
    let twice = VALID.replace("127.0.0.1:0\"", "127.0.0.1:444\"");
    let twice = format!("{twice}[[proxy]]{}", twice.split_once("[[proxy]]").unwrap().1.replace("front", "back"));
    assert_eq!(
        error(&twice),
        "p.toml:16: 127.0.0.1:444 is already the address of another listener: choose another port"
    );
    let tcp = VALID.replace("\"http\"", "\"tcp\"").replace(upstream, &after("redirect = \"127.0.0.1:80\""));
    assert_eq!(error(&tcp), "p.toml:10: redirect: needs mode = \"http\"");
}

#[test]
fn files_and_addresses_are_checked_at_start() {
    let folder = Folder::new();
    if certificate::certify(&folder, "rsa2048-0", &["localhost"]).is_none() {
        return;
    }
    let start = |from: &str, to: &str| {
        let config = Config::parse(&VALID.replace(from, to), "p.toml", folder.path()).unwrap();
        Running::start(config).err().map_or_else(|| panic!("{to} is accepted"), |error| error.to_string())
    };
    let upstream = "upstream = [{ address = \"127.0.0.1:80\" }]";
    let after = |extra: &str| format!("{upstream}\n{extra}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    folder.write("empty.pem", "");
    let rows = [
        ("rsa2048-0.key", "none.key".to_owned(), "proxy `front`: ", "none.key"),
        (
            "127.0.0.1:80",
            "no-such-host.invalid:80".to_owned(),
            "proxy `front`: upstream `no-such-host.invalid:80`",
            "cannot be resolved",
        ),
        ("127.0.0.1:0", address.clone(), "proxy `front`: cannot listen on ", "in use"),
        ("[signer]\n", "[signer]\ncrypto_mb = \"none.so\"\n".to_owned(), "[signer] crypto_mb: ", "none.so"),
        ("workers = 1", "workers = 1\naccess_log = \"none/log\"".to_owned(), "", "none/log: No such file"),
        (
            upstream,
            after("upstream_tls = { authorities = \"empty.pem\" }"),
            "proxy `front`: ",
            "contains no certificate",
        ),
        (
            upstream,
            after("client_certificates = { authorities = \"empty.pem\" }"),
            "proxy `front`: ",
            "contains no certificate",
        ),
    ];
    for (from, to, begin, part) in rows {
        let found = start(from, &to);
        assert!(found.starts_with(begin) && found.contains(part) && !found.contains('\n'), "{to}: {found}");
    }
}
