/*
 * AES-GCM for one packet at a time (NIST SP 800-38D). A step encrypts eight counter blocks and adds
 * eight blocks to the GHASH sum, with one reduction. With vector AES, a register holds two blocks.
 *
 *   blocks of GHASH   | additional data | encrypted data ... | rest | lengths |
 *   steps                                 8, 8, ...            0 to 7 blocks, and the lengths
 */
#ifndef GODWIT_IPSEC_AVX2_GCM_H
#define GODWIT_IPSEC_AVX2_GCM_H

#include "avx2.h"

/* Blocks and bytes of a step. */
#define GW_AVX2_GCM_BLOCKS 8u
#define GW_AVX2_GCM_BYTES  (16u * GW_AVX2_GCM_BLOCKS)

/* Operations on a register of GW_AVX2_UNIT_BLOCKS blocks. */
#if defined(__VAES__) && defined(__VPCLMULQDQ__)
#define GW_AVX2_UNIT_BLOCKS 2u
typedef __m256i gw_avx2_unit;
#define GW_AVX2_UNIT_ALL(block)        _mm256_broadcastsi128_si256(block)
#define GW_AVX2_UNIT_LOAD(at)          _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define GW_AVX2_UNIT_STORE(at, x)      _mm256_storeu_si256((__m256i *)(void *)(at), x)
#define GW_AVX2_UNIT_XOR(x, y)         _mm256_xor_si256(x, y)
#define GW_AVX2_UNIT_ADD(x, y)         _mm256_add_epi32(x, y)
#define GW_AVX2_UNIT_SHUFFLE(x, order) _mm256_shuffle_epi8(x, order)
#define GW_AVX2_UNIT_ENCRYPT(x, key)   _mm256_aesenc_epi128(x, key)
#define GW_AVX2_UNIT_LAST(x, key)      _mm256_aesenclast_epi128(x, key)
#define GW_AVX2_UNIT_MULTIPLY(x, y, k) _mm256_clmulepi64_epi128(x, y, k)
#define GW_AVX2_UNIT_SUM(x)            _mm_xor_si128(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1))
#define GW_AVX2_UNIT_FIRST(block)      _mm256_zextsi128_si256(block)
#define GW_AVX2_UNIT_COUNTERS          _mm256_setr_epi32(0, 0, 0, 0, 0, 0, 0, 1)
#define GW_AVX2_UNIT_AND(x, y)         _mm256_and_si256(x, y)
#define GW_AVX2_UNIT_PART(at, mask)    _mm256_maskload_epi32((const int *)(const void *)(at), mask)
#define GW_AVX2_UNIT_MASK(words)                                                                   \
    _mm256_cmpgt_epi32(_mm256_set1_epi32(words), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#else
#define GW_AVX2_UNIT_BLOCKS            1u
typedef __m128i gw_avx2_unit;
#define GW_AVX2_UNIT_ALL(block)        (block)
#define GW_AVX2_UNIT_LOAD(at)          _mm_loadu_si128((const __m128i *)(const void *)(at))
#define GW_AVX2_UNIT_STORE(at, x)      _mm_storeu_si128((__m128i *)(void *)(at), x)
#define GW_AVX2_UNIT_XOR(x, y)         _mm_xor_si128(x, y)
#define GW_AVX2_UNIT_ADD(x, y)         _mm_add_epi32(x, y)
#define GW_AVX2_UNIT_SHUFFLE(x, order) _mm_shuffle_epi8(x, order)
#define GW_AVX2_UNIT_ENCRYPT(x, key)   _mm_aesenc_si128(x, key)
#define GW_AVX2_UNIT_LAST(x, key)      _mm_aesenclast_si128(x, key)
#define GW_AVX2_UNIT_MULTIPLY(x, y, k) _mm_clmulepi64_si128(x, y, k)
#define GW_AVX2_UNIT_SUM(x)            (x)
#define GW_AVX2_UNIT_FIRST(block)      (block)
#define GW_AVX2_UNIT_AND(x, y)         _mm_and_si128(x, y)
#define GW_AVX2_UNIT_PART(at, mask)    _mm_maskload_epi32((const int *)(const void *)(at), mask)
#define GW_AVX2_UNIT_MASK(words)       _mm_cmpgt_epi32(_mm_set1_epi32(words), _mm_setr_epi32(0, 1, 2, 3))
#define GW_AVX2_UNIT_COUNTERS          _mm_setzero_si128()
#define GW_AVX2_UNIT_AND(x, y)         _mm_and_si128(x, y)
#define GW_AVX2_UNIT_PART(at, mask)    _mm_maskload_epi32((const int *)(const void *)(at), mask)
#define GW_AVX2_UNIT_MASK(words)       _mm_cmpgt_epi32(_mm_set1_epi32(words), _mm_setr_epi32(0, 1, 2, 3))
#endif

#define GW_AVX2_GCM_UNITS  (GW_AVX2_GCM_BLOCKS / GW_AVX2_UNIT_BLOCKS)
#define GW_AVX2_UNIT_BYTES (16u * GW_AVX2_UNIT_BLOCKS)

/* Number of powers of the hash key, one more than the blocks of a step. */
#define GW_AVX2_GCM_POWERS (GW_AVX2_GCM_BLOCKS + 1)

/* Keys of an SA. */
typedef struct gw_avx2_gcm {
    /* Powers 9 to 1 of the hash key, then zeros. Sums of fewer blocks begin at a later power. */
    __m128i powers[GW_AVX2_GCM_POWERS + GW_AVX2_GCM_BLOCKS];
    const gw_ipsec_sa *sa;
    gw_u32 rounds;
} gw_avx2_gcm;

/* Loads the powers of the hash key. Only the SAs of AES-128 contain the powers 5 to 8. */
GW_NATIVE void gw_avx2_gcm_keys(gw_avx2_gcm *gcm, const gw_ipsec_sa *sa, gw_u32 rounds)
{
    const gw_u32 more = 4 * (rounds + 1);
    __m128i *end = gcm->powers + GW_AVX2_GCM_POWERS;
    for (gw_u32 i = 1; i <= GW_AVX2_GCM_POWERS; i++) {
        if (i <= 4) {
            *(end - i) = gw_ghash_key(sa->authentication + GW_GHASH_KEY_WORDS * (i - 1));
        } else if (i <= 8 && rounds == 10) {
            *(end - i) = gw_ghash_key(sa->keys + more + GW_GHASH_KEY_WORDS * (i - 5));
        } else {
            *(end - i) = gw_ghash_multiply(*(end - 4), *(end - (i - 4)));
        }
    }
    for (gw_u32 i = 0; i < GW_AVX2_GCM_BLOCKS; i++) {
        end[i] = _mm_setzero_si128();
    }
    gcm->sa = sa;
    gcm->rounds = rounds;
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
    const gw_ghash_product product = {GW_AVX2_UNIT_SUM(sum.low), GW_AVX2_UNIT_SUM(sum.middle),
                                      GW_AVX2_UNIT_SUM(sum.high)};
    return gw_ghash_reduce(product);
}

/* Reverses the bytes of each block, which GHASH requires (dialect/ghash.h). */
GW_NATIVE gw_avx2_unit gw_avx2_gcm_reversed(gw_avx2_unit blocks)
{
    const __m128i reversed = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return GW_AVX2_UNIT_SHUFFLE(blocks, GW_AVX2_UNIT_ALL(reversed));
}

/* Encrypts eight counter blocks, and at the same time adds eight blocks of `hashed` to the sum. The
 * counter is a number in the last word of `counters`. */
GW_NATIVE __m128i gw_avx2_gcm_step(const gw_avx2_gcm *gcm, gw_u32 rounds, gw_avx2_unit counters,
                                   gw_avx2_unit stream[GW_AVX2_GCM_UNITS], __m128i sum,
                                   const gw_u8 *hashed)
{
    const __m128i *keys = (const __m128i *)(const void *)gcm->sa->keys;
    const __m128i order = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 14, 13, 12);
    const gw_avx2_unit next = GW_AVX2_UNIT_ALL(_mm_setr_epi32(0, 0, 0, (int)GW_AVX2_UNIT_BLOCKS));
    gw_avx2_product product = gw_avx2_product_zero();
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_GCM_UNITS; i++) {
        stream[i] = GW_AVX2_UNIT_XOR(GW_AVX2_UNIT_SHUFFLE(counters, GW_AVX2_UNIT_ALL(order)),
                                     GW_AVX2_UNIT_ALL(keys[0]));
        counters = GW_AVX2_UNIT_ADD(counters, next);
    }
    GW_AVX2_UNROLL
    for (gw_u32 round = 1; round < rounds; round++) {
        GW_AVX2_UNROLL
        for (gw_u32 i = 0; i < GW_AVX2_GCM_UNITS; i++) {
            stream[i] = GW_AVX2_UNIT_ENCRYPT(stream[i], GW_AVX2_UNIT_ALL(keys[round]));
        }
        if (hashed != 0 && round <= GW_AVX2_GCM_UNITS) {
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
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_GCM_UNITS; i++) {
        stream[i] = GW_AVX2_UNIT_LAST(stream[i], GW_AVX2_UNIT_ALL(keys[rounds]));
    }
    return hashed != 0 ? gw_avx2_product_reduce(product) : sum;
}

