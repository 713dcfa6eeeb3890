/* ChaCha20-Poly1305 for sixteen packets at once (RFC 7634; RFC 8439, section 2.8). Each packet is a
 * SIMD lane. Each step encrypts or decrypts 64 bytes of each packet, and adds the four ciphertext
 * blocks to the Poly1305 sum. */
#ifndef GODWIT_IPSEC_AVX512_CHACHA_H
#define GODWIT_IPSEC_AVX512_CHACHA_H

#include "avx512_batch.h"
#include "avx512_poly.h"

/* ChaCha20 state of sixteen packets (RFC 8439, section 2.3). Each register holds one state word of
 * each packet. Word 12 is the block counter. */
typedef struct gw_avx512_chacha {
    __m512i words[16];
} gw_avx512_chacha;

#define GW_AVX512_CHACHA_COUNTER 12u

/* Starts ChaCha20 for sixteen packets with counter 0. A nonce consists of the SA's salt and the
 * packet's IV. */
GW_AVX512 void gw_avx512_chacha_begin(gw_avx512_chacha *chacha, const gw_avx512_group *group)
{
    static const gw_u32 constants[4] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u};
    __m512i line[4][4];
    __m512i ivs[4];
    gw_native_packet *const *packets = group->packets;
    gw_avx512_load_sa_line(line, &group->sas, 0);
    /* The salt is word 2 of an SA and becomes word 13 of the ChaCha20 state. */
    gw_avx512_words(&chacha->words[GW_AVX512_CHACHA_COUNTER - 1], line[0]);
    chacha->words[GW_AVX512_CHACHA_COUNTER] = _mm512_setzero_si512();
    gw_avx512_load_sa_line(line, &group->sas, offsetof(gw_ipsec_sa, keys) / GW_AVX512_ROW_BYTES);
    gw_avx512_words(&chacha->words[4], line[0]);
    gw_avx512_words(&chacha->words[8], line[1]);
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        chacha->words[j] = _mm512_set1_epi32((int)constants[j]);
        ivs[j] = gw_avx512_gather(packets[j]->data - 16, packets[j + 4]->data - 16,
                                  packets[j + 8]->data - 16, packets[j + 12]->data - 16);
    }
    __m512i words[4];
    gw_avx512_words(words, ivs);
    chacha->words[14] = words[2];
    chacha->words[15] = words[3];
}

#define GW_AVX512_CHACHA_QUARTER(a, b, c, d)                                                       \
    x[a] = _mm512_add_epi32(x[a], x[b]);                                                           \
    x[d] = _mm512_rol_epi32(_mm512_xor_si512(x[d], x[a]), 16);                                     \
    x[c] = _mm512_add_epi32(x[c], x[d]);                                                           \
    x[b] = _mm512_rol_epi32(_mm512_xor_si512(x[b], x[c]), 12);                                     \
    x[a] = _mm512_add_epi32(x[a], x[b]);                                                           \
    x[d] = _mm512_rol_epi32(_mm512_xor_si512(x[d], x[a]), 8);                                      \
    x[c] = _mm512_add_epi32(x[c], x[d]);                                                           \
    x[b] = _mm512_rol_epi32(_mm512_xor_si512(x[b], x[c]), 7)

/* Computes the next 64 key stream bytes of each packet. */
static __attribute__((noinline)) void gw_avx512_chacha_block(gw_avx512_chacha *chacha,
                                                             __m512i stream[16])
{
    __m512i x[16];
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        x[i] = chacha->words[i];
    }
    for (gw_u32 i = 0; i < 10; i++) {
        GW_AVX512_CHACHA_QUARTER(0, 4, 8, 12);
        GW_AVX512_CHACHA_QUARTER(1, 5, 9, 13);
        GW_AVX512_CHACHA_QUARTER(2, 6, 10, 14);
        GW_AVX512_CHACHA_QUARTER(3, 7, 11, 15);
        GW_AVX512_CHACHA_QUARTER(0, 5, 10, 15);
        GW_AVX512_CHACHA_QUARTER(1, 6, 11, 12);
        GW_AVX512_CHACHA_QUARTER(2, 7, 8, 13);
        GW_AVX512_CHACHA_QUARTER(3, 4, 9, 14);
    }
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        stream[i] = _mm512_add_epi32(x[i], chacha->words[i]);
    }
    chacha->words[GW_AVX512_CHACHA_COUNTER] =
        _mm512_add_epi32(chacha->words[GW_AVX512_CHACHA_COUNTER], _mm512_set1_epi32(1));
}

/* Computes the additional authenticated data of sixteen packets (RFC 7634, section 2.1). Returns
 * its length for each packet, in bytes. */
GW_AVX512 __m512i gw_avx512_chacha_front(__m512i words[4], const gw_avx512_group *group)
{
    __mmask16 extended = 0;
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
        const gw_u32 has = (group->sas.sa[i]->flags & GW_IPSEC_SA_ESN) != 0;
        extended |= (__mmask16)(has << i);
    }
    const __m512i high = gw_avx512_swap32(_mm512_load_si512(group->sequence[0]));
    const __m512i low = gw_avx512_swap32(_mm512_load_si512(group->sequence[1]));
    words[0] = gw_avx512_swap32(_mm512_load_si512(group->spi));
    words[1] = _mm512_mask_mov_epi32(low, extended, high);
    words[2] = _mm512_maskz_mov_epi32(extended, low);
    words[3] = _mm512_setzero_si512();
    return _mm512_mask_set1_epi32(_mm512_set1_epi32(8), extended, 12);
}

