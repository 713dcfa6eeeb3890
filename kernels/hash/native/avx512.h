/* Digests of sixteen packets at once, in the 512-bit registers of AVX-512. SHA-1 and SHA-256 share
 * the code of ipsec. */
#ifndef GODWIT_HASH_AVX512_H
#define GODWIT_HASH_AVX512_H

#include "../../dialect/words_avx512.h"
#include "../../ipsec/native/avx512_sha.h"

#include "../../common/md5_block.h"

/* Loads a block of each of sixteen packets as little-endian or big-endian words. */
GW_WORDWISE void gw_hash_load_16(gw_words_16 *w, const gw_u8 *const *rows, gw_u32 is_big_endian)
{
    __m512i blocks[4][4];
    __m512i words[4];
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        gw_avx512_load_four(&blocks[0][j], &blocks[1][j], &blocks[2][j], &blocks[3][j], rows[j],
                            rows[j + 4], rows[j + 8], rows[j + 12]);
    }
    GW_AVX512_UNROLL
    for (gw_u32 k = 0; k < 4; k++) {
        gw_avx512_words(words, blocks[k]);
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < 4; i++) {
            w[4 * k + i] = (gw_words_16)(is_big_endian ? gw_avx512_swap32(words[i]) : words[i]);
        }
    }
}

GW_WORDWISE void gw_hash_md5_step_16(gw_words_16 *state, gw_words_16 *w)
{
    gw_md5_16 md5 = {state[0], state[1], state[2], state[3]};
    gw_md5_block_16(&md5, w);
    state[0] = md5.a;
    state[1] = md5.b;
    state[2] = md5.c;
    state[3] = md5.d;
}

/* Adds a block to the state with the sixteen parts of avx512_sha.h. */
#define GW_HASH_PARTS(state, w, state_words, part_function)                                        \
    __m512i v[8];                                                                                  \
    __m512i words[16];                                                                             \
    GW_AVX512_UNROLL                                                                               \
    for (gw_u32 i = 0; i < 16; i++) {                                                              \
        words[i] = (__m512i)(w)[i];                                                                \
    }                                                                                              \
    GW_AVX512_UNROLL                                                                               \
    for (gw_u32 i = 0; i < (state_words); i++) {                                                   \
        v[i] = (__m512i)(state)[i];                                                                \
    }                                                                                              \
    GW_AVX512_UNROLL                                                                               \
    for (gw_u32 part = 0; part < 16; part++) {                                                     \
        part_function(v, words, part);                                                             \
    }                                                                                              \
    GW_AVX512_UNROLL                                                                               \
    for (gw_u32 i = 0; i < (state_words); i++) {                                                   \
        (state)[i] += (gw_words_16)v[i];                                                           \
    }

GW_WORDWISE void gw_hash_sha1_step_16(gw_words_16 *state, gw_words_16 *w){
    GW_HASH_PARTS(state, w, 5, gw_avx512_sha1_part)}

GW_WORDWISE void gw_hash_sha256_step_16(gw_words_16 *state, gw_words_16 *w)
{
    GW_HASH_PARTS(state, w, 8, gw_avx512_sha256_part)
}

#include "wide.h"

#endif
