/* HMAC-SHA-384 and HMAC-SHA-512 of sixteen packets (RFC 2104, FIPS 180-4). A register holds a
 * 64-bit word of eight packets, so the packets of a group are hashed in two halves. */
#ifndef GODWIT_IPSEC_AVX512_SHA512_H
#define GODWIT_IPSEC_AVX512_SHA512_H

#include "avx512_group.h"

#define GW_AVX512_LONG_LANES 8u

/* Padded end of a text (FIPS 180-4, section 5.1.2): the last bytes of the text, the byte 0x80,
 * zeros and the length. It has one or two blocks. */
typedef struct gw_avx512_long_end {
    gw_u8 bytes[2 * GW_SHA512_BLOCK_BYTES] __attribute__((aligned(64)));
} gw_avx512_long_end;

/* Texts of eight packets. */
typedef struct gw_avx512_long_texts {
    gw_avx512_long_end ends[GW_AVX512_LONG_LANES];
    const gw_u8 *at[GW_AVX512_LONG_LANES];
    gw_u64 total[GW_AVX512_LONG_LANES] __attribute__((aligned(64))); /* blocks with the end */
    gw_u32 whole[GW_AVX512_LONG_LANES];                              /* number of complete blocks */
    gw_u32 longest;                                                  /* largest `total` */
} gw_avx512_long_texts;

GW_AVX512 void gw_avx512_long_text(gw_avx512_long_texts *texts, gw_u32 i,
                                   const gw_native_packet *packet)
{
    const gw_u32 suffix_bytes = (packet->found.sa->flags & GW_IPSEC_SA_ESN) != 0 ? 4 : 0;
    const gw_u32 all = packet->text_bytes + suffix_bytes;
    const gw_u32 whole = packet->text_bytes / GW_SHA512_BLOCK_BYTES;
    const gw_u32 bytes = packet->text_bytes % GW_SHA512_BLOCK_BYTES;
    const gw_u32 total = (all + 17 + GW_SHA512_BLOCK_BYTES - 1) / GW_SHA512_BLOCK_BYTES;
    const gw_u8 *last = packet->text + GW_SHA512_BLOCK_BYTES * whole;
    gw_u8 *end = texts->ends[i].bytes;
    for (gw_u32 offset = 0; offset < 2 * GW_SHA512_BLOCK_BYTES; offset += GW_AVX512_ROW_BYTES) {
        const __mmask64 mask = gw_avx512_mask(bytes, offset);
        /* Bytes after the text are not accessed: a masked load at an unmapped address is slow. */
        _mm512_store_si512(end + offset,
                           _mm512_maskz_loadu_epi8(mask, last + (mask == 0 ? 0 : offset)));
    }
    if (suffix_bytes != 0) {
        gw_store_be32(end + bytes, (gw_u32)(packet->sequence >> 32));
    }
    end[bytes + suffix_bytes] = 0x80;
    gw_store_be64(end + GW_SHA512_BLOCK_BYTES * (total - whole) - 8,
                  8 * ((gw_u64)GW_SHA512_BLOCK_BYTES + all));
    texts->at[i] = packet->text;
    texts->whole[i] = whole;
    texts->total[i] = total;
    texts->longest = total > texts->longest ? total : texts->longest;
}

/* Transposes eight registers with eight 64-bit words of one packet each to registers with one word
 * of each packet. */
GW_AVX512 void gw_avx512_rows_to_long_words(__m512i rows[8])
{
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 8; i += 2) {
        const __m512i even = _mm512_unpacklo_epi64(rows[i], rows[i + 1]);
        rows[i + 1] = _mm512_unpackhi_epi64(rows[i], rows[i + 1]);
        rows[i] = even;
    }
    gw_avx512_transpose(&rows[0], &rows[2], &rows[4], &rows[6]);
    gw_avx512_transpose(&rows[1], &rows[3], &rows[5], &rows[7]);
}

/* Inverse of gw_avx512_rows_to_long_words. */
GW_AVX512 void gw_avx512_long_words_to_rows(__m512i words[8])
{
    gw_avx512_transpose(&words[0], &words[2], &words[4], &words[6]);
    gw_avx512_transpose(&words[1], &words[3], &words[5], &words[7]);
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 8; i += 2) {
        const __m512i even = _mm512_unpacklo_epi64(words[i], words[i + 1]);
        words[i + 1] = _mm512_unpackhi_epi64(words[i], words[i + 1]);
        words[i] = even;
    }
}

/* Reverses the bytes of each 64-bit word. */
GW_AVX512 __m512i gw_avx512_swap64(__m512i value)
{
    return _mm512_shuffle_epi8(value, _mm512_broadcast_i32x4(_mm_set_epi8(
                                          8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)));
}

