//! Compiles and runs a C program that calls the functions of the kernel (`primitives.c`). The
//! program is compiled for each CPU level, with and without AES instructions.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use godwit_declare::Declaration;
use godwit_declare::generate::header::header;
use godwit_test_support::{repository, skip};

/// Returns the compiler flags of each build, and whether this CPU can run the build.
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

/// Path of the compiled program.
struct Program(PathBuf);

/// Writes the header that the build generates from the declaration of `ipsec`. Returns the folder
/// of the header.
fn generated() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("include");
    let declared = godwit_kernels::declared::DECLARED.iter();
    let (contract, text) = declared.into_iter().find(|(contract, _)| contract.kind == "ipsec").unwrap();
    let header = header(&Declaration::parse(text).unwrap(), contract.kernel);
    std::fs::create_dir_all(folder.join("ipsec")).unwrap();
    std::fs::write(folder.join("ipsec/declared.h"), header).unwrap();
    folder
}

impl Program {
    fn compile(flags: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let name = format!("{}{}", env!("CARGO_CRATE_NAME"), flags.concat());
        // Another test run may be executing the program. The compiler therefore writes a new file,
        // which is then renamed.
        let temporary = folder.join(format!("{name}.{}", std::process::id()));
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ipsec/primitives.c");
        let mut command = Command::new(&compiler);
        command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-I"]);
        command
            .arg(repository().join("kernels"))
            .arg("-I")
            .arg(generated())
            .args(flags)
            .arg(source)
            .arg("-o")
            .arg(&temporary);
        let status = command.status().unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(status.success(), "{command:?}");
        let program = folder.join(name);
        std::fs::rename(&temporary, &program).unwrap();
        Self(program)
    }

    /// Returns all builds that this CPU can run. They are compiled once per process.
    fn all() -> &'static [(&'static [&'static str], Self)] {
        static PROGRAMS: OnceLock<Vec<(&[&str], Program)>> = OnceLock::new();
        PROGRAMS.get_or_init(|| {
            let (run, skipped): (Vec<_>, Vec<_>) = builds().into_iter().partition(|(_, runs)| *runs);
            skipped.iter().for_each(|(flags, _)| skip(format_args!("this CPU cannot run {flags:?}")));
            run.into_iter().map(|(flags, _)| (flags, Self::compile(flags))).collect()
        })
    }

    /// Runs the program and returns one line of output per line of input.
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

/// Runs every operation on every build. If the flag is true, the output line must begin with the
/// expected text. Otherwise, it must not.
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
