/* Searches two arrays of four 64-bit words for the first match (gw_find_word). A word matches if
 * the bits in `mask` equal the same bits of the array's expected value. Expected values are not 0.
 * The result is 0 if no word matches. Each word is read with a single load. */
#ifndef GODWIT_DIALECT_FIND_H
#define GODWIT_DIALECT_FIND_H

#if !defined(__OPENCL_VERSION__) && !defined(__CUDACC__) && defined(__AVX512F__)

#include <immintrin.h>

/* Searches for a word with AVX-512. One comparison covers both arrays. */
GW_LANE gw_u64 gw_find_word(const gw_u64 *first, gw_u64 expected_first, const gw_u64 *second,
                            gw_u64 expected_second, gw_u64 mask)
{
    const __m512i low = _mm512_castsi256_si512(_mm256_load_si256((const __m256i *)first));
    const __m512i words = _mm512_inserti64x4(low, _mm256_load_si256((const __m256i *)second), 1);
    const __m512i expected = _mm512_mask_set1_epi64(_mm512_set1_epi64((long long)expected_first),
                                                    0xf0, (long long)expected_second);
    const __mmask8 alike = _mm512_testn_epi64_mask(_mm512_xor_si512(words, expected),
                                                   _mm512_set1_epi64((long long)mask));
    const __m512i found = _mm512_maskz_compress_epi64(alike, words);
    return (gw_u64)_mm_cvtsi128_si64(_mm512_castsi512_si128(found));
}

#else

/* Searches for a word in portable C. The code has no branches, because a CPU cannot predict them
 * for random words. The scan runs backwards, so that the first match is the final result. */
GW_LANE gw_u64 gw_find_word(const GW_GLOBAL gw_u64 *first, gw_u64 expected_first,
                            const GW_GLOBAL gw_u64 *second, gw_u64 expected_second, gw_u64 mask)
{
    gw_u64 found = 0;
    for (int at = 3; at >= 0; at--) {
        const gw_u64 word = second[at];
        found = ((word ^ expected_second) & mask) == 0 ? word : found;
    }
    for (int at = 3; at >= 0; at--) {
        const gw_u64 word = first[at];
        found = ((word ^ expected_first) & mask) == 0 ? word : found;
    }
    return found;
}

#endif

#endif
