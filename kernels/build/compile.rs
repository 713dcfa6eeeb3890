//! Runs the C compiler, and generates the Rust code that declares the compiled kernels.

use std::env;
use std::fmt::Write as _;
use std::path::Path;

use crate::levels::{GENERIC_LEVELS, NATIVE_FORMS, NativeForm, X86_64_LEVELS};
use crate::sources::CpuText;
use crate::write;

/// Flag of clang that counts branches for libFuzzer.
const COVERAGE: &str = "-fsanitize-coverage=inline-8bit-counters,pc-table";

/// Compiles the kernels for each x86-64 level, and the hand-written native forms.
pub(super) fn compile(root: &Path, out: &Path, cpu: &CpuText) {
    let x86_64 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    let levels = if x86_64 { X86_64_LEVELS } else { GENERIC_LEVELS };

    let mut externs = String::new();
    let mut table = String::new();
    for level in levels {
        let (mut features, mut flags) = (level.features.to_vec(), level.flags.to_vec());
        let mut build = compiler(root, out);
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
                flags.push(flag);
                features.push(feature);
            }
        }
        let suffix = level.name.replace('-', "_");
        // Object files are named after their source file, so each x86-64 level needs a separate
        // folder.
        let folder = out.join(&suffix);
        build.out_dir(&folder).define("GW_LEVEL", suffix.as_str());
        let cpu = cpu.write_transformed(&build, &folder);
        build.file(cpu).compile(&format!("godwit_{suffix}"));
        describe(level.name, &suffix, [&features, &flags], &mut externs, &mut table);
    }
    write(
        &out.join("levels.rs"),
        &format!("unsafe extern \"C\" {{\n{externs}}}\n\nstatic LEVELS: &[Level] = &[\n{table}];\n"),
    );
    compiler(root, out).file(root.join("layout.c")).compile("godwit_layout");
    compile_natives(root, out, x86_64);
}

/// Compiles kernels for special CPU features, such as AVX-512. Leaves out forms whose flags the
/// compiler does not support. Also leaves them out for fuzz targets, which do not run these
/// kernels: clang 14 needs more than seven minutes to add coverage counters and sanitizers to them.
fn compile_natives(root: &Path, out: &Path, x86_64: bool) {
    let mut externs = String::new();
    let mut table = String::new();
    compiler(root, out).file(root.join("covers.c")).compile("godwit_covers");
    let is_fuzzed = env::var_os("CARGO_CFG_FUZZING").is_some();
    let forms = if x86_64 && !is_fuzzed { NATIVE_FORMS } else { &[] };
    let mut declared = Vec::new();
    for form in forms {
        let level = X86_64_LEVELS.iter().find(|level| level.name == form.level).expect("a level of the list");
        let (flags, features): (Vec<_>, Vec<_>) = form.extras.iter().copied().unzip();
        let flags = [level.flags, &flags].concat();
        let mut build = compiler(root, out);
        if flags.iter().any(|flag| !build.is_flag_supported(flag).unwrap_or(false)) {
            println!("cargo::warning=the C compiler does not support {}, so this form is left out", form.name);
            continue;
        }
        for flag in &flags {
            build.flag(flag);
        }
        let suffix = form.name.replace('-', "_");
        build.out_dir(out.join(format!("native_{suffix}"))).define("GW_NATIVE_FORM", suffix.as_str());
        build.file(root.join(form.source)).compile(&format!("godwit_native_{suffix}"));
        if !declared.contains(&form.covers) {
            declared.push(form.covers);
            writeln!(externs, "    safe fn {}(kernel: u32, variant: u32) -> u32;", form.covers)
                .expect("writing to a String");
        }
        describe_native(form, &suffix, &[level.features, &features].concat(), &flags, &mut externs, &mut table);
    }
    write(
        &out.join("natives.rs"),
        &format!("unsafe extern \"C\" {{\n{externs}}}\n\nstatic NATIVES: &[Native] = &[\n{table}];\n"),
    );
}

