/* AES-XCBC-MAC and AES-CMAC of sixteen packets at once (RFC 3566, RFC 4493). */
#ifndef GODWIT_IPSEC_AVX512_MAC_H
#define GODWIT_IPSEC_AVX512_MAC_H

#include "avx512_aes.h"
#include "avx512_group.h"

/* Last blocks of a text. They begin with the first block that is not complete in the packet, or
 * with the last block. The subkey is already added to the last one (RFC 3566, section 4, step 4).
 */
typedef struct gw_avx512_mac_end {
    gw_u8 bytes[GW_AVX512_ROW_BYTES] __attribute__((aligned(64)));
} gw_avx512_mac_end;

/* Texts of sixteen packets. */
typedef struct gw_avx512_mac_texts {
    gw_avx512_mac_end ends[GW_AVX512_LANES];
    const gw_u8 *at[GW_AVX512_LANES];
    gw_u32 whole[GW_AVX512_LANES]; /* blocks before the end */
    gw_u32 total[GW_AVX512_LANES] __attribute__((aligned(64)));
    gw_u32 longest; /* largest `total` */
} gw_avx512_mac_texts;

GW_AVX512 void gw_avx512_mac_text(gw_avx512_mac_texts *texts, gw_u32 i,
                                  const gw_native_packet *packet)
{
    const gw_ipsec_sa *sa = packet->found.sa;
    const gw_u32 suffix_bytes = (sa->flags & GW_IPSEC_SA_ESN) != 0 ? 4 : 0;
    const gw_u32 all = packet->text_bytes + suffix_bytes;
    const gw_u32 last = (all - 1) / 16;
    const gw_u32 contiguous = packet->text_bytes / 16;
    const gw_u32 whole = contiguous < last ? contiguous : last;
    const gw_u32 bytes = packet->text_bytes - 16 * whole;
    gw_u8 *end = texts->ends[i].bytes;
    _mm512_store_si512(
        end, _mm512_maskz_loadu_epi8(gw_avx512_mask(bytes, 0), packet->text + 16 * whole));
    if (suffix_bytes != 0) {
        gw_store_be32(end + bytes, (gw_u32)(packet->sequence >> 32));
    }
    const gw_u32 is_complete = all % 16 == 0;
    if (!is_complete) {
        end[bytes + suffix_bytes] = 0x80;
    }
    __m128i *block = (__m128i *)(void *)(end + 16 * (last - whole));
    const __m128i *subkeys = (const __m128i *)(const void *)sa->authentication;
    *block = _mm_xor_si128(*block, _mm_loadu_si128(subkeys + (is_complete ? 0 : 1)));
    texts->at[i] = packet->text;
    texts->whole[i] = whole;
    texts->total[i] = last + 1;
    texts->longest = last + 1 > texts->longest ? last + 1 : texts->longest;
}

/* Returns the address of a block of a text. A text that has ended repeats a block of its end, and
 * the result is ignored. */
GW_AVX512 const gw_u8 *gw_avx512_mac_block(const gw_avx512_mac_texts *texts, gw_u32 i, gw_u32 step)
{
    const gw_u32 whole = texts->whole[i];
    return step < whole ? texts->at[i] + 16 * step
                        : texts->ends[i].bytes + (step == whole ? 0 : 16);
}

/* Returns a mask of the 64-bit words in the registers of lanes j, j + 4, j + 8 and j + 12 that
 * belong to the selected lanes. */
GW_AVX512 __mmask8 gw_avx512_mac_words(gw_u32 lanes, gw_u32 j)
{
    return (__mmask8)_pdep_u32((lanes >> j & 1u) | (lanes >> (j + 3) & 2u) |
                                   (lanes >> (j + 6) & 4u) | (lanes >> (j + 9) & 8u),
                               0x55u) *
           3u;
}

/* Computes the tags of a group. */
static __attribute__((noinline)) void gw_avx512_mac_tags(const gw_avx512_group *group,
                                                         gw_ipsec_tag tags[GW_AVX512_LANES])
{
    gw_avx512_mac_texts texts;
    gw_avx512_keys keys;
    gw_avx512_sas sas;
    texts.longest = 0;
    for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
        const gw_native_packet *packet = group->packets[i];
        sas.sa[i] = packet->found.sa;
        gw_avx512_mac_text(&texts, i, packet);
    }
    gw_avx512_key_lines_load(&keys, &sas, GW_AVX512_MORE_LINE, GW_IPSEC_MAC_ROUNDS);
    const __m512i total = _mm512_load_si512(texts.total);
    __m512i mac[4];
    __m512i x[4];
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        mac[j] = _mm512_setzero_si512();
    }
    for (gw_u32 step = 0; step < texts.longest; step++) {
        const gw_u32 active = _mm512_cmpgt_epu32_mask(total, _mm512_set1_epi32((int)step));
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            const __m512i block = gw_avx512_gather(gw_avx512_mac_block(&texts, j, step),
                                                   gw_avx512_mac_block(&texts, j + 4, step),
                                                   gw_avx512_mac_block(&texts, j + 8, step),
                                                   gw_avx512_mac_block(&texts, j + 12, step));
            x[j] = _mm512_ternarylogic_epi64(mac[j], block, keys.round[0][j], 0x96);
        }
        GW_AVX512_UNROLL
        for (gw_u32 part = 0; part < 4; part++) {
            gw_avx512_rounds(x, &keys, part, 0);
        }
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            mac[j] = _mm512_mask_mov_epi64(mac[j], gw_avx512_mac_words(active, j), x[j]);
        }
    }
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        mac[j] = gw_avx512_swap32(mac[j]);
    }
    gw_avx512_store_tags(mac, tags);
}

#endif
