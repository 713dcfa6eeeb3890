//! Fuzz target of the configuration parser. The parser must not panic.

use std::path::Path;

use super::Config;
use super::error::ConfigError;

/// Parses `data` as a configuration. An error message must be one line, and must name an existing
/// line of `data`.
pub fn config_parse(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::parse(text, "fuzz.toml", Path::new("/nonexistent")) {
        Ok(config) => {
            assert!(config.chain.text().lines().count() > 0);
            assert!(config.chain.graphviz().ends_with("}\n"));
            assert_eq!(config.chain.functions().len(), config.functions.len());
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(!sentence.contains('\n'), "more than one line: {sentence:?}");
            if let ConfigError::Line { origin, line, message } = &error {
                assert!(!message.is_empty());
                let lines = text.lines().count().max(1);
                assert!(origin != "fuzz.toml" || (1..=lines).contains(line), "line {line} of {lines}: {message}");
            }
        }
    }
}
