//! The x86-64 levels for which the build compiles the kernels. Each level is a set of CPU features.

/// Set of CPU features for which the build compiles all kernels.
pub(super) struct Level {
    pub(super) name: &'static str,
    /// Required compiler flags. The build skips the level if the compiler lacks one of these flags.
    pub(super) flags: &'static [&'static str],
    /// Names of the CPU features that `flags` enable, as `is_x86_feature_detected!` expects them.
    pub(super) features: &'static [&'static str],
    /// Optional compiler flags, each with the CPU feature that it enables. The build omits flags
    /// that the compiler does not support.
    pub(super) extras: &'static [(&'static str, &'static str)],
}

/// Levels of the x86-64 psABI (System V ABI, AMD64 supplement, section 3.1.1). Each level also
/// includes the cryptographic instructions that most CPUs of this level have.
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
/// CPU features that [`NATIVE_FLAGS`] enable in addition to x86-64-v4.
pub(super) const NATIVE_FEATURES: &[&str] = &["vaes", "vpclmulqdq"];

/// The only level on architectures other than x86-64. It uses the default flags of the compilation
/// target.
pub(super) const GENERIC_LEVELS: &[Level] = &[Level { name: "generic", flags: &[], features: &[], extras: &[] }];
