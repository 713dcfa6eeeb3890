/* Digests of eight packets at once, in the 256-bit registers of AVX2. */
#ifndef GODWIT_HASH_AVX2_H
#define GODWIT_HASH_AVX2_H

#include "../../dialect/words_avx2.h"

#include "../../common/md5_block.h"
#include "../../common/sha1_block.h"
#include "../../common/sha256_block.h"

/* Transposes 32 bytes of each of eight packets. Each resulting register holds one word of each
 * packet. */
GW_WORDWISE void gw_hash_transpose_8(gw_words_8 *w, const gw_u8 *const *rows, gw_u32 at)
{
    __m256i r[8];
    __m256i pairs[8];
    __m256i fours[8];
    for (gw_u32 i = 0; i < 8; i++) {
        r[i] = _mm256_loadu_si256((const __m256i *)(rows[i] + at));
    }
    for (gw_u32 i = 0; i < 4; i++) {
        pairs[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (gw_u32 i = 0; i < 8; i += 4) {
        fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for (gw_u32 i = 0; i < 4; i++) {
        w[i] = (gw_words_8)_mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
        w[i + 4] = (gw_words_8)_mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
    }
}

/* Loads a block of each of eight packets as little-endian or big-endian words. */
GW_WORDWISE void gw_hash_load_8(gw_words_8 *w, const gw_u8 *const *rows, gw_u32 is_big_endian)
{
    const __m256i swap = _mm256_broadcastsi128_si256(
        _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    gw_hash_transpose_8(w, rows, 0);
    gw_hash_transpose_8(w + 8, rows, 32);
    for (gw_u32 i = 0; is_big_endian && i < 16; i++) {
        w[i] = (gw_words_8)_mm256_shuffle_epi8((__m256i)w[i], swap);
    }
}

GW_WORDWISE void gw_hash_md5_step_8(gw_words_8 *state, gw_words_8 *w)
{
    gw_md5_8 md5 = {state[0], state[1], state[2], state[3]};
    gw_md5_block_8(&md5, w);
    state[0] = md5.a;
    state[1] = md5.b;
    state[2] = md5.c;
    state[3] = md5.d;
}

GW_WORDWISE void gw_hash_sha1_step_8(gw_words_8 *state, gw_words_8 *w)
{
    gw_sha1_8 sha1 = {state[0], state[1], state[2], state[3], state[4]};
    gw_sha1_block_8(&sha1, w);
    state[0] = sha1.a;
    state[1] = sha1.b;
    state[2] = sha1.c;
    state[3] = sha1.d;
    state[4] = sha1.e;
}

GW_WORDWISE void gw_hash_sha256_step_8(gw_words_8 *state, gw_words_8 *w)
{
    gw_sha256_8 sha256 = {state[0], state[1], state[2], state[3],
                          state[4], state[5], state[6], state[7]};
    gw_sha256_block_8(&sha256, w);
    state[0] = sha256.a;
    state[1] = sha256.b;
    state[2] = sha256.c;
    state[3] = sha256.d;
    state[4] = sha256.e;
    state[5] = sha256.f;
    state[6] = sha256.g;
    state[7] = sha256.h;
}

#include "wide.h"

#endif
