/*
 * AES-GCM and AES-GMAC (SP 800-38D) for ESP packets, with four blocks of a packet per register.
 * GHASH elements have the representation of dialect/ghash.h. A packet is divided into rows of four
 * blocks (64 bytes):
 *
 *   first row   | 0 ...    | front      | data      | data      |   front: SPI and sequence number,
 *   other rows  | data     | data       | data      | data      |   for GMAC also the IV
 *   last row    | data     | data       | data, 0   | lengths   |
 *
 * The last row ends with the lengths. If the blocks do not fill the rows, zero blocks come before
 * the front. They do not change the sum. The powers of the hash key H thus have the same order for
 * every packet length. The encryption of the first counter block masks the tag. This counter block
 * is at the position of the front, and the others are at the positions of the data.
 *
 * The sums of four packets are combined in one register before the final reduction.
 */
#ifndef GODWIT_IPSEC_AVX512_GCM_H
#define GODWIT_IPSEC_AVX512_GCM_H

#include "avx512_aes.h"

#define GW_GCM_ROW   GW_AVX512_ROW_BYTES
#define GW_GCM_BLOCK 16u
/* Maximum number of blocks per packet for which the GCM counter fits into one byte. */
#define GW_GCM_BYTE_COUNTER_BLOCKS 255u
/* Number of words in the AES-128 round keys. In an SA, the powers 5 to 8 of the hash key H follow
 * these round keys. */
#define GW_GCM_KEY_WORDS_128 44u
/* Operations of GCM on packets. */
#define GW_GCM_ENCRYPT 0u
#define GW_GCM_DECRYPT 1u
#define GW_GCM_GMAC    2u /* in both directions */

/* Values that depend only on a packet's length and the size of its sequence number. Similar packets
 * share these values. */
typedef struct gw_gcm_shape {
    __m512i counters;     /* counters of the first row, big-endian */
    __m512i lengths;      /* lengths in the last row, otherwise zeros */
    __m512i text;         /* mask of the data in the first row, with reversed blocks */
    __m512i front;        /* mask of the front in the first row, with reversed blocks */
    __mmask64 last_bytes; /* mask of the data in the last row, with reversed blocks */
    __mmask16 first;      /* words of the first row that are in memory */
    __mmask16 last;
    gw_u32 rows;
    gw_u32 from;        /* bytes from the start of the first row to the data */
    gw_u32 many_blocks; /* 1: the counter exceeds a byte; `counters` has host byte order */
    gw_u32 id;          /* data bytes << 1 | extended sequence numbers */
} gw_gcm_shape;

/* State of AES-GCM for one packet. */
typedef struct gw_gcm {
    __m512i round[15];
    __m512i counter; /* counter blocks of the next row */
    __m512i fourth;  /* fourth power of H, four times */
    __m512i eighth;
} gw_gcm;

/* Unreduced product of two GHASH elements: low + middle * x^64 + high * x^128. */
typedef struct gw_gcm_product {
    __m512i low;
    __m512i middle;
    __m512i high;
} gw_gcm_product;

GW_AVX512 gw_gcm_product gw_gcm_expand(__m512i x, __m512i y)
{
    gw_gcm_product product;
    product.low = _mm512_clmulepi64_epi128(x, y, 0x00);
    product.high = _mm512_clmulepi64_epi128(x, y, 0x11);
    product.middle = _mm512_xor_si512(_mm512_clmulepi64_epi128(x, y, 0x01),
                                      _mm512_clmulepi64_epi128(x, y, 0x10));
    return product;
}

/* Adds x * y to an unreduced GHASH product. */
GW_AVX512 gw_gcm_product gw_gcm_expand_add(gw_gcm_product sum, __m512i x, __m512i y)
{
    sum.low = _mm512_xor_si512(sum.low, _mm512_clmulepi64_epi128(x, y, 0x00));
    sum.high = _mm512_xor_si512(sum.high, _mm512_clmulepi64_epi128(x, y, 0x11));
    sum.middle = _mm512_ternarylogic_epi64(sum.middle, _mm512_clmulepi64_epi128(x, y, 0x01),
                                           _mm512_clmulepi64_epi128(x, y, 0x10), 0x96);
    return sum;
}

/* Reduces four GHASH products at once, like gw_ghash_reduce. The middle part is added between the
 * two reduction steps. */
GW_AVX512 __m512i gw_gcm_reduce(gw_gcm_product product)
{
    const __m512i polynomial = _mm512_set1_epi64((long long)0xc200000000000000ull);
    const __m512i middle =
        _mm512_ternarylogic_epi64(product.middle, _mm512_shuffle_epi32(product.low, _MM_PERM_BADC),
                                  _mm512_clmulepi64_epi128(product.low, polynomial, 0x00), 0x96);
    return _mm512_ternarylogic_epi64(product.high, _mm512_shuffle_epi32(middle, _MM_PERM_BADC),
                                     _mm512_clmulepi64_epi128(middle, polynomial, 0x00), 0x96);
}

