/*
 * HMAC of sixteen packets at once (RFC 2104), from the states that the SAs hold: blocks that all
 * lanes have whole, then the ends, which are shorter for some, then the outer block of all.
 */
#ifndef GODWIT_IPSEC_WIDE_HMAC_H
#define GODWIT_IPSEC_WIDE_HMAC_H

#include "wide_sha.h"

/* A text's last bytes, 0x80, and zeros (FIPS 180-4, section 5.1.1), but for the length. */
typedef struct gw_wide_end {
    gw_u8 bytes[2 * GW_WIDE_ROW_BYTES] __attribute__((aligned(64)));
} gw_wide_end;

GW_WIDE void gw_wide_end_of(gw_wide_end *end, const gw_u8 *last, gw_u32 bytes, gw_u32 suffix,
                            gw_u32 suffix_bytes)
{
    const __mmask64 there = ((gw_u64)1 << bytes) - 1;
    const __m512i marker = _mm512_set1_epi8((char)0x80);
    __m512i first = _mm512_maskz_loadu_epi8(there, last);
    __m512i second = _mm512_setzero_si512();
    if (suffix_bytes == 0) {
        first = _mm512_mask_mov_epi8(first, (gw_u64)1 << bytes, marker);
    }
    _mm512_store_si512(end->bytes, first);
    _mm512_store_si512(end->bytes + GW_WIDE_ROW_BYTES, second);
    if (suffix_bytes != 0) {
        gw_store_be32(end->bytes + bytes, suffix);
        end->bytes[bytes + suffix_bytes] = 0x80;
    }
}

/* Sixteen rows of which each has a place of its own, as words. */
GW_WIDE void gw_wide_rows_to_words(__m512i *w, const gw_u8 *const *rows)
{
    __m512i blocks[4][4];
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        GW_WIDE_UNROLL
        for (gw_u32 i = 0; i < 4; i++) {
            blocks[i][j] = gw_wide_swap32(_mm512_loadu_si512(rows[j + 4 * i]));
        }
        gw_wide_turn(&blocks[0][j], &blocks[1][j], &blocks[2][j], &blocks[3][j]);
    }
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < 4; k++) {
        gw_wide_words(&w[4 * k], blocks[k]);
    }
}

/* Sixteen texts on their way to their digests. */
typedef struct gw_wide_hash {
    gw_wide_lanes lanes;
    gw_wide_end ends[GW_WIDE_LANES];
    gw_u32 whole[GW_WIDE_LANES]; /* blocks of the text that need no end */
    gw_u32 total[GW_WIDE_LANES] __attribute__((aligned(64))); /* blocks with the end */
    gw_u32 bits[GW_WIDE_LANES] __attribute__((aligned(64)));
    __m512i state[8];
    __m512i outer[8];
    gw_u32 step; /* blocks done; the last is the outer one */
    gw_u32 steps;
} gw_wide_hash;

/* What a lane hashes. */
GW_WIDE void gw_wide_hash_lane(gw_wide_hash *hash, gw_u32 i, gw_u8 *text, gw_u32 bytes,
                               gw_u32 suffix, gw_u32 suffix_bytes)
{
    const gw_u32 all = bytes + suffix_bytes;
    const gw_u32 whole = bytes / GW_WIDE_ROW_BYTES;
    hash->lanes.at[i] = text;
    hash->whole[i] = whole;
    hash->total[i] = (all + 9 + GW_WIDE_ROW_BYTES - 1) / GW_WIDE_ROW_BYTES;
    hash->bits[i] = 8 * (GW_WIDE_ROW_BYTES + all);
    gw_wide_end_of(&hash->ends[i], text + GW_WIDE_ROW_BYTES * whole, bytes % GW_WIDE_ROW_BYTES,
                   suffix, suffix_bytes);
}

/* Once all lanes are known. state_words: 5 for SHA-1, 8 for SHA-256. */
GW_WIDE void gw_wide_hash_begin(gw_wide_hash *hash, const gw_wide_sas *sas, gw_u32 state_words)
{
    __m512i line[4][4];
    __m512i states[16];
    gw_wide_line(line, sas, GW_WIDE_AUTH_LINE);
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < 4; k++) {
        gw_wide_words(&states[4 * k], line[k]);
    }
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        hash->state[i] = states[i];
        hash->outer[i] = states[GW_IPSEC_HMAC_OUTER + i];
    }
    hash->step = 0;
    hash->steps = 1 + (gw_u32)_mm512_reduce_max_epu32(_mm512_load_si512(hash->total));
}

/* The words of the next block, and in which lanes it counts. */
GW_WIDE __mmask16 gw_wide_hash_words(gw_wide_hash *hash, __m512i *w, gw_u32 state_words)
{
    const gw_u32 step = hash->step;
    if (step + 1 == hash->steps) {
        GW_WIDE_UNROLL
        for (gw_u32 i = 0; i < 16; i++) {
            w[i] = i < state_words ? hash->state[i] : _mm512_setzero_si512();
        }
        w[state_words] = _mm512_set1_epi32((int)0x80000000u);
        w[15] = _mm512_set1_epi32((int)(8 * (GW_WIDE_ROW_BYTES + 4 * state_words)));
        GW_WIDE_UNROLL
        for (gw_u32 i = 0; i < state_words; i++) {
            hash->state[i] = hash->outer[i];
        }
        return 0xffff;
    }
    const gw_u8 *rows[GW_WIDE_LANES];
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
        /* A lane that has ended hashes its end again, for nobody. */
        const gw_u8 *end = hash->ends[i].bytes + (step == hash->whole[i] ? 0 : GW_WIDE_ROW_BYTES);
        const gw_u8 *row = hash->lanes.at[i] + GW_WIDE_ROW_BYTES * step;
        rows[i] = step < hash->whole[i] ? row : end;
    }
    gw_wide_rows_to_words(w, rows);
    const __m512i total = _mm512_load_si512(hash->total);
    const __m512i now = _mm512_set1_epi32((int)step + 1);
    w[15] = _mm512_mask_mov_epi32(w[15], _mm512_cmpeq_epi32_mask(total, now),
                                  _mm512_load_si512(hash->bits));
    return _mm512_cmpge_epu32_mask(total, now);
}

GW_WIDE void gw_wide_hash_part(__m512i *v, __m512i *w, gw_u32 part, gw_u32 state_words)
{
    if (state_words == 5) {
        gw_wide_sha1_part(v, w, part);
    } else {
        gw_wide_sha256_part(v, w, part);
    }
}

/* Takes a block's result into the state. */
GW_WIDE void gw_wide_hash_add(gw_wide_hash *hash, const __m512i *v, __mmask16 active,
                              gw_u32 state_words)
{
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        const __m512i before = hash->state[i];
        hash->state[i] = _mm512_mask_add_epi32(before, active, before, v[i]);
    }
    hash->step++;
}

/* The first words of each lane's digest. */
GW_WIDE void gw_wide_hash_tags(const gw_wide_hash *hash, gw_ipsec_tag tags[GW_WIDE_LANES])
{
    /* The same transposition goes from words to blocks, and the lanes of a block lie apart. */
    __m512i blocks[4];
    gw_wide_words(blocks, hash->state);
    gw_wide_tags(blocks, tags);
}

#endif
