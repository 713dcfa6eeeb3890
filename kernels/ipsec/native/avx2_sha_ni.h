/*
 * HMAC-SHA1 and HMAC-SHA-256 with the SHA instructions of x86, for two packets at once. Each
 * instruction waits for the previous one of its packet, so the instructions of two packets
 * alternate.
 *
 * The instructions expect the words of a hash state in their own order:
 *
 *   SHA-1       first: a, b, c, d        second: e, 0, 0, 0       from the highest word down
 *   SHA-256     first: a, b, e, f        second: c, d, g, h       from the highest word down
 */
#ifndef GODWIT_IPSEC_AVX2_SHA_NI_H
#define GODWIT_IPSEC_AVX2_SHA_NI_H

#ifdef __SHA__

#include "avx2_hmac.h"

typedef struct gw_sha_ni {
    __m128i first;
    __m128i second;
} gw_sha_ni;

/* Loads a hash state from its words. state_words is 5 for SHA-1 and 8 for SHA-256. */
GW_NATIVE gw_sha_ni gw_sha_ni_load(const gw_u32 *words, gw_u32 state_words)
{
    const __m128i abcd = gw_aes_load((const gw_u8 *)words);
    gw_sha_ni state;
    if (state_words == 5) {
        state.first = _mm_shuffle_epi32(abcd, 0x1b);
        state.second = _mm_set_epi32((int)words[4], 0, 0, 0);
        return state;
    }
    const __m128i badc = _mm_shuffle_epi32(abcd, 0xb1);
    const __m128i hgfe = _mm_shuffle_epi32(gw_aes_load((const gw_u8 *)(words + 4)), 0x1b);
    state.first = _mm_alignr_epi8(badc, hgfe, 8);
    state.second = _mm_blend_epi16(hgfe, badc, 0xf0);
    return state;
}

/* Loads a block of a text as words, in the order of the SHA instructions: SHA-1 begins with the
 * highest word, and SHA-256 with the lowest word. */
GW_NATIVE void gw_sha_ni_block(__m128i w[4], const gw_u8 *block, gw_u32 state_words)
{
    const __m128i order = state_words == 5
                              ? _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                              : _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        w[i] = _mm_shuffle_epi8(gw_aes_load(block + 16 * i), order);
    }
}

/* Computes the words of the outer block of HMAC. `state` is the state after the text. */
GW_NATIVE void gw_sha_ni_outer_block(__m128i w[4], gw_sha_ni state, gw_u32 state_words)
{
    const int bits = (int)(8 * (GW_AVX2_HASH_BYTES + 4 * state_words));
    if (state_words == 5) {
        w[0] = state.first;
        w[1] = _mm_or_si128(state.second, _mm_set_epi32(0, (int)0x80000000u, 0, 0));
        w[2] = _mm_setzero_si128();
        w[3] = _mm_set_epi32(0, 0, 0, bits);
        return;
    }
    const __m128i feba = _mm_shuffle_epi32(state.first, 0x1b);
    const __m128i dchg = _mm_shuffle_epi32(state.second, 0xb1);
    w[0] = _mm_blend_epi16(feba, dchg, 0xf0);
    w[1] = _mm_alignr_epi8(dchg, feba, 8);
    w[2] = _mm_set_epi32(0, 0, 0, (int)0x80000000u);
    w[3] = _mm_set_epi32(bits, 0, 0, 0);
}

/* Returns the first four words of a hash state as a tag. */
GW_NATIVE gw_ipsec_tag gw_sha_ni_tag(gw_sha_ni state, gw_u32 state_words)
{
    __m128i w[4];
    gw_u32 words[4];
    gw_sha_ni_outer_block(w, state, state_words);
    gw_aes_store((gw_u8 *)words, state_words == 5 ? _mm_shuffle_epi32(w[0], 0x1b) : w[0]);
    return gw_ipsec_tag_words(words[0], words[1], words[2], words[3]);
}

/* Computes four SHA-1 rounds, where `t` is a quarter of the number of the first round. The words
 * contain the fifth variable. */
GW_NATIVE __m128i gw_sha_ni_sha1_four(__m128i abcd, __m128i words, gw_u32 t)
{
    if (t < 5) {
        return _mm_sha1rnds4_epu32(abcd, words, 0);
    }
    if (t < 10) {
        return _mm_sha1rnds4_epu32(abcd, words, 1);
    }
    return t < 15 ? _mm_sha1rnds4_epu32(abcd, words, 2) : _mm_sha1rnds4_epu32(abcd, words, 3);
}

/* Updates two SHA-1 states with one block each. Overwrites the words. */
GW_NATIVE void gw_sha_ni_sha1(gw_sha_ni states[2], __m128i w[2][4])
{
    __m128i abcd[2];
    __m128i before[2]; /* the variables four rounds ago; their highest word becomes e */
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < 2; i++) {
        abcd[i] = states[i].first;
    }
    GW_AVX2_UNROLL_ROUNDS
    for (gw_u32 t = 0; t < 20; t++) {
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < 2; i++) {
            __m128i *word = &w[i][t & 3];
            if (t >= 4) {
                *word =
                    _mm_xor_si128(_mm_sha1msg1_epu32(*word, w[i][(t + 1) & 3]), w[i][(t + 2) & 3]);
                *word = _mm_sha1msg2_epu32(*word, w[i][(t + 3) & 3]);
            }
            const __m128i words = t == 0 ? _mm_add_epi32(states[i].second, *word)
                                         : _mm_sha1nexte_epu32(before[i], *word);
            before[i] = abcd[i];
            abcd[i] = gw_sha_ni_sha1_four(abcd[i], words, t);
        }
    }
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < 2; i++) {
        states[i].first = _mm_add_epi32(states[i].first, abcd[i]);
        states[i].second = _mm_sha1nexte_epu32(before[i], states[i].second);
    }
}

