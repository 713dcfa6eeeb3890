/* AES-128 with the AES instructions of x86. Included by aes.h, which has the interface. */
#ifndef GODWIT_AES_NI_H
#define GODWIT_AES_NI_H

#include <immintrin.h>

/* Blocks decrypted together: AESDEC takes about 4 cycles, and one or two start in each. */
#define GW_AES_LANES 8u

typedef __m128i gw_aes_block;

/* The round keys, loaded once for many blocks. */
typedef struct gw_aes_keys {
    __m128i round[11];
} gw_aes_keys;

GW_LANE gw_aes_keys gw_aes_keys_load(const gw_u8 *keys)
{
    gw_aes_keys loaded;
    for (gw_u32 i = 0; i < 11; i++) {
        loaded.round[i] = _mm_load_si128((const __m128i *)(keys + 16 * i));
    }
    return loaded;
}

GW_LANE gw_aes_block gw_aes_words(gw_u32 a, gw_u32 b, gw_u32 c, gw_u32 d)
{
    return _mm_setr_epi32((int)__builtin_bswap32(a), (int)__builtin_bswap32(b),
                          (int)__builtin_bswap32(c), (int)__builtin_bswap32(d));
}

GW_LANE gw_aes_block gw_aes_load(const gw_u8 *bytes)
{
    return _mm_loadu_si128((const __m128i *)bytes);
}

GW_LANE void gw_aes_store(gw_u8 *bytes, gw_aes_block block)
{
    _mm_storeu_si128((__m128i *)bytes, block);
}

GW_LANE gw_aes_block gw_aes_encrypt_with(const gw_aes_keys *keys, gw_aes_block block)
{
    block = _mm_xor_si128(block, keys->round[0]);
    for (gw_u32 i = 1; i < 10; i++) {
        block = _mm_aesenc_si128(block, keys->round[i]);
    }
    return _mm_aesenclast_si128(block, keys->round[10]);
}

GW_LANE gw_aes_block gw_aes_decrypt_with(const gw_aes_keys *keys, gw_aes_block block)
{
    block = _mm_xor_si128(block, keys->round[0]);
    for (gw_u32 i = 1; i < 10; i++) {
        block = _mm_aesdec_si128(block, keys->round[i]);
    }
    return _mm_aesdeclast_si128(block, keys->round[10]);
}

GW_LANE gw_aes_block gw_aes128_encrypt(const gw_u8 *keys, gw_aes_block block)
{
    const gw_aes_keys loaded = gw_aes_keys_load(keys);
    return gw_aes_encrypt_with(&loaded, block);
}

GW_LANE void gw_aes128_cbc_encrypt(const gw_u8 *keys, gw_aes_block iv, gw_u8 *data, gw_u32 blocks)
{
    const gw_aes_keys loaded = gw_aes_keys_load(keys);
    for (gw_u32 i = 0; i < blocks; i++) {
        iv = gw_aes_encrypt_with(&loaded, _mm_xor_si128(iv, gw_aes_load(data + 16 * i)));
        gw_aes_store(data + 16 * i, iv);
    }
}

GW_LANE void gw_aes128_cbc_decrypt(const gw_u8 *keys, gw_aes_block iv, gw_u8 *data, gw_u32 blocks)
{
    const gw_aes_keys loaded = gw_aes_keys_load(keys);
    gw_u32 i = 0;
    for (; i + GW_AES_LANES <= blocks; i += GW_AES_LANES) {
        __m128i in[GW_AES_LANES];
        __m128i out[GW_AES_LANES];
        for (gw_u32 j = 0; j < GW_AES_LANES; j++) {
            in[j] = gw_aes_load(data + 16 * (i + j));
            out[j] = _mm_xor_si128(in[j], loaded.round[0]);
        }
        for (gw_u32 round = 1; round < 10; round++) {
            for (gw_u32 j = 0; j < GW_AES_LANES; j++) {
                out[j] = _mm_aesdec_si128(out[j], loaded.round[round]);
            }
        }
        for (gw_u32 j = 0; j < GW_AES_LANES; j++) {
            out[j] = _mm_aesdeclast_si128(out[j], loaded.round[10]);
            gw_aes_store(data + 16 * (i + j), _mm_xor_si128(out[j], iv));
            iv = in[j];
        }
    }
    for (; i < blocks; i++) {
        const __m128i next = gw_aes_load(data + 16 * i);
        gw_aes_store(data + 16 * i, _mm_xor_si128(gw_aes_decrypt_with(&loaded, next), iv));
        iv = next;
    }
}

#endif