/* Converts a mask of 32-bit words to a mask of bytes in reverse order, as in GHASH elements. */
GW_AVX512 __m512i gw_gcm_swapped_mask(__mmask16 words)
{
    return gw_avx512_swap128(_mm512_maskz_set1_epi32(words, -1));
}

static __attribute__((noinline)) void gw_gcm_shape_of(gw_gcm_shape *shape, gw_u32 id, gw_u32 mode)
{
    const gw_u32 data_bytes = id >> 1;
    const gw_u64 front_bytes = (id & 1) != 0 ? 12 : 8;
    const gw_u32 data_blocks = (data_bytes + GW_GCM_BLOCK - 1) / GW_GCM_BLOCK;
    const gw_u32 rows = (data_blocks + 2 + 3) / 4;
    const gw_u32 zeros = 4 * rows - data_blocks - 2; /* number of blocks */
    const gw_u32 words = 4 * (zeros + 1) + data_bytes / 4 - 16 * (rows - 1);
    const gw_u32 many_blocks = mode != GW_GCM_GMAC && data_blocks + 4 > GW_GCM_BYTE_COUNTER_BLOCKS;
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4);
    const __m512i numbers = _mm512_maskz_sub_epi32(0x8888, lanes, _mm512_set1_epi32((int)zeros));
    gw_u64 bits[2] = {8 * front_bytes, 8 * (gw_u64)data_bytes};
    if (mode == GW_GCM_GMAC) {
        bits[0] = 8 * (GW_GCM_BLOCK + (gw_u64)data_bytes);
        bits[1] = 0;
    }
    shape->id = id;
    shape->rows = rows;
    shape->from = GW_GCM_BLOCK * (zeros + 1);
    shape->many_blocks = many_blocks;
    shape->counters = many_blocks ? numbers : _mm512_slli_epi32(numbers, 24);
    shape->lengths = _mm512_set_epi64((long long)bits[0], (long long)bits[1], 0, 0, 0, 0, 0, 0);
    shape->front = gw_gcm_swapped_mask((__mmask16)(0xfu << (4 * zeros)));
    shape->last = (__mmask16)((1u << words) - 1);
    shape->first = (__mmask16)((mode == GW_GCM_GMAC ? 0xffffu : 0xfff0u) << (4 * zeros));
    if (rows == 1) {
        shape->first &= shape->last;
    }
    shape->text = gw_gcm_swapped_mask(shape->first);
    shape->last_bytes = _mm512_movepi8_mask(gw_gcm_swapped_mask(shape->last));
}

/* Truth table of a ^ (b & c) for the ternary logic instruction. */
#define GW_GCM_XOR_SELECTED 0x78

GW_AVX512 __m512i gw_gcm_broadcast(const void *block)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)block));
}

/* Loads the powers 4, 3, 2 and 1 of the hash key H into one register. */
GW_AVX512 __m512i gw_gcm_low(const gw_ipsec_sa *sa)
{
    const __m512i powers = _mm512_loadu_si512(sa->authentication);
    return _mm512_shuffle_i64x2(powers, powers, 0x1b);
}

/* Loads or computes the powers 8, 7, 6 and 5 of the hash key H. */
GW_AVX512 __m512i gw_gcm_high(const gw_ipsec_sa *sa, gw_u32 rounds)
{
    if (rounds != 10) {
        return gw_gcm_reduce(
            gw_gcm_expand(gw_gcm_low(sa), gw_gcm_broadcast(sa->authentication + 12)));
    }
    const __m512i powers = _mm512_loadu_si512(sa->keys + GW_GCM_KEY_WORDS_128);
    return _mm512_shuffle_i64x2(powers, powers, 0x1b);
}

/* Starts GCM for a packet. Loads the round keys and the powers of the hash key H, and builds the
 * first counter blocks from salt, IV and counter (RFC 4106, section 4). */
GW_AVX512 void gw_gcm_begin(gw_gcm *gcm, const gw_gcm_shape *shape, const gw_ipsec_sa *sa,
                            const gw_u8 *data, gw_u32 rounds)
{
    const gw_u32 *keys = sa->keys;
    GW_AVX512_UNROLL
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
    gcm->counter = _mm512_ternarylogic_epi64(shape->counters, iv, is_iv, GW_GCM_XOR_SELECTED);
    gcm->counter = _mm512_ternarylogic_epi64(gcm->counter, salt, is_salt, GW_GCM_XOR_SELECTED);
}