/* Updates two SHA-256 states with one block each. Overwrites the words. */
GW_NATIVE void gw_sha_ni_sha256(gw_sha_ni states[2], __m128i w[2][4])
{
    gw_sha_ni v[2];
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < 2; i++) {
        v[i] = states[i];
    }
    GW_AVX2_UNROLL_ROUNDS
    for (gw_u32 t = 0; t < 16; t++) {
        const __m128i k = gw_aes_load((const gw_u8 *)(gw_sha256_constants + 4 * t));
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < 2; i++) {
            __m128i *word = &w[i][t & 3];
            const __m128i last = w[i][(t + 3) & 3];
            if (t >= 4) {
                *word = _mm_add_epi32(_mm_sha256msg1_epu32(*word, w[i][(t + 1) & 3]),
                                      _mm_alignr_epi8(last, w[i][(t + 2) & 3], 4));
                *word = _mm_sha256msg2_epu32(*word, last);
            }
            const __m128i sum = _mm_add_epi32(*word, k);
            v[i].second = _mm_sha256rnds2_epu32(v[i].second, v[i].first, sum);
            v[i].first =
                _mm_sha256rnds2_epu32(v[i].first, v[i].second, _mm_shuffle_epi32(sum, 0x0e));
        }
    }
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < 2; i++) {
        states[i].first = _mm_add_epi32(states[i].first, v[i].first);
        states[i].second = _mm_add_epi32(states[i].second, v[i].second);
    }
}

GW_NATIVE void gw_sha_ni_rounds(gw_sha_ni states[2], __m128i w[2][4], gw_u32 state_words)
{
    if (state_words == 5) {
        gw_sha_ni_sha1(states, w);
    } else {
        gw_sha_ni_sha256(states, w);
    }
}

/* Hashes the next block of two texts. The result of a text that has ended has no meaning. */
GW_NATIVE void gw_sha_ni_step(gw_sha_ni states[2], const gw_avx2_texts *texts, gw_u32 first,
                              gw_u32 step, gw_u32 state_words)
{
    __m128i w[2][4];
    gw_sha_ni_block(w[0], gw_avx2_text_block(texts, first, step), state_words);
    gw_sha_ni_block(w[1], gw_avx2_text_block(texts, first + 1, step), state_words);
    gw_sha_ni_rounds(states, w, state_words);
}

/* Computes the tags of two texts. */
GW_NATIVE void gw_sha_ni_hmac(const gw_avx2_texts *texts, gw_u32 first, gw_u32 state_words,
                              gw_ipsec_tag *tags)
{
    gw_sha_ni states[2];
    __m128i w[2][4];
    const gw_u32 total[2] = {texts->total[first], texts->total[first + 1]};
    const gw_u32 longer = total[1] > total[0];
    for (gw_u32 i = 0; i < 2; i++) {
        states[i] = gw_sha_ni_load(texts->sa[first + i]->authentication, state_words);
    }
    gw_u32 step = 0;
    for (; step < total[1 - longer]; step++) {
        gw_sha_ni_step(states, texts, first, step, state_words);
    }
    const gw_sha_ni shorter = states[1 - longer];
    for (; step < total[longer]; step++) {
        gw_sha_ni_step(states, texts, first, step, state_words);
    }
    states[1 - longer] = shorter;
    for (gw_u32 i = 0; i < 2; i++) {
        const gw_u32 *outer = texts->sa[first + i]->authentication + GW_IPSEC_HMAC_OUTER;
        gw_sha_ni_outer_block(w[i], states[i], state_words);
        states[i] = gw_sha_ni_load(outer, state_words);
    }
    gw_sha_ni_rounds(states, w, state_words);
    for (gw_u32 i = 0; i < 2; i++) {
        tags[i] = gw_sha_ni_tag(states[i], state_words);
    }
}

/* Number of blocks from which SHA-1 is faster with eight texts in the lanes of registers, if they
 * are about equally long. SHA-256 is always faster with SHA instructions. */
#define GW_SHA_NI_LANES_FROM 8u

static __attribute__((noinline)) void gw_avx2_hmac_sha1(const gw_avx2_texts *texts,
                                                        gw_ipsec_tag tags[GW_AVX2_LANES])
{
    if (texts->shortest >= GW_SHA_NI_LANES_FROM &&
        texts->longest - texts->shortest <= texts->shortest / 8) {
        gw_avx2_hmac_sha1_lanes(texts, tags);
        return;
    }
    for (gw_u32 first = 0; first < GW_AVX2_LANES; first += 2) {
        gw_sha_ni_hmac(texts, first, 5, tags + first);
    }
}

static __attribute__((noinline)) void gw_avx2_hmac_sha256(const gw_avx2_texts *texts,
                                                          gw_ipsec_tag tags[GW_AVX2_LANES])
{
    for (gw_u32 first = 0; first < GW_AVX2_LANES; first += 2) {
        gw_sha_ni_hmac(texts, first, 8, tags + first);
    }
}

#endif

#endif
