//! Built-in configuration of `godwit demo`.

use godwit_engine::config::Config;

use crate::failure::Failure;

/// Configuration in `examples/`.
const CONFIGURATION: &str = include_str!("../../../examples/demo.toml");
/// Files that the configuration names: name and contents.
const FILES: [(&str, &str); 2] = [
    ("demo-routes.txt", include_str!("../../../examples/demo-routes.txt")),
    ("demo-patterns.txt", include_str!("../../../examples/demo-patterns.txt")),
];

/// Name of the configuration in messages.
pub(crate) const ORIGIN: &str = "demo.toml";

/// First line of the pattern matching stanza, which `with` places on another device.
const INSPECT: &str = "kind = \"dpi\"\n";

/// Calls `work` with the built-in configuration and the appended text `more`. If `device` is given,
/// pattern matching runs on this device. The configured files exist until `work` returns.
pub(crate) fn with<T>(
    more: &str,
    device: Option<&str>,
    work: impl FnOnce(Config) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let refuse = |error: std::io::Error| {
        Failure::User(format!("cannot write the files of the demo to the temporary folder: {error}"))
    };
    let folder = tempfile::Builder::new().prefix("godwit-demo-").tempdir().map_err(refuse)?;
    for (name, text) in FILES {
        std::fs::write(folder.path().join(name), text).map_err(refuse)?;
    }
    let mut text = format!("{CONFIGURATION}\n{more}");
    if let Some(device) = device {
        text = text.replacen(INSPECT, &format!("{INSPECT}device = \"{device}\"\n"), 1);
    }
    // This configuration is built in, so an error is a bug.
    let config = Config::parse(&text, ORIGIN, folder.path()).map_err(|error| Failure::Bug(error.to_string()))?;
    work(config)
}
