/*
 * AES-GCM for one packet at a time (NIST SP 800-38D). A step encrypts eight counter blocks and adds
 * eight blocks to the GHASH sum, with one reduction. With vector AES, a register holds two blocks.
 *
 *   blocks of GHASH   | additional data | encrypted data ... | rest | lengths |
 *   steps                                 8, 8, ...            0 to 8 blocks, and the lengths
 */
#ifndef GODWIT_IPSEC_AVX2_GCM_H
#define GODWIT_IPSEC_AVX2_GCM_H

#include "avx2_ctr.h"

/* Highest power of the hash key: that of a step of eight blocks and the lengths. */
#define GW_AVX2_GCM_POWERS (GW_AVX2_STEP_BLOCKS + 1)

/* Keys of an SA. */
typedef struct gw_avx2_gcm {
    /* Powers 9 to 1 of the hash key, then zeros. Sums of fewer blocks begin at a later power. */
    __m128i powers[GW_AVX2_GCM_POWERS + GW_AVX2_STEP_BLOCKS];
    const gw_ipsec_sa *sa;
    gw_u32 rounds;
    gw_u32 count; /* number of powers that are known, from the first power on */
} gw_avx2_gcm;

/* Returns the highest power that a packet needs. */
GW_NATIVE gw_u32 gw_avx2_gcm_power(gw_u32 bytes)
{
    const gw_u32 last = (bytes % GW_AVX2_STEP_BYTES + 15) / 16 + 1;
    return bytes >= GW_AVX2_STEP_BYTES && last < GW_AVX2_STEP_BLOCKS ? GW_AVX2_STEP_BLOCKS : last;
}

/* Loads or computes the powers of the hash key up to `count`. SAs contain the first four, and those
 * of AES-128 contain the first eight. */
GW_NATIVE void gw_avx2_gcm_keys(gw_avx2_gcm *gcm, const gw_ipsec_sa *sa, gw_u32 rounds,
                                gw_u32 count)
{
    const gw_u32 *more = sa->keys + 4 * (rounds + 1);
    __m128i *end = gcm->powers + GW_AVX2_GCM_POWERS;
    if (sa != gcm->sa) {
        for (gw_u32 i = 0; i < GW_AVX2_STEP_BLOCKS; i++) {
            end[i] = _mm_setzero_si128();
        }
        for (gw_u32 i = 1; i <= 4; i++) {
            *(end - i) = gw_ghash_key(sa->authentication + GW_GHASH_KEY_WORDS * (i - 1));
        }
        gcm->sa = sa;
        gcm->rounds = rounds;
        gcm->count = 4;
    }
    for (; gcm->count < count; gcm->count++) {
        const gw_u32 i = gcm->count + 1;
        *(end - i) = i <= 8 && rounds == 10 ? gw_ghash_key(more + GW_GHASH_KEY_WORDS * (i - 5))
                                            : gw_ghash_multiply(*(end - 4), *(end - (i - 4)));
    }
}

/* Unreduced sum of products. */
typedef struct gw_avx2_product {
    gw_avx2_unit low;
    gw_avx2_unit middle;
    gw_avx2_unit high;
} gw_avx2_product;

/* Adds the product of x and y. */
GW_NATIVE gw_avx2_product gw_avx2_product_add(gw_avx2_product sum, gw_avx2_unit x, gw_avx2_unit y)
{
    sum.low = GW_AVX2_UNIT_XOR(sum.low, GW_AVX2_UNIT_MULTIPLY(x, y, 0x00));
    sum.high = GW_AVX2_UNIT_XOR(sum.high, GW_AVX2_UNIT_MULTIPLY(x, y, 0x11));
    sum.middle = GW_AVX2_UNIT_XOR(sum.middle, GW_AVX2_UNIT_MULTIPLY(x, y, 0x01));
    sum.middle = GW_AVX2_UNIT_XOR(sum.middle, GW_AVX2_UNIT_MULTIPLY(x, y, 0x10));
    return sum;
}

GW_NATIVE gw_avx2_product gw_avx2_product_zero(void)
{
    gw_avx2_product zero;
    zero.low = GW_AVX2_UNIT_FIRST(_mm_setzero_si128());
    zero.middle = zero.low;
    zero.high = zero.low;
    return zero;
}

