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

/// Set of CPU features for which the build compiles a native form.
pub(super) struct NativeForm {
    pub(super) name: &'static str,
    /// C file of the form.
    pub(super) source: &'static str,
    /// x86-64 level whose flags and features the form includes.
    pub(super) level: &'static str,
    /// Further compiler flags, each with the CPU feature that it enables.
    pub(super) extras: &'static [(&'static str, &'static str)],
    /// C function that tells which variants of a kernel the form covers.
    pub(super) covers: &'static str,
    /// Whether the form also looks up IPv4 and IPv6 addresses.
    pub(super) looks_up: bool,
}

/// Native forms. If no time is significant, a CPU uses the last one that it supports.
pub(super) const NATIVE_FORMS: &[NativeForm] = &[
    NativeForm {
        name: "avx2",
        source: "native_avx2.c",
        level: "x86-64-v3",
        extras: &[],
        covers: "gw_native_avx2_covers",
        looks_up: false,
    },
    NativeForm {
        name: "avx2-sha",
        source: "native_avx2.c",
        level: "x86-64-v3",
        extras: &[("-msha", "sha")],
        covers: "gw_native_avx2_covers",
        looks_up: false,
    },
    NativeForm {
        name: "avx2-vaes",
        source: "native_avx2.c",
        level: "x86-64-v3",
        extras: &[("-msha", "sha"), ("-mvaes", "vaes"), ("-mvpclmulqdq", "vpclmulqdq")],
        covers: "gw_native_avx2_covers",
        looks_up: false,
    },
    NativeForm {
        name: "avx512",
        source: "native.c",
        level: "x86-64-v4",
        extras: &[("-mvaes", "vaes"), ("-mvpclmulqdq", "vpclmulqdq")],
        covers: "gw_native_avx512_covers",
        looks_up: true,
    },
];

/// The only level on architectures other than x86-64. It uses the default flags of the compilation
/// target.
pub(super) const GENERIC_LEVELS: &[Level] = &[Level { name: "generic", flags: &[], features: &[], extras: &[] }];