/* Encrypts or decrypts the data of sixteen packets with ChaCha20, and adds the ciphertext to the
 * Poly1305 sums. Each data length must be a multiple of 4. */
GW_AVX512 void gw_avx512_chacha_data(gw_avx512_chacha *chacha, gw_avx512_poly *poly,
                                     const gw_avx512_lanes *lanes, gw_avx512_batch *batch,
                                     __m512i bytes, gw_u32 outbound)
{
    __m512i blocks[4][4];
    __m512i words[16];
    __m512i stream[16];
    __m512i wire[16];
    for (gw_u32 offset = 0; offset < lanes->longest; offset += GW_AVX512_ROW_BYTES) {
        const gw_u32 whole = offset + GW_AVX512_ROW_BYTES <= lanes->shortest;
        gw_avx512_prefetch_upcoming(batch, GW_AVX512_LANES / 4);
        gw_avx512_chacha_block(chacha, stream);
        if (whole) {
            gw_avx512_prefetch_rows(lanes, offset);
            gw_avx512_load(blocks, lanes, offset);
        } else {
            gw_avx512_load_partial(blocks, lanes, offset);
        }
        GW_AVX512_UNROLL
        for (gw_u32 k = 0; k < 4; k++) {
            gw_avx512_words(&words[4 * k], blocks[k]);
        }
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < 16; i++) {
            const __mmask16 active =
                _mm512_cmpgt_epu32_mask(bytes, _mm512_set1_epi32((int)(offset + 4 * i)));
            const __m512i output = _mm512_maskz_xor_epi32(active, words[i], stream[i]);
            wire[i] = outbound ? output : words[i];
            words[i] = output;
        }
        for (gw_u32 k = 0; k < 4 && offset + 16 * k < lanes->longest; k++) {
            const __mmask16 active =
                _mm512_cmpgt_epu32_mask(bytes, _mm512_set1_epi32((int)(offset + 16 * k)));
            gw_avx512_poly_take(poly, &wire[4 * k], active);
        }
        GW_AVX512_UNROLL
        for (gw_u32 k = 0; k < 4; k++) {
            gw_avx512_words(blocks[k], &words[4 * k]);
        }
        if (whole) {
            gw_avx512_store(blocks, lanes, offset);
        } else {
            gw_avx512_store_partial(blocks, lanes, offset);
        }
    }
}

/* Processes sixteen packets with ChaCha20-Poly1305. Outbound packets are encrypted and
 * authenticated, and inbound packets are verified and decrypted. */
static __attribute__((noinline)) void
gw_avx512_chacha_group(gw_avx512_group *group, gw_avx512_batch *batch, gw_u32 outbound)
{
    gw_avx512_lanes lanes;
    gw_avx512_chacha chacha;
    gw_avx512_poly poly;
    __m512i one_time_key[16]; /* one-time key (RFC 8439, section 2.6): r, then s */
    __m512i words[4];
    gw_avx512_group_lanes(&lanes, group, 0);
    gw_avx512_chacha_begin(&chacha, group);
    gw_avx512_chacha_block(&chacha, one_time_key);
    gw_avx512_poly_begin(&poly, one_time_key);
    const __m512i front_bytes = gw_avx512_chacha_front(words, group);
    gw_avx512_poly_take(&poly, words, 0xffff);
    const __m512i bytes = _mm512_loadu_si512(lanes.bytes);
    gw_avx512_chacha_data(&chacha, &poly, &lanes, batch, bytes, outbound);
    words[0] = front_bytes;
    words[1] = _mm512_setzero_si512();
    words[2] = bytes;
    words[3] = _mm512_setzero_si512();
    gw_avx512_poly_take(&poly, words, 0xffff);
    __m128i tags[GW_AVX512_LANES];
    gw_avx512_poly_tags(&poly, &one_time_key[4], tags);
    for (gw_u32 i = 0; i < group->count; i++) {
        gw_native_packet *packet = group->packets[i];
        const gw_ipsec_sa *sa = packet->found.sa;
        gw_u8 *icv = packet->data + packet->data_bytes;
        const __mmask8 mask = gw_avx512_icv_mask(sa->icv_bytes);
        if (outbound) {
            _mm_mask_storeu_epi32(icv, mask, tags[i]);
            continue;
        }
        packet->authentic =
            _mm_mask_cmpneq_epi32_mask(mask, _mm_maskz_loadu_epi32(mask, icv), tags[i]) == 0;
        if (!packet->authentic) {
            /* The ICV is wrong, so the packet must stay unchanged (RFC 4303, section 3.4.4.1). A
             * second XOR with the key stream restores it. */
            gw_chacha20(sa->keys, gw_ipsec_chacha20_nonce(sa, packet->data - 8), 1, packet->data,
                        packet->data_bytes);
        }
    }
}

#endif
