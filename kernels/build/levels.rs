//! Levels: the sets of CPU features that kernels are compiled for.

/// A level: one set of CPU features that the kernels are compiled for.
pub(super) struct Level {
    pub(super) name: &'static str,
    /// Compiler flags that the level requires. If the compiler does not support one of them, the
    /// level is left out.
    pub(super) flags: &'static [&'static str],
    /// CPU features that `flags` enable, as named by `is_x86_feature_detected!`.
    pub(super) features: &'static [&'static str],
    /// Optional compiler flags, each with the CPU feature that it enables. Flags that the compiler
    /// does not support are left out.
    pub(super) extras: &'static [(&'static str, &'static str)],
}

/// Levels of the x86-64 psABI (System V ABI, AMD64 supplement, section 3.1.1), with the
/// cryptographic instructions that their CPUs usually have.
pub(super) const X86_64_LEVELS: &[Level] = &[
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
pub(super) const NATIVE_FLAGS: &[&str] = &["-march=x86-64-v4", "-maes", "-mpclmul", "-mvaes", "-mvpclmulqdq"];
/// CPU features that [`NATIVE_FLAGS`] enable, in addition to those of x86-64-v4.
pub(super) const NATIVE_FEATURES: &[&str] = &["vaes", "vpclmulqdq"];

/// The only level of other architectures, with the default flags of the target.
pub(super) const GENERIC_LEVELS: &[Level] = &[Level { name: "generic", flags: &[], features: &[], extras: &[] }];
