//! `godwit new-function`

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::Failure;
use crate::output;

/// Files of a new function. Its name replaces `NAME` and `UPPER`.
const FILES: &[(&str, &str)] = &[
    ("NAME.c", include_str!("function.c")),
    ("NAME.csv", include_str!("table.csv")),
    ("NAME.toml", include_str!("config.toml")),
];

/// Create your own function: a C file, a file with table entries, and a configuration that runs it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Name of the function: lower-case letters, digits and `_`.
    name: String,
    /// Folder for the files.
    #[arg(long, default_value = ".")]
    folder: PathBuf,
}

pub(crate) fn execute(Arguments { name, folder }: &Arguments) -> Result<(), Failure> {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    if !name.starts_with(|letter: char| letter.is_ascii_lowercase()) || !name.chars().all(is_letter) {
        let message = format!("`{name}` is not a name of a function: use lower-case letters, digits and `_`");
        return Err(Failure::User(message));
    }
    if godwit_engine::config::function_kinds().contains(&name.as_str()) {
        return Err(Failure::User(format!("`{name}` is a built-in function: choose another name")));
    }
    let paths: Vec<PathBuf> = FILES.iter().map(|(file, _)| folder.join(file.replace("NAME", name))).collect();
    if let Some(path) = paths.iter().find(|path| path.exists()) {
        return Err(Failure::User(format!("{} exists: choose another name or folder", path.display())));
    }
    for (path, (_, text)) in paths.iter().zip(FILES) {
        write(path, &text.replace("NAME", name).replace("UPPER", &name.to_ascii_uppercase()))?;
    }
    let config = folder.join(format!("{name}.toml"));
    output::print(&format!("`godwit run {} --seconds 2` runs the function\n", config.display()))
}

/// Writes a new file.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = OpenOptions::new().write(true).create_new(true).open(path);
    written
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Failure::User(format!("cannot write {}: {error}", path.display())))
}
