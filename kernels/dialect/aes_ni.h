/* AES with the AES instructions of x86. The header aes.h includes this file and documents its
 * functions. */
#ifndef GODWIT_AES_NI_H
#define GODWIT_AES_NI_H

#include <immintrin.h>

/* Number of AES blocks that are encrypted together. The instruction AESENC has a latency of about 4
 * cycles and a throughput of 1 or 2 per cycle. Independent blocks hide the latency. */
#define GW_AES_LANES 8u

/* Marks functions that are inlined once per AES key size. The number of rounds is then a constant,
 * so instructions address the round keys directly. */
#define GW_AES_INLINE static inline __attribute__((always_inline))

typedef __m128i gw_aes_block;

/* Round keys of AES, loaded once for many blocks. */
typedef struct gw_aes_keys {
    __m128i round[15];
} gw_aes_keys;

GW_AES_INLINE gw_aes_keys gw_aes_keys_load(const gw_u8 *keys, gw_u32 rounds)
{
    gw_aes_keys loaded;
    for (gw_u32 i = 0; i <= rounds; i++) {
        loaded.round[i] = _mm_load_si128((const __m128i *)(keys + 16 * i));
    }
    return loaded;
}

GW_LANE gw_aes_block gw_aes_words(gw_u32 a, gw_u32 b, gw_u32 c, gw_u32 d)
{
    return _mm_setr_epi32((int)__builtin_bswap32(a), (int)__builtin_bswap32(b),
                          (int)__builtin_bswap32(c), (int)__builtin_bswap32(d));
}

GW_LANE gw_u32 gw_aes_word(gw_aes_block block, gw_u32 i)
{
    gw_u32 words[4];
    _mm_storeu_si128((__m128i *)words, block);
    return __builtin_bswap32(words[i]);
}

GW_LANE gw_aes_block gw_aes_xor(gw_aes_block a, gw_aes_block b)
{
    return _mm_xor_si128(a, b);
}

GW_LANE gw_aes_block gw_aes_load(const gw_u8 *bytes)
{
    return _mm_loadu_si128((const __m128i *)bytes);
}

GW_LANE void gw_aes_store(gw_u8 *bytes, gw_aes_block block)
{
    _mm_storeu_si128((__m128i *)bytes, block);
}

GW_AES_INLINE gw_aes_block gw_aes_encrypt_with(const gw_aes_keys *keys, gw_u32 rounds,
                                               gw_aes_block block)
{
    block = _mm_xor_si128(block, keys->round[0]);
    for (gw_u32 i = 1; i < rounds; i++) {
        block = _mm_aesenc_si128(block, keys->round[i]);
    }
    return _mm_aesenclast_si128(block, keys->round[rounds]);
}

GW_AES_INLINE gw_aes_block gw_aes_decrypt_with(const gw_aes_keys *keys, gw_u32 rounds,
                                               gw_aes_block block)
{
    block = _mm_xor_si128(block, keys->round[0]);
    for (gw_u32 i = 1; i < rounds; i++) {
        block = _mm_aesdec_si128(block, keys->round[i]);
    }
    return _mm_aesdeclast_si128(block, keys->round[rounds]);
}

GW_AES_INLINE void gw_aes_cbc_encrypt_rounds(const gw_u8 *keys, gw_u32 rounds, gw_aes_block iv,
                                             gw_u8 *data, gw_u32 blocks)
{
    const gw_aes_keys loaded = gw_aes_keys_load(keys, rounds);
    for (gw_u32 i = 0; i < blocks; i++) {
        iv = gw_aes_encrypt_with(&loaded, rounds, _mm_xor_si128(iv, gw_aes_load(data + 16 * i)));
        gw_aes_store(data + 16 * i, iv);
    }
}

GW_AES_INLINE gw_aes_block gw_aes_cbc_mac_rounds(const gw_u8 *keys, gw_u32 rounds, gw_aes_block mac,
                                                 const gw_u8 *data, gw_u32 bytes)
{
    const gw_aes_keys loaded = gw_aes_keys_load(keys, rounds);
    gw_u32 at = 0;
    for (; at + 16 <= bytes; at += 16) {
        mac = gw_aes_encrypt_with(&loaded, rounds, _mm_xor_si128(mac, gw_aes_load(data + at)));
    }
    if (at < bytes) {
        gw_u8 last[16] = {0};
        for (gw_u32 i = 0; at + i < bytes; i++) {
            last[i] = data[at + i];
        }
        mac = gw_aes_encrypt_with(&loaded, rounds, _mm_xor_si128(mac, gw_aes_load(last)));
    }
    return mac;
}

GW_AES_INLINE void gw_aes_cbc_decrypt_rounds(const gw_u8 *keys, gw_u32 rounds, gw_aes_block iv,
                                             gw_u8 *data, gw_u32 blocks)
{
    const gw_aes_keys loaded = gw_aes_keys_load(keys, rounds);
    gw_u32 i = 0;
    for (; i + GW_AES_LANES <= blocks; i += GW_AES_LANES) {
        __m128i in[GW_AES_LANES];
        __m128i out[GW_AES_LANES];
        for (gw_u32 j = 0; j < GW_AES_LANES; j++) {
            in[j] = gw_aes_load(data + 16 * (i + j));
            out[j] = _mm_xor_si128(in[j], loaded.round[0]);
        }
        for (gw_u32 round = 1; round < rounds; round++) {
            for (gw_u32 j = 0; j < GW_AES_LANES; j++) {
                out[j] = _mm_aesdec_si128(out[j], loaded.round[round]);
            }
        }
        for (gw_u32 j = 0; j < GW_AES_LANES; j++) {
            out[j] = _mm_aesdeclast_si128(out[j], loaded.round[rounds]);
            gw_aes_store(data + 16 * (i + j), _mm_xor_si128(out[j], iv));
            iv = in[j];
        }
    }
    for (; i < blocks; i++) {
        const __m128i next = gw_aes_load(data + 16 * i);
        gw_aes_store(data + 16 * i, _mm_xor_si128(gw_aes_decrypt_with(&loaded, rounds, next), iv));
        iv = next;
    }
}

