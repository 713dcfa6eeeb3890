//! Overwrites secrets that remain on the stack and in registers.

use std::hint::black_box;

use zeroize::Zeroize;

/// Size of the overwritten stack area, in words of 8 bytes. Kernels and their key setup use less
/// stack.
const WORDS: usize = 8192;

/// Overwrites 64 KiB of stack below the caller's stack frame with zeros. Also overwrites the vector
/// registers.
///
/// Earlier function calls may have left parts of keys there. The call takes a few microseconds.
///
/// The registers matter because the dynamic linker may save them to the stack. It does so during
/// the first call to a library function.
#[inline(never)]
pub fn wipe_stack() {
    wipe_vectors();
    let mut below = [0u64; WORDS];
    below.zeroize();
    black_box(&below);
}

#[cfg(target_arch = "x86_64")]
fn wipe_vectors() {
    use std::arch::asm;

    if !std::arch::is_x86_feature_detected!("avx") {
        return;
    }
    // SAFETY: the processor has AVX. All registers that change are declared.
    unsafe {
        asm!(
            "vzeroall",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nomem, nostack, preserves_flags),
        );
    }
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512F.
        unsafe { wipe_upper_vectors() };
    }
}

/// # Safety
/// The processor must have AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn wipe_upper_vectors() {
    // SAFETY: all registers that change are declared.
    unsafe {
        std::arch::asm!(
            "vpxord zmm16, zmm16, zmm16", "vpxord zmm17, zmm17, zmm17", "vpxord zmm18, zmm18, zmm18",
            "vpxord zmm19, zmm19, zmm19", "vpxord zmm20, zmm20, zmm20", "vpxord zmm21, zmm21, zmm21",
            "vpxord zmm22, zmm22, zmm22", "vpxord zmm23, zmm23, zmm23", "vpxord zmm24, zmm24, zmm24",
            "vpxord zmm25, zmm25, zmm25", "vpxord zmm26, zmm26, zmm26", "vpxord zmm27, zmm27, zmm27",
            "vpxord zmm28, zmm28, zmm28", "vpxord zmm29, zmm29, zmm29", "vpxord zmm30, zmm30, zmm30",
            "vpxord zmm31, zmm31, zmm31",
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
            out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
            out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn wipe_vectors() {}
