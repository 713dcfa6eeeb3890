/*
 * AES-GCM of one packet (SP 800-38D), four blocks in a register, sixteen blocks at a time. Elements
 * of GHASH are as dialect/ghash.h has them.
 *
 *   text     | SPI, sequence, IV | data ...                                     | ICV
 *   row 0    | counter 1         | 2          | 3          | 4          |
 *   row 1    | 5                 | 6 ...
 *   hashed   | what is authenticated in front | data, encrypted, zeros up to a block | lengths
 *
 * Rows begin a block in front of the data: the first counter block, which hides the sum, lies
 * beside the others, and what is hashed lies as it is encrypted.
 */
#ifndef GODWIT_IPSEC_WIDE_GCM_H
#define GODWIT_IPSEC_WIDE_GCM_H

#include "wide_aes.h"
#include "wide_packet.h"

#define GW_GCM_ROW   GW_WIDE_ROW_BYTES
#define GW_GCM_BLOCK 16u
/* Rows that are worked on together. */
#define GW_GCM_ROWS 4u
/* Blocks behind which the number of a block no longer fits into its last byte. */
#define GW_GCM_BLOCKS_PLAIN 255u

/* What an SA knows, and the packet under way. */
typedef struct gw_gcm {
    gw_u8 *text;     /* row 0 */
    gw_u32 bytes;    /* from there to the end of the data */
    gw_u32 rounds;   /* of AES */
    gw_u32 outbound; /* else inbound */
    gw_u32 many;     /* more than GW_GCM_BLOCKS_PLAIN blocks */
    __m512i round[15];
    __m512i counter; /* of the next row: as it is encrypted, or, where there are many, as numbers */
    __m512i low;     /* powers of H: 4, 3, 2, 1 */
    __m512i high;    /* 8, 7, 6, 5 */
    __m512i fourth;  /* power 4 in all places */
    __m512i eighth;
    __m512i sum; /* the rows so far, of which each fourth block has a sum of its own */
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

/* The counter blocks of the next row, and its successor. */
GW_WIDE __m512i gw_gcm_count(gw_gcm *gcm)
{
    const __m512i now = gcm->counter;
    gcm->counter = _mm512_add_epi32(now, _mm512_maskz_set1_epi32(0x8888, gcm->many ? 4 : 4 << 24));
    return gcm->many ? gw_wide_counter_block(now) : now;
}

/* Key, powers, and the first counter blocks: salt, IV, number (RFC 4106, section 4). */
GW_WIDE void gw_gcm_begin(gw_gcm *gcm, const gw_ipsec_sa *sa)
{
    const gw_u32 *keys = sa->keys;
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i <= gcm->rounds; i++) {
        gcm->round[i] =
            _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(keys + 4 * i)));
    }
    const __m512i powers = _mm512_loadu_si512(sa->authentication);
    gcm->low = _mm512_shuffle_i64x2(powers, powers, 0x1b);
    gcm->fourth = _mm512_shuffle_i64x2(powers, powers, 0xff);
    gcm->high = gw_gcm_reduce(gw_gcm_expand(gcm->low, gcm->fourth));
    gcm->eighth = _mm512_shuffle_i64x2(gcm->high, gcm->high, 0x00);
    const __m128i iv = _mm_loadu_si128((const __m128i *)(const void *)(gcm->text + 4));
    const __m128i named = _mm_mask_set1_epi32(iv, 1, (int)sa->salt);
    const __m512i numbers = gcm->many
                                ? _mm512_setr_epi32(0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4)
                                : _mm512_setr_epi32(0, 0, 0, 1 << 24, 0, 0, 0, 2 << 24, 0, 0, 0,
                                                    3 << 24, 0, 0, 0, 4 << 24);
    gcm->counter = _mm512_mask_mov_epi32(_mm512_broadcast_i32x4(named), 0x8888, numbers);
    gcm->sum = _mm512_setzero_si512();
}

