//! `gopt IN.c [-o OUT.c]`: transforms the batch loops of a C file.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Transforms batch loops of independent lookups, so that they hide memory latency.
#[derive(Parser)]
#[command(name = "gopt", version)]
struct Arguments {
    /// C file, with accesses annotated by `g_expensive(address);` or `GW_EXPENSIVE(address);`
    input: PathBuf,
    /// Output file. Default: standard output
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Function whose outermost loops are the batch loops, in a file without foreach. May be
    /// repeated
    #[arg(long)]
    function: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("gopt: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let name = arguments.input.display().to_string();
    let text = std::fs::read_to_string(&arguments.input).map_err(|error| format!("{name}: {error}"))?;
    let folder = arguments.input.parent();
    let options = gopt::Options { name: &name, folder, functions: &arguments.function };
    let output = gopt::transform(&text, &options).map_err(|refusal| refusal.to_string())?;
    match &arguments.output {
        Some(path) => std::fs::write(path, output).map_err(|error| format!("{}: {error}", path.display())),
        None => {
            print!("{output}");
            Ok(())
        }
    }
}
