//! `godwit reload`

use clap::Args;
use serde_json::{Value, json};

use crate::control::Socket;
use crate::failure::Failure;
use crate::output;

/// Reload the `[[class]]` and `[[chain]]` stanzas of the configuration in a running godwit, or the
/// whole configuration, keys and certificates of a running proxy.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let result = arguments.socket.connect()?.send(&json!({ "command": "reload" }))?;
    match result["generation"].as_u64() {
        Some(generation) => output::print(&format!("new connections take configuration {generation}\n")),
        None => print_result(&result),
    }
}

/// Prints the warnings and times of a chain change.
pub(super) fn print_result(changed: &Value) -> Result<(), Failure> {
    for warning in changed["warnings"].as_array().into_iter().flatten() {
        eprintln!("godwit: warning: {}", warning.as_str().unwrap_or_default());
    }
    let number = |key: &str| changed[key].as_u64().unwrap_or_default();
    output::print(&format!(
        "new packets take the new chain, {} us after the request; they waited up to {} us for packets of the old chain\n",
        number("took_us"),
        number("held_us")
    ))
}
