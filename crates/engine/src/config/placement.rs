//! The stanza `[placement]`.

use std::path::{Path, PathBuf};

use godwit_sched::place::{Goal, Rule};
use serde::Deserialize;

use super::document::{Document, Stanza};
use super::error::ConfigError;

/// Settings of the placement, which moves functions between devices while packets flow.
#[derive(Clone, Debug)]
pub struct PlacementConfig {
    /// File with the measured costs of functions on devices.
    pub profile: PathBuf,
    /// Policy with its limit.
    pub goal: Goal,
    /// Limit of the policy, as written in the configuration.
    pub under: Option<String>,
    /// Rule by which placements are chosen.
    pub rule: Rule,
    /// Placement that the policy `hold` keeps, such as `inspect=25%cpu+75%opencl:0`.
    pub hold: Option<String>,
    /// Line of the stanza.
    pub(crate) line: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    profile: PathBuf,
    #[serde(default = "throughput")]
    policy: String,
    under: Option<String>,
    #[serde(default)]
    rule: RuleName,
    hold: Option<String>,
}

fn throughput() -> String {
    "throughput".to_owned()
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RuleName {
    #[default]
    Gain,
    Thesis,
}

/// Reads the stanza `[placement]`. Does not read the profile, because `godwit profile` measures it
/// with the same configuration.
pub(super) fn read<'a>(
    document: &Document<'a>,
    mut stanza: Stanza<'a>,
    directory: &Path,
) -> Result<PlacementConfig, ConfigError> {
    let line = document.line(stanza.span().start);
    let keys: Keys = document.read(&mut stanza, &[])?;
    let key = if keys.under.is_some() && stanza.has("under") { "under" } else { "policy" };
    let goal = Goal::parse(&keys.policy, keys.under.as_deref())
        .map_err(|error| document.refuse(stanza.span_of(key), error))?;
    if keys.hold.is_some() && !goal.policy.holds {
        let message = format!("`hold` applies only to policy = \"hold\", not to policy = \"{}\"", goal.policy.name);
        return Err(document.refuse(stanza.span_of("hold"), message));
    }
    let rule = match keys.rule {
        RuleName::Gain => Rule::Gain,
        RuleName::Thesis => Rule::Thesis,
    };
    if goal.policy.holds && rule == Rule::Thesis {
        let message = "policy = \"hold\" needs rule = \"gain\": the rule of the thesis never holds a placement";
        return Err(document.refuse(stanza.span_of("rule"), message));
    }
    let profile = directory.join(keys.profile);
    Ok(PlacementConfig { profile, goal, under: keys.under, rule, hold: keys.hold, line })
}
