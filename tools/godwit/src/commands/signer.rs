//! `godwit signer`

use std::path::PathBuf;

use clap::Args;
use godwit_proxy::{Config, Flags, SignerReport};

use crate::failure::Failure;
use crate::output::{self, Json};
use crate::privileges;
use crate::signals;

/// Hold the private keys of a proxy configuration in a separate process, and sign for its proxies
/// until SIGINT or SIGTERM arrives. SIGHUP reads the keys again.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Configuration file, which the proxies also read.
    config: PathBuf,
    /// Write the report as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Succeeds only if signatures were conserved.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let config = Config::load(&arguments.config).map_err(Failure::user)?;
    let json = Json::open(arguments.json.as_deref())?;
    privileges::disable_core_dumps();
    let locked = privileges::lock_memory();
    let (stop, reload) = (signals::stop_flag()?, signals::reload_flag()?);
    let (user, socket) = (config.signer.user.clone(), config.signer.socket.clone());
    let started = |report: &SignerReport| {
        if let Some(user) = &user {
            privileges::drop_to(user, socket.as_deref(), None)?;
        }
        let memory = if locked { "all memory is locked" } else { "only the memory of keys is locked" };
        let keys = if report.keys == 1 { "1 key".to_owned() } else { format!("{} keys", report.keys) };
        output::print_text(&json, &format!("signer: {keys}, {memory}, lanes: {}\n", report.lanes))
    };
    let flags = Flags { stop: &stop, reload: &reload };
    let report = godwit_proxy::run_signer(&arguments.config, &config, flags, started)?;
    output::print_text(&json, &text(&report))?;
    json.write(&report)?;
    if report.signer.is_conserved() {
        return Ok(());
    }
    Err(Failure::Bug("signatures were not conserved: please report the counters".to_owned()))
}

fn text(report: &SignerReport) -> String {
    let signer = &report.signer;
    format!(
        "clients: {} served, {} refused because of their user, {} failed\n\
         signatures: received {} = signed {} ({} singly, {} in lanes) + refused {} + in flight {}\n",
        report.clients,
        report.clients_refused,
        report.clients_failed,
        signer.received,
        signer.signed,
        signer.signed_single,
        signer.signed_lanes,
        signer.refused,
        signer.in_flight,
    )
}
