/* A cipher and a hash together, for two groups of sixteen packets. */
#ifndef GODWIT_IPSEC_WIDE_RUN_H
#define GODWIT_IPSEC_WIDE_RUN_H

#include "wide_aes.h"
#include "wide_hmac.h"

/*
 * The data of one group through a cipher and the texts of another through a hash. The chains of
 * both wait for themselves most of the time; done together, each fills the waits of the other.
 */
GW_WIDE void gw_wide_run(gw_wide_hash *hash, gw_wide_cipher *cipher, gw_u32 state_words,
                         gw_u32 mode)
{
    __m512i w[16];
    __m512i v[8];
    __m512i x[4];
    while (hash->step < hash->steps) {
        const gw_u32 both = mode != GW_WIDE_NONE && gw_wide_cipher_left(cipher);
        const __mmask16 active = gw_wide_hash_words(hash, w, state_words);
        GW_WIDE_UNROLL
        for (gw_u32 i = 0; i < state_words; i++) {
            v[i] = hash->state[i];
        }
        if (both) {
            gw_wide_cipher_load(cipher);
            GW_WIDE_UNROLL
            for (gw_u32 part = 0; part < 16; part++) {
                gw_wide_hash_part(v, w, part, state_words);
                gw_wide_cipher_part(cipher, x, mode, part);
            }
            gw_wide_cipher_store(cipher);
        } else {
            GW_WIDE_UNROLL
            for (gw_u32 part = 0; part < 16; part++) {
                gw_wide_hash_part(v, w, part, state_words);
            }
        }
        gw_wide_hash_add(hash, v, active, state_words);
    }
    while (mode != GW_WIDE_NONE && gw_wide_cipher_left(cipher)) {
        gw_wide_cipher_load(cipher);
        GW_WIDE_UNROLL
        for (gw_u32 part = 0; part < 16; part++) {
            gw_wide_cipher_part(cipher, x, mode, part);
        }
        gw_wide_cipher_store(cipher);
    }
}

/* The combinations of suite.h; a hash that has no steps is no hash. */
#define GW_WIDE_RUN(name, state_words, mode)                                                       \
    static __attribute__((noinline)) void gw_wide_run_##name(gw_wide_hash *hash,                   \
                                                             gw_wide_cipher *cipher)               \
    {                                                                                              \
        gw_wide_run(hash, cipher, state_words, mode);                                              \
    }

GW_WIDE_RUN(sha1_none, 5, GW_WIDE_NONE)
GW_WIDE_RUN(sha1_cbc_seal, 5, GW_WIDE_CBC_SEAL)
GW_WIDE_RUN(sha1_cbc_open, 5, GW_WIDE_CBC_OPEN)
GW_WIDE_RUN(sha1_counter, 5, GW_WIDE_COUNTER)
GW_WIDE_RUN(sha256_none, 8, GW_WIDE_NONE)
GW_WIDE_RUN(sha256_cbc_seal, 8, GW_WIDE_CBC_SEAL)
GW_WIDE_RUN(sha256_cbc_open, 8, GW_WIDE_CBC_OPEN)
GW_WIDE_RUN(sha256_counter, 8, GW_WIDE_COUNTER)

typedef void gw_wide_runner(gw_wide_hash *, gw_wide_cipher *);

GW_WIDE gw_wide_runner *gw_wide_runner_of(gw_u32 state_words, gw_u32 mode)
{
    static gw_wide_runner *const runners[2][4] = {
        {gw_wide_run_sha1_none, gw_wide_run_sha1_cbc_seal, gw_wide_run_sha1_cbc_open,
         gw_wide_run_sha1_counter},
        {gw_wide_run_sha256_none, gw_wide_run_sha256_cbc_seal, gw_wide_run_sha256_cbc_open,
         gw_wide_run_sha256_counter},
    };
    return runners[state_words == 8][mode];
}

#endif
