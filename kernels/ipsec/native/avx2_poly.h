/* Poly1305 for eight packets at once (RFC 8439, sections 2.5 and 2.8). Numbers consist of five
 * limbs as in poly1305.h. A limb of four packets is a register with 64 bits per packet: one
 * register for lanes 0, 2, 4 and 6, and one for the others. */
#ifndef GODWIT_IPSEC_AVX2_POLY_H
#define GODWIT_IPSEC_AVX2_POLY_H

#include "avx2.h"

#define GW_AVX2_POLY_LIMBS 5u

/* A limb of eight packets: of the even lanes, and of the odd lanes. */
typedef gw_u64 gw_limbs_4 __attribute__((vector_size(32)));
typedef struct gw_avx2_limb {
    gw_limbs_4 half[2];
} gw_avx2_limb;

/* Texts of eight packets: additional data, encrypted data and lengths, each padded to 16 bytes. */
typedef struct gw_avx2_poly_texts {
    gw_u8 front[GW_AVX2_LANES][16]; /* additional data */
    gw_u8 ends[GW_AVX2_LANES][32];  /* rest of the data, if there is one, and the lengths */
    gw_u32 total[GW_AVX2_LANES] __attribute__((aligned(32))); /* number of blocks */
    gw_u32 whole[GW_AVX2_LANES];                              /* complete blocks of the data */
    const gw_u8 *data[GW_AVX2_LANES];
    gw_u32 shortest; /* smallest `total` */
    gw_u32 longest;
} gw_avx2_poly_texts;

GW_NATIVE void gw_avx2_poly_text(gw_avx2_poly_texts *texts, gw_u32 i,
                                 const gw_native_packet *packet)
{
    const gw_ipsec_aad aad = gw_ipsec_aad_of(packet->found.sa, packet->sequence);
    const gw_u32 whole = packet->data_bytes / 16;
    const gw_u32 rest = packet->data_bytes % 16;
    const gw_u32 total = 1 + whole + (rest != 0) + 1;
    gw_u8 *end = texts->ends[i];
    for (gw_u32 k = 0; k < 4; k++) {
        gw_store_be32(texts->front[i] + 4 * k, aad.words[k]);
    }
    gw_aes_store(end, _mm_setzero_si128());
    for (gw_u32 at = 0; at < rest; at += 4) {
        gw_store_le32(end + at, gw_load_le32(packet->data + 16 * whole + at));
    }
    gw_aes_store(end + (rest != 0 ? 16 : 0),
                 _mm_setr_epi32((int)aad.bytes, 0, (int)packet->data_bytes, 0));
    texts->data[i] = packet->data;
    texts->whole[i] = whole;
    texts->total[i] = total;
    texts->shortest = total < texts->shortest ? total : texts->shortest;
    texts->longest = total > texts->longest ? total : texts->longest;
}

/* Returns the address of a block of a text. A text that has ended repeats a block, and the result
 * is ignored. */
GW_NATIVE const gw_u8 *gw_avx2_poly_block(const gw_avx2_poly_texts *texts, gw_u32 i, gw_u32 step)
{
    const gw_u32 after = step - 1 - texts->whole[i];
    if (step == 0) {
        return texts->front[i];
    }
    return step <= texts->whole[i] ? texts->data[i] + 16 * (step - 1)
                                   : texts->ends[i] + (after == 0 ? 0 : 16);
}

/* Splits a limb of eight lanes into the even and the odd lanes. */
GW_NATIVE gw_avx2_limb gw_avx2_poly_split(gw_words_8 words)
{
    const gw_limbs_4 both = (gw_limbs_4)words;
    gw_avx2_limb limb;
    limb.half[0] = both & 0xffffffffu;
    limb.half[1] = both >> 32;
    return limb;
}

/* Converts blocks of four little-endian words to limbs, and adds top << 128. */
GW_NATIVE void gw_avx2_poly_limbs(gw_avx2_limb limbs[GW_AVX2_POLY_LIMBS], const gw_words_8 w[4],
                                  gw_u32 top)
{
    limbs[0] = gw_avx2_poly_split(w[0] & GW_POLY1305_LIMB);
    limbs[1] = gw_avx2_poly_split((w[0] >> 26 | w[1] << 6) & GW_POLY1305_LIMB);
    limbs[2] = gw_avx2_poly_split((w[1] >> 20 | w[2] << 12) & GW_POLY1305_LIMB);
    limbs[3] = gw_avx2_poly_split((w[2] >> 14 | w[3] << 18) & GW_POLY1305_LIMB);
    limbs[4] = gw_avx2_poly_split(w[3] >> 8 | top << 24);
}

GW_NATIVE gw_limbs_4 gw_avx2_poly_times(gw_limbs_4 x, gw_limbs_4 y)
{
    return (gw_limbs_4)_mm256_mul_epu32((__m256i)x, (__m256i)y);
}

/* Multiplies numbers modulo 2^130 - 5 as gw_poly1305_multiply does, in half of the lanes. `five`
 * contains five times the limbs of y. */
