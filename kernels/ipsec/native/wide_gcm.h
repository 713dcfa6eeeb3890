/*
 * AES-GCM of sixteen packets at once (SP 800-38D): 64 bytes of each are encrypted, and taken into
 * the sum of GHASH, at a time. Elements of GHASH are as dialect/ghash.h has them.
 */
#ifndef GODWIT_IPSEC_WIDE_GCM_H
#define GODWIT_IPSEC_WIDE_GCM_H

#include "wide_aes.h"

typedef struct gw_wide_gcm {
    gw_wide_lanes lanes;
    gw_wide_keys keys;
    __m512i powers[4][4]; /* H, its square, cube and fourth power */
    __m512i sum[4];
    __m512i counter[4]; /* the next counter block, its last word a number */
    __m512i mask[4];    /* the first one, encrypted: hides the sum */
} gw_wide_gcm;

/* Products that are not reduced yet; the middle belongs 64 bits up. */
typedef struct gw_wide_product {
    __m512i low;
    __m512i middle;
    __m512i high;
} gw_wide_product;

GW_WIDE gw_wide_product gw_wide_expand(__m512i x, __m512i y)
{
    gw_wide_product product;
    product.low = _mm512_clmulepi64_epi128(x, y, 0x00);
    product.high = _mm512_clmulepi64_epi128(x, y, 0x11);
    product.middle = _mm512_xor_si512(_mm512_clmulepi64_epi128(x, y, 0x01),
                                      _mm512_clmulepi64_epi128(x, y, 0x10));
    return product;
}

/* The sum of two products. */
GW_WIDE gw_wide_product gw_wide_expand_add(gw_wide_product sum, __m512i x, __m512i y)
{
    sum.low = _mm512_xor_si512(sum.low, _mm512_clmulepi64_epi128(x, y, 0x00));
    sum.high = _mm512_xor_si512(sum.high, _mm512_clmulepi64_epi128(x, y, 0x11));
    sum.middle = _mm512_ternarylogic_epi64(sum.middle, _mm512_clmulepi64_epi128(x, y, 0x01),
                                           _mm512_clmulepi64_epi128(x, y, 0x10), 0x96);
    return sum;
}

/* As gw_ghash_reduce: the middle goes in half way. */
GW_WIDE __m512i gw_wide_reduce(gw_wide_product product)
{
    const __m512i polynomial = _mm512_set1_epi64((long long)0xc200000000000000ull);
    const __m512i middle =
        _mm512_ternarylogic_epi64(product.middle, _mm512_shuffle_epi32(product.low, _MM_PERM_BADC),
                                  _mm512_clmulepi64_epi128(product.low, polynomial, 0x00), 0x96);
    return _mm512_ternarylogic_epi64(product.high, _mm512_shuffle_epi32(middle, _MM_PERM_BADC),
                                     _mm512_clmulepi64_epi128(middle, polynomial, 0x00), 0x96);
}

GW_WIDE __m512i gw_wide_multiply(__m512i x, __m512i y)
{
    return gw_wide_reduce(gw_wide_expand(x, y));
}

/* Takes the first `count` of four blocks of each lane into the sums. */
GW_WIDE void gw_wide_sum(gw_wide_gcm *gcm, __m512i blocks[4][4], gw_u32 count)
{
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        const __m512i first = _mm512_xor_si512(gcm->sum[j], gw_wide_swap128(blocks[0][j]));
        gw_wide_product product = gw_wide_expand(first, gcm->powers[count - 1][j]);
        GW_WIDE_UNROLL
        for (gw_u32 k = 1; k < count; k++) {
            product = gw_wide_expand_add(product, gw_wide_swap128(blocks[k][j]),
                                         gcm->powers[count - 1 - k][j]);
        }
        gcm->sum[j] = gw_wide_reduce(product);
    }
}

/* Takes one block of some lanes into their sums; which: two bits of a register's eight for each. */
GW_WIDE void gw_wide_sum_some(gw_wide_gcm *gcm, const __m512i block[4], const __mmask8 which[4])
{
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        const __m512i next = gw_wide_multiply(
            _mm512_xor_si512(gcm->sum[j], gw_wide_swap128(block[j])), gcm->powers[0][j]);
        gcm->sum[j] = _mm512_mask_mov_epi64(gcm->sum[j], which[j], next);
    }
}

/* The lanes that have a byte at `at`, for gw_wide_sum_some. */
GW_WIDE void gw_wide_which(const gw_wide_lanes *lanes, gw_u32 at, __mmask8 which[4])
{
    for (gw_u32 j = 0; j < 4; j++) {
        gw_u32 bits = 0;
        for (gw_u32 i = 0; i < 4; i++) {
            bits |= (lanes->bytes[j + 4 * i] > at ? 3u : 0u) << (2 * i);
        }
        which[j] = (__mmask8)bits;
    }
}

/* Takes a row into the sums. What lies behind the ends is 0. */
GW_WIDE void gw_wide_sum_row(gw_wide_gcm *gcm, __m512i blocks[4][4], gw_u32 offset)
{
    const gw_u32 least =
        gcm->lanes.shortest > offset ? (gcm->lanes.shortest - offset + 15) / 16 : 0;
    const gw_u32 most = (gcm->lanes.longest - offset + 15) / 16;
    if (least >= 4) {
        gw_wide_sum(gcm, blocks, 4);
    } else if (least == most) {
        switch (least) {
        case 1:
            gw_wide_sum(gcm, blocks, 1);
            break;
        case 2:
            gw_wide_sum(gcm, blocks, 2);
            break;
        default:
            gw_wide_sum(gcm, blocks, 3);
            break;
        }
    } else {
        for (gw_u32 k = 0; k < 4 && k < most; k++) {
            __mmask8 which[4];
            gw_wide_which(&gcm->lanes, offset + 16 * k, which);
            gw_wide_sum_some(gcm, blocks[k], which);
        }
    }
}

