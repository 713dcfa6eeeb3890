//! `godwit run`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use godwit_engine::Options;

use crate::failure::Failure;
use crate::output::{self, Json};
use crate::runtime;
use crate::signals;
use crate::summary::{self, Document};

/// Run a configuration until its ports have no more packets, the time is over, or SIGINT or SIGTERM
/// arrives. SIGHUP reloads the `[[class]]` and `[[chain]]` stanzas, and reopens log files. SIGUSR1
/// selects the next policy of `[placement]`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Configuration file.
    config: PathBuf,
    /// Stop after this time, in seconds.
    #[arg(long, value_name = "N", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Path of the control socket. Replaces `[engine] control`. Default: a socket in the runtime
    /// folder, where other commands find it.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// State folder, which keeps sequence numbers over a restart. Replaces `[engine] state`.
    /// Default: $STATE_DIRECTORY, as systemd sets it.
    #[arg(long, value_name = "PATH")]
    state: Option<PathBuf>,
    /// Write the report as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Succeeds only if packets were conserved.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let config = super::load(&arguments.config)?;
    let json = Json::open(arguments.json.as_deref())?;
    let (reload, next_policy) = (Some(signals::reload_flag()?), Some(signals::policy_flag()?));
    let state = super::state_folder(arguments.state.as_ref(), &config);
    let control = arguments.control.clone().or_else(|| match config.engine.control {
        Some(_) => None,
        None => runtime::new_socket(&arguments.config),
    });
    let options = Options { control, reload, state, next_policy, ..Options::default() };
    let report = super::run_engine(config, &options, arguments.seconds)?;
    output::print_text(&json, &summary::text(&report))?;
    json.write(&Document::new("run", arguments.config.display().to_string(), &report))?;
    summary::check_conserved(&report)
}