GW_NATIVE void gw_avx2_poly_multiply(gw_avx2_limb x[GW_AVX2_POLY_LIMBS],
                                     const gw_avx2_limb y[GW_AVX2_POLY_LIMBS],
                                     const gw_avx2_limb five[GW_AVX2_POLY_LIMBS], gw_u32 half)
{
    gw_limbs_4 d[GW_AVX2_POLY_LIMBS];
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_POLY_LIMBS; i++) {
        d[i] = gw_avx2_poly_times(x[0].half[half], y[i].half[half]);
        GW_AVX2_UNROLL
        for (gw_u32 j = 1; j < GW_AVX2_POLY_LIMBS; j++) {
            d[i] += gw_avx2_poly_times(x[j].half[half],
                                       j <= i ? y[i - j].half[half] : five[5 + i - j].half[half]);
        }
    }
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_POLY_LIMBS - 1; i++) {
        d[i + 1] += d[i] >> 26;
        d[i] &= GW_POLY1305_LIMB;
    }
    const gw_limbs_4 carry = d[4] >> 26;
    d[4] &= GW_POLY1305_LIMB;
    d[0] += carry + (carry << 2);
    d[1] += d[0] >> 26;
    d[0] &= GW_POLY1305_LIMB;
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_POLY_LIMBS; i++) {
        x[i].half[half] = d[i];
    }
}

/* Computes the tags of eight texts. `once` contains the first 32 bytes of each packet's key stream:
 * r and s (RFC 8439, section 2.6). */
static __attribute__((noinline)) void gw_avx2_poly_tags(const gw_avx2_poly_texts *texts,
                                                        const gw_u32 once[GW_AVX2_LANES][8],
                                                        gw_ipsec_tag tags[GW_AVX2_LANES])
{
    const gw_u8 *rows[GW_AVX2_LANES];
    gw_words_8 w[4];
    gw_avx2_limb r[GW_AVX2_POLY_LIMBS];
    gw_avx2_limb five[GW_AVX2_POLY_LIMBS];
    gw_avx2_limb sum[GW_AVX2_POLY_LIMBS];
    const gw_words_8 total =
        (gw_words_8)_mm256_load_si256((const __m256i *)(const void *)texts->total);
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        rows[i] = (const gw_u8 *)once[i];
    }
    gw_avx2_load(w, rows, 0);
    w[0] &= 0x0fffffffu;
    w[1] &= 0x0ffffffcu;
    w[2] &= 0x0ffffffcu;
    w[3] &= 0x0ffffffcu;
    gw_avx2_poly_limbs(r, w, 0);
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_POLY_LIMBS; i++) {
        GW_AVX2_UNROLL
        for (gw_u32 half = 0; half < 2; half++) {
            five[i].half[half] = r[i].half[half] + (r[i].half[half] << 2);
            sum[i].half[half] = (gw_limbs_4)_mm256_setzero_si256();
        }
    }
    for (gw_u32 step = 0; step < texts->longest; step++) {
        gw_avx2_limb limbs[GW_AVX2_POLY_LIMBS];
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
            rows[i] = gw_avx2_poly_block(texts, i, step);
        }
        gw_avx2_load(w, rows, 0);
        gw_avx2_poly_limbs(limbs, w, 1);
        GW_AVX2_UNROLL
        for (gw_u32 half = 0; half < 2; half++) {
            GW_AVX2_UNROLL
            for (gw_u32 i = 0; i < GW_AVX2_POLY_LIMBS; i++) {
                limbs[i].half[half] += sum[i].half[half];
            }
            gw_avx2_poly_multiply(limbs, r, five, half);
        }
        if (step < texts->shortest) {
            GW_AVX2_UNROLL
            for (gw_u32 i = 0; i < GW_AVX2_POLY_LIMBS; i++) {
                sum[i] = limbs[i];
            }
            continue;
        }
        const gw_limbs_4 active = (gw_limbs_4)(total > gw_avx2_set(step));
        const gw_limbs_4 halves[2] = {active << 32 | (active & 0xffffffffu),
                                      (active & 0xffffffff00000000u) | active >> 32};
        for (gw_u32 i = 0; i < GW_AVX2_POLY_LIMBS; i++) {
            for (gw_u32 half = 0; half < 2; half++) {
                sum[i].half[half] ^= (sum[i].half[half] ^ limbs[i].half[half]) & halves[half];
            }
        }
    }
    for (gw_u32 i = 0; i < GW_AVX2_LANES; i++) {
        const gw_u32 half = i & 1;
        const gw_poly1305 lane = {
            (gw_u32)sum[0].half[half][i / 2], (gw_u32)sum[1].half[half][i / 2],
            (gw_u32)sum[2].half[half][i / 2], (gw_u32)sum[3].half[half][i / 2],
            (gw_u32)sum[4].half[half][i / 2]};
        gw_u32 tag[4];
        gw_poly1305_tag(lane, once[i] + 4, tag);
        tags[i] = gw_ipsec_tag_words(__builtin_bswap32(tag[0]), __builtin_bswap32(tag[1]),
                                     __builtin_bswap32(tag[2]), __builtin_bswap32(tag[3]));
    }
}

#endif
