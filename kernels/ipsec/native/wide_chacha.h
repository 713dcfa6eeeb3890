/*
 * ChaCha20-Poly1305 of sixteen packets at once (RFC 7634; RFC 8439, section 2.8): each packet is a
 * lane, in both. A step makes a block of 64 bytes of all streams, xors it to the data, and takes
 * the four blocks of 16 bytes, as they are on the wire, into the sums.
 */
#ifndef GODWIT_IPSEC_WIDE_CHACHA_H
#define GODWIT_IPSEC_WIDE_CHACHA_H

#include "wide_batch.h"
#include "wide_poly.h"

/* The sixteen words of RFC 8439, section 2.3, of all lanes; the counter counts blocks. */
typedef struct gw_wide_chacha {
    __m512i words[16];
} gw_wide_chacha;

#define GW_WIDE_CHACHA_COUNTER 12u

/* Keys, and nonces of salt and IV, which lies in front of the data; the counter is 0. */
GW_WIDE void gw_wide_chacha_begin(gw_wide_chacha *chacha, const gw_wide_group *group)
{
    static const gw_u32 constants[4] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u};
    __m512i line[4][4];
    __m512i ivs[4];
    gw_wide_packet *const *packets = group->packets;
    gw_wide_line(line, &group->sas, 0);
    /* Word 2 is the salt, which becomes word 13. */
    gw_wide_words(&chacha->words[GW_WIDE_CHACHA_COUNTER - 1], line[0]);
    chacha->words[GW_WIDE_CHACHA_COUNTER] = _mm512_setzero_si512();
    gw_wide_line(line, &group->sas, offsetof(gw_ipsec_sa, keys) / GW_WIDE_ROW_BYTES);
    gw_wide_words(&chacha->words[4], line[0]);
    gw_wide_words(&chacha->words[8], line[1]);
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        chacha->words[j] = _mm512_set1_epi32((int)constants[j]);
        ivs[j] = gw_wide_gather(packets[j]->data - 16, packets[j + 4]->data - 16,
                                packets[j + 8]->data - 16, packets[j + 12]->data - 16);
    }
    __m512i words[4];
    gw_wide_words(words, ivs);
    chacha->words[14] = words[2];
    chacha->words[15] = words[3];
}

#define GW_WIDE_CHACHA_QUARTER(a, b, c, d)                                                         \
    x[a] = _mm512_add_epi32(x[a], x[b]);                                                           \
    x[d] = _mm512_rol_epi32(_mm512_xor_si512(x[d], x[a]), 16);                                     \
    x[c] = _mm512_add_epi32(x[c], x[d]);                                                           \
    x[b] = _mm512_rol_epi32(_mm512_xor_si512(x[b], x[c]), 12);                                     \
    x[a] = _mm512_add_epi32(x[a], x[b]);                                                           \
    x[d] = _mm512_rol_epi32(_mm512_xor_si512(x[d], x[a]), 8);                                      \
    x[c] = _mm512_add_epi32(x[c], x[d]);                                                           \
    x[b] = _mm512_rol_epi32(_mm512_xor_si512(x[b], x[c]), 7)

/* The next block of all streams. */
static __attribute__((noinline)) void gw_wide_chacha_next(gw_wide_chacha *chacha,
                                                          __m512i stream[16])
{
    __m512i x[16];
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        x[i] = chacha->words[i];
    }
    for (gw_u32 i = 0; i < 10; i++) {
        GW_WIDE_CHACHA_QUARTER(0, 4, 8, 12);
        GW_WIDE_CHACHA_QUARTER(1, 5, 9, 13);
        GW_WIDE_CHACHA_QUARTER(2, 6, 10, 14);
        GW_WIDE_CHACHA_QUARTER(3, 7, 11, 15);
        GW_WIDE_CHACHA_QUARTER(0, 5, 10, 15);
        GW_WIDE_CHACHA_QUARTER(1, 6, 11, 12);
        GW_WIDE_CHACHA_QUARTER(2, 7, 8, 13);
        GW_WIDE_CHACHA_QUARTER(3, 4, 9, 14);
    }
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        stream[i] = _mm512_add_epi32(x[i], chacha->words[i]);
    }
    chacha->words[GW_WIDE_CHACHA_COUNTER] =
        _mm512_add_epi32(chacha->words[GW_WIDE_CHACHA_COUNTER], _mm512_set1_epi32(1));
}

/* What is authenticated in front of the data (RFC 7634, section 2.1); returns its bytes. */
GW_WIDE __m512i gw_wide_chacha_front(__m512i words[4], const gw_wide_group *group)
{
    __mmask16 extended = 0;
    for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
        const gw_u32 has = (group->sas.sa[i]->flags & GW_IPSEC_SA_ESN) != 0;
        extended |= (__mmask16)(has << i);
    }
    const __m512i high = gw_wide_swap32(_mm512_load_si512(group->numbers[0]));
    const __m512i low = gw_wide_swap32(_mm512_load_si512(group->numbers[1]));
    words[0] = gw_wide_swap32(_mm512_load_si512(group->spi));
    words[1] = _mm512_mask_mov_epi32(low, extended, high);
    words[2] = _mm512_maskz_mov_epi32(extended, low);
    words[3] = _mm512_setzero_si512();
    return _mm512_mask_set1_epi32(_mm512_set1_epi32(8), extended, 12);
}

