/* Processes up to sixteen packets with AES-GCM (RFC 4106) or AES-GMAC (RFC 4543), four packets at a
 * time. */
#ifndef GODWIT_IPSEC_AVX512_GCM_GROUP_H
#define GODWIT_IPSEC_AVX512_GCM_GROUP_H

#include "avx512_batch.h"
#include "avx512_gcm.h"
#include "avx512_group.h"
#include "avx512_simple.h"

/* Number of packets whose GHASH sums are reduced together. */
#define GW_GCM_PACKETS 4u

/* Additional authenticated data of up to sixteen packets, as GHASH elements. */
typedef struct gw_gcm_fronts {
    gw_u32 words[GW_AVX512_LANES][4] __attribute__((aligned(64)));
} gw_gcm_fronts;

/* Computes the additional authenticated data of each packet, like gw_ipsec_aad_of. */
GW_AVX512 void gw_gcm_fronts_of(gw_gcm_fronts *fronts, const gw_avx512_group *group)
{
    const __mmask16 extended = (__mmask16)group->extended;
    const __m512i high = _mm512_load_si512(group->sequence[0]);
    const __m512i low = _mm512_load_si512(group->sequence[1]);
    __m512i words[4];
    __m512i blocks[4];
    words[0] = _mm512_setzero_si512();
    words[1] = _mm512_maskz_mov_epi32(extended, low);
    words[2] = _mm512_mask_mov_epi32(low, extended, high);
    words[3] = _mm512_load_si512(group->spi);
    gw_avx512_words(blocks, words);
    /* Register j holds packets j, j + 4, j + 8 and j + 12. */
    gw_avx512_transpose(&blocks[0], &blocks[1], &blocks[2], &blocks[3]);
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        _mm512_store_si512(fronts->words[4 * j], blocks[j]);
    }
}

/* Computes the GMAC tag of a packet with an extended sequence number. The packet lacks the upper
 * half of this number, so the authenticated text is not contiguous. */
static __attribute__((noinline)) gw_gcm_product gw_gmac_extended(const gw_avx512_group *group,
                                                                 gw_u32 i, gw_u32 rounds)
{
    const gw_u8 *data = group->data[i];
    const gw_u64 sequence = (gw_u64)group->sequence[0][i] << 32 | group->sequence[1][i];
    const gw_ipsec_tag tag = gw_ipsec_gmac_esp(group->sas.sa[i], rounds, gw_load_be64(data - 8),
                                               sequence, data, group->data_bytes[i]);
    gw_u8 bytes[16];
    gw_ipsec_tag_store(bytes, tag, sizeof(bytes));
    gw_gcm_product product;
    product.low = _mm512_setzero_si512();
    product.middle = _mm512_setzero_si512();
    product.high = gw_avx512_swap128(
        _mm512_zextsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)bytes)));
    return product;
}

/* Encrypts or decrypts a packet with more than GW_GCM_BYTE_COUNTER_BLOCKS blocks. */
typedef gw_gcm_product gw_gcm_many_blocks(const gw_gcm_shape *, const gw_ipsec_sa *, gw_u8 *data,
                                          const gw_u32 front[4]);

/* Returns a number that is equal for packets with equal lengths and equally long sequence
 * numbers. */
GW_AVX512 gw_u32 gw_gcm_shape_id(const gw_avx512_group *group, gw_u32 i)
{
    return group->data_bytes[i] << 1 | (group->extended >> i & 1u);
}

/* Encrypts or decrypts consecutive packets with equal lengths and equally long sequence numbers,
 * from packet `from` on. Returns the index after the last of them. */
GW_AVX512 gw_u32 gw_gcm_same_shape(gw_gcm_shape shape, const gw_avx512_group *group,
                                   const gw_gcm_fronts *fronts, gw_u32 from, gw_u32 end,
                                   gw_gcm_product *products, gw_u32 rounds, gw_u32 mode,
                                   gw_u32 rows)
{
    gw_u32 i = from;
    gw_gcm_rest rest = gw_gcm_packet(&shape, group->sas.sa[i], group->data[i], fronts->words[i],
                                     rounds, mode, 0, rows);
    for (i++; i < end && gw_gcm_shape_id(group, i) == shape.id; i++) {
        const gw_gcm_rest next = gw_gcm_packet(&shape, group->sas.sa[i], group->data[i],
                                               fronts->words[i], rounds, mode, 0, rows);
        *products++ = gw_gcm_end(&rest, rounds);
        rest = next;
    }
    *products = gw_gcm_end(&rest, rounds);
    return i;
}

