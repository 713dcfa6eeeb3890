//! `godwit stop`

use clap::Args;
use serde_json::json;

use crate::control::Socket;
use crate::failure::Failure;

/// Stop a running godwit as SIGTERM does. It first processes and sends the packets in flight. The
/// command returns when all of them have left.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let mut connection = arguments.socket.connect()?;
    connection.send(&json!({ "command": "stop" }))?;
    connection.wait_for_end();
    Ok(())
}
