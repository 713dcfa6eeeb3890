//! Compiles the C search (`c/scan.c`) for all CPUs, and a second time for AVX-512 if the compiler
//! supports it.
#![forbid(unsafe_code)]

/// Compiler flags for AVX-512. `native.rs` tests the same CPU features at run time.
const AVX512: [&str; 8] =
    ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vbmi", "-mbmi", "-mbmi2", "-mlzcnt"];

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rustc-check-cfg=cfg(godwit_avx512)");
    let build = |name: &str, flags: &[&str]| {
        let mut build = cc::Build::new();
        build.std("c11").warnings(true).opt_level(3).flag("-fno-strict-aliasing");
        flags.iter().for_each(|flag| {
            build.flag(flag);
        });
        build.file("c/scan.c").compile(name);
    };
    build("godwit_literal_portable", &[]);
    let is_x86_64 = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    let probe = cc::Build::new();
    if is_x86_64 && AVX512.iter().all(|flag| probe.is_flag_supported(flag).unwrap_or(false)) {
        println!("cargo::rustc-cfg=godwit_avx512");
        build("godwit_literal_avx512", &[&AVX512[..], &["-DGW_AVX512", "-mpopcnt"]].concat());
    }
}
