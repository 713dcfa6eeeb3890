/* Texts of eight packets, which HMAC hashes in blocks of 64 bytes (RFC 2104). */
#ifndef GODWIT_IPSEC_AVX2_TEXTS_H
#define GODWIT_IPSEC_AVX2_TEXTS_H

#include "avx2.h"

#define GW_AVX2_HASH_BYTES 64u

/* Texts of eight packets. */
typedef struct gw_avx2_texts {
    /* Padded ends (FIPS 180-4, section 5.1.1): the last bytes of a text, the byte 0x80, zeros, and
     * the length in bits. */
    gw_u8 ends[GW_AVX2_LANES][2 * GW_AVX2_HASH_BYTES] __attribute__((aligned(32)));
    gw_u32 total[GW_AVX2_LANES] __attribute__((aligned(32))); /* blocks with the padded end */
    gw_u32 whole[GW_AVX2_LANES];                              /* complete blocks of the text */
    const gw_u8 *at[GW_AVX2_LANES];
    const gw_ipsec_sa *sa[GW_AVX2_LANES];
    gw_u32 shortest; /* smallest `total` */
    gw_u32 longest;
} gw_avx2_texts;

GW_NATIVE void gw_avx2_text(gw_avx2_texts *texts, gw_u32 i, const gw_native_packet *packet)
{
    const gw_u32 suffix_bytes = (packet->found.sa->flags & GW_IPSEC_SA_ESN) != 0 ? 4 : 0;
    const gw_u32 bytes = packet->text_bytes + suffix_bytes;
    const gw_u32 whole = packet->text_bytes / GW_AVX2_HASH_BYTES;
    const gw_u32 total = (bytes + 9 + GW_AVX2_HASH_BYTES - 1) / GW_AVX2_HASH_BYTES;
    const gw_u32 left = packet->text_bytes % GW_AVX2_HASH_BYTES;
    gw_u8 *end = texts->ends[i];
    for (gw_u32 at = 0; at < sizeof(texts->ends[i]); at += sizeof(__m256i)) {
        _mm256_store_si256((__m256i *)(void *)(end + at), _mm256_setzero_si256());
    }
    __builtin_memcpy(end, packet->text + GW_AVX2_HASH_BYTES * whole, left);
    if (suffix_bytes != 0) {
        gw_store_be32(end + left, (gw_u32)(packet->sequence >> 32));
    }
    end[left + suffix_bytes] = 0x80;
    gw_store_be32(end + GW_AVX2_HASH_BYTES * (total - whole) - 4, 8 * (GW_AVX2_HASH_BYTES + bytes));
    texts->sa[i] = packet->found.sa;
    texts->at[i] = packet->text;
    texts->whole[i] = whole;
    texts->total[i] = total;
    texts->shortest = total < texts->shortest ? total : texts->shortest;
    texts->longest = total > texts->longest ? total : texts->longest;
}

/* Returns the address of a block of a text. A text that has ended repeats a block of its end, and
 * the result is ignored. */
GW_NATIVE const gw_u8 *gw_avx2_text_block(const gw_avx2_texts *texts, gw_u32 i, gw_u32 step)
{
    const gw_u32 whole = texts->whole[i];
    return step < whole ? texts->at[i] + GW_AVX2_HASH_BYTES * step
                        : texts->ends[i] + (step == whole ? 0 : GW_AVX2_HASH_BYTES);
}

#endif
