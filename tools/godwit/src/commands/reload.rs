//! `godwit reload`

use clap::Args;
use serde_json::{Value, json};

use crate::control::Socket;
use crate::failure::Failure;
use crate::output;

/// Have a running godwit read the classes and edges of its configuration again.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    tell(&arguments.socket.connect()?.ask(&json!({ "command": "reload" }))?)
}

/// Says what came of a change.
pub(super) fn tell(changed: &Value) -> Result<(), Failure> {
    for warning in changed["warnings"].as_array().into_iter().flatten() {
        eprintln!("godwit: warning: {}", warning.as_str().unwrap_or_default());
    }
    let of = |key: &str| changed[key].as_u64().unwrap_or_default();
    output::print(&format!(
        "new packets take the new chain, {} us after it was asked for; they waited up to {} us for those of the old one\n",
        of("took_us"),
        of("held_us")
    ))
}
