//! `gopt IN.c [-o OUT.c]`: transforms the batch loops of a C file.
#![forbid(unsafe_code)]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