/* Four blocks of the stream of each lane. */
GW_WIDE void gw_wide_stream(gw_wide_gcm *gcm, __m512i stream[4][4])
{
    const gw_wide_keys *keys = &gcm->keys;
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        GW_WIDE_UNROLL
        for (gw_u32 k = 0; k < 4; k++) {
            stream[k][j] =
                _mm512_xor_si512(gw_wide_counter_block(gcm->counter[j]), keys->round[0][j]);
            gcm->counter[j] = gw_wide_counted(gcm->counter[j]);
        }
    }
    for (gw_u32 round = 1; round < keys->rounds; round++) {
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            GW_WIDE_UNROLL
            for (gw_u32 k = 0; k < 4; k++) {
                stream[k][j] = _mm512_aesenc_epi128(stream[k][j], keys->round[round][j]);
            }
        }
    }
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        GW_WIDE_UNROLL
        for (gw_u32 k = 0; k < 4; k++) {
            stream[k][j] = _mm512_aesenclast_epi128(stream[k][j], keys->round[keys->rounds][j]);
        }
    }
}

/* One row: through the cipher, and as it is on the wire into the sums. */
GW_WIDE void gw_wide_gcm_row(gw_wide_gcm *gcm, gw_u32 offset, gw_u32 outbound, gw_u32 whole)
{
    __m512i blocks[4][4];
    __m512i stream[4][4];
    gw_wide_stream(gcm, stream);
    if (whole) {
        gw_wide_load(blocks, &gcm->lanes, offset);
    } else {
        gw_wide_load_some(blocks, &gcm->lanes, offset);
    }
    if (!outbound) {
        gw_wide_sum_row(gcm, blocks, offset);
    }
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < 4; k++) {
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            blocks[k][j] = _mm512_xor_si512(blocks[k][j], stream[k][j]);
        }
    }
    if (outbound && whole) {
        gw_wide_sum(gcm, blocks, 4);
        gw_wide_store(blocks, &gcm->lanes, offset);
    } else if (outbound) {
        gw_wide_store_some(blocks, &gcm->lanes, offset);
        gw_wide_sum_row(gcm, blocks, offset);
    } else if (whole) {
        gw_wide_store(blocks, &gcm->lanes, offset);
    } else {
        gw_wide_store_some(blocks, &gcm->lanes, offset);
    }
}

/* A block of each lane from sixteen places. */
GW_WIDE void gw_wide_gather_all(__m512i blocks[4], const __m128i *places)
{
    const gw_u8 *at = (const gw_u8 *)places;
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        blocks[j] =
            gw_wide_gather(at + 16 * j, at + 16 * (j + 4), at + 16 * (j + 8), at + 16 * (j + 12));
    }
}

/* Adds a block of each lane, an element, to the sums, and multiplies. */
GW_WIDE void gw_wide_sum_elements(gw_wide_gcm *gcm, const __m128i *elements)
{
    __m512i blocks[4];
    gw_wide_gather_all(blocks, elements);
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        gcm->sum[j] = gw_wide_multiply(_mm512_xor_si512(gcm->sum[j], blocks[j]), gcm->powers[0][j]);
    }
}

/* Keys of all lanes, and the first counter block, encrypted. The IV lies in front of the data. */
GW_WIDE void gw_wide_gcm_begin(gw_wide_gcm *gcm, const gw_wide_sas *sas, gw_u32 rounds)
{
    gw_wide_keys_load(&gcm->keys, sas, rounds);
    gw_wide_line(gcm->powers, sas, GW_WIDE_AUTH_LINE);
    gw_wide_counters(gcm->counter, gcm->lanes.at, sas, 1);
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        gcm->sum[j] = _mm512_setzero_si512();
        gcm->mask[j] =
            _mm512_xor_si512(gw_wide_counter_block(gcm->counter[j]), gcm->keys.round[0][j]);
        gcm->counter[j] = gw_wide_counted(gcm->counter[j]);
    }
    GW_WIDE_UNROLL
    for (gw_u32 part = 0; part < 4; part++) {
        gw_wide_rounds(gcm->mask, &gcm->keys, part, 0);
    }
}

/* aad: what is authenticated in front of the data, lengths: the last block, both as elements. */
GW_WIDE void gw_wide_gcm_run(gw_wide_gcm *gcm, gw_u32 outbound, const __m128i *aad,
                             const __m128i *lengths, gw_ipsec_tag tags[GW_WIDE_LANES])
{
    gw_u32 offset = 0;
    gw_wide_sum_elements(gcm, aad);
    for (; offset + GW_WIDE_ROW_BYTES <= gcm->lanes.shortest; offset += GW_WIDE_ROW_BYTES) {
        gw_wide_gcm_row(gcm, offset, outbound, 1);
    }
    for (; offset < gcm->lanes.longest; offset += GW_WIDE_ROW_BYTES) {
        gw_wide_gcm_row(gcm, offset, outbound, 0);
    }
    gw_wide_sum_elements(gcm, lengths);
    __m512i sent[4];
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        sent[j] = gw_wide_swap32(_mm512_xor_si512(gw_wide_swap128(gcm->sum[j]), gcm->mask[j]));
    }
    gw_wide_tags(sent, tags);
}

#endif
