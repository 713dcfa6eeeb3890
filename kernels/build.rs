//! Compiles the kernels for the CPU, once per level. Assembles the source texts that devices
//! compile at run time.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// A level: one set of CPU features that the kernels are compiled for.
struct Level {
    name: &'static str,
    /// Compiler flags that the level requires. If the compiler does not support one of them, the
    /// level is left out.
    flags: &'static [&'static str],
    /// CPU features that `flags` enable, as named by `is_x86_feature_detected!`.
    features: &'static [&'static str],
    /// Optional compiler flags, each with the CPU feature that it enables. Flags that the compiler
    /// does not support are left out.
    extras: &'static [(&'static str, &'static str)],
}

/// Levels of the x86-64 psABI (System V ABI, AMD64 supplement, section 3.1.1), with the
/// cryptographic instructions that their CPUs usually have.
const X86_64_LEVELS: &[Level] = &[
    Level {
        name: "x86-64-v2",
        flags: &["-march=x86-64-v2"],
        features: &["popcnt", "sse3", "ssse3", "sse4.1", "sse4.2", "cmpxchg16b"],
        extras: &[],
    },
    Level {
        name: "x86-64-v3",
        flags: &["-march=x86-64-v3", "-maes", "-mpclmul"],
        features: &[
            "popcnt",
            "sse3",
            "ssse3",
            "sse4.1",
            "sse4.2",
            "cmpxchg16b",
            "avx",
            "avx2",
            "bmi1",
            "bmi2",
            "f16c",
            "fma",
            "lzcnt",
            "movbe",
            "aes",
            "pclmulqdq",
        ],
        extras: &[],
    },
    Level {
        name: "x86-64-v4",
        flags: &["-march=x86-64-v4", "-maes", "-mpclmul"],
        features: &[
            "popcnt",
            "sse3",
            "ssse3",
            "sse4.1",
            "sse4.2",
            "cmpxchg16b",
            "avx",
            "avx2",
            "bmi1",
            "bmi2",
            "f16c",
            "fma",
            "lzcnt",
            "movbe",
            "aes",
            "pclmulqdq",
            "avx512f",
            "avx512bw",
            "avx512cd",
            "avx512dq",
            "avx512vl",
        ],
        extras: &[("-mvaes", "vaes"), ("-mvpclmulqdq", "vpclmulqdq"), ("-msha", "sha"), ("-mgfni", "gfni")],
    },
];

/// Compiler flags that `native.c` requires.
const NATIVE_FLAGS: &[&str] = &["-march=x86-64-v4", "-maes", "-mpclmul", "-mvaes", "-mvpclmulqdq"];
/// CPU features that [`NATIVE_FLAGS`] enable, in addition to those of x86-64-v4.
const NATIVE_FEATURES: &[&str] = &["vaes", "vpclmulqdq"];

/// The only level of other architectures, with the default flags of the target.
const GENERIC_LEVELS: &[Level] = &[Level { name: "generic", flags: &[], features: &[], extras: &[] }];

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

    write_registry(&root.join("functions.h"), &out);
    write_sources(&root, &out);
    let cpu = cpu_text(&root, &out);
    compile(&root, &out, &cpu);
}

/// Writes the list of `functions.h` as Rust.
fn write_registry(functions: &Path, out: &Path) {
    let mut rust = String::from("/// All kernels of `functions.h`.\n");
    rust += "pub const KERNELS: &[KernelInfo] = &[\n";
    for (number, name) in rows(functions) {
        writeln!(rust, "    KernelInfo {{ number: {number}, name: \"{name}\" }},").expect("writing to a String");
    }
    rust += "];\n";
    write(&out.join("registry.rs"), &rust);
}

/// Returns number and name of every function of `functions.h`.
fn rows(functions: &Path) -> Vec<(String, String)> {
    let text = read(functions);
    let rows = text.lines().filter_map(|line| line.trim().strip_prefix("X("));
    rows.map(|row| {
        let row = row.split(')').next().expect("split yields at least one part");
        let columns: Vec<&str> = row.split(',').map(str::trim).collect();
        let [number, name] = columns[..] else {
            panic!("functions.h: X({row}) must have a number and a name");
        };
        (number.to_owned(), name.to_owned())
    })
    .collect()
}