/* Encrypts or decrypts `count` packets of a group, starting with packet `first`. */
GW_AVX512 void gw_gcm_packets(gw_gcm_shape *shape, const gw_avx512_group *group,
                              const gw_gcm_fronts *fronts, gw_u32 first, gw_u32 count,
                              gw_gcm_product *products, gw_u32 rounds, gw_u32 mode,
                              gw_gcm_many_blocks *many_blocks)
{
    for (gw_u32 i = first; i < first + count;) {
        const gw_u32 id = gw_gcm_shape_id(group, i);
        gw_gcm_product *product = &products[i - first];
        if (shape->id != id) {
            gw_gcm_shape_of(shape, id, mode);
        }
        if (mode == GW_GCM_GMAC && (id & 1) != 0) {
            *product = gw_gmac_extended(group, i, rounds);
            i++;
        } else if (shape->many_blocks) {
            *product = many_blocks(shape, group->sas.sa[i], group->data[i], fronts->words[i]);
            i++;
        } else if (shape->rows == 2) {
            i = gw_gcm_same_shape(*shape, group, fronts, i, first + count, product, rounds, mode,
                                  2);
        } else {
            i = gw_gcm_same_shape(*shape, group, fronts, i, first + count, product, rounds, mode,
                                  shape->rows);
        }
    }
}

/* Returns a mask of the ICV words of up to four packets, from packet `first` on. */
GW_AVX512 __mmask16 gw_gcm_icv_mask(const gw_avx512_group *group, gw_u32 first, gw_u32 count)
{
    gw_u32 mask = 0;
    if (group->icv_bytes != 0) {
        mask = gw_avx512_icv_mask(group->icv_bytes) * 0x1111u;
    } else {
        for (gw_u32 k = 0; k < count; k++) {
            mask |= (gw_u32)gw_avx512_icv_mask(group->sas.sa[first + k]->icv_bytes) << (4 * k);
        }
    }
    return (__mmask16)(mask & ((1u << (4 * count)) - 1));
}

GW_AVX512 void gw_gcm_tags_store(const gw_avx512_group *group, gw_u32 first, gw_u32 count,
                                 __m512i tags)
{
    const __mmask16 mask = gw_gcm_icv_mask(group, first, count);
    GW_AVX512_UNROLL
    for (gw_u32 k = 0; k < GW_GCM_PACKETS; k++) {
        if (k < count) {
            _mm_mask_storeu_epi32(group->data[first + k] + group->data_bytes[first + k],
                                  (__mmask8)(mask >> (4 * k) & 0xf), gw_avx512_quarter(tags, k));
        }
    }
}

/* Compares the received ICVs of up to four packets with the computed tags. Returns a mask of the
 * words that differ. */
GW_AVX512 __mmask16 gw_gcm_tags_wrong(const gw_avx512_group *group, gw_u32 first, gw_u32 count,
                                      __m512i tags)
{
    const __mmask16 mask = gw_gcm_icv_mask(group, first, count);
    __m512i received = _mm512_setzero_si512();
    GW_AVX512_UNROLL
    for (gw_u32 k = 0; k < GW_GCM_PACKETS; k++) {
        if (k < count) {
            const gw_u8 *icv = group->data[first + k] + group->data_bytes[first + k];
            const __m128i one = _mm_maskz_loadu_epi32((__mmask8)(mask >> (4 * k) & 0xf), icv);
            received = _mm512_mask_broadcast_i32x4(received, (__mmask16)(0xfu << (4 * k)), one);
        }
    }
    return _mm512_mask_cmpneq_epi32_mask(mask, received, tags);
}

/* Processes up to sixteen packets with GCM or GMAC. Returns a mask of the packets with wrong ICVs.
 * `shape` is computed again only if the packet length changes. */
