//! Command line.

mod database;
mod error;
mod wrapper;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use self::error::Error;

/// Transforms batch loops of independent lookups, so that they hide memory latency.
///
/// `gopt cc ARGUMENTS` compiles with the C compiler, after transforming the C files among the
/// arguments. `gopt cc --help` describes it.
#[derive(Parser)]
#[command(name = "gopt", version)]
struct Arguments {
    /// C file, with markers such as `g_expensive(address);` before expensive accesses. A file that
    /// ends in .i is preprocessed already
    input: PathBuf,
    /// Output file. Default: standard output
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Folder with compile_commands.json, which has the flags of the file
    #[arg(long, value_name = "FOLDER")]
    build: Option<PathBuf>,
    /// C compiler that expands macros. Default: the variable CC, or cc
    #[arg(long, value_name = "PROGRAM")]
    cc: Option<String>,
    /// Folder of included files
    #[arg(short = 'I', value_name = "FOLDER")]
    include: Vec<String>,
    /// Macro, as NAME or NAME=VALUE
    #[arg(short = 'D', value_name = "MACRO")]
    define: Vec<String>,
    /// Propose markers as a patch, and do not transform the file
    #[arg(long, conflicts_with = "output")]
    suggest: bool,
    /// Function whose outermost loops are the batch loops. May be repeated
    #[arg(long)]
    function: Vec<String>,
    #[command(flatten)]
    permissions: Permissions,
    /// Flags of the compiler, after --
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Options that both forms of the command share.
#[derive(clap::Args, Clone, Default)]
struct Permissions {
    /// Further marker: a macro or function that takes an address. May be repeated
    #[arg(long)]
    marker: Vec<String>,
    /// Function without side effects, whose body gopt cannot see. May be repeated
    #[arg(long, value_name = "FUNCTION")]
    pure: Vec<String>,
    /// Function whose calls may change their order. May be repeated
    #[arg(long, value_name = "FUNCTION")]
    unordered: Vec<String>,
    /// Allow sums of floating-point numbers, whose last digits depend on the order
    #[arg(long)]
    reassociate: bool,
    /// Write output that also accepts -DGOPT_GROUP=auto, which measures the best group size
    #[arg(long)]
    auto: bool,
}

/// Runs the command.
pub(crate) fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == "cc") {
        return wrapper::run(arguments.split_off(2));
    }
    match run(&Arguments::parse_from(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gopt: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let path = &arguments.input;
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(Error::file(path))?;
    let mut compiler = match &arguments.build {
        Some(folder) => database::compiler(folder, path)?,
        None if is_preprocessed(path) => gopt::Compiler::none(),
        None => gopt::Compiler::default(),
    };
    if let Some(program) = &arguments.cc {
        compiler.program.clone_from(program);
    }
    compiler.flags.extend(arguments.include.iter().map(|folder| format!("-I{folder}")));
    compiler.flags.extend(arguments.define.iter().map(|one| format!("-D{one}")));
    compiler.flags.extend(arguments.flags.iter().cloned());
    compiler.cplusplus |= is_cplusplus(path);
    // The compiler may run in another folder.
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
    let options = gopt::Options {
        name: &name,
        folder: folder.as_deref(),
        compiler,
        functions: &arguments.function,
        ..arguments.permissions.options()
    };
    if arguments.suggest {
        return suggest(&text, &options);
    }
    let output = gopt::transform(&text, &options)?;
    for (file, line) in &output.loops {
        eprintln!("gopt: {file}:{line}: note: the iterations of this loop are interleaved");
    }
    match &arguments.output {
        Some(path) => std::fs::write(path, output.text).map_err(Error::file(path)),
        None => {
            print!("{}", output.text);
            Ok(())
        }
    }
}

/// Prints proposed markers, and the loops that become batch loops with them.
fn suggest(text: &str, options: &gopt::Options<'_>) -> Result<(), Error> {
    let found = gopt::suggest(text, options)?;
    for refusal in &found.refused {
        eprintln!("gopt: note: without markers in this function, because {refusal}");
    }
    if found.places.is_empty() {
        return Err(Error::NothingToMark(options.name.to_owned()));
    }
    print!("{}", found.patch);
    for (line, address) in &found.places {
        eprintln!("gopt: {}:{line}: note: the address {address} depends on memory", options.name);
    }
    let output = gopt::transform(&found.text, options)?;
    for (_, line) in &output.loops {
        eprintln!("gopt: note: with the patch, the loop in line {line} is interleaved");
    }
    Ok(())
}

impl Permissions {
    /// Returns options with these permissions.
    fn options(&self) -> gopt::Options<'_> {
        gopt::Options {
            markers: &self.marker,
            pure: &self.pure,
            unordered: &self.unordered,
            reassociate: self.reassociate,
            auto: self.auto,
            ..gopt::Options::default()
        }
    }
}

/// Returns whether a file name is that of preprocessed C.
fn is_preprocessed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "i")
}

/// Returns whether the name of a file is that of C++.
fn is_cplusplus(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    matches!(extension, "cc" | "cpp" | "cxx" | "c++" | "C" | "hpp" | "hh")
}
