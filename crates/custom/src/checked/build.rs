//! Compiles a function and `program.c` into a program with sanitizers.

use std::path::{Path, PathBuf};

use godwit_kernels::custom::CustomText;
use tempfile::TempDir;

use crate::compiler::{Compiler, on_all_cores};
use crate::{Error, sandbox, text};

/// The part of the program that runs the kernel.
const PROGRAM: &str = include_str!("program.c");

/// Sanitizers of the kernel and of the whole program.
const SANITIZERS: &str = "-fsanitize=address,undefined";

/// Flags of both copies of the kernel.
const KERNEL: &[&str] = &[
    "-std=gnu11",
    "-O0",
    "-g1",
    "-fno-omit-frame-pointer",
    SANITIZERS,
    "-fno-sanitize-recover=all",
    "-fsanitize-coverage=trace-pc",
    "-w",
    "-c",
];

/// Names of the three objects, with their flags.
const OBJECTS: [(&str, &[&str]); 3] = [
    ("zero.o", &["-DGW_CHECKED=gw_checked_zero", "-ftrivial-auto-var-init=zero"]),
    ("pattern.o", &["-DGW_CHECKED=gw_checked_pattern", "-ftrivial-auto-var-init=pattern"]),
    ("program.o", &["-std=gnu11", "-O1", "-w", "-c"]),
];

/// The compiled program, in a folder that is removed with it.
#[derive(Debug)]
pub(super) struct Program {
    folder: TempDir,
}

impl Program {
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("checked")
    }
}

/// Compiles the program.
pub(super) fn build(path: &Path, custom: &CustomText<'_>) -> Result<Program, Error> {
    let compiler = Compiler::find(path)?;
    let folder = tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
    sandbox::give(folder.path()).map_err(|source| Error::File { path: folder.path().to_owned(), source })?;
    let program = Program { folder };
    let kernel = text::reference(custom);
    let object = |index: usize| {
        let (name, flags) = OBJECTS[index];
        let (common, text) = if index < 2 { (KERNEL, kernel.as_str()) } else { (&[][..], PROGRAM) };
        let arguments = [common, flags, &["-x", "c", "-", "-o", name]].concat();
        compiler.run(path, custom, program.folder(), &arguments, text)
    };
    on_all_cores(&[0, 1, 2], object).into_iter().collect::<Result<Vec<()>, _>>()?;
    let link = [SANITIZERS, "zero.o", "pattern.o", "program.o", "-o", "checked"];
    compiler.run(path, custom, program.folder(), &link, "")?;
    Ok(program)
}