/// Appends the Rust declarations of one native form's C functions to `externs`, and a description
/// of the form to `table`.
fn describe_native(
    form: &NativeForm,
    suffix: &str,
    features: &[&str],
    flags: &[&str],
    externs: &mut String,
    table: &mut String,
) {
    writeln!(externs, "    fn gw_native_{suffix}(kernel: u32, call: *const BinCall);").expect("writing to a String");
    if form.looks_up {
        *externs += "    fn gw_native_ipv4_bulk(image: *const u8, variant: u32, addresses: *const u32, \
                     next_hops: *mut u32, count: u64, ahead: u64);\n    \
                     fn gw_native_ipv6_bulk(image: *const u8, variant: u32, addresses: *const [u8; 16], \
                     next_hops: *mut u32, count: u64);\n";
    }
    let lookups = match form.looks_up {
        true => "Some(Lookups { ipv4_bulk: gw_native_ipv4_bulk, ipv6_bulk: gw_native_ipv6_bulk })",
        false => "None",
    };
    writeln!(
        table,
        "    Native {{\n        name: \"{}\",\n        source: \"{}\",\n        features: &{features:?},\n        \
         flags: &{flags:?},\n        supported: || {{\n            {}\n        }},\n        covers: {},\n        \
         run_bin: gw_native_{suffix},\n        lookups: {lookups},\n    }},",
        form.name,
        form.source,
        detected(features),
        form.covers
    )
    .expect("writing to a String");
}

/// Returns a Rust expression that is true at run time if the CPU has all `features`.
fn detected(features: &[&str]) -> String {
    let detected = features
        .iter()
        .map(|feature| format!("std::arch::is_x86_feature_detected!(\"{feature}\")"))
        .collect::<Vec<_>>();
    if detected.is_empty() { "true".to_owned() } else { detected.join("\n            && ") }
}

pub(super) fn compiler(root: &Path, out: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .include(root)
        .include(out.join("include"))
        .std("c11")
        .opt_level(3)
        .warnings(true)
        .extra_warnings(true)
        .flag("-Werror")
        .flag("-fno-math-errno")
        // Kernels read the bytes of tables as structs.
        .flag("-fno-strict-aliasing")
        // Kernels contain the loops in which Godwit spends most of its time. Frame pointers let
        // perf attribute this time to callers.
        .flag("-fno-omit-frame-pointer")
        .cargo_metadata(true);
    if env::var_os("CARGO_CFG_FUZZING").is_some() {
        add_coverage(&mut build);
    }
    build
}

/// Adds branch coverage for libFuzzer. At a higher optimisation level, clang takes minutes per
/// x86-64 level with sanitizers.
fn add_coverage(build: &mut cc::Build) {
    build.opt_level(1);
    if build.is_flag_supported(COVERAGE).unwrap_or(false) {
        // clang also warns about unused functions in headers.
        build.flag(COVERAGE).flag("-Wno-unused-function");
    } else {
        println!("cargo::warning=libFuzzer does not see the branches of kernels: set CC=clang");
    }
}

/// Appends the Rust declarations of one x86-64 level's C functions to `externs`, and a description
/// of the level to `table`.
fn describe(name: &str, suffix: &str, [features, flags]: [&[&str]; 2], externs: &mut String, table: &mut String) {
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
        "    Level {{\n        name: \"{name}\",\n        features: &{features:?},\n        flags: &{flags:?},\n        \
         supported: || {{\n            {supported}\n        }},\n        run_bin: gw_run_bin_{suffix},\n        \
         ipv4_bulk: gw_ipv4_bulk_{suffix},\n        \
         ipv6_bulk: gw_ipv6_bulk_{suffix},\n        \
         probe: gw_probe_{suffix},\n        \
         l2_bulk: gw_l2_bulk_{suffix},\n    }},"
    )
    .expect("writing to a String");
}
