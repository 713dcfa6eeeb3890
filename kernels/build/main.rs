//! Build script of the kernels. It generates C and Rust code from the function declarations, and
//! compiles the kernels for each x86-64 level. It also assembles the source texts that devices
//! compile at run time.
#![forbid(unsafe_code)]

mod compile;
mod functions;
mod levels;
mod sources;

use std::path::{Path, PathBuf};
use std::{env, fs};

use functions::Functions;

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    for entry in fs::read_dir(&root).expect("the kernels folder is readable") {
        let path = entry.expect("the kernels folder is readable").path();
        let rust = ["src", "tests", "abi", "Cargo.toml"].iter().any(|name| path.ends_with(name));
        if !rust {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    println!("cargo::rerun-if-changed={}", root.join("abi/abi.h").display());
    // A new folder is a new function.
    println!("cargo::rerun-if-changed={}", root.display());

    let functions = Functions::read(&root);
    functions.write_rust(&out);
    functions.write_headers(&out.join("include"));
    sources::write_texts(&root, &out, &functions);
    let cpu = sources::cpu_text(&root, &out, &functions);
    compile::compile(&root, &out, &cpu);
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    }
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