/* XORs 128 bytes with the key stream. */
GW_NATIVE void gw_avx2_gcm_apply(gw_u8 *data, const gw_avx2_unit stream[GW_AVX2_GCM_UNITS])
{
    GW_AVX2_UNROLL
    for (gw_u32 i = 0; i < GW_AVX2_GCM_UNITS; i++) {
        gw_u8 *at = data + GW_AVX2_UNIT_BYTES * i;
        GW_AVX2_UNIT_STORE(at, GW_AVX2_UNIT_XOR(GW_AVX2_UNIT_LOAD(at), stream[i]));
    }
}

/* Stores the first bytes of a register. The number of bytes is a multiple of 4. */
GW_NATIVE void gw_avx2_gcm_store_part(gw_u8 *at, gw_avx2_unit blocks, gw_u32 bytes)
{
    gw_u8 stored[GW_AVX2_UNIT_BYTES];
    if (bytes >= GW_AVX2_UNIT_BYTES) {
        GW_AVX2_UNIT_STORE(at, blocks);
        return;
    }
    GW_AVX2_UNIT_STORE(stored, blocks);
    for (gw_u32 i = 0; i < bytes; i += 4) {
        gw_store_le32(at + i, gw_load_le32(stored + i));
    }
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
        const gw_avx2_unit mask = GW_AVX2_UNIT_MASK((int)left / 4);
        const gw_avx2_unit in = GW_AVX2_UNIT_PART(at, mask);
        const gw_avx2_unit out = GW_AVX2_UNIT_AND(GW_AVX2_UNIT_XOR(in, stream[i]), mask);
        const gw_avx2_unit x = gw_avx2_gcm_reversed(outbound ? out : in);
        product = gw_avx2_product_add(product, GW_AVX2_UNIT_XOR(x, before),
                                      GW_AVX2_UNIT_LOAD(powers + GW_AVX2_UNIT_BLOCKS * i));
        before = GW_AVX2_UNIT_FIRST(_mm_setzero_si128());
        gw_avx2_gcm_store_part(at, out, left);
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
    const gw_avx2_unit after = GW_AVX2_UNIT_ALL(_mm_setr_epi32(0, 0, 0, (int)GW_AVX2_GCM_BLOCKS));
    gw_avx2_unit counters =
        GW_AVX2_UNIT_ADD(GW_AVX2_UNIT_ALL(_mm_insert_epi32(front, 2, 3)), GW_AVX2_UNIT_COUNTERS);
    gw_avx2_unit stream[GW_AVX2_GCM_UNITS];
    gw_u8 *data = packet->data;
    gw_u32 left = packet->data_bytes;
    const gw_u8 *hashed = 0;
    __m128i sum =
        gw_ghash_multiply(gw_ghash_words(aad.words[0], aad.words[1], aad.words[2], aad.words[3]),
                          gcm->powers[GW_AVX2_GCM_POWERS - 1]);

    /* Outbound, each step hashes the ciphertext of the previous one. */
    for (; left >= GW_AVX2_GCM_BYTES; left -= GW_AVX2_GCM_BYTES) {
        sum = outbound && hashed == 0
                  ? gw_avx2_gcm_step(gcm, rounds, counters, stream, sum, 0)
                  : gw_avx2_gcm_step(gcm, rounds, counters, stream, sum, outbound ? hashed : data);
        gw_avx2_gcm_apply(data, stream);
        counters = GW_AVX2_UNIT_ADD(counters, after);
        hashed = data;
        data += GW_AVX2_GCM_BYTES;
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
