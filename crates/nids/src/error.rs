//! Errors of the intrusion detection.

use std::path::PathBuf;

/// Error that prevents the start. An unsupported rule is not an error, because the other rules
/// still load.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A rule file cannot be read. The user must correct its path or permissions.
    #[error("cannot read rule file {path}: {source}")]
    RuleFile {
        /// Path as configured.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The user must correct the name of a setting.
    #[error("unknown setting {name:?}{}", near(.nearest))]
    UnknownSetting {
        /// Name as configured.
        name: String,
        /// Known name with the smallest edit distance.
        nearest: Option<&'static str>,
    },
    /// The user must correct the value of a setting.
    #[error("setting {name} = {value:?}: expected {expected}")]
    SettingValue {
        /// Name as configured.
        name: String,
        /// Value as configured.
        value: String,
        /// Description of valid values.
        expected: &'static str,
    },
}

fn near(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}
