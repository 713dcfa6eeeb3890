/* HMAC for eight packets at once (RFC 2104). The computation starts from the hash states after the
 * key blocks, which an SA holds. Each lane first hashes the complete blocks of its text, then the
 * padded end, and then the outer block. Lanes with short texts finish early. */
#ifndef GODWIT_IPSEC_AVX2_HMAC_H
#define GODWIT_IPSEC_AVX2_HMAC_H

#include "avx2_sha.h"
#include "avx2_texts.h"

GW_NATIVE void gw_avx2_hash_rounds(gw_words_8 *v, gw_words_8 *w, gw_u32 state_words)
{
    if (state_words == 5) {
        gw_avx2_sha1_rounds(v, w);
    } else {
        gw_avx2_sha256_rounds(v, w);
    }
}

/* Loads the hash states of eight SAs: eight words after the block key XOR ipad, or with `from`
 * GW_IPSEC_HMAC_OUTER after the block key XOR opad. */
GW_NATIVE void gw_avx2_hash_state(gw_words_8 state[8], const gw_avx2_texts *texts, gw_u32 from)
{
    const gw_u8 *rows[GW_AVX2_LANES];
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        rows[i] = (const gw_u8 *)(texts->sa[i]->authentication + from);
    }
    gw_avx2_load(state, rows, 0);
    gw_avx2_load(state + 4, rows, 16);
}

/* Computes eight tags, with eight texts in the lanes of registers. state_words is 5 for SHA-1 and 8
 * for SHA-256. */
GW_NATIVE void gw_avx2_hmac(const gw_avx2_texts *texts, gw_u32 state_words,
                            gw_ipsec_tag tags[GW_AVX2_LANES])
{
    gw_words_8 state[8];
    gw_words_8 v[8];
    gw_words_8 w[16];
    const gw_words_8 total =
        (gw_words_8)_mm256_load_si256((const __m256i *)(const void *)texts->total);
    gw_avx2_hash_state(state, texts, 0);
    for (gw_u32 step = 0; step < texts->longest; step++) {
        const gw_u8 *rows[GW_AVX2_LANES];
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
            rows[i] = gw_avx2_text_block(texts, i, step);
        }
        GW_AVX2_UNROLL
        for (gw_u32 k = 0; k < 4; k++) {
            gw_avx2_load(w + 4 * k, rows, 16 * k);
        }
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < 16; i++) {
            w[i] = gw_avx2_swap32(w[i]);
        }
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < 8; i++) {
            v[i] = state[i];
        }
        gw_avx2_hash_rounds(v, w, state_words);
        const gw_words_8 active = (gw_words_8)(total > gw_avx2_set(step));
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < 8; i++) {
            state[i] += v[i] & active;
        }
    }
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        w[i] = i < state_words ? state[i] : gw_avx2_set(0);
    }
    w[state_words] = gw_avx2_set(0x80000000u);
    w[15] = gw_avx2_set(8 * (GW_AVX2_HASH_BYTES + 4 * state_words));
    gw_avx2_hash_state(state, texts, GW_IPSEC_HMAC_OUTER);
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < 8; i++) {
        v[i] = state[i];
    }
    gw_avx2_hash_rounds(v, w, state_words);
    gw_u32 digest[4][GW_AVX2_LANES] __attribute__((aligned(32)));
    for (gw_u32 k = 0; k < 4; k++) {
        _mm256_store_si256((__m256i *)(void *)digest[k], (__m256i)(state[k] + v[k]));
    }
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        tags[i] = gw_ipsec_tag_words(digest[0][i], digest[1][i], digest[2][i], digest[3][i]);
    }
}

static __attribute__((noinline)) void gw_avx2_hmac_sha1_lanes(const gw_avx2_texts *texts,
                                                              gw_ipsec_tag tags[GW_AVX2_LANES])
{
    gw_avx2_hmac(texts, 5, tags);
}

#ifndef __SHA__
static void gw_avx2_hmac_sha1(const gw_avx2_texts *texts, gw_ipsec_tag tags[GW_AVX2_LANES])
{
    gw_avx2_hmac_sha1_lanes(texts, tags);
}

static __attribute__((noinline)) void gw_avx2_hmac_sha256(const gw_avx2_texts *texts,
                                                          gw_ipsec_tag tags[GW_AVX2_LANES])
{
    gw_avx2_hmac(texts, 8, tags);
}
#endif

#endif
