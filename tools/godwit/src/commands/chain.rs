//! `godwit chain`

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::control::Socket;
use crate::failure::Failure;

/// Replace the chain of a running godwit. Packets in flight finish in the old chain.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
    /// All `[[class]]` and `[[chain]]` stanzas of the new chain; - is standard input.
    file: PathBuf,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { socket, file } = arguments;
    let stdin = file == Path::new("-");
    let origin = if stdin { "standard input".to_owned() } else { file.display().to_string() };
    let text = if stdin { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    let text = text.map_err(|error| Failure::User(format!("cannot read {origin}: {error}")))?;
    // The running godwit reads the files of the chain from another working directory, so the
    // request contains the absolute folder.
    let folder = if stdin { Path::new("") } else { file.parent().unwrap_or(Path::new("")) };
    let folder = std::env::current_dir().map(|current| current.join(folder));
    let folder = folder.map_err(|error| Failure::User(format!("cannot determine the folder of {origin}: {error}")))?;
    let request = json!({ "command": "chain", "text": text, "origin": origin, "directory": folder });
    super::reload::print_result(&socket.connect()?.send(&request)?)
}
