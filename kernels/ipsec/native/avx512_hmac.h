/* HMAC for sixteen packets at once (RFC 2104). The computation starts from the hash states after
 * the key blocks, which an SA holds. Each SIMD lane first hashes the complete blocks of its text,
 * then the padded end, and then the outer block. Lanes with short texts finish early. */
#ifndef GODWIT_IPSEC_AVX512_HMAC_H
#define GODWIT_IPSEC_AVX512_HMAC_H

#include "avx512_sha.h"

/* Padded end of an HMAC text (FIPS 180-4, section 5.1.1): the last bytes of the text, the byte
 * 0x80, and zeros. The length is added later. */
typedef struct gw_avx512_end {
    gw_u8 bytes[2 * GW_AVX512_ROW_BYTES] __attribute__((aligned(64)));
} gw_avx512_end;

GW_AVX512 void gw_avx512_end_of(gw_avx512_end *end, const gw_u8 *last, gw_u32 bytes, gw_u32 suffix,
                                gw_u32 suffix_bytes)
{
    const __mmask64 mask = ((gw_u64)1 << bytes) - 1;
    const __m512i marker = _mm512_set1_epi8((char)0x80);
    __m512i first = _mm512_maskz_loadu_epi8(mask, last);
    __m512i second = _mm512_setzero_si512();
    if (suffix_bytes == 0) {
        first = _mm512_mask_mov_epi8(first, (gw_u64)1 << bytes, marker);
    }
    _mm512_store_si512(end->bytes, first);
    _mm512_store_si512(end->bytes + GW_AVX512_ROW_BYTES, second);
    if (suffix_bytes != 0) {
        gw_store_be32(end->bytes + bytes, suffix);
        end->bytes[bytes + suffix_bytes] = 0x80;
    }
}

/* Loads 64 bytes from each of sixteen addresses and converts them to big-endian words. Each
 * resulting register contains one word of each packet. */
GW_AVX512 void gw_avx512_rows_to_words(__m512i *w, const gw_u8 *const *rows)
{
    __m512i blocks[4][4];
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < 4; i++) {
            blocks[i][j] = gw_avx512_swap32(_mm512_loadu_si512(rows[j + 4 * i]));
        }
        gw_avx512_transpose(&blocks[0][j], &blocks[1][j], &blocks[2][j], &blocks[3][j]);
    }
    GW_AVX512_UNROLL
    for (gw_u32 k = 0; k < 4; k++) {
        gw_avx512_words(&w[4 * k], blocks[k]);
    }
}

/* State of the HMAC computation of sixteen texts. */
typedef struct gw_avx512_hash {
    gw_avx512_lanes lanes;
    gw_avx512_end ends[GW_AVX512_LANES];
    gw_u32 whole[GW_AVX512_LANES]; /* number of complete blocks of the text */
    gw_u32 total[GW_AVX512_LANES] __attribute__((aligned(64))); /* blocks with the padded end */
    gw_u32 bits[GW_AVX512_LANES] __attribute__((aligned(64)));
    __m512i state[8];
    __m512i outer[8];
    gw_u32 step; /* number of hashed blocks; the last one is the outer block */
    gw_u32 steps;
} gw_avx512_hash;

GW_AVX512 void gw_avx512_hash_lane(gw_avx512_hash *hash, gw_u32 i, gw_u8 *text, gw_u32 bytes,
                                   gw_u32 suffix, gw_u32 suffix_bytes)
{
    const gw_u32 all = bytes + suffix_bytes;
    const gw_u32 whole = bytes / GW_AVX512_ROW_BYTES;
    hash->lanes.at[i] = text;
    hash->whole[i] = whole;
    hash->total[i] = (all + 9 + GW_AVX512_ROW_BYTES - 1) / GW_AVX512_ROW_BYTES;
    hash->bits[i] = 8 * (GW_AVX512_ROW_BYTES + all);
    gw_avx512_end_of(&hash->ends[i], text + GW_AVX512_ROW_BYTES * whole,
                     bytes % GW_AVX512_ROW_BYTES, suffix, suffix_bytes);
}

/* Starts the HMAC computation of sixteen packets with complete texts. state_words is 5 for SHA-1
 * and 8 for SHA-256. */
GW_AVX512 void gw_avx512_hash_begin(gw_avx512_hash *hash, const gw_avx512_sas *sas,
                                    gw_u32 state_words)
{
    __m512i line[4][4];
    __m512i states[16];
    gw_avx512_load_sa_line(line, sas, GW_AVX512_AUTH_LINE);
    GW_AVX512_UNROLL
    for (gw_u32 k = 0; k < 4; k++) {
        gw_avx512_words(&states[4 * k], line[k]);
    }
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        hash->state[i] = states[i];
        hash->outer[i] = states[GW_IPSEC_HMAC_OUTER + i];
    }
    hash->step = 0;
    hash->steps = 1 + (gw_u32)_mm512_reduce_max_epu32(_mm512_load_si512(hash->total));
}

/* Loads the next hash block of each of sixteen texts. Returns a mask of the texts that have another
 * block. */
GW_AVX512 __mmask16 gw_avx512_hash_words(gw_avx512_hash *hash, __m512i *w, gw_u32 state_words)
{
    const gw_u32 step = hash->step;
    if (step + 1 == hash->steps) {
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < 16; i++) {
            w[i] = i < state_words ? hash->state[i] : _mm512_setzero_si512();
        }
        w[state_words] = _mm512_set1_epi32((int)0x80000000u);
        w[15] = _mm512_set1_epi32((int)(8 * (GW_AVX512_ROW_BYTES + 4 * state_words)));
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < state_words; i++) {
            hash->state[i] = hash->outer[i];
        }
        return 0xffff;
    }
    const gw_u8 *rows[GW_AVX512_LANES];
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
        /* A SIMD lane whose text has ended hashes the end again, and the result is ignored. */
        const gw_u8 *end = hash->ends[i].bytes + (step == hash->whole[i] ? 0 : GW_AVX512_ROW_BYTES);
        const gw_u8 *row = hash->lanes.at[i] + GW_AVX512_ROW_BYTES * step;
        rows[i] = step < hash->whole[i] ? row : end;
    }
    gw_avx512_rows_to_words(w, rows);
    const __m512i total = _mm512_load_si512(hash->total);
    const __m512i now = _mm512_set1_epi32((int)step + 1);
    w[15] = _mm512_mask_mov_epi32(w[15], _mm512_cmpeq_epi32_mask(total, now),
                                  _mm512_load_si512(hash->bits));
    return _mm512_cmpge_epu32_mask(total, now);
}

GW_AVX512 void gw_avx512_hash_part(__m512i *v, __m512i *w, gw_u32 part, gw_u32 state_words)
{
    if (state_words == 5) {
        gw_avx512_sha1_part(v, w, part);
    } else {
        gw_avx512_sha256_part(v, w, part);
    }
}

/* Adds the result of a hash block to the hash states of the selected texts. */
GW_AVX512 void gw_avx512_hash_add(gw_avx512_hash *hash, const __m512i *v, __mmask16 active,
                                  gw_u32 state_words)
{
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        const __m512i before = hash->state[i];
        hash->state[i] = _mm512_mask_add_epi32(before, active, before, v[i]);
    }
    hash->step++;
}

/* Stores the first four words of each packet's digest as its authentication tag. */
GW_AVX512 void gw_avx512_hash_tags(const gw_avx512_hash *hash, gw_ipsec_tag tags[GW_AVX512_LANES])
{
    __m512i blocks[4];
    gw_avx512_words(blocks, hash->state);
    gw_avx512_store_tags(blocks, tags);
}

#endif
