//! Embeds the definitions, and compiles the three forms of the bench `gopt`: plain, by hand, and
//! transformed by gopt.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Plain loops, which gopt transforms.
const LOOPS: [&str; 4] = ["cuckoo", "chase", "ipv6", "dial"];
/// Tables and queries of the loops, and the forms by hand.
const SOURCES: [&str; 3] = ["gopt/table.c", "gopt/hand.c", "gopt/forms.c"];

fn main() {
    println!("cargo::rerun-if-changed=gopt");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    embed_definitions(&out);
    let loops = LOOPS.map(|name| PathBuf::from(format!("gopt/{name}.c")));
    compiler().files(SOURCES).files(&loops).compile("godwit_bench_gopt");

    // The size of a group is chosen at run time.
    let mut generated = compiler();
    generated.define("GOPT_GROUP", "table->group").include("gopt");
    for (name, path) in LOOPS.iter().zip(&loops) {
        let made = out.join(format!("{name}_generated.c"));
        fs::write(&made, transformed(path, &compiler())).unwrap_or_else(|error| panic!("{}: {error}", made.display()));
        generated.define(&format!("{name}_lookup"), format!("{name}_generated").as_str()).file(made);
    }
    generated.compile("godwit_bench_generated");
}

/// Writes the name and text of every file in `definitions/` to `definitions.rs`, in alphabetical
/// order.
fn embed_definitions(out: &Path) {
    println!("cargo::rerun-if-changed=definitions");
    let folder = fs::read_dir("definitions").unwrap_or_else(|error| panic!("definitions: {error}"));
    let mut files: Vec<PathBuf> = folder.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort_by_key(|path| path.file_stem().map(ToOwned::to_owned));
    let mut text = String::from("static DEFINITIONS: &[(&str, &str)] = &[\n");
    for file in files {
        let path = file.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    ({name:?}, include_str!({path:?})),");
    }
    text += "];\n";
    let list = out.join("definitions.rs");
    fs::write(&list, text).unwrap_or_else(|error| panic!("{}: {error}", list.display()));
}

/// Returns a loop as gopt transforms it.
fn transformed(path: &Path, build: &cc::Build) -> String {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let tool = build.get_compiler();
    let compiler = gopt::Compiler {
        program: tool.path().display().to_string(),
        flags: tool.args().iter().map(|flag| flag.to_string_lossy().into_owned()).collect(),
        ..gopt::Compiler::default()
    };
    let options = gopt::Options { name: &name, folder: path.parent(), compiler, ..gopt::Options::default() };
    gopt::transform(&text, &options).unwrap_or_else(|error| panic!("{error}")).text
}

/// Returns a compiler with the options that all forms share. The Makefile compiles the peer with
/// the same options.
fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    build.std("c11").opt_level(3).warnings(true).extra_warnings(true).flag("-Werror");
    build
}