/* Loads block `step` of each of eight texts. A text that has ended repeats its end, and the result
 * is ignored. */
GW_AVX512 void gw_avx512_long_load(const gw_avx512_long_texts *texts, gw_u32 step, __m512i w[16])
{
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < GW_AVX512_LONG_LANES; i++) {
        const gw_u32 whole = texts->whole[i];
        const gw_u8 *end = texts->ends[i].bytes + (step <= whole ? 0 : GW_SHA512_BLOCK_BYTES);
        const gw_u8 *row = step < whole ? texts->at[i] + GW_SHA512_BLOCK_BYTES * step : end;
        w[i] = gw_avx512_swap64(_mm512_loadu_si512(row));
        w[8 + i] = gw_avx512_swap64(_mm512_loadu_si512(row + GW_AVX512_ROW_BYTES));
    }
    gw_avx512_rows_to_long_words(w);
    gw_avx512_rows_to_long_words(w + 8);
}

/* Loads the hash state at byte `offset` of eight SAs. */
GW_AVX512 void gw_avx512_long_state(__m512i state[8], const gw_ipsec_sa *const *sa, gw_u32 offset)
{
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < GW_AVX512_LONG_LANES; i++) {
        state[i] = _mm512_loadu_si512((const gw_u8 *)sa[i] + offset);
    }
    gw_avx512_rows_to_long_words(state);
}

GW_AVX512 __m512i gw_avx512_long_turn(__m512i a, __m512i b, __m512i c)
{
    return GW_AVX512_LOGIC(GW_AVX512_PARITY, a, b, c);
}

/* Performs one of the 80 rounds. The caller permutes the variables between rounds instead of moving
 * values. */
#define GW_AVX512_LONG_ROUND(a, b, c, d, e, f, g, h, word, k)                                      \
    h = _mm512_add_epi64(h, _mm512_add_epi64(word, _mm512_set1_epi64((long long)(k))));            \
    GW_AVX512_IN_ORDER(h);                                                                         \
    h = _mm512_add_epi64(h, GW_AVX512_LOGIC(GW_AVX512_CH, e, f, g));                               \
    GW_AVX512_IN_ORDER(h);                                                                         \
    h = _mm512_add_epi64(h, gw_avx512_long_turn(_mm512_ror_epi64(e, 14), _mm512_ror_epi64(e, 18),  \
                                                _mm512_ror_epi64(e, 41)));                         \
    GW_AVX512_IN_ORDER(h);                                                                         \
    d = _mm512_add_epi64(d, h);                                                                    \
    h = _mm512_add_epi64(h, GW_AVX512_LOGIC(GW_AVX512_MAJ, a, b, c));                              \
    GW_AVX512_IN_ORDER(h);                                                                         \
    h = _mm512_add_epi64(h, gw_avx512_long_turn(_mm512_ror_epi64(a, 28), _mm512_ror_epi64(a, 34),  \
                                                _mm512_ror_epi64(a, 39)));                         \
    GW_AVX512_IN_ORDER(h)

#define GW_AVX512_LONG_EIGHT(w, k)                                                                 \
    GW_AVX512_LONG_ROUND(a, b, c, d, e, f, g, h, (w)[0], (k)[0]);                                  \
    GW_AVX512_LONG_ROUND(h, a, b, c, d, e, f, g, (w)[1], (k)[1]);                                  \
    GW_AVX512_LONG_ROUND(g, h, a, b, c, d, e, f, (w)[2], (k)[2]);                                  \
    GW_AVX512_LONG_ROUND(f, g, h, a, b, c, d, e, (w)[3], (k)[3]);                                  \
    GW_AVX512_LONG_ROUND(e, f, g, h, a, b, c, d, (w)[4], (k)[4]);                                  \
    GW_AVX512_LONG_ROUND(d, e, f, g, h, a, b, c, (w)[5], (k)[5]);                                  \
    GW_AVX512_LONG_ROUND(c, d, e, f, g, h, a, b, (w)[6], (k)[6]);                                  \
    GW_AVX512_LONG_ROUND(b, c, d, e, f, g, h, a, (w)[7], (k)[7])

