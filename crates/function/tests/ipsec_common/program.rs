//! A C program around the primitives of the kernel (`tests/ipsec_primitives.c`), compiled as the levels of the CPU are:
//! with AES instructions and without.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// The program, compiled; removed when dropped.
struct Program(PathBuf);

impl Program {
    fn compile(name: &str, flags: &[&str]) -> Self {
        let program =
            std::env::temp_dir().join(format!("godwit-primitives-{name}{}-{}", flags.concat(), std::process::id()));
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ipsec_primitives.c");
        let mut command = Command::new(&compiler);
        command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-I"]);
        command.arg(repository("kernels")).args(flags).arg(source).arg("-o").arg(&program);
        let status = command.status().unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(status.success(), "{command:?}");
        Self(program)
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

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Every operation on every build, each with the result it must have or begin with, or must not.
pub(crate) fn check(name: &str, operations: &[(String, String, bool)]) {
    let input: String = operations.iter().map(|(operation, ..)| format!("{operation}\n")).collect();
    for (flags, runs) in builds() {
        if !runs {
            println!("skipped: this CPU cannot run {flags:?}");
            continue;
        }
        let output = Program::compile(name, flags).run(&input);
        assert_eq!(output.len(), operations.len());
        for (found, (operation, expected, valid)) in output.iter().zip(operations) {
            assert_eq!(found.starts_with(expected), *valid, "{flags:?}: {operation}: {found}, not {expected}");
        }
    }
}
