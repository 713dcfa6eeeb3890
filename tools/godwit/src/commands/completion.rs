//! `godwit completion`

use clap::{Args, Command, ValueEnum};
use clap_complete::shells::{Bash, Fish, Zsh};

use crate::failure::Failure;
use crate::output;

/// Print a script with which a shell completes commands, options and file names.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Shell that reads the script.
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn execute(arguments: &Arguments, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    match arguments.shell {
        Shell::Bash => clap_complete::generate(Bash, &mut command, "godwit", &mut script),
        Shell::Zsh => clap_complete::generate(Zsh, &mut command, "godwit", &mut script),
        Shell::Fish => clap_complete::generate(Fish, &mut command, "godwit", &mut script),
    }
    output::print(&String::from_utf8_lossy(&script))
}