/* Computes the next sixteen words of the message schedule. */
GW_AVX512 void gw_avx512_long_schedule(__m512i w[16])
{
    GW_AVX512_UNROLL
    for (gw_u32 t = 0; t < 16; t++) {
        const __m512i x = w[(t + 1) & 15];
        const __m512i y = w[(t + 14) & 15];
        const __m512i small0 = gw_avx512_long_turn(_mm512_ror_epi64(x, 1), _mm512_ror_epi64(x, 8),
                                                   _mm512_srli_epi64(x, 7));
        const __m512i small1 = gw_avx512_long_turn(_mm512_ror_epi64(y, 19), _mm512_ror_epi64(y, 61),
                                                   _mm512_srli_epi64(y, 6));
        w[t] = _mm512_add_epi64(_mm512_add_epi64(w[t], small0),
                                _mm512_add_epi64(w[(t + 9) & 15], small1));
    }
}

/* Updates the hash states of the selected packets with one block of each. */
GW_AVX512 void gw_avx512_long_block(__m512i state[8], __m512i w[16], __mmask8 active)
{
    __m512i a = state[0];
    __m512i b = state[1];
    __m512i c = state[2];
    __m512i d = state[3];
    __m512i e = state[4];
    __m512i f = state[5];
    __m512i g = state[6];
    __m512i h = state[7];
    for (gw_u32 t = 0; t < 80; t += 16) {
        if (t != 0) {
            gw_avx512_long_schedule(w);
        }
        GW_AVX512_LONG_EIGHT(w, gw_sha512_constants + t);
        GW_AVX512_LONG_EIGHT(w + 8, gw_sha512_constants + t + 8);
    }
    state[0] = _mm512_mask_add_epi64(state[0], active, state[0], a);
    state[1] = _mm512_mask_add_epi64(state[1], active, state[1], b);
    state[2] = _mm512_mask_add_epi64(state[2], active, state[2], c);
    state[3] = _mm512_mask_add_epi64(state[3], active, state[3], d);
    state[4] = _mm512_mask_add_epi64(state[4], active, state[4], e);
    state[5] = _mm512_mask_add_epi64(state[5], active, state[5], f);
    state[6] = _mm512_mask_add_epi64(state[6], active, state[6], g);
    state[7] = _mm512_mask_add_epi64(state[7], active, state[7], h);
}

/* Computes the tags of the eight packets of a group that begin with packet `first`. */
static __attribute__((noinline)) void gw_avx512_long_tags(const gw_avx512_group *group,
                                                          gw_u32 first, gw_u32 digest_words,
                                                          gw_ipsec_tag tags[GW_AVX512_LONG_LANES])
{
    gw_avx512_long_texts texts;
    const gw_ipsec_sa *sa[GW_AVX512_LONG_LANES];
    texts.longest = 0;
    for (gw_u32 i = 0; i < GW_AVX512_LONG_LANES; i++) {
        const gw_native_packet *packet = group->packets[first + i];
        sa[i] = packet->found.sa;
        gw_avx512_long_text(&texts, i, packet);
    }
    __m512i state[8];
    __m512i w[16];
    gw_avx512_long_state(state, sa, offsetof(gw_ipsec_sa, authentication));
    const __m512i total = _mm512_load_si512(texts.total);
    for (gw_u32 step = 0; step < texts.longest; step++) {
        gw_avx512_long_load(&texts, step, w);
        gw_avx512_long_block(state, w, _mm512_cmpgt_epu64_mask(total, _mm512_set1_epi64(step)));
    }
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        w[i] = i < digest_words && i < 8 ? state[i & 7] : _mm512_setzero_si512();
    }
    w[digest_words] = _mm512_set1_epi64((long long)((gw_u64)0x80 << 56));
    w[15] = _mm512_set1_epi64(8 * (GW_SHA512_BLOCK_BYTES + 8 * digest_words));
    gw_avx512_long_state(state, sa, offsetof(gw_ipsec_sa, more));
    gw_avx512_long_block(state, w, 0xff);
    gw_avx512_long_words_to_rows(state);
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < GW_AVX512_LONG_LANES; i++) {
        /* A tag holds the upper half of a 64-bit word first. */
        const __m512i row = _mm512_rol_epi64(state[i], 32);
        _mm256_storeu_si256((__m256i *)(void *)tags[i].words, _mm512_castsi512_si256(row));
    }
}

/* Computes the HMAC-SHA-384 or HMAC-SHA-512 tags of a group. */
GW_AVX512 void gw_avx512_sha512_tags(const gw_avx512_group *group, gw_u32 auth,
                                     gw_ipsec_tag tags[GW_AVX512_LANES])
{
    const gw_u32 digest_words =
        auth == GW_IPSEC_AUTH_SHA384 ? GW_SHA384_DIGEST_WORDS : GW_SHA512_DIGEST_WORDS;
    for (gw_u32 first = 0; first < group->count; first += GW_AVX512_LONG_LANES) {
        gw_avx512_long_tags(group, first, digest_words, tags + first);
    }
}

#endif
