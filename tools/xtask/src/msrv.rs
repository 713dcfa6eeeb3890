//! `cargo xtask msrv`: the oldest supported Rust version (`rust-version` in Cargo.toml).
//!
//! Clippy's `incompatible_msrv` lint checks the use of the standard library in this workspace. This
//! command checks the dependencies. If rustup has installed the oldest version, it also builds with
//! this version.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

pub(crate) fn run(root: &Path) -> Result<(), String> {
    let metadata = metadata(root)?;
    let oldest = oldest(&metadata)?;
    let newer = newer_dependencies(&metadata, &oldest);
    if !newer.is_empty() {
        return Err(format!(
            "rust-version is {oldest}, but these dependencies need a newer Rust: {}",
            newer.join(", ")
        ));
    }
    if !is_installed(&oldest) {
        println!("skipped: msrv build (Rust {oldest} is not installed; `rustup toolchain install {oldest}`)");
        return Ok(());
    }
    let status = Command::new("cargo")
        .args([&format!("+{oldest}"), "check", "--locked", "--workspace", "--target-dir", "target/msrv"])
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("the workspace does not build with Rust {oldest}")) }
}

fn metadata(root: &Path) -> Result<Value, String> {
    let output = Command::new("cargo")
        .args(["metadata", "--locked", "--format-version", "1"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// Returns the `rust-version` of the `godwit` package.
fn oldest(metadata: &Value) -> Result<String, String> {
    packages(metadata)
        .find(|package| package["name"] == "godwit")
        .and_then(|package| package["rust_version"].as_str())
        .map(str::to_owned)
        .ok_or_else(|| "Cargo.toml has no rust-version for the package godwit".to_owned())
}

/// Returns each dependency with a newer `rust-version`, as `name version (rust-version)`.
fn newer_dependencies(metadata: &Value, oldest: &str) -> Vec<String> {
    let limit = parts(oldest);
    let newer = |package: &&Value| package["rust_version"].as_str().is_some_and(|needed| parts(needed) > limit);
    let describe = |package: &Value| {
        let text = |key: &str| package[key].as_str().unwrap_or("?").to_owned();
        format!("{} {} ({})", text("name"), text("version"), text("rust_version"))
    };
    packages(metadata).filter(newer).map(describe).collect()
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

/// Splits a version such as `1.88` or `1.88.0` into three numbers, which compare by value.
fn parts(version: &str) -> [u32; 3] {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    [0; 3].map(|zero| numbers.next().unwrap_or(zero))
}

fn is_installed(version: &str) -> bool {
    let output = Command::new("rustup").args(["toolchain", "list"]).output();
    let list = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    list.lines().any(|line| line.starts_with(version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_compare_by_value() {
        assert!(parts("1.100") > parts("1.88"));
        assert_eq!(parts("1.88"), parts("1.88.0"));
    }

    #[test]
    fn a_newer_dependency_is_named() {
        let package = |name: &str, needed: Value| json!({ "name": name, "version": "1.2.3", "rust_version": needed });
        let packages =
            [package("godwit", json!("1.88")), package("new", json!("1.90.0")), package("silent", Value::Null)];
        let metadata = json!({ "packages": packages });
        assert_eq!(oldest(&metadata).unwrap(), "1.88");
        assert_eq!(newer_dependencies(&metadata, "1.88"), ["new 1.2.3 (1.90.0)"]);
    }
}
