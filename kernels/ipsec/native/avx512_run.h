/* Encrypts or decrypts one group of sixteen packets and hashes another group at the same time. */
#ifndef GODWIT_IPSEC_AVX512_RUN_H
#define GODWIT_IPSEC_AVX512_RUN_H

#include "avx512_aes.h"
#include "avx512_hmac.h"

/* Encrypts or decrypts one group of sixteen packets while it hashes another group. Cipher and hash
 * instructions are interleaved to hide their latency. */
GW_AVX512 void gw_avx512_run(gw_avx512_hash *hash, gw_avx512_cipher *cipher, gw_u32 state_words,
                             gw_u32 mode)
{
    __m512i w[16];
    __m512i v[8];
    __m512i x[4];
    while (hash->step < hash->steps) {
        const gw_u32 both = mode != GW_AVX512_NONE && gw_avx512_cipher_left(cipher);
        const __mmask16 active = gw_avx512_hash_words(hash, w, state_words);
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < state_words; i++) {
            v[i] = hash->state[i];
        }
        if (both) {
            gw_avx512_cipher_load(cipher);
            GW_AVX512_UNROLL
            for (gw_u32 part = 0; part < 16; part++) {
                gw_avx512_hash_part(v, w, part, state_words);
                gw_avx512_cipher_part(cipher, x, mode, part);
            }
            gw_avx512_cipher_store(cipher);
        } else {
            GW_AVX512_UNROLL
            for (gw_u32 part = 0; part < 16; part++) {
                gw_avx512_hash_part(v, w, part, state_words);
            }
        }
        gw_avx512_hash_add(hash, v, active, state_words);
    }
    while (mode != GW_AVX512_NONE && gw_avx512_cipher_left(cipher)) {
        gw_avx512_cipher_load(cipher);
        GW_AVX512_UNROLL
        for (gw_u32 part = 0; part < 16; part++) {
            gw_avx512_cipher_part(cipher, x, mode, part);
        }
        gw_avx512_cipher_store(cipher);
    }
}

/* Defines a function for one combination of hash and cipher. Without a hash, hash->steps is 0. */
#define GW_AVX512_RUN(name, state_words, mode)                                                     \
    static __attribute__((noinline)) void gw_avx512_run_##name(gw_avx512_hash *hash,               \
                                                               gw_avx512_cipher *cipher)           \
    {                                                                                              \
        gw_avx512_run(hash, cipher, state_words, mode);                                            \
    }

GW_AVX512_RUN(sha1_none, 5, GW_AVX512_NONE)
GW_AVX512_RUN(sha1_cbc_encrypt, 5, GW_AVX512_CBC_ENCRYPT)
GW_AVX512_RUN(sha1_cbc_decrypt, 5, GW_AVX512_CBC_DECRYPT)
GW_AVX512_RUN(sha1_ctr, 5, GW_AVX512_CTR)
GW_AVX512_RUN(sha256_none, 8, GW_AVX512_NONE)
GW_AVX512_RUN(sha256_cbc_encrypt, 8, GW_AVX512_CBC_ENCRYPT)
GW_AVX512_RUN(sha256_cbc_decrypt, 8, GW_AVX512_CBC_DECRYPT)
GW_AVX512_RUN(sha256_ctr, 8, GW_AVX512_CTR)

typedef void gw_avx512_runner(gw_avx512_hash *, gw_avx512_cipher *);

GW_AVX512 gw_avx512_runner *gw_avx512_runner_of(gw_u32 state_words, gw_u32 mode)
{
    static gw_avx512_runner *const runners[2][4] = {
        {gw_avx512_run_sha1_none, gw_avx512_run_sha1_cbc_encrypt, gw_avx512_run_sha1_cbc_decrypt,
         gw_avx512_run_sha1_ctr},
        {gw_avx512_run_sha256_none, gw_avx512_run_sha256_cbc_encrypt,
         gw_avx512_run_sha256_cbc_decrypt, gw_avx512_run_sha256_ctr},
    };
    return runners[state_words == 8][mode];
}

#endif
