//! Settings of the provider, which are keys of its section in `openssl.cnf`.

use std::path::PathBuf;

/// Settings of the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Socket of `godwit signer`. Without it, this process signs.
    pub(crate) socket: Option<PathBuf>,
    /// Whether SIMD lanes are used.
    pub(crate) lanes: bool,
    /// File of the library crypto_mb.
    pub(crate) crypto_mb: Option<PathBuf>,
    /// Largest number of unfinished signatures of a thread.
    pub(crate) jobs_max: usize,
    /// File to which each process appends its counters.
    pub(crate) report: Option<PathBuf>,
}

/// Largest accepted value of `jobs_max`.
const JOBS_MAX_MAX: usize = 1 << 20;

impl Settings {
    /// Reads the settings. `value` returns the value of a key.
    pub(crate) fn read(value: impl Fn(&'static str) -> Option<String>) -> Result<Self, String> {
        let path = |key| match value(key) {
            Some(text) if text.is_empty() => Err(format!("{key} is empty: write the path of a file, or remove it")),
            text => Ok(text.map(PathBuf::from)),
        };
        let lanes = match value("lanes").as_deref() {
            None | Some("yes") => true,
            Some("no") => false,
            Some(other) => return Err(format!("lanes = {other}: expected yes or no")),
        };
        let jobs_max = match value("jobs_max") {
            None => 4096,
            Some(text) => {
                let number = text.parse().ok().filter(|number| (1..=JOBS_MAX_MAX).contains(number));
                number.ok_or_else(|| format!("jobs_max = {text}: expected a number from 1 to {JOBS_MAX_MAX}"))?
            }
        };
        let settings =
            Self { socket: path("socket")?, lanes, crypto_mb: path("crypto_mb")?, jobs_max, report: path("report")? };
        if settings.socket.is_some() && (settings.crypto_mb.is_some() || value("lanes").is_some()) {
            return Err("lanes and crypto_mb belong to the configuration of the signer if socket is set".to_owned());
        }
        if settings.crypto_mb.is_some() && !lanes {
            return Err("crypto_mb is set, but lanes = no: remove one of them".to_owned());
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let find = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned());
        Settings::read(find)
    }

    #[test]
    fn all_keys_are_optional() {
        let settings = read(&[]).unwrap();
        assert!(settings.lanes && settings.socket.is_none() && settings.jobs_max == 4096);
        let settings = read(&[("socket", "/run/s"), ("jobs_max", "8"), ("report", "r")]).unwrap();
        assert_eq!((settings.socket, settings.jobs_max, settings.report), (Some("/run/s".into()), 8, Some("r".into())));
    }

    #[test]
    fn mistakes_are_refused() {
        let refused = |pairs: &[(&str, &str)], sentence: &str| {
            let error = read(pairs).unwrap_err();
            assert!(error.contains(sentence), "{error}");
        };
        refused(&[("lanes", "maybe")], "lanes = maybe: expected yes or no");
        refused(&[("jobs_max", "0")], "jobs_max = 0: expected a number from 1 to 1048576");
        refused(&[("jobs_max", "many")], "jobs_max = many: ");
        refused(&[("socket", "")], "socket is empty");
        refused(&[("socket", "s"), ("lanes", "no")], "belong to the configuration of the signer");
        refused(&[("crypto_mb", "f"), ("lanes", "no")], "crypto_mb is set, but lanes = no");
    }
}
