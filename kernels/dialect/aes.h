/*
 * AES (FIPS 197) with keys of 128, 192 and 256 bits, that is, with 10, 12 and 14 rounds, and its
 * modes CBC and CTR (NIST SP 800-38A, sections 6.2 and 6.5), as the compiler at hand does it best.
 * Both forms have:
 *
 *   gw_aes_block                                         16 bytes, in registers
 *   gw_aes_words(a, b, c, d)                             block of four big-endian words
 *   gw_aes_word(block, i)                                big-endian word i of a block
 *   gw_aes_load(bytes), gw_aes_store(bytes, block)
 *   gw_aes_encrypt(keys, rounds, block)                  one block
 *   gw_aes_cbc_encrypt(keys, rounds, iv, data, blocks)   in place
 *   gw_aes_cbc_decrypt(keys, rounds, iv, data, blocks)   in place
 *   gw_aes_ctr(keys, rounds, nonce, counter, data, bytes)   in place, the last block cut short
 *
 * keys: rounds + 1 round keys of 16 bytes, 16-byte aligned, in the order of use. For CBC decryption
 * those of the equivalent inverse cipher (FIPS 197, section 5.3.5): the last first, InvMixColumns
 * applied to all but the outer two.
 *
 * With AES instructions no time depends on keys or data. The other form looks
 * bytes up in tables, so on a CPU without AES instructions who can watch the
 * cache of this core may learn of keys.
 */
#ifndef GODWIT_AES_H
#define GODWIT_AES_H

/* What a counter block begins with, as big-endian words (RFC 3686 section 4, SP 800-38D
 * section 7.1). */
typedef struct gw_aes_nonce {
    gw_u32 salt;
    gw_u32 iv_high;
    gw_u32 iv_low;
} gw_aes_nonce;

#if defined(__AES__) && !defined(__OPENCL_VERSION__) && !defined(__CUDACC__)
#include "aes_ni.h"
#else
#include "aes_tables.h"
#endif

#endif
