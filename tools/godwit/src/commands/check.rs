//! `godwit check`

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::output;

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
}

/// Reads the configuration and all files that it names. Opens no file for writing.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let config = super::load(&arguments.config)?;
    config.check_captures().map_err(Failure::user)?;
    config.check_live().map_err(Failure::user)?;
    let state = super::state_folder(arguments.state.as_ref(), &config);
    config.check_state(state.is_some()).map_err(Failure::user)?;
    if arguments.graphviz {
        return output::print(&config.chain.graphviz());
    }
    output::print(&config.chain.text())
}
