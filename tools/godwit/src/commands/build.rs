//! `godwit build`

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::output;

/// Compile your own function to a package, for machines without a C compiler.
#[derive(Args)]
pub(crate) struct Arguments {
    /// C file of the function.
    source: PathBuf,
    /// Package to write. Default: the source name with the extension gwf.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn execute(Arguments { source, output }: &Arguments) -> Result<(), Failure> {
    let package = godwit_custom::package::create(source).map_err(Failure::user)?;
    let path = output.clone().unwrap_or_else(|| source.with_extension("gwf"));
    std::fs::write(&path, &package)
        .map_err(|error| Failure::User(format!("cannot write {}: {error}", path.display())))?;
    let digest = godwit_custom::source::sha256(&package);
    output::print(&format!("source = \"{}\"\nsha256 = \"{digest}\"\n", path.display()))
}
