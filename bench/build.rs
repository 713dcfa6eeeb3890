//! Compiles the look-ups of the bench `gopt`: as written, by hand, and as gopt makes them.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The look-ups as written; gopt makes others of them.
const LOOPS: [&str; 4] = ["cuckoo", "chase", "ipv6", "dial"];
/// What they need, and the forms by hand.
const SOURCES: [&str; 3] = ["gopt/table.c", "gopt/hand.c", "gopt/forms.c"];

fn main() {
    println!("cargo::rerun-if-changed=gopt");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let loops = LOOPS.map(|name| PathBuf::from(format!("gopt/{name}.c")));
    compiler().files(SOURCES).files(&loops).compile("godwit_bench_gopt");

    // How many look-ups are under way together is said at run time.
    let mut generated = compiler();
    generated.define("GOPT_GROUP", "table->group").include("gopt");
    for (name, path) in LOOPS.iter().zip(&loops) {
        let made = out.join(format!("{name}_generated.c"));
        fs::write(&made, transformed(path)).unwrap_or_else(|error| panic!("{}: {error}", made.display()));
        // The linker must not take one for the other.
        generated.define(&format!("{name}_lookup"), format!("{name}_generated").as_str()).file(made);
    }
    generated.compile("godwit_bench_generated");
}

fn transformed(path: &Path) -> String {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let options = gopt::Options { name: &name, folder: path.parent(), functions: &[] };
    gopt::transform(&text, &options).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// The same for all forms, and for the peer (Makefile).
fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    build.std("c11").opt_level(3).warnings(true).extra_warnings(true).flag("-Werror");
    build
}
