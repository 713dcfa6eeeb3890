//! `godwit man`

use std::path::PathBuf;

use clap::{Args, Command};

use crate::failure::Failure;

/// Write a manual page for each command into a folder: godwit.1, godwit-run.1, and so on.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Existing folder for the pages, such as /usr/local/share/man/man1.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(crate) fn execute(arguments: &Arguments, command: Command) -> Result<(), Failure> {
    let folder = &arguments.folder;
    // The name and synopsis of a subcommand's page contain the names of all parent commands.
    clap_mangen::generate_to(command, folder)
        .map_err(|error| Failure::User(format!("cannot write manual pages to {}: {error}", folder.display())))
}