/* Two rows, whole and with their bytes turned round, are taken into the sum. */
GW_WIDE void gw_gcm_sum_two(gw_gcm *gcm, __m512i first, __m512i second)
{
    gw_gcm_product product = gw_gcm_expand(first, gcm->fourth);
    product.high = _mm512_xor_si512(product.high, second);
    gcm->sum = gw_gcm_reduce(gw_gcm_expand_add(product, gcm->sum, gcm->eighth));
}

/* AES on `count` rows of counter blocks; xors the stream to the data. */
GW_WIDE void gw_gcm_rows(gw_gcm *gcm, __m512i rows[GW_GCM_ROWS], gw_u32 count)
{
    __m512i x[GW_GCM_ROWS];
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < count; k++) {
        x[k] = _mm512_xor_si512(gw_gcm_count(gcm), gcm->round[0]);
    }
    GW_WIDE_UNROLL
    for (gw_u32 round = 1; round < gcm->rounds; round++) {
        GW_WIDE_UNROLL
        for (gw_u32 k = 0; k < count; k++) {
            x[k] = _mm512_aesenc_epi128(x[k], gcm->round[round]);
        }
    }
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < count; k++) {
        rows[k] =
            _mm512_aesenclast_epi128(x[k], _mm512_xor_si512(rows[k], gcm->round[gcm->rounds]));
    }
}

/* What is authenticated in front of the data, as an element (RFC 4106, section 5). */
GW_WIDE __m128i gw_gcm_front(const gw_wide_packet *packet)
{
    if ((packet->found.sa->flags & GW_IPSEC_SA_ESN) == 0) {
        const __m128i front = _mm_loadl_epi64((const __m128i *)(const void *)packet->text);
        return _mm512_castsi512_si128(gw_wide_swap128(_mm512_castsi128_si512(front)));
    }
    const gw_ipsec_aad aad = gw_ipsec_aad_of(packet->found.sa, packet->sequence);
    return gw_ghash_words(aad.words[0], aad.words[1], aad.words[2], aad.words[3]);
}

/* The bytes of row 0 that are data. */
#define GW_GCM_DATA (~(gw_u64)0 << GW_GCM_BLOCK)

/* `count` rows from `offset` on: through the cipher, and, as they are on the wire with their bytes
 * turned round, into `wire`. What lies behind the data is 0. */
GW_WIDE void gw_gcm_step(gw_gcm *gcm, __m512i wire[GW_GCM_ROWS], gw_u32 offset, gw_u32 count,
                         gw_u32 whole, gw_u32 is_first, __m128i front, __m128i *mask)
{
    __m512i rows[GW_GCM_ROWS];
    __mmask64 data[GW_GCM_ROWS];
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < count; k++) {
        const gw_u32 at = offset + GW_GCM_ROW * k;
        data[k] = whole || k + 1 < count ? ~(gw_u64)0 : gw_wide_mask(gcm->bytes, at);
        if (is_first && k == 0) {
            data[k] &= GW_GCM_DATA;
        }
        const gw_u32 all = (whole || k + 1 < count) && !(is_first && k == 0);
        rows[k] = all ? _mm512_loadu_si512(gcm->text + at)
                      : _mm512_maskz_loadu_epi8(data[k], gcm->text + at);
        if (!gcm->outbound) {
            wire[k] = gw_wide_swap128(rows[k]);
        }
    }
    gw_gcm_rows(gcm, rows, count);
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < count; k++) {
        const gw_u32 at = offset + GW_GCM_ROW * k;
        const gw_u32 all = (whole || k + 1 < count) && !(is_first && k == 0);
        if (is_first && k == 0) {
            *mask = _mm512_castsi512_si128(rows[k]);
        }
        if (all) {
            _mm512_storeu_si512(gcm->text + at, rows[k]);
        } else {
            _mm512_mask_storeu_epi8(gcm->text + at, data[k], rows[k]);
        }
        if (gcm->outbound) {
            wire[k] = gw_wide_swap128(all ? rows[k] : _mm512_maskz_mov_epi8(data[k], rows[k]));
        }
        if (is_first && k == 0) {
            wire[k] = _mm512_mask_mov_epi64(wire[k], 3, _mm512_castsi128_si512(front));
        }
    }
}

