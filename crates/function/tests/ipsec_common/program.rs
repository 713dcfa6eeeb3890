//! A C program around the primitives of the kernel (`tests/ipsec_primitives.c`), compiled as the levels of the CPU are:
//! with AES instructions and without.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::repository;

/// Flags of the compiler, and whether this CPU runs what comes of them.
fn builds() -> Vec<(&'static [&'static str], bool)> {
    if cfg!(target_arch = "x86_64") {
        let levels = godwit_kernels::levels();
        let runs = |name| levels.iter().any(|level| level.name == name && level.supported());
        vec![
            (&["-march=x86-64-v2"], runs("x86-64-v2")),
            (&["-march=x86-64-v3", "-maes", "-mpclmul"], runs("x86-64-v3")),
            (&["-march=x86-64-v4", "-maes", "-mpclmul"], runs("x86-64-v4")),
        ]
    } else {
        vec![(&[], true)]
    }
}

/// The program, compiled.
struct Program(PathBuf);

impl Program {
    fn compile(flags: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let name = format!("{}{}", env!("CARGO_CRATE_NAME"), flags.concat());
        // Another run may have one of that name under way: it is put in place at once.
        let made = folder.join(format!("{name}.{}", std::process::id()));
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ipsec_primitives.c");
        let mut command = Command::new(&compiler);
        command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-I"]);
        command.arg(repository("kernels")).args(flags).arg(source).arg("-o").arg(&made);
        let status = command.status().unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(status.success(), "{command:?}");
        let program = folder.join(name);
        std::fs::rename(&made, &program).unwrap();
        Self(program)
    }

    /// Those of all builds that this CPU can run; tests share them.
    fn all() -> &'static [(&'static [&'static str], Self)] {
        static PROGRAMS: OnceLock<Vec<(&[&str], Program)>> = OnceLock::new();
        PROGRAMS.get_or_init(|| {
            let (run, skipped): (Vec<_>, Vec<_>) = builds().into_iter().partition(|(_, runs)| *runs);
            skipped.iter().for_each(|(flags, _)| println!("skipped: this CPU cannot run {flags:?}"));
            run.into_iter().map(|(flags, _)| (flags, Self::compile(flags))).collect()
        })
    }

    /// One line of output per line of input.
    fn run(&self, input: &str) -> Vec<String> {
        let mut child = Command::new(&self.0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

/// Every operation on every build, each with the result it must have or begin with, or must not.
pub(crate) fn check(operations: &[(String, String, bool)]) {
    let input: String = operations.iter().map(|(operation, ..)| format!("{operation}\n")).collect();
    for (flags, program) in Program::all() {
        let output = program.run(&input);
        assert_eq!(output.len(), operations.len());
        for (found, (operation, expected, valid)) in output.iter().zip(operations) {
            assert_eq!(found.starts_with(expected), *valid, "{flags:?}: {operation}: {found}, not {expected}");
        }
    }
}
