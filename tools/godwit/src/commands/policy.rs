//! `godwit policy`

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use godwit_sched::place::POLICIES;
use serde_json::json;

use crate::control::Socket;
use crate::failure::Failure;
use crate::output::{self, Json};
use crate::screen;

/// Show or set the policy by which a running godwit places functions on devices. SIGUSR1 selects
/// the next policy.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
    /// Policy to set. Without it, the command shows the present one.
    #[arg(value_parser = policies())]
    policy: Option<String>,
    /// Placement that `hold` keeps, such as `inspect=25%cpu+75%opencl:0`. Functions that it does
    /// not name stay where they are.
    placement: Vec<String>,
    /// Limit of `latency-bound`, such as 200us, or of `power-cap`, such as 300W.
    #[arg(long, value_name = "LIMIT", requires = "policy")]
    under: Option<String>,
    /// Write policy, placement and decisions as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(POLICIES.iter().map(|policy| PossibleValue::new(policy.name).help(policy.summary)))
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let json = Json::open(arguments.json.as_deref())?;
    let mut request = json!({ "command": "policy" });
    let texts = [("policy", arguments.policy.as_ref()), ("under", arguments.under.as_ref())];
    for (key, text) in texts.into_iter().filter_map(|(key, text)| Some((key, text?))) {
        request[key] = text.as_str().into();
    }
    if !arguments.placement.is_empty() {
        request["placement"] = arguments.placement.join(" ").into();
    }
    let report = arguments.socket.connect()?.send(&request)?;
    output::print_text(&json, &screen::placement(&report))?;
    json.write(&report)
}