GW_NATIVE __m128i gw_avx2_product_reduce(gw_avx2_product sum)
{
    const gw_ghash_product product = {gw_avx2_unit_sum(sum.low), gw_avx2_unit_sum(sum.middle),
                                      gw_avx2_unit_sum(sum.high)};
    return gw_ghash_reduce(product);
}

/* Reverses the bytes of each block, which GHASH requires (dialect/ghash.h). */
GW_NATIVE gw_avx2_unit gw_avx2_gcm_reversed(gw_avx2_unit blocks)
{
    const __m128i reversed = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return GW_AVX2_UNIT_SHUFFLE(blocks, GW_AVX2_UNIT_ALL(reversed));
}

/* Computes the key stream of eight blocks, and at the same time adds eight blocks of `hashed` to
 * the sum, unless `hashed` is 0. */
GW_NATIVE __m128i gw_avx2_gcm_step(const gw_avx2_gcm *gcm, gw_u32 rounds, gw_avx2_unit counters,
                                   gw_avx2_unit stream[GW_AVX2_STEP_UNITS], __m128i sum,
                                   const gw_u8 *hashed)
{
    const __m128i *keys = (const __m128i *)(const void *)gcm->sa->keys;
    gw_avx2_product product = gw_avx2_product_zero();
    gw_avx2_ctr_begin(stream, counters, keys);
    GW_AVX2_UNROLL
    for (gw_u32 round = 1; round < rounds; round++) {
        gw_avx2_ctr_round(stream, keys[round]);
        if (hashed != 0 && round <= GW_AVX2_STEP_UNITS) {
            const gw_u32 i = round - 1;
            gw_avx2_unit x =
                gw_avx2_gcm_reversed(GW_AVX2_UNIT_LOAD(hashed + GW_AVX2_UNIT_BYTES * i));
            if (i == 0) {
                x = GW_AVX2_UNIT_XOR(x, GW_AVX2_UNIT_FIRST(sum));
            }
            product = gw_avx2_product_add(
                product, x, GW_AVX2_UNIT_LOAD(gcm->powers + 1 + GW_AVX2_UNIT_BLOCKS * i));
        }
    }
    gw_avx2_ctr_last(stream, keys[rounds]);
    return hashed != 0 ? gw_avx2_product_reduce(product) : sum;
}

/* Encrypts or decrypts the last blocks of a packet, at most eight, and completes the GHASH sum with
 * these blocks and the lengths. */
GW_NATIVE __m128i gw_avx2_gcm_end(const gw_avx2_gcm *gcm, gw_avx2_unit *stream, __m128i sum,
                                  gw_u8 *data, gw_u32 bytes, __m128i lengths, gw_u32 outbound)
{
    const gw_u32 blocks = (bytes + 15) / 16;
    const __m128i *powers = gcm->powers + GW_AVX2_GCM_POWERS - 1 - blocks;
    gw_avx2_product product = gw_avx2_product_zero();
    gw_avx2_unit before = GW_AVX2_UNIT_FIRST(sum);
    for (gw_u32 i = 0; GW_AVX2_UNIT_BLOCKS * i < blocks; i++) {
        gw_u8 *at = data + GW_AVX2_UNIT_BYTES * i;
        const gw_u32 left = bytes - GW_AVX2_UNIT_BYTES * i;
        const gw_avx2_unit mask = gw_avx2_unit_mask((int)left / 4);
        const gw_avx2_unit in = gw_avx2_unit_load_part(at, mask);
        const gw_avx2_unit out = GW_AVX2_UNIT_AND(GW_AVX2_UNIT_XOR(in, stream[i]), mask);
        const gw_avx2_unit x = gw_avx2_gcm_reversed(outbound ? out : in);
        product = gw_avx2_product_add(product, GW_AVX2_UNIT_XOR(x, before),
                                      GW_AVX2_UNIT_LOAD(powers + GW_AVX2_UNIT_BLOCKS * i));
        before = GW_AVX2_UNIT_FIRST(_mm_setzero_si128());
        gw_avx2_unit_store_part(at, out, left);
    }
    const gw_avx2_unit last = GW_AVX2_UNIT_FIRST(lengths);
    product = gw_avx2_product_add(product, blocks == 0 ? GW_AVX2_UNIT_XOR(last, before) : last,
                                  GW_AVX2_UNIT_LOAD(powers + blocks));
    return gw_avx2_product_reduce(product);
}

