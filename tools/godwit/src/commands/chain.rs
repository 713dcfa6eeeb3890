//! `godwit chain`

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::control::Socket;
use crate::failure::Failure;

/// Give a running godwit another chain: packets in flight finish the old one.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
    /// `[[class]]` and `[[chain]]` stanzas, all there are to be; - is standard input.
    file: PathBuf,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { socket, file } = arguments;
    let stdin = file == Path::new("-");
    let origin = if stdin { "standard input".to_owned() } else { file.display().to_string() };
    let text = if stdin { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    let text = text.map_err(|error| Failure::User(format!("cannot read {origin}: {error}")))?;
    // Files that it names are read by the running godwit, which is somewhere else.
    let folder = if stdin { Path::new("") } else { file.parent().unwrap_or(Path::new("")) };
    let folder = std::env::current_dir().map(|here| here.join(folder));
    let folder = folder.map_err(|error| Failure::User(format!("cannot say where {origin} is: {error}")))?;
    let request = json!({ "command": "chain", "text": text, "origin": origin, "directory": folder });
    super::reload::tell(&socket.connect()?.ask(&request)?)
}