GW_AVX512 gw_u32 gw_gcm_group(const gw_avx512_group *group, gw_avx512_batch *batch,
                              gw_gcm_shape *shape, gw_u32 rounds, gw_u32 mode, gw_u32 outbound,
                              gw_gcm_many_blocks *many_blocks)
{
    gw_gcm_fronts fronts;
    gw_gcm_product products[GW_GCM_PACKETS];
    gw_u32 wrong = 0;
    gw_gcm_fronts_of(&fronts, group);
    for (gw_u32 first = 0; first < group->count; first += GW_GCM_PACKETS) {
        const gw_u32 left = group->count - first;
        const gw_u32 count = left < GW_GCM_PACKETS ? left : GW_GCM_PACKETS;
        gw_gcm_packets(shape, group, &fronts, first, count, products, rounds, mode, many_blocks);
        for (gw_u32 k = count; k < GW_GCM_PACKETS; k++) {
            products[k] = products[0];
        }
        gw_avx512_prefetch_upcoming(batch, GW_GCM_PACKETS);
        const __m512i tags = gw_gcm_tags(products);
        if (outbound) {
            gw_gcm_tags_store(group, first, count, tags);
            continue;
        }
        const __mmask16 words = gw_gcm_tags_wrong(group, first, count, tags);
        if (words != 0) {
            for (gw_u32 k = 0; k < count; k++) {
                wrong |= (gw_u32)((words >> (4 * k) & 0xf) != 0) << (first + k);
            }
        }
    }
    if (mode == GW_GCM_DECRYPT && wrong != 0) {
        /* Packets with a wrong ICV must stay unchanged (RFC 4303, section 3.4.4.1). A second
         * decryption restores them. */
        for (gw_u32 i = 0; i < group->count; i++) {
            if ((wrong >> i & 1u) != 0) {
                gw_gcm_packets(shape, group, &fronts, i, 1, products, rounds, mode, many_blocks);
            }
        }
    }
    return wrong;
}

#define GW_GCM_FUNCTION(name, rounds, mode, outbound)                                              \
    static __attribute__((noinline)) gw_gcm_product gw_gcm_many_blocks_##name(                     \
        const gw_gcm_shape *shape, const gw_ipsec_sa *sa, gw_u8 *data, const gw_u32 front[4])      \
    {                                                                                              \
        const gw_gcm_rest rest =                                                                   \
            gw_gcm_packet(shape, sa, data, front, rounds, mode, 1, shape->rows);                   \
        return gw_gcm_end(&rest, rounds);                                                          \
    }                                                                                              \
    static __attribute__((noinline)) gw_u32 gw_gcm_##name(                                         \
        const gw_avx512_group *group, gw_avx512_batch *batch, gw_gcm_shape *shape)                 \
    {                                                                                              \
        return gw_gcm_group(group, batch, shape, rounds, mode, outbound,                           \
                            gw_gcm_many_blocks_##name);                                            \
    }
#define GW_GCM_FUNCTIONS(rounds, bits)                                                             \
    GW_GCM_FUNCTION(decrypt_##bits, rounds, GW_GCM_DECRYPT, 0)                                     \
    GW_GCM_FUNCTION(encrypt_##bits, rounds, GW_GCM_ENCRYPT, 1)                                     \
    GW_GCM_FUNCTION(verify_##bits, rounds, GW_GCM_GMAC, 0)                                         \
    GW_GCM_FUNCTION(sign_##bits, rounds, GW_GCM_GMAC, 1)

GW_GCM_FUNCTIONS(10, 128)
GW_GCM_FUNCTIONS(12, 192)
GW_GCM_FUNCTIONS(14, 256)

typedef gw_u32 gw_gcm_function(const gw_avx512_group *, gw_avx512_batch *, gw_gcm_shape *);

/* Processes up to sixteen packets with the function for their suite and direction. Returns a mask
 * of the packets with wrong ICVs. */
GW_AVX512 gw_u32 gw_gcm_run_group(const gw_avx512_group *group, gw_avx512_batch *batch,
                                  gw_gcm_shape *shape, gw_ipsec_suite suite, gw_u32 outbound)
{
    static gw_gcm_function *const functions[2][2][3] = {
        {{gw_gcm_decrypt_128, gw_gcm_decrypt_192, gw_gcm_decrypt_256},
         {gw_gcm_encrypt_128, gw_gcm_encrypt_192, gw_gcm_encrypt_256}},
        {{gw_gcm_verify_128, gw_gcm_verify_192, gw_gcm_verify_256},
         {gw_gcm_sign_128, gw_gcm_sign_192, gw_gcm_sign_256}},
    };
    const gw_u32 gmac = suite.cipher == GW_IPSEC_CIPHER_NULL;
    return functions[gmac][outbound][(gw_ipsec_aes_rounds(suite) - 10) / 2](group, batch, shape);
}

#endif