GW_AES_INLINE void gw_aes_ctr_rounds(const gw_u8 *keys, gw_u32 rounds, gw_aes_nonce nonce,
                                     gw_u32 counter, gw_u8 *data, gw_u32 bytes)
{
    const gw_aes_keys loaded = gw_aes_keys_load(keys, rounds);
    const __m128i front = gw_aes_words(nonce.salt, nonce.iv_high, nonce.iv_low, 0);
    gw_u32 at = 0;
    for (; at + 16 * GW_AES_LANES <= bytes; at += 16 * GW_AES_LANES) {
        __m128i out[GW_AES_LANES];
        for (gw_u32 j = 0; j < GW_AES_LANES; j++) {
            out[j] = _mm_insert_epi32(front, (int)__builtin_bswap32(counter + j), 3);
            out[j] = _mm_xor_si128(out[j], loaded.round[0]);
        }
        counter += GW_AES_LANES;
        for (gw_u32 round = 1; round < rounds; round++) {
            for (gw_u32 j = 0; j < GW_AES_LANES; j++) {
                out[j] = _mm_aesenc_si128(out[j], loaded.round[round]);
            }
        }
        for (gw_u32 j = 0; j < GW_AES_LANES; j++) {
            out[j] = _mm_aesenclast_si128(out[j], loaded.round[rounds]);
            gw_u8 *to = data + at + 16 * j;
            gw_aes_store(to, _mm_xor_si128(out[j], gw_aes_load(to)));
        }
    }
    for (; at < bytes; at += 16) {
        __m128i out = _mm_insert_epi32(front, (int)__builtin_bswap32(counter++), 3);
        out = gw_aes_encrypt_with(&loaded, rounds, out);
        if (bytes - at >= 16) {
            gw_aes_store(data + at, _mm_xor_si128(out, gw_aes_load(data + at)));
        } else {
            gw_u8 stream[16];
            gw_aes_store(stream, out);
            for (gw_u32 i = 0; at + i < bytes; i++) {
                data[at + i] ^= stream[i];
            }
        }
    }
}

GW_LANE gw_aes_block gw_aes_encrypt(const gw_u8 *keys, gw_u32 rounds, gw_aes_block block)
{
    block = _mm_xor_si128(block, _mm_load_si128((const __m128i *)keys));
    for (gw_u32 i = 1; i < rounds; i++) {
        block = _mm_aesenc_si128(block, _mm_load_si128((const __m128i *)(keys + 16 * i)));
    }
    return _mm_aesenclast_si128(block, _mm_load_si128((const __m128i *)(keys + 16 * rounds)));
}

#define GW_AES_BY_ROUNDS(call)                                                                     \
    if (rounds == 10) {                                                                            \
        call(10);                                                                                  \
    } else if (rounds == 12) {                                                                     \
        call(12);                                                                                  \
    } else {                                                                                       \
        call(14);                                                                                  \
    }

GW_LANE void gw_aes_cbc_encrypt(const gw_u8 *keys, gw_u32 rounds, gw_aes_block iv, gw_u8 *data,
                                gw_u32 blocks){
#define GW_AES_CALL(rounds_) gw_aes_cbc_encrypt_rounds(keys, rounds_, iv, data, blocks)
    GW_AES_BY_ROUNDS(GW_AES_CALL)
#undef GW_AES_CALL
}

GW_LANE void gw_aes_cbc_decrypt(const gw_u8 *keys, gw_u32 rounds, gw_aes_block iv, gw_u8 *data,
                                gw_u32 blocks){
#define GW_AES_CALL(rounds_) gw_aes_cbc_decrypt_rounds(keys, rounds_, iv, data, blocks)
    GW_AES_BY_ROUNDS(GW_AES_CALL)
#undef GW_AES_CALL
}

GW_LANE gw_aes_block gw_aes_cbc_mac(const gw_u8 *keys, gw_u32 rounds, gw_aes_block mac,
                                    const gw_u8 *data, gw_u32 bytes){
#define GW_AES_CALL(rounds_) return gw_aes_cbc_mac_rounds(keys, rounds_, mac, data, bytes)
    GW_AES_BY_ROUNDS(GW_AES_CALL)
#undef GW_AES_CALL
}

GW_LANE void gw_aes_ctr(const gw_u8 *keys, gw_u32 rounds, gw_aes_nonce nonce, gw_u32 counter,
                        gw_u8 *data, gw_u32 bytes)
{
#define GW_AES_CALL(rounds_) gw_aes_ctr_rounds(keys, rounds_, nonce, counter, data, bytes)
    GW_AES_BY_ROUNDS(GW_AES_CALL)
#undef GW_AES_CALL
}

#endif
