//! `cargo xtask regenerate`: writes the pages that depend on code or on stored results.

use std::path::Path;
use std::process::Command;

/// Cargo commands that write the pages. Each has an environment variable that allows writing.
const STEPS: &[(&str, &[&str])] = &[
    ("docs/counters.md", &["test", "--quiet", "--locked", "-p", "godwit", "--test", "documents"]),
    ("docs/benchmarks/", &["run", "--quiet", "--locked", "-p", "godwit", "--", "bench", "report"]),
];

pub(crate) fn run(root: &Path) -> Result<(), String> {
    for (page, arguments) in STEPS {
        println!("xtask: {page}");
        let status = Command::new("cargo")
            .args(*arguments)
            .env("GODWIT_WRITE", "1")
            .current_dir(root)
            .status()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if !status.success() {
            return Err(format!("{page} was not written: `cargo {}` failed", arguments.join(" ")));
        }
    }
    Ok(())
}