/* The lengths in bits of what is authenticated only and of what is encrypted too, as elements. */
GW_WIDE __m512i gw_gcm_lengths(gw_u64 front_bits, gw_u64 data_bits)
{
    return _mm512_mask_set1_epi64(_mm512_set1_epi64((long long)front_bits), 0x55,
                                  (long long)data_bits);
}

/*
 * The last rows, of which `count` hold data, and the lengths: in the block behind the data, which
 * may be the first of another row. The sum is reduced for the last time, and its four parts become
 * one.
 */
GW_WIDE __m128i gw_gcm_end(gw_gcm *gcm, __m512i wire[GW_GCM_ROWS], gw_u32 count, gw_u32 is_first,
                           __m512i lengths)
{
    const gw_u32 blocks = (gcm->bytes + GW_GCM_BLOCK - 1) / GW_GCM_BLOCK % 4; /* of the last row */
    const __m512i places = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    /* The powers of the last row begin with that of its number of blocks, and the lengths. */
    const __m512i from = _mm512_add_epi64(places, _mm512_set1_epi64((long long)(6 - 2 * blocks)));
    const __m512i before = _mm512_permutex2var_epi64(gcm->high, from, gcm->low);
    const __m512i last =
        _mm512_maskz_permutexvar_epi64((__mmask8)((4u << (2 * blocks)) - 1), from, gcm->low);
    const __mmask8 place = (__mmask8)(3u << (2 * blocks));
    gw_u32 left = count;
    __m512i end = lengths;
    if (blocks != 0) {
        left = count - 1;
        end = _mm512_mask_mov_epi64(wire[count - 1], place, lengths);
    }
    /* What is whole. */
    gw_u32 k = 0;
    if (is_first && left != 0) {
        gcm->sum = wire[0];
        k = 1;
    }
    for (; k + 2 <= left; k += 2) {
        gw_gcm_sum_two(gcm, wire[k], wire[k + 1]);
    }
    if (k < left) {
        gw_gcm_product product = gw_gcm_expand(gcm->sum, gcm->fourth);
        product.high = _mm512_xor_si512(product.high, wire[k]);
        gcm->sum = gw_gcm_reduce(product);
    }
    gw_gcm_product product = gw_gcm_expand(end, last);
    if (!is_first || left != 0) {
        product = gw_gcm_expand_add(product, gcm->sum, before);
    }
    const __m512i sum = gw_gcm_reduce(product);
    const __m256i half =
        _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* A packet whose data is at hand; its tag. */
GW_WIDE __m128i gw_gcm_run(const gw_wide_packet *packet, gw_u32 rounds, gw_u32 outbound,
                           gw_u32 many)
{
    gw_gcm gcm;
    __m512i wire[GW_GCM_ROWS];
    __m128i mask = _mm_setzero_si128();
    __m128i sum = _mm_setzero_si128();
    const gw_ipsec_sa *sa = packet->found.sa;
    const __m512i lengths = gw_gcm_lengths((sa->flags & GW_IPSEC_SA_ESN) != 0 ? 96 : 64,
                                           8 * (gw_u64)packet->data_bytes);
    const gw_u32 group = GW_GCM_ROWS * GW_GCM_ROW;
    gcm.text = packet->data - GW_GCM_BLOCK;
    gcm.bytes = packet->data_bytes + GW_GCM_BLOCK;
    gcm.rounds = rounds;
    gcm.outbound = outbound;
    gcm.many = many;
    gw_gcm_begin(&gcm, sa);
    const __m128i front = gw_gcm_front(packet);

#define GW_GCM_LAST(count, is_first)                                                               \
    gw_gcm_step(&gcm, wire, offset, count, 0, is_first, front, &mask);                             \
    sum = gw_gcm_end(&gcm, wire, count, is_first, lengths);                                        \
    break;

    gw_u32 offset = 0;
    if (gcm.bytes <= group) {
        switch ((gcm.bytes + GW_GCM_ROW - 1) / GW_GCM_ROW) {
        case 1:
            GW_GCM_LAST(1, 1)
        case 2:
            GW_GCM_LAST(2, 1)
        case 3:
            GW_GCM_LAST(3, 1)
        default:
            GW_GCM_LAST(4, 1)
        }
    } else {
        gw_gcm_step(&gcm, wire, 0, GW_GCM_ROWS, 1, 1, front, &mask);
        for (offset = group; offset + group < gcm.bytes; offset += group) {
            __m512i next[GW_GCM_ROWS];
            gw_gcm_step(&gcm, next, offset, GW_GCM_ROWS, 1, 0, front, &mask);
            gw_gcm_sum_two(&gcm, wire[0], wire[1]);
            gw_gcm_sum_two(&gcm, wire[2], wire[3]);
            GW_WIDE_UNROLL
            for (gw_u32 k = 0; k < GW_GCM_ROWS; k++) {
                wire[k] = next[k];
            }
        }
        gw_gcm_sum_two(&gcm, wire[0], wire[1]);
        gw_gcm_sum_two(&gcm, wire[2], wire[3]);
        switch ((gcm.bytes - offset + GW_GCM_ROW - 1) / GW_GCM_ROW) {
        case 1:
            GW_GCM_LAST(1, 0)
        case 2:
            GW_GCM_LAST(2, 0)
        case 3:
            GW_GCM_LAST(3, 0)
        default:
            GW_GCM_LAST(4, 0)
        }
    }
#undef GW_GCM_LAST
    const __m128i turned = _mm512_castsi512_si128(gw_wide_swap128(_mm512_castsi128_si512(sum)));
    return _mm_xor_si128(turned, mask);
}

#define GW_GCM_FORM(name, rounds, outbound, many)                                                  \
    static __attribute__((noinline)) __m128i gw_gcm_##name(const gw_wide_packet *packet)           \
    {                                                                                              \
        return gw_gcm_run(packet, rounds, outbound, many);                                         \
    }

GW_GCM_FORM(seal_128, 10, 1, 0)
GW_GCM_FORM(seal_192, 12, 1, 0)
GW_GCM_FORM(seal_256, 14, 1, 0)
GW_GCM_FORM(seal_128_many, 10, 1, 1)
GW_GCM_FORM(seal_192_many, 12, 1, 1)
GW_GCM_FORM(seal_256_many, 14, 1, 1)
GW_GCM_FORM(open_128, 10, 0, 0)
GW_GCM_FORM(open_192, 12, 0, 0)
GW_GCM_FORM(open_256, 14, 0, 0)
GW_GCM_FORM(open_128_many, 10, 0, 1)
GW_GCM_FORM(open_192_many, 12, 0, 1)
GW_GCM_FORM(open_256_many, 14, 0, 1)

typedef __m128i gw_gcm_form(const gw_wide_packet *);

/* Seals, or opens, a packet; returns its tag as it goes over the wire. */
GW_WIDE __m128i gw_gcm_packet(const gw_wide_packet *packet, gw_u32 rounds, gw_u32 outbound)
{
    static gw_gcm_form *const forms[2][2][3] = {
        {{gw_gcm_open_128, gw_gcm_open_192, gw_gcm_open_256},
         {gw_gcm_open_128_many, gw_gcm_open_192_many, gw_gcm_open_256_many}},
        {{gw_gcm_seal_128, gw_gcm_seal_192, gw_gcm_seal_256},
         {gw_gcm_seal_128_many, gw_gcm_seal_192_many, gw_gcm_seal_256_many}},
    };
    const gw_u32 many = packet->data_bytes + GW_GCM_BLOCK > GW_GCM_BLOCK * GW_GCM_BLOCKS_PLAIN;
    return forms[outbound][many][(rounds - 10) / 2](packet);
}

#endif