/// Writes one source text per device language, and a digest of all of them.
fn write_sources(root: &Path, out: &Path) {
    // OpenCL has no group forms whose lanes exchange words (GW_TEAM_FORM).
    let opencl = flatten(
        root,
        "opencl.cl",
        &[
            "dialect/cpu.h",
            "dialect/aes_ni.h",
            "dialect/ghash_clmul.h",
            "dialect/cuda.h",
            "dialect/aes_team.h",
            "dialect/aes_lane.h",
            "ipsec/group.h",
        ],
    );
    let cuda =
        flatten(root, "cuda.cu", &["dialect/cpu.h", "dialect/aes_ni.h", "dialect/ghash_clmul.h", "dialect/opencl.h"]);
    let cpu = flatten(root, "cpu.c", &["dialect/cuda.h", "dialect/opencl.h"]);
    // FNV-1a hash of all source texts. It identifies a version of the kernels in caches and
    // profiles. It is not cryptographic.
    let digest = [&opencl, &cuda, &cpu]
        .iter()
        .flat_map(|text| text.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let cuda_group_lanes = definition(&cuda, "GW_GROUP_LANES");
    write(&out.join("cuda_group_lanes.rs"), &format!("{cuda_group_lanes}\n"));
    write(&out.join("kernels.cl"), &opencl);
    write(&out.join("kernels.cu"), &cuda);
    write(&out.join("digest.rs"), &format!("{digest:#018x}\n"));
}

/// Text of `cpu.c` with its includes expanded.
struct CpuText {
    text: String,
    /// Functions with a loop of `dialect/loop_gopt.c`, which gopt transforms.
    loops: Vec<String>,
}

/// Returns the text of `cpu.c`, and writes the list of the loops of `dialect/loop_gopt.c` as Rust.
/// Each function with expensive accesses has such a loop.
fn cpu_text(root: &Path, out: &Path) -> CpuText {
    let text = flatten(root, "cpu.c", &["dialect/cuda.h", "dialect/opencl.h"]);
    let (begin, end) = ("/* begin NAME */\n", "/* end NAME */\n");
    let before = text.split(begin).next().expect("split yields at least one part");
    let template =
        text.split(begin).nth(1).and_then(|rest| rest.split(end).next()).expect("loop_gopt.c has a template");
    let after = text.split(end).nth(1).expect("the template of loop_gopt.c ends");
    let options = gopt::Options { name: "cpu.c", compiler: preprocessor(&compiler(root)), ..gopt::Options::default() };
    let expensive = gopt::expensive(&text, &options).unwrap_or_else(|error| panic!("gopt: {error}"));
    let (mut loops, mut others, mut cases) = (String::new(), String::new(), String::new());
    let mut rust = String::from(
        "/// Numbers of the kernels with expensive accesses, in which packets may be interleaved.\npub const GOPT_KERNELS: &[u8] = &[",
    );
    let mut named = vec!["gw_probe_table".to_owned()];
    for (number, name) in rows(&root.join("functions.h")) {
        if expensive.contains(&format!("gw_{name}_packet")) {
            loops += &template.replace("NAME", &name);
            write!(rust, "{number}, ").expect("writing to a String");
            named.push(format!("gw_bin_{name}"));
        } else {
            writeln!(others, "GW_BIN_LOOP({name})").expect("writing to a String");
        }
        writeln!(cases, "    case {number}:\n        gw_bin_{name}(call);\n        break;")
            .expect("writing to a String");
    }
    write(&out.join("gopt.rs"), &format!("{rust}];\n"));
    let dispatch = format!(
        "{others}\nstatic inline void gw_run(gw_u32 kernel, const gw_bin_call *call)\n{{\n    switch (kernel) {{\n\
         {cases}    default:\n        break;\n    }}\n}}\n"
    );
    let text = format!("{before}{loops}{after}").replace("/* build.rs: the other loops, and gw_run */\n", &dispatch);
    CpuText { text, loops: named }
}

/// Writes `cpu.c` with its loops transformed for one level, because macros depend on the level.
/// Returns its path.
fn transformed(cpu: &CpuText, build: &cc::Build, folder: &Path) -> PathBuf {
    let options = gopt::Options {
        name: "cpu.c",
        functions: &cpu.loops,
        compiler: preprocessor(build),
        ..gopt::Options::default()
    };
    let output = gopt::transform(&cpu.text, &options).unwrap_or_else(|error| panic!("gopt: {error}"));
    fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let path = folder.join("cpu.c");
    write(&path, &output.text);
    path
}

/// Returns the compiler of a build as the preprocessor of gopt.
fn preprocessor(build: &cc::Build) -> gopt::Compiler {
    let tool = build.get_compiler();
    gopt::Compiler {
        program: tool.path().display().to_string(),
        flags: tool.args().iter().map(|flag| flag.to_string_lossy().into_owned()).collect(),
        ..gopt::Compiler::default()
    }
}

/// Returns the number that a source text defines under a name. Panics unless the name is defined
/// exactly once.
fn definition(text: &str, name: &str) -> u32 {
    let start = format!("#define {name} ");
    let mut values = text.lines().filter_map(|line| line.strip_prefix(start.as_str()));
    match (values.next(), values.next()) {
        (Some(value), None) => value.trim().trim_end_matches('u').parse().expect("a decimal number"),
        _ => panic!("{name} is not defined once"),
    }
}

/// Returns a file with its includes expanded. Every `#include "..."` is replaced by the included
/// file, the first time only. `#line` directives keep file and line correct in compiler messages.
/// `left_out` are headers of other compilers. `#include <...>` is unchanged.
fn flatten(root: &Path, file: &str, left_out: &[&str]) -> String {
    let mut seen: BTreeSet<String> = left_out.iter().map(|name| (*name).to_owned()).collect();
    let mut text = String::new();
    append(root, file, &mut seen, &mut text);
    text
}

fn append(root: &Path, file: &str, seen: &mut BTreeSet<String>, text: &mut String) {
    if !seen.insert(file.to_owned()) {
        return;
    }
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    writeln!(text, "#line 1 \"{file}\"").expect("writing to a String");
    for (index, line) in read(&root.join(file)).lines().enumerate() {
        let included = line.trim().strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        let Some(included) = included else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        append(root, &resolve(folder, included), seen, text);
        writeln!(text, "#line {} \"{file}\"", index + 2).expect("writing to a String");
    }
}

/// Converts `included`, relative to `folder`, to a path from the root without `..`.
fn resolve(folder: &str, included: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in included.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

fn compile(root: &Path, out: &Path, cpu: &CpuText) {
    let x86_64 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    let levels = if x86_64 { X86_64_LEVELS } else { GENERIC_LEVELS };

    let mut externs = String::new();
    let mut table = String::new();
    for level in levels {
        let mut features = level.features.to_vec();
        let mut build = compiler(root);
        if level.flags.iter().any(|flag| !build.is_flag_supported(flag).unwrap_or(false)) {
            println!("cargo::warning=the C compiler does not support {}, so this level is left out", level.name);
            continue;
        }
        for flag in level.flags {
            build.flag(flag);
        }
        for (flag, feature) in level.extras {
            if build.is_flag_supported(flag).unwrap_or(false) {
                build.flag(flag);
                features.push(feature);
            }
        }
        let suffix = level.name.replace('-', "_");
        // The compiler names objects after their source file, so each level needs its own folder.
        let folder = out.join(&suffix);
        build.out_dir(&folder).define("GW_LEVEL", suffix.as_str());
        let cpu = transformed(cpu, &build, &folder);
        build.file(cpu).compile(&format!("godwit_{suffix}"));
        describe(level.name, &suffix, &features, &mut externs, &mut table);
    }
    write(
        &out.join("levels.rs"),
        &format!("unsafe extern \"C\" {{\n{externs}}}\n\nstatic LEVELS: &[Level] = &[\n{table}];\n"),
    );
    compiler(root).file(root.join("layout.c")).compile("godwit_layout");
    compile_native(root, out, x86_64);
}

/// Compiles the native forms. Leaves out those that the compiler does not support.
fn compile_native(root: &Path, out: &Path, x86_64: bool) {
    let mut externs = String::new();
    let mut table = String::new();
    compiler(root).file(root.join("covers.c")).compile("godwit_covers");
    let mut build = compiler(root);
    if x86_64 && NATIVE_FLAGS.iter().all(|flag| build.is_flag_supported(flag).unwrap_or(false)) {
        for flag in NATIVE_FLAGS {
            build.flag(flag);
        }
        build.out_dir(out.join("native")).file(root.join("native.c")).compile("godwit_native");
        let v4 = X86_64_LEVELS.iter().find(|level| level.name == "x86-64-v4").expect("a level of the list");
        let features = [v4.features, NATIVE_FEATURES].concat();
        externs += "    safe fn gw_native_avx512_covers(kernel: u32, variant: u32) -> u32;\n    \
                    fn gw_native_avx512(kernel: u32, call: *const BinCall);\n    \
                    fn gw_native_ipv4_bulk(image: *const u8, variant: u32, addresses: *const u32, \
                    next_hops: *mut u32, count: u64, ahead: u64);\n    \
                    fn gw_native_ipv6_bulk(image: *const u8, variant: u32, addresses: *const [u8; 16], \
                    next_hops: *mut u32, count: u64);\n";
        writeln!(
            table,
            "    Native {{\n        name: \"avx512\",\n        features: &{features:?},\n        \
             supported: || {{\n            {}\n        }},\n        covers: gw_native_avx512_covers,\n        \
             run_bin: gw_native_avx512,\n        \
             ipv4_bulk: gw_native_ipv4_bulk,\n        \
             ipv6_bulk: gw_native_ipv6_bulk,\n    }},",
            detected(&features)
        )
        .expect("writing to a String");
    }
    write(
        &out.join("natives.rs"),
        &format!("unsafe extern \"C\" {{\n{externs}}}\n\nstatic NATIVES: &[Native] = &[\n{table}];\n"),
    );
}

/// Returns a Rust expression that is true if the CPU has all of the features.
fn detected(features: &[&str]) -> String {
    let detected = features
        .iter()
        .map(|feature| format!("std::arch::is_x86_feature_detected!(\"{feature}\")"))
        .collect::<Vec<_>>();
    if detected.is_empty() { "true".to_owned() } else { detected.join("\n            && ") }
}

fn compiler(root: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .include(root)
        .std("c11")
        .opt_level(3)
        .warnings(true)
        .extra_warnings(true)
        .flag("-Werror")
        .flag("-fno-math-errno")
        // Kernels read the bytes of a table image as structs.
        .flag("-fno-strict-aliasing")
        // Callers spend most of their time in these loops. Frame pointers let perf profile them.
        .flag("-fno-omit-frame-pointer")
        .cargo_metadata(true);
    build
}

/// Appends the foreign functions of one level to `externs`, and the level's row to `table`.
fn describe(name: &str, suffix: &str, features: &[&str], externs: &mut String, table: &mut String) {
    let supported = detected(features);
    writeln!(
        externs,
        "    fn gw_run_bin_{suffix}(kernel: u32, call: *const BinCall);\n    \
         fn gw_ipv4_bulk_{suffix}(image: *const u8, variant: u32, addresses: *const u32, \
         next_hops: *mut u32, count: u64, ahead: u64);\n    \
         fn gw_ipv6_bulk_{suffix}(image: *const u8, variant: u32, addresses: *const [u8; 16], \
         next_hops: *mut u32, count: u64);\n    \
         fn gw_probe_{suffix}(image: *const u8, lines: u64, seed: u64, rounds: u32, group: u32) -> u64;\n    \
         fn gw_l2_bulk_{suffix}(image: *const u8, keys: *const u64, ports: *mut u32, count: u64);"
    )
    .expect("writing to a String");
    writeln!(
        table,
        "    Level {{\n        name: \"{name}\",\n        features: &{features:?},\n        \
         supported: || {{\n            {supported}\n        }},\n        run_bin: gw_run_bin_{suffix},\n        \
         ipv4_bulk: gw_ipv4_bulk_{suffix},\n        \
         ipv6_bulk: gw_ipv6_bulk_{suffix},\n        \
         probe: gw_probe_{suffix},\n        \
         l2_bulk: gw_l2_bulk_{suffix},\n    }},"
    )
    .expect("writing to a String");
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
