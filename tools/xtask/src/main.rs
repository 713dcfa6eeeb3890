//! Repository tasks, run as `cargo xtask COMMAND`.
#![forbid(unsafe_code)]

mod msrv;
mod new_function;
mod regenerate;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Tasks of the Godwit repository")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check words, line widths, links, named files, decision headers and commit subjects.
    Tidy,
    /// Write the generated pages again: docs/counters.md and docs/benchmarks/.
    Regenerate,
    /// Check that no dependency needs a newer Rust than `rust-version`, and build with that version
    /// if it is installed.
    Msrv,
    /// Create a built-in function from the template: kernels/NAME/NAME.h.
    NewFunction {
        /// Name of the function: lower-case letters, digits and `_`.
        name: String,
    },
}

fn main() -> ExitCode {
    let root = repository();
    let result = match Arguments::parse().command {
        Command::Tidy => tidy::run(&root),
        Command::Regenerate => regenerate::run(&root),
        Command::Msrv => msrv::run(&root),
        Command::NewFunction { name } => new_function::run(&root, &name),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the root of the repository, two folders above this crate.
fn repository() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.ancestors().nth(2).expect("tools/xtask is two folders below the root").to_owned()
}
