/*
 * AES-GCM and AES-GMAC (SP 800-38D) of ESP packets, four blocks in a register. Elements of GHASH
 * are as dialect/ghash.h has them.
 *
 *   first row   | 0 ...    | front      | data      | data      |   front: SPI and sequence number,
 *   then        | data     | data       | data      | data      |   GMAC: and IV
 *   last row    | data     | data       | data, 0   | lengths   |
 *
 * Rows end with the lengths, and what is missing to whole rows are zeros in front, which change no
 * sum: so the powers of H lie in the same order for every length. The first counter block, whose
 * stream hides the sum, lies where the front does, and the others where the data does.
 *
 * Sums of four packets are gathered in one register before they are reduced for the last time.
 */
#ifndef GODWIT_IPSEC_WIDE_GCM_H
#define GODWIT_IPSEC_WIDE_GCM_H

#include "wide_aes.h"

#define GW_GCM_ROW   GW_WIDE_ROW_BYTES
#define GW_GCM_BLOCK 16u
/* Blocks behind which the number of a block no longer fits into its last byte. */
#define GW_GCM_BLOCKS_PLAIN 255u
/* Words of AES-128's round keys: the powers 5 to 8 lie behind them. */
#define GW_GCM_KEY_WORDS_128 44u
/* What is done with packets. */
#define GW_GCM_SEAL 0u
#define GW_GCM_OPEN 1u
#define GW_GCM_SIGN 2u /* GMAC, in both directions */

/* What packets of one length have in common. */
typedef struct gw_gcm_shape {
    __m512i counters;     /* numbers of the first row's blocks, as they are encrypted */
    __m512i lengths;      /* of the last row; zeros elsewhere */
    __m512i text;         /* ones where the first row is data, when its bytes are turned round */
    __m512i front;        /* ones where it is the front */
    __mmask64 last_bytes; /* what the last row has of data, turned round */
    __mmask16 first;      /* words that lie in memory */
    __mmask16 last;
    gw_u32 rows;
    gw_u32 from; /* bytes that the first row begins in front of the data */
    gw_u32 many; /* more than GW_GCM_BLOCKS_PLAIN blocks: `counters` are numbers */
    gw_u32 is;   /* data bytes << 1 | extended sequence numbers */
} gw_gcm_shape;

/* An SA's packet under way. */
typedef struct gw_gcm {
    __m512i round[15];
    __m512i counter; /* of the next row */
    __m512i fourth;  /* the fourth power of H in all places */
    __m512i eighth;
} gw_gcm;

/* Products that are not reduced yet; the middle belongs 64 bits up. */
typedef struct gw_gcm_product {
    __m512i low;
    __m512i middle;
    __m512i high;
} gw_gcm_product;

GW_WIDE gw_gcm_product gw_gcm_expand(__m512i x, __m512i y)
{
    gw_gcm_product product;
    product.low = _mm512_clmulepi64_epi128(x, y, 0x00);
    product.high = _mm512_clmulepi64_epi128(x, y, 0x11);
    product.middle = _mm512_xor_si512(_mm512_clmulepi64_epi128(x, y, 0x01),
                                      _mm512_clmulepi64_epi128(x, y, 0x10));
    return product;
}

/* The sum of two products. */
GW_WIDE gw_gcm_product gw_gcm_expand_add(gw_gcm_product sum, __m512i x, __m512i y)
{
    sum.low = _mm512_xor_si512(sum.low, _mm512_clmulepi64_epi128(x, y, 0x00));
    sum.high = _mm512_xor_si512(sum.high, _mm512_clmulepi64_epi128(x, y, 0x11));
    sum.middle = _mm512_ternarylogic_epi64(sum.middle, _mm512_clmulepi64_epi128(x, y, 0x01),
                                           _mm512_clmulepi64_epi128(x, y, 0x10), 0x96);
    return sum;
}

/* As gw_ghash_reduce: the middle goes in half way. */
GW_WIDE __m512i gw_gcm_reduce(gw_gcm_product product)
{
    const __m512i polynomial = _mm512_set1_epi64((long long)0xc200000000000000ull);
    const __m512i middle =
        _mm512_ternarylogic_epi64(product.middle, _mm512_shuffle_epi32(product.low, _MM_PERM_BADC),
                                  _mm512_clmulepi64_epi128(product.low, polynomial, 0x00), 0x96);
    return _mm512_ternarylogic_epi64(product.high, _mm512_shuffle_epi32(middle, _MM_PERM_BADC),
                                     _mm512_clmulepi64_epi128(middle, polynomial, 0x00), 0x96);
}

