//! `godwit proxy`

use std::path::PathBuf;

use clap::Args;
use godwit_proxy::{Config, Flags, Report, Running};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{self, Json};
use crate::privileges;
use crate::proxies;
use crate::signals;

/// Run the TLS reverse proxies of a configuration until SIGINT or SIGTERM arrives. SIGHUP reads the
/// configuration, keys and certificates again.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Configuration file.
    config: PathBuf,
    /// Check the configuration, the keys and the certificates, and exit.
    #[arg(long)]
    check: bool,
    /// Write the report as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the proxies. Fails if connections, requests or signatures were not conserved.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let config = Config::load(&arguments.config).map_err(Failure::user)?;
    let json = Json::open(arguments.json.as_deref())?;
    // Disabling core dumps keeps keys out of files.
    privileges::disable_core_dumps();
    if arguments.check {
        let proxies = config.proxy.len();
        config.check_files()?;
        let proxies = if proxies == 1 { "1 proxy".to_owned() } else { format!("{proxies} proxies") };
        return output::print(&format!("{}: {proxies}, all keys are valid\n", arguments.config.display()));
    }
    let (stop, reload) = (signals::stop_flag()?, signals::reload_flag()?);
    let (user, control) = (config.user.clone(), config.control.clone());
    let started = |running: &Running| {
        if let Some(user) = &user {
            privileges::drop_to(user, control.as_deref(), None)?;
        }
        output::print_text(&json, &proxies::started(&value(&running.report())?))
    };
    let report = godwit_proxy::run(&arguments.config, config, Flags { stop: &stop, reload: &reload }, started)?;
    output::print_text(&json, &proxies::text(&value(&report)?))?;
    json.write(&report)?;
    check_conserved(&report)
}

fn value(report: &Report) -> Result<Value, Failure> {
    serde_json::to_value(report).map_err(|error| Failure::Bug(error.to_string()))
}

fn check_conserved(report: &Report) -> Result<(), Failure> {
    if report.is_conserved() {
        return Ok(());
    }
    Err(Failure::Bug("connections, requests or signatures were not conserved: please report the counters".to_owned()))
}
