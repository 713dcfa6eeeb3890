//! `godwit check`

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::output;

/// Validate a configuration and draw its chain.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The configuration.
    config: PathBuf,
    /// Draw the chain in the language of Graphviz' dot.
    #[arg(long)]
    graphviz: bool,
}

/// Reads the configuration with all files that it names, and opens none to write.
pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let config = super::load(&arguments.config)?;
    config.check_captures().map_err(Failure::user)?;
    config.check_live().map_err(Failure::user)?;
    if arguments.graphviz {
        return output::print(&config.chain.graphviz());
    }
    output::print(&config.chain.text())
}
