//! The configuration that `godwit demo` runs, carried in the binary.

use godwit_engine::config::Config;

use crate::failure::Failure;

/// The configuration and the files that it names, as they stand in `examples/`.
const CONFIGURATION: &str = include_str!("../../../examples/demo.toml");
const FILES: [(&str, &str); 2] = [
    ("demo-routes.txt", include_str!("../../../examples/demo-routes.txt")),
    ("demo-patterns.txt", include_str!("../../../examples/demo-patterns.txt")),
];

/// The name of the configuration in messages.
pub(crate) const ORIGIN: &str = "demo.toml";

/// The stanza of pattern matching: what `with` places on another device.
const INSPECT: &str = "kind = \"dpi\"\n";

/// Calls `work` with the built-in configuration, `more` appended, pattern matching placed on `device` where one is
/// given. The files that it names exist as long as `work` runs.
pub(crate) fn with<T>(
    more: &str,
    device: Option<&str>,
    work: impl FnOnce(Config) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let refuse = |error: std::io::Error| Failure::User(format!("cannot write the demo's files: {error}"));
    let folder = tempfile::Builder::new().prefix("godwit-demo-").tempdir().map_err(refuse)?;
    for (name, text) in FILES {
        std::fs::write(folder.path().join(name), text).map_err(refuse)?;
    }
    let mut text = format!("{CONFIGURATION}\n{more}");
    if let Some(device) = device {
        text = text.replacen(INSPECT, &format!("{INSPECT}device = \"{device}\"\n"), 1);
    }
    // It is not the user who wrote it.
    let config = Config::parse(&text, ORIGIN, folder.path()).map_err(|error| Failure::Bug(error.to_string()))?;
    work(config)
}