/* Encrypts the next four counter blocks with AES. `last_key` is the last round key XOR the data, so
 * the result is already the encrypted or decrypted data. */
GW_AVX512 __m512i gw_gcm_stream(gw_gcm *gcm, __m512i last_key, gw_u32 rounds, gw_u32 many_blocks)
{
    const __m512i now = gcm->counter;
    const int by = many_blocks ? 4 : 4 << 24;
    gcm->counter = _mm512_add_epi32(
        now, _mm512_setr_epi32(0, 0, 0, by, 0, 0, 0, by, 0, 0, 0, by, 0, 0, 0, by));
    __m512i x = _mm512_xor_si512(many_blocks ? gw_avx512_counter_block(now) : now, gcm->round[0]);
    GW_AVX512_UNROLL
    for (gw_u32 i = 1; i < rounds; i++) {
        x = _mm512_aesenc_epi128(x, gcm->round[i]);
    }
    return _mm512_aesenclast_epi128(x, last_key);
}

/* Returns a packet's encrypted first counter block, which is added to the GMAC tag. */
GW_AVX512 __m512i gw_gcm_mask(const gw_gcm *gcm, const gw_gcm_shape *shape, gw_u32 rounds)
{
    __m512i x = _mm512_xor_si512(gcm->counter, gcm->round[0]);
    GW_AVX512_UNROLL
    for (gw_u32 i = 1; i < rounds; i++) {
        x = _mm512_aesenc_epi128(x, gcm->round[i]);
    }
    x = _mm512_aesenclast_epi128(x, gcm->round[rounds]);
    return _mm512_and_si512(shape->front, gw_avx512_swap128(x));
}

/* Encrypts or decrypts the first 64 bytes of a packet. `mask` receives the encrypted first counter
 * block for the tag. Returns the blocks to authenticate, each with reversed bytes. */
GW_AVX512 __m512i gw_gcm_first(gw_gcm *gcm, const gw_gcm_shape *shape, gw_u8 *text,
                               const gw_u32 front[4], __m512i *mask, gw_u32 rounds, gw_u32 mode,
                               gw_u32 many_blocks)
{
    const __m512i input = _mm512_maskz_loadu_epi32(shape->first, text);
    if (mode == GW_GCM_GMAC) {
        *mask = gw_gcm_mask(gcm, shape, rounds);
        return gw_avx512_swap128(input);
    }
    const __m512i output =
        gw_gcm_stream(gcm, _mm512_xor_si512(input, gcm->round[rounds]), rounds, many_blocks);
    _mm512_mask_storeu_epi32(text, shape->first, output);
    __m512i wire = gw_avx512_swap128(output);
    *mask = _mm512_and_si512(shape->front, wire);
    wire = mode == GW_GCM_DECRYPT ? gw_avx512_swap128(input) : _mm512_and_si512(shape->text, wire);
    return _mm512_ternarylogic_epi64(wire, gw_gcm_broadcast(front), shape->front,
                                     GW_GCM_XOR_SELECTED);
}

/* Encrypts or decrypts four data blocks. Returns the ciphertext, with the bytes of each block
 * reversed. */
GW_AVX512 __m512i gw_gcm_whole(gw_gcm *gcm, gw_u8 *text, gw_u32 rounds, gw_u32 mode,
                               gw_u32 many_blocks)
{
    const __m512i input = _mm512_loadu_si512(text);
    if (mode == GW_GCM_GMAC) {
        return gw_avx512_swap128(input);
    }
    const __m512i output =
        gw_gcm_stream(gcm, _mm512_xor_si512(input, gcm->round[rounds]), rounds, many_blocks);
    _mm512_storeu_si512(text, output);
    return gw_avx512_swap128(mode == GW_GCM_DECRYPT ? input : output);
}

/* Encrypts or decrypts the last 1 to 64 bytes of a packet with more than 64 bytes. Returns the
 * ciphertext and the block with the lengths, each block with reversed bytes. */
GW_AVX512 __m512i gw_gcm_last(gw_gcm *gcm, const gw_gcm_shape *shape, gw_u8 *text, gw_u32 rounds,
                              gw_u32 mode, gw_u32 many_blocks)
{
    const __m512i input = _mm512_maskz_loadu_epi32(shape->last, text);
    __m512i wire = input;
    if (mode != GW_GCM_GMAC) {
        const __m512i output =
            gw_gcm_stream(gcm, _mm512_xor_si512(input, gcm->round[rounds]), rounds, many_blocks);
        _mm512_mask_storeu_epi32(text, shape->last, output);
        wire = mode == GW_GCM_DECRYPT ? input : output;
    }
    return _mm512_mask_mov_epi8(shape->lengths, shape->last_bytes, gw_avx512_swap128(wire));
}