/* Encrypts or decrypts the data of a packet in place, and returns its tag. The length of the data
 * is a multiple of 4. */
GW_NATIVE gw_ipsec_tag gw_avx2_gcm_rounds(const gw_avx2_gcm *gcm, gw_u32 rounds,
                                          const gw_native_packet *packet, gw_u32 outbound)
{
    const gw_ipsec_sa *sa = gcm->sa;
    const gw_aes_nonce nonce = gw_ipsec_aes_nonce(sa, gw_load_be64(packet->data - 8));
    const gw_ipsec_aad aad = gw_ipsec_aad_of(sa, packet->sequence);
    const __m128i front = gw_aes_words(nonce.salt, nonce.iv_high, nonce.iv_low, 0);
    const __m128i mask = gw_aes_encrypt((const gw_u8 *)sa->keys, rounds,
                                        _mm_insert_epi32(front, (int)__builtin_bswap32(1), 3));
    gw_avx2_unit counters = gw_avx2_ctr_counters(front, 2);
    gw_avx2_unit stream[GW_AVX2_STEP_UNITS];
    gw_u8 *data = packet->data;
    gw_u32 left = packet->data_bytes;
    const gw_u8 *hashed = 0;
    __m128i sum =
        gw_ghash_multiply(gw_ghash_words(aad.words[0], aad.words[1], aad.words[2], aad.words[3]),
                          gcm->powers[GW_AVX2_GCM_POWERS - 1]);

    /* Outbound, each step hashes the ciphertext of the previous one. */
    for (; left >= GW_AVX2_STEP_BYTES; left -= GW_AVX2_STEP_BYTES) {
        sum = outbound && hashed == 0
                  ? gw_avx2_gcm_step(gcm, rounds, counters, stream, sum, 0)
                  : gw_avx2_gcm_step(gcm, rounds, counters, stream, sum, outbound ? hashed : data);
        gw_avx2_ctr_apply(data, stream);
        counters = gw_avx2_ctr_next(counters);
        hashed = data;
        data += GW_AVX2_STEP_BYTES;
    }
    if (outbound && hashed != 0) {
        sum = gw_avx2_gcm_step(gcm, rounds, counters, stream, sum, hashed);
    } else {
        gw_avx2_gcm_step(gcm, rounds, counters, stream, sum, 0);
    }
    sum = gw_avx2_gcm_end(gcm, stream, sum, data, left,
                          gw_ghash_words(0, 8 * aad.bytes, 0, 8 * packet->data_bytes), outbound);
    return gw_ipsec_tag_words(
        gw_ghash_word(sum, 0) ^ gw_aes_word(mask, 0), gw_ghash_word(sum, 1) ^ gw_aes_word(mask, 1),
        gw_ghash_word(sum, 2) ^ gw_aes_word(mask, 2), gw_ghash_word(sum, 3) ^ gw_aes_word(mask, 3));
}

/* Encrypts or decrypts a packet in place, and returns its tag. */
static __attribute__((noinline)) gw_ipsec_tag
gw_avx2_gcm_packet(const gw_avx2_gcm *gcm, const gw_native_packet *packet, gw_u32 outbound)
{
    if (gcm->rounds == 10) {
        return outbound ? gw_avx2_gcm_rounds(gcm, 10, packet, 1)
                        : gw_avx2_gcm_rounds(gcm, 10, packet, 0);
    }
    if (gcm->rounds == 12) {
        return outbound ? gw_avx2_gcm_rounds(gcm, 12, packet, 1)
                        : gw_avx2_gcm_rounds(gcm, 12, packet, 0);
    }
    return outbound ? gw_avx2_gcm_rounds(gcm, 14, packet, 1)
                    : gw_avx2_gcm_rounds(gcm, 14, packet, 0);
}

#endif
