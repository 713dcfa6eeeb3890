//! `gopt IN.c [-o OUT.c]`: transforms the batch loops of a C file.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Makes batch loops of independent look-ups hide the latency of their expensive memory accesses.
#[derive(Parser)]
#[command(name = "gopt", version)]
struct Arguments {
    /// The C file, with accesses annotated by `g_expensive(address);` or `GW_EXPENSIVE(address);`
    input: PathBuf,
    /// Where the transformed C goes; the terminal, if not given
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// A function whose outermost loops are the batch loops, where no foreach says it; may be repeated
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
    let made = gopt::transform(&text, &options).map_err(|refusal| refusal.to_string())?;
    match &arguments.output {
        Some(path) => std::fs::write(path, made).map_err(|error| format!("{}: {error}", path.display())),
        None => {
            print!("{made}");
            Ok(())
        }
    }
}
