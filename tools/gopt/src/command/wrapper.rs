//! `gopt cc ARGUMENTS`: a C compiler for build systems.
//!
//! gopt transforms files with markers before it compiles them. All other commands reach the
//! compiler unchanged.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;

use super::error::Error;

/// Compiles with the C compiler, after transforming the C files that contain markers.
///
/// The variable GOPT_CC names the compiler, which is cc by default. Options of gopt precede the
/// arguments of the compiler: gopt cc --marker MISS -- -O2 -c table.c
#[derive(Parser)]
#[command(name = "gopt cc", no_binary_name = true)]
struct Arguments {
    /// Compile a refused file without the transformation, and print the refusal as a warning
    #[arg(long)]
    fallback: bool,
    #[command(flatten)]
    permissions: super::Permissions,
    /// Arguments of the compiler, after --
    #[arg(last = true)]
    compiler: Vec<OsString>,
}

/// Compiler flags that a separate argument follows.
const WITH_ARGUMENT: &[&str] = &[
    "-o",
    "-I",
    "-D",
    "-U",
    "-L",
    "-l",
    "-x",
    "-MF",
    "-MT",
    "-MQ",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-isysroot",
    "-Xlinker",
    "-Xpreprocessor",
    "-Xassembler",
    "-Xclang",
    "-T",
    "-u",
    "-z",
    "-arch",
    "--param",
    "-aux-info",
];

/// Runs the wrapper with the arguments after `cc`.
pub(super) fn run(arguments: Vec<OsString>) -> ExitCode {
    // Without `--`, all arguments belong to the compiler, unless the user requests help.
    let divided = arguments.iter().any(|one| one == "--") || arguments.first().is_some_and(|one| one == "--help");
    let parsed = if divided {
        Arguments::parse_from(arguments)
    } else {
        Arguments { fallback: false, permissions: super::Permissions::default(), compiler: arguments }
    };
    match compile(&parsed) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("gopt: {error}");
            ExitCode::from(2)
        }
    }
}

fn program() -> String {
    std::env::var("GOPT_CC").ok().filter(|program| !program.trim().is_empty()).unwrap_or_else(|| "cc".to_owned())
}

fn compile(arguments: &Arguments) -> Result<ExitCode, Error> {
    let words: Vec<String> = arguments.compiler.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let only_preprocesses = words.iter().any(|word| matches!(word.as_str(), "-E" | "-M" | "-MM" | "-fsyntax-only"));
    let sources = if only_preprocesses { Vec::new() } else { sources(&words) };
    let temporary = tempfile::tempdir().map_err(Error::Temporary)?;
    let mut changed = words.clone();
    let mut folders = Vec::new();
    for index in sources {
        let path = PathBuf::from(&words[index]);
        if let Some(text) = transformed(arguments, &words, index, &path)? {
            let made = temporary.path().join(path.file_name().unwrap_or_default());
            std::fs::write(&made, text).map_err(Error::file(&made))?;
            changed[index] = made.display().to_string();
            folders.push(path.parent().map_or(".".to_owned(), |folder| folder.display().to_string()));
        }
    }
    if !folders.is_empty() {
        changed = with_dependencies(&words, changed)?;
    }
    for folder in folders {
        changed.extend(["-iquote".to_owned(), if folder.is_empty() { ".".to_owned() } else { folder }]);
    }
    execute(&changed)
}

/// Returns the positions of C files among the arguments.
fn sources(words: &[String]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < words.len() {
        let word = &words[index];
        if WITH_ARGUMENT.contains(&word.as_str()) {
            index += 1;
        } else if !word.starts_with('-') {
            let path = Path::new(word);
            if path.extension().is_some_and(|extension| extension == "c") || super::is_cplusplus(path) {
                found.push(index);
            }
        }
        index += 1;
    }
    found
}

/// Returns the transformed text of a file, or `None` if it has no markers.
fn transformed(arguments: &Arguments, words: &[String], index: usize, path: &Path) -> Result<Option<String>, Error> {
    let name = path.display().to_string();
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(None) };
    let flags = words.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, word)| word.clone());
    let others = sources(words);
    let flags: Vec<String> = flags.filter(|flag| !others.iter().any(|other| words[*other] == *flag)).collect();
    let compiler = gopt::Compiler { program: program(), flags, directory: None, cplusplus: super::is_cplusplus(path) };
    let options = gopt::Options {
        name: &name,
        folder: path.parent(),
        compiler,
        line_directives: true,
        ..arguments.permissions.options()
    };
    match gopt::transform(&text, &options) {
        Ok(output) => Ok(Some(output.text)),
        Err(gopt::Error::WithoutMarker(_)) => Ok(None),
        // The compiler reports its own errors.
        Err(gopt::Error::Compiler(_)) => Ok(None),
        Err(error @ gopt::Error::Refusal(_)) if arguments.fallback => {
            eprintln!("gopt: warning: {error}");
            Ok(None)
        }
        Err(error @ gopt::Error::Refusal(_)) => Err(error.into()),
    }
}

/// Writes the dependencies of the original files, if the arguments request them. Returns the
/// arguments without this request.
fn with_dependencies(words: &[String], changed: Vec<String>) -> Result<Vec<String>, Error> {
    let all = words.iter().any(|word| word == "-MD");
    if !all && !words.iter().any(|word| word == "-MMD") {
        return Ok(changed);
    }
    let after = |flag: &str| words.iter().position(|word| word == flag).and_then(|at| words.get(at + 1)).cloned();
    let object = after("-o");
    let mut request = Vec::new();
    let mut kept = Vec::new();
    let mut skip = false;
    for (word, new) in words.iter().zip(changed) {
        let separate = matches!(word.as_str(), "-MF" | "-MT" | "-MQ");
        let own = std::mem::replace(&mut skip, separate) || separate || matches!(word.as_str(), "-MD" | "-MMD" | "-MP");
        if !own {
            kept.push(new);
        }
        if !matches!(word.as_str(), "-MD" | "-MMD" | "-c" | "-S") {
            request.push(word.clone());
        }
    }
    if let Some(at) = request.iter().position(|word| word == "-o") {
        request.drain(at..(at + 2).min(request.len()));
    }
    request.push(if all { "-M" } else { "-MM" }.to_owned());
    if let Some(object) = &object {
        if after("-MT").is_none() && after("-MQ").is_none() {
            request.extend(["-MT".to_owned(), object.clone()]);
        }
        if after("-MF").is_none() {
            request.extend(["-MF".to_owned(), Path::new(object).with_extension("d").display().to_string()]);
        }
    }
    execute(&request).map(|_| kept)
}

fn execute(arguments: &[String]) -> Result<ExitCode, Error> {
    let program = program();
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    let status = command.args(words).args(arguments).status();
    let status = status.map_err(|source| Error::Start { program: program.clone(), source })?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
