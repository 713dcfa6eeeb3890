//! Configuration of `nids`.

use std::path::PathBuf;
use std::time::Duration;

use godwit_nids::Settings;
use godwit_nids::eve::Kinds;
use serde::Deserialize;
use toml::{Spanned, Table, Value};

use super::Nids;
use super::output::{Output, Target};
use super::rules::Rules;
use crate::config::value;
use crate::{BuildContext, Error};

/// Configuration keys of a function of kind `nids`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Paths of the rule files, relative to the configuration file.
    rules: Spanned<Vec<PathBuf>>,
    /// Whether packets are dropped.
    #[serde(default)]
    mode: Mode,
    /// Treatment of packets that cannot be inspected.
    #[serde(default)]
    fail: Fail,
    /// Pairs of ports. Packets that arrive at one port of a pair leave by the other port.
    #[serde(default)]
    pairs: Vec<Spanned<[String; 2]>>,
    /// Settings, which have the same names as in `suricata.yaml`.
    settings: Option<Spanned<Table>>,
    /// Output of records.
    eve: Option<Spanned<Eve>>,
}

/// Whether packets are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// Rules with the action `drop` only raise alerts. TCP data is inspected after the receiver has
    /// acknowledged it.
    #[default]
    Detect,
    /// Rules with the action `drop` drop the packet that completes the match, and all later packets
    /// of the flow.
    Inline,
}

/// Treatment of packets whose data cannot be inspected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Fail {
    /// Such packets pass.
    #[default]
    Open,
    /// Such packets are dropped in the mode `inline`.
    Closed,
}

/// Output of records.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Eve {
    file: Option<PathBuf>,
    socket: Option<PathBuf>,
    types: Option<Spanned<Vec<String>>>,
    stats_s: Option<Spanned<u64>>,
}

impl Config {
    /// Reads the rules and creates the function.
    pub(super) fn resolve(self, context: &BuildContext<'_>) -> Result<Nids, Error> {
        let mut settings = Settings::default();
        if let Some(table) = &self.settings {
            let refuse = |problem: String| value(table.span(), format!("settings: {problem}"));
            apply(&mut settings, "", table.get_ref(), &refuse)?;
        }
        settings.stream.inline |= self.mode == Mode::Inline;
        settings.fail_open = self.fail == Fail::Open;
        let (output, stats_interval) = match &self.eve {
            Some(eve) => output(eve, &mut settings, context)?,
            None => {
                settings.records = Kinds::none();
                (None, Duration::from_secs(8))
            }
        };
        let peers = peers(&self.pairs, context.ports)?.into();
        if self.rules.get_ref().is_empty() {
            return Err(value(self.rules.span(), "rules: expected at least one rule file".to_owned()));
        }
        let files = self.rules.into_inner().iter().map(|file| context.directory.join(file)).collect();
        let rules = Rules::load(files, settings.variables.clone())?;
        let (published, notices) = Default::default();
        Ok(Nids { settings, rules, peers, output, stats_interval, published, notices })
    }
}

/// Returns the egress port for each ingress port.
fn peers(pairs: &[Spanned<[String; 2]>], ports: &[String]) -> Result<Vec<u16>, Error> {
    let mut peers: Vec<u16> = (0..ports.len() as u16).collect();
    for pair in pairs {
        let refuse = |message: String| value(pair.span(), format!("pairs: {message}"));
        let number = |name: &String| {
            let unknown = || refuse(format!("no port is named `{name}`"));
            ports.iter().position(|port| port == name).ok_or_else(unknown)
        };
        let [first, second] = pair.get_ref();
        let (first, second) = (number(first)?, number(second)?);
        if first == second || peers[first] != first as u16 || peers[second] != second as u16 {
            return Err(refuse("a port can be in one pair only, with another port".to_owned()));
        }
        (peers[first], peers[second]) = (second as u16, first as u16);
    }
    Ok(peers)
}

/// Applies the settings in a TOML table. Settings in a nested table have dotted names, such as
/// `stream.midstream`.
fn apply(settings: &mut Settings, prefix: &str, table: &Table, refuse: &dyn Fn(String) -> Error) -> Result<(), Error> {
    for (key, setting) in table {
        let name = format!("{prefix}{key}");
        let text = match setting {
            Value::Table(table) => {
                apply(settings, &format!("{name}."), table, refuse)?;
                continue;
            }
            Value::String(text) => text.clone(),
            Value::Integer(_) | Value::Boolean(_) => setting.to_string(),
            _ => return Err(refuse(format!("{name}: expected a string, an integer or a boolean"))),
        };
        settings.set(&name, &text).map_err(|error| refuse(error.to_string()))?;
    }
    Ok(())
}

/// Returns the record output, and the interval between two `stats` records.
fn output(
    eve: &Spanned<Eve>,
    settings: &mut Settings,
    context: &BuildContext<'_>,
) -> Result<(Option<Output>, Duration), Error> {
    let keys = eve.get_ref();
    let target = match (&keys.file, &keys.socket) {
        (Some(file), None) => Target::File(context.directory.join(file)),
        (None, Some(socket)) => Target::Socket(context.directory.join(socket)),
        _ => return Err(value(eve.span(), "eve: expected either `file` or `socket`".to_owned())),
    };
    if let Some(types) = &keys.types {
        let names = types.get_ref().iter().map(String::as_str);
        settings.records = Kinds::from_names(names).map_err(|name| {
            let message = format!("eve.types: unknown type {name:?}: valid are {}", Kinds::NAMES.join(", "));
            value(types.span(), message)
        })?;
    }
    let seconds = match &keys.stats_s {
        Some(seconds) if *seconds.get_ref() == 0 => {
            return Err(value(seconds.span(), "eve.stats_s: expected at least 1 second".to_owned()));
        }
        Some(seconds) => *seconds.get_ref(),
        None => 8,
    };
    Ok((Some(Output::new(target)), Duration::from_secs(seconds)))
}