/* Words of a row as the words that they are when each block's bytes are turned round. */
GW_WIDE __m512i gw_gcm_turned(__mmask16 words)
{
    return gw_wide_swap128(_mm512_maskz_set1_epi32(words, -1));
}

static __attribute__((noinline)) void gw_gcm_shape_of(gw_gcm_shape *shape, gw_u32 is, gw_u32 mode)
{
    const gw_u32 data_bytes = is >> 1;
    const gw_u64 front_bytes = (is & 1) != 0 ? 12 : 8;
    const gw_u32 data_blocks = (data_bytes + GW_GCM_BLOCK - 1) / GW_GCM_BLOCK;
    const gw_u32 rows = (data_blocks + 2 + 3) / 4;
    const gw_u32 zeros = 4 * rows - data_blocks - 2; /* blocks */
    const gw_u32 words = 4 * (zeros + 1) + data_bytes / 4 - 16 * (rows - 1);
    const gw_u32 many = mode != GW_GCM_SIGN && data_blocks + 4 > GW_GCM_BLOCKS_PLAIN;
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4);
    const __m512i numbers = _mm512_maskz_sub_epi32(0x8888, lanes, _mm512_set1_epi32((int)zeros));
    gw_u64 bits[2] = {8 * front_bytes, 8 * (gw_u64)data_bytes};
    if (mode == GW_GCM_SIGN) {
        bits[0] = 8 * (GW_GCM_BLOCK + (gw_u64)data_bytes);
        bits[1] = 0;
    }
    shape->is = is;
    shape->rows = rows;
    shape->from = GW_GCM_BLOCK * (zeros + 1);
    shape->many = many;
    shape->counters = many ? numbers : _mm512_slli_epi32(numbers, 24);
    shape->lengths = _mm512_set_epi64((long long)bits[0], (long long)bits[1], 0, 0, 0, 0, 0, 0);
    shape->front = gw_gcm_turned((__mmask16)(0xfu << (4 * zeros)));
    shape->last = (__mmask16)((1u << words) - 1);
    shape->first = (__mmask16)((mode == GW_GCM_SIGN ? 0xffffu : 0xfff0u) << (4 * zeros));
    if (rows == 1) {
        shape->first &= shape->last;
    }
    shape->text = gw_gcm_turned(shape->first);
    shape->last_bytes = _mm512_movepi8_mask(gw_gcm_turned(shape->last));
}

/* a xor what b has where c has ones. */
#define GW_GCM_WITH 0x78

/* A block in all places. */
GW_WIDE __m512i gw_gcm_broadcast(const void *block)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)block));
}

/* The powers 4, 3, 2 and 1 of H. */
GW_WIDE __m512i gw_gcm_low(const gw_ipsec_sa *sa)
{
    const __m512i powers = _mm512_loadu_si512(sa->authentication);
    return _mm512_shuffle_i64x2(powers, powers, 0x1b);
}

/* The powers 8, 7, 6 and 5. */
GW_WIDE __m512i gw_gcm_high(const gw_ipsec_sa *sa, gw_u32 rounds)
{
    if (rounds != 10) {
        return gw_gcm_reduce(
            gw_gcm_expand(gw_gcm_low(sa), gw_gcm_broadcast(sa->authentication + 12)));
    }
    const __m512i powers = _mm512_loadu_si512(sa->keys + GW_GCM_KEY_WORDS_128);
    return _mm512_shuffle_i64x2(powers, powers, 0x1b);
}

/* Key and powers, and the first counter blocks: salt, IV, number (RFC 4106, section 4). */
GW_WIDE void gw_gcm_begin(gw_gcm *gcm, const gw_gcm_shape *shape, const gw_ipsec_sa *sa,
                          const gw_u8 *data, gw_u32 rounds)
{
    const gw_u32 *keys = sa->keys;
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i <= rounds; i++) {
        gcm->round[i] = gw_gcm_broadcast(keys + 4 * i);
    }
    gcm->fourth = gw_gcm_broadcast(sa->authentication + 12);
    if (rounds == 10) {
        gcm->eighth = gw_gcm_broadcast(keys + GW_GCM_KEY_WORDS_128 + 12);
    } else {
        gcm->eighth = gw_gcm_reduce(gw_gcm_expand(gcm->fourth, gcm->fourth));
    }
    const __m512i is_salt = _mm512_setr_epi32(-1, 0, 0, 0, -1, 0, 0, 0, -1, 0, 0, 0, -1, 0, 0, 0);
    const __m512i is_iv = _mm512_setr_epi32(0, -1, -1, 0, 0, -1, -1, 0, 0, -1, -1, 0, 0, -1, -1, 0);
    const __m512i salt = _mm512_set1_epi32((int)sa->salt);
    const __m512i iv = gw_gcm_broadcast(data - 12);
    gcm->counter = _mm512_ternarylogic_epi64(shape->counters, iv, is_iv, GW_GCM_WITH);
    gcm->counter = _mm512_ternarylogic_epi64(gcm->counter, salt, is_salt, GW_GCM_WITH);
}

