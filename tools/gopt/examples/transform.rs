//! Transforms a C file with the library, and prints the result.
//!
//! `cargo run --example transform -- examples/table.c`

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        eprintln!("transform: no file: say transform FILE.c");
        return ExitCode::from(2);
    };
    let text = match std::fs::read_to_string(&name) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("transform: {name}: {error}");
            return ExitCode::from(2);
        }
    };
    let flags = vec!["-Iinclude".to_owned()];
    let compiler = gopt::Compiler { flags, ..gopt::Compiler::default() };
    let folder = Path::new(&name).parent();
    match gopt::transform(&text, &gopt::Options { name: &name, folder, compiler, ..gopt::Options::default() }) {
        Ok(output) => {
            print!("{}", output.text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("gopt: {error}");
            ExitCode::from(2)
        }
    }
}
