//! `godwit check`

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::{log, output};

/// Validate a configuration and print its chain.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Configuration file.
    config: PathBuf,
    /// State folder that `godwit run` will use. Replaces `[engine] state`. Default:
    /// $STATE_DIRECTORY.
    #[arg(long, value_name = "PATH")]
    state: Option<PathBuf>,
    /// Print the chain in the dot format of Graphviz.
    #[arg(long)]
    graphviz: bool,
    /// Check the configuration of another machine. Ignores whether this machine has the interfaces,
    /// captures and users, and lists on standard error what was not checked.
    #[arg(long)]
    offline: bool,
}

/// Reads the configuration and the files that it names. Opens no file for writing.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let config = super::load(&arguments.config)?;
    if arguments.offline {
        log::line(format_args!("godwit: not checked: {}", config.needs_of_machine().join(", ")));
    } else {
        config.check_captures().map_err(Failure::user)?;
        config.check_live().map_err(Failure::user)?;
        config.check_placement().map_err(Failure::user)?;
    }
    let state = super::state_folder(arguments.state.as_ref(), &config);
    config.check_state(state.is_some()).map_err(Failure::user)?;
    if arguments.graphviz {
        return output::print(&config.chain.graphviz());
    }
    output::print(&config.chain.text())
}