/* AES on the next row of counter blocks; `with`: the last round key xor what the stream goes to. */
GW_WIDE __m512i gw_gcm_stream(gw_gcm *gcm, __m512i with, gw_u32 rounds, gw_u32 many)
{
    const __m512i now = gcm->counter;
    const int by = many ? 4 : 4 << 24;
    gcm->counter = _mm512_add_epi32(
        now, _mm512_setr_epi32(0, 0, 0, by, 0, 0, 0, by, 0, 0, 0, by, 0, 0, 0, by));
    __m512i x = _mm512_xor_si512(many ? gw_wide_counter_block(now) : now, gcm->round[0]);
    GW_WIDE_UNROLL
    for (gw_u32 i = 1; i < rounds; i++) {
        x = _mm512_aesenc_epi128(x, gcm->round[i]);
    }
    return _mm512_aesenclast_epi128(x, with);
}

/* The stream that hides the sum, alone. */
GW_WIDE __m512i gw_gcm_mask(const gw_gcm *gcm, const gw_gcm_shape *shape, gw_u32 rounds)
{
    __m512i x = _mm512_xor_si512(gcm->counter, gcm->round[0]);
    GW_WIDE_UNROLL
    for (gw_u32 i = 1; i < rounds; i++) {
        x = _mm512_aesenc_epi128(x, gcm->round[i]);
    }
    x = _mm512_aesenclast_epi128(x, gcm->round[rounds]);
    return _mm512_and_si512(shape->front, gw_wide_swap128(x));
}

/* The first row: through the cipher, and, as it is on the wire with its bytes turned round, the
 * result. What hides the sum goes to `mask`. */
GW_WIDE __m512i gw_gcm_first(gw_gcm *gcm, const gw_gcm_shape *shape, gw_u8 *text,
                             const gw_u32 front[4], __m512i *mask, gw_u32 rounds, gw_u32 mode,
                             gw_u32 many)
{
    const __m512i came = _mm512_maskz_loadu_epi32(shape->first, text);
    if (mode == GW_GCM_SIGN) {
        *mask = gw_gcm_mask(gcm, shape, rounds);
        return gw_wide_swap128(came);
    }
    const __m512i done =
        gw_gcm_stream(gcm, _mm512_xor_si512(came, gcm->round[rounds]), rounds, many);
    _mm512_mask_storeu_epi32(text, shape->first, done);
    __m512i wire = gw_wide_swap128(done);
    *mask = _mm512_and_si512(shape->front, wire);
    wire = mode == GW_GCM_OPEN ? gw_wide_swap128(came) : _mm512_and_si512(shape->text, wire);
    return _mm512_ternarylogic_epi64(wire, gw_gcm_broadcast(front), shape->front, GW_GCM_WITH);
}

/* A row that is all data. */
GW_WIDE __m512i gw_gcm_whole(gw_gcm *gcm, gw_u8 *text, gw_u32 rounds, gw_u32 mode, gw_u32 many)
{
    const __m512i came = _mm512_loadu_si512(text);
    if (mode == GW_GCM_SIGN) {
        return gw_wide_swap128(came);
    }
    const __m512i done =
        gw_gcm_stream(gcm, _mm512_xor_si512(came, gcm->round[rounds]), rounds, many);
    _mm512_storeu_si512(text, done);
    return gw_wide_swap128(mode == GW_GCM_OPEN ? came : done);
}

/* The last of several rows. */
GW_WIDE __m512i gw_gcm_last(gw_gcm *gcm, const gw_gcm_shape *shape, gw_u8 *text, gw_u32 rounds,
                            gw_u32 mode, gw_u32 many)
{
    const __m512i came = _mm512_maskz_loadu_epi32(shape->last, text);
    __m512i wire = came;
    if (mode != GW_GCM_SIGN) {
        const __m512i done =
            gw_gcm_stream(gcm, _mm512_xor_si512(came, gcm->round[rounds]), rounds, many);
        _mm512_mask_storeu_epi32(text, shape->last, done);
        wire = mode == GW_GCM_OPEN ? came : done;
    }
    return _mm512_mask_mov_epi8(shape->lengths, shape->last_bytes, gw_wide_swap128(wire));
}

/* What is left to do with a packet that went through the cipher. */
typedef struct gw_gcm_rest {
    __m512i sum;  /* all rows but the last */
    __m512i last; /* the last row */
    __m512i mask; /* what hides the sum */
    const gw_ipsec_sa *sa;
} gw_gcm_rest;