/* State of a packet between its GCM encryption or decryption and its tag computation. */
typedef struct gw_gcm_rest {
    __m512i sum;  /* sum of all rows but the last */
    __m512i last; /* the last row */
    __m512i mask; /* encrypted first counter block */
    const gw_ipsec_sa *sa;
} gw_gcm_rest;

/* Adds eight blocks of 16 bytes to a GHASH sum. */
GW_AVX512 __m512i gw_gcm_add_two(const gw_gcm *gcm, __m512i sum, __m512i first, __m512i second)
{
    gw_gcm_product product = gw_gcm_expand(first, gcm->fourth);
    product.high = _mm512_xor_si512(product.high, second);
    return gw_gcm_reduce(gw_gcm_expand_add(product, sum, gcm->eighth));
}

/* Encrypts or decrypts a packet with GCM. `front` is the first authenticated block (RFC 4106,
 * section 5). `rows` is the number of 64-byte parts of the packet, which some callers pass as a
 * constant. */
GW_AVX512 gw_gcm_rest gw_gcm_packet(const gw_gcm_shape *shape, const gw_ipsec_sa *sa, gw_u8 *data,
                                    const gw_u32 front[4], gw_u32 rounds, gw_u32 mode,
                                    gw_u32 many_blocks, gw_u32 rows)
{
    gw_gcm gcm;
    gw_gcm_rest rest;
    gw_u8 *text = data - shape->from;
    gw_u8 *last = text + GW_GCM_ROW * (rows - 1);
    gw_gcm_begin(&gcm, shape, sa, data, rounds);
    __m512i sum = gw_gcm_first(&gcm, shape, text, front, &rest.mask, rounds, mode, many_blocks);
    rest.sa = sa;
    if (rows == 1) {
        rest.sum = _mm512_setzero_si512();
        rest.last = _mm512_or_si512(sum, shape->lengths);
        return rest;
    }
    text += GW_GCM_ROW;
    if (rows % 2 != 0) {
        const __m512i whole = gw_gcm_whole(&gcm, text, rounds, mode, many_blocks);
        sum = _mm512_xor_si512(gw_gcm_reduce(gw_gcm_expand(sum, gcm.fourth)), whole);
        text += GW_GCM_ROW;
    }
    if (rows != 2 && text != last) {
        /* The loop encrypts 128 bytes while it adds the previous 128 bytes to the GHASH sum. */
        __m512i first = gw_gcm_whole(&gcm, text, rounds, mode, many_blocks);
        __m512i second = gw_gcm_whole(&gcm, text + GW_GCM_ROW, rounds, mode, many_blocks);
        for (text += 2 * GW_GCM_ROW; text != last; text += 2 * GW_GCM_ROW) {
            const __m512i third = gw_gcm_whole(&gcm, text, rounds, mode, many_blocks);
            const __m512i fourth = gw_gcm_whole(&gcm, text + GW_GCM_ROW, rounds, mode, many_blocks);
            sum = gw_gcm_add_two(&gcm, sum, first, second);
            first = third;
            second = fourth;
        }
        sum = gw_gcm_add_two(&gcm, sum, first, second);
    }
    rest.sum = sum;
    rest.last = gw_gcm_last(&gcm, shape, last, rounds, mode, many_blocks);
    return rest;
}

/* Returns a packet's tag as four unreduced GHASH products, whose reduced sum is the tag. */
GW_AVX512 gw_gcm_product gw_gcm_end(const gw_gcm_rest *rest, gw_u32 rounds)
{
    gw_gcm_product product = gw_gcm_expand_add(gw_gcm_expand(rest->last, gw_gcm_low(rest->sa)),
                                               rest->sum, gw_gcm_high(rest->sa, rounds));
    product.high = _mm512_xor_si512(product.high, rest->mask);
    return product;
}

/* Computes the XOR of the four blocks in each register. Returns the four results in one
 * register. */
GW_AVX512 __m512i gw_gcm_gather(__m512i a, __m512i b, __m512i c, __m512i d)
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

/* Returns the GCM tags of four packets, in network byte order. */
GW_AVX512 __m512i gw_gcm_tags(const gw_gcm_product products[4])
{
    gw_gcm_product all;
    all.low = gw_gcm_gather(products[0].low, products[1].low, products[2].low, products[3].low);
    all.middle = gw_gcm_gather(products[0].middle, products[1].middle, products[2].middle,
                               products[3].middle);
    all.high =
        gw_gcm_gather(products[0].high, products[1].high, products[2].high, products[3].high);
    return gw_avx512_swap128(gw_gcm_reduce(all));
}

#endif