/* The data of all lanes through the cipher and into the sums. Its bytes are multiples of 4. */
GW_WIDE void gw_wide_chacha_data(gw_wide_chacha *chacha, gw_wide_poly *poly,
                                 const gw_wide_lanes *lanes, gw_wide_batch *batch, __m512i bytes,
                                 gw_u32 outbound)
{
    __m512i blocks[4][4];
    __m512i words[16];
    __m512i stream[16];
    __m512i wire[16];
    for (gw_u32 offset = 0; offset < lanes->longest; offset += GW_WIDE_ROW_BYTES) {
        const gw_u32 whole = offset + GW_WIDE_ROW_BYTES <= lanes->shortest;
        gw_wide_ahead(batch, GW_WIDE_LANES / 4);
        gw_wide_chacha_next(chacha, stream);
        if (whole) {
            gw_wide_load_ahead(lanes, offset);
            gw_wide_load(blocks, lanes, offset);
        } else {
            gw_wide_load_some(blocks, lanes, offset);
        }
        GW_WIDE_UNROLL
        for (gw_u32 k = 0; k < 4; k++) {
            gw_wide_words(&words[4 * k], blocks[k]);
        }
        GW_WIDE_UNROLL
        for (gw_u32 i = 0; i < 16; i++) {
            const __mmask16 there =
                _mm512_cmpgt_epu32_mask(bytes, _mm512_set1_epi32((int)(offset + 4 * i)));
            const __m512i done = _mm512_maskz_xor_epi32(there, words[i], stream[i]);
            wire[i] = outbound ? done : words[i];
            words[i] = done;
        }
        for (gw_u32 k = 0; k < 4 && offset + 16 * k < lanes->longest; k++) {
            const __mmask16 there =
                _mm512_cmpgt_epu32_mask(bytes, _mm512_set1_epi32((int)(offset + 16 * k)));
            gw_wide_poly_take(poly, &wire[4 * k], there);
        }
        GW_WIDE_UNROLL
        for (gw_u32 k = 0; k < 4; k++) {
            gw_wide_words(blocks[k], &words[4 * k]);
        }
        if (whole) {
            gw_wide_store(blocks, lanes, offset);
        } else {
            gw_wide_store_some(blocks, lanes, offset);
        }
    }
}

/* All of it for a group. */
static __attribute__((noinline)) void gw_wide_chacha_of(gw_wide_group *group, gw_wide_batch *batch,
                                                        gw_u32 outbound)
{
    gw_wide_lanes lanes;
    gw_wide_chacha chacha;
    gw_wide_poly poly;
    __m512i once[16]; /* the one-time key of section 2.6: r, and what is added at the end */
    __m512i words[4];
    gw_wide_lanes_of(&lanes, group, 0);
    gw_wide_chacha_begin(&chacha, group);
    gw_wide_chacha_next(&chacha, once);
    gw_wide_poly_begin(&poly, once);
    const __m512i front_bytes = gw_wide_chacha_front(words, group);
    gw_wide_poly_take(&poly, words, 0xffff);
    const __m512i bytes = _mm512_loadu_si512(lanes.bytes);
    gw_wide_chacha_data(&chacha, &poly, &lanes, batch, bytes, outbound);
    words[0] = front_bytes;
    words[1] = _mm512_setzero_si512();
    words[2] = bytes;
    words[3] = _mm512_setzero_si512();
    gw_wide_poly_take(&poly, words, 0xffff);
    __m128i tags[GW_WIDE_LANES];
    gw_wide_poly_tags(&poly, &once[4], tags);
    for (gw_u32 i = 0; i < group->count; i++) {
        gw_wide_packet *packet = group->packets[i];
        const gw_ipsec_sa *sa = packet->found.sa;
        gw_u8 *icv = packet->data + packet->data_bytes;
        const __mmask8 mask = gw_wide_icv_mask(sa->icv_bytes);
        if (outbound) {
            _mm_mask_storeu_epi32(icv, mask, tags[i]);
            continue;
        }
        packet->authentic =
            _mm_mask_cmpneq_epi32_mask(mask, _mm_maskz_loadu_epi32(mask, icv), tags[i]) == 0;
        if (!packet->authentic) {
            /* It is left as it came (RFC 4303, section 3.4.4.1): the stream once more does that,
             * and is seldom needed. */
            gw_chacha20(sa->keys, gw_ipsec_chacha20_nonce(sa, packet->data - 8), 1, packet->data,
                        packet->data_bytes);
        }
    }
}

#endif
