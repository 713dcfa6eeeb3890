//! Compiles C and runs it.

use std::path::Path;
use std::process::Command;

/// Whether a compiler is here; tests say so where one is not.
pub(crate) fn has(compiler: &str) -> bool {
    let here = Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success());
    if !here {
        eprintln!("skipped: there is no {compiler} here");
    }
    here
}

/// Sanitizers, where the compiler's libraries for them are installed.
pub(crate) const SANITIZED: &[&str] = &["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Compiles one file to a program.
pub(crate) fn compile(compiler: &str, flags: &[&str], source: &Path, program: &Path) {
    let mut command = Command::new(compiler);
    command.arg("-std=gnu11").args(flags);
    let output = command.arg(source).arg("-o").arg(program).arg("-lm").output().expect("the compiler starts");
    assert!(
        output.status.success(),
        "{compiler} {flags:?} {}:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Returns the output of a program, which must succeed.
pub(crate) fn run(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program starts");
    assert!(
        output.status.success(),
        "{} {arguments:?}: {}\n{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("programs print ASCII")
}