/* Two rows are taken into the sum. */
GW_WIDE __m512i gw_gcm_add_two(const gw_gcm *gcm, __m512i sum, __m512i first, __m512i second)
{
    gw_gcm_product product = gw_gcm_expand(first, gcm->fourth);
    product.high = _mm512_xor_si512(product.high, second);
    return gw_gcm_reduce(gw_gcm_expand_add(product, sum, gcm->eighth));
}

/*
 * A packet through the cipher. `front`: an element that is authenticated in front of the data
 * (RFC 4106, section 5). `rows`: how many, where the compiler is to know.
 */
GW_WIDE gw_gcm_rest gw_gcm_packet(const gw_gcm_shape *shape, const gw_ipsec_sa *sa, gw_u8 *data,
                                  const gw_u32 front[4], gw_u32 rounds, gw_u32 mode, gw_u32 many,
                                  gw_u32 rows)
{
    gw_gcm gcm;
    gw_gcm_rest rest;
    gw_u8 *text = data - shape->from;
    gw_u8 *last = text + GW_GCM_ROW * (rows - 1);
    gw_gcm_begin(&gcm, shape, sa, data, rounds);
    __m512i sum = gw_gcm_first(&gcm, shape, text, front, &rest.mask, rounds, mode, many);
    rest.sa = sa;
    if (rows == 1) {
        rest.sum = _mm512_setzero_si512();
        rest.last = _mm512_or_si512(sum, shape->lengths);
        return rest;
    }
    text += GW_GCM_ROW;
    if (rows % 2 != 0) {
        const __m512i whole = gw_gcm_whole(&gcm, text, rounds, mode, many);
        sum = _mm512_xor_si512(gw_gcm_reduce(gw_gcm_expand(sum, gcm.fourth)), whole);
        text += GW_GCM_ROW;
    }
    if (rows != 2 && text != last) {
        /* Rows are summed while those behind them go through the cipher. */
        __m512i first = gw_gcm_whole(&gcm, text, rounds, mode, many);
        __m512i second = gw_gcm_whole(&gcm, text + GW_GCM_ROW, rounds, mode, many);
        for (text += 2 * GW_GCM_ROW; text != last; text += 2 * GW_GCM_ROW) {
            const __m512i third = gw_gcm_whole(&gcm, text, rounds, mode, many);
            const __m512i fourth = gw_gcm_whole(&gcm, text + GW_GCM_ROW, rounds, mode, many);
            sum = gw_gcm_add_two(&gcm, sum, first, second);
            first = third;
            second = fourth;
        }
        sum = gw_gcm_add_two(&gcm, sum, first, second);
    }
    rest.sum = sum;
    rest.last = gw_gcm_last(&gcm, shape, last, rounds, mode, many);
    return rest;
}

/* The sum of a packet and what hides it, not reduced, in four parts. */
GW_WIDE gw_gcm_product gw_gcm_end(const gw_gcm_rest *rest, gw_u32 rounds)
{
    gw_gcm_product product = gw_gcm_expand_add(gw_gcm_expand(rest->last, gw_gcm_low(rest->sa)),
                                               rest->sum, gw_gcm_high(rest->sa, rounds));
    product.high = _mm512_xor_si512(product.high, rest->mask);
    return product;
}

/* The sums of the parts of a, b, c and d. */
GW_WIDE __m512i gw_gcm_gather(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i halves_ab =
        _mm512_mask_xor_epi64(_mm512_xor_si512(a, _mm512_shuffle_i64x2(a, b, 0x4e)), 0xf0, b,
                              _mm512_shuffle_i64x2(a, b, 0x4e));
    const __m512i halves_cd =
        _mm512_mask_xor_epi64(_mm512_xor_si512(c, _mm512_shuffle_i64x2(c, d, 0x4e)), 0xf0, d,
                              _mm512_shuffle_i64x2(c, d, 0x4e));
    return _mm512_xor_si512(_mm512_shuffle_i64x2(halves_ab, halves_cd, 0x88),
                            _mm512_shuffle_i64x2(halves_ab, halves_cd, 0xdd));
}

/* The tags of four packets, as they go over the wire. */
GW_WIDE __m512i gw_gcm_tags(const gw_gcm_product products[4])
{
    gw_gcm_product all;
    all.low = gw_gcm_gather(products[0].low, products[1].low, products[2].low, products[3].low);
    all.middle = gw_gcm_gather(products[0].middle, products[1].middle, products[2].middle,
                               products[3].middle);
    all.high =
        gw_gcm_gather(products[0].high, products[1].high, products[2].high, products[3].high);
    return gw_wide_swap128(gw_gcm_reduce(all));
}

#endif
