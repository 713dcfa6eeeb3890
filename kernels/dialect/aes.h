/*
 * AES-128 (FIPS 197) and its CBC mode (NIST SP 800-38A, section 6.2), as the
 * compiler at hand does it best. Both forms have:
 *
 *   gw_aes_block                                 16 bytes, in registers
 *   gw_aes_words(a, b, c, d)                     block of four big-endian words
 *   gw_aes_load(bytes), gw_aes_store(bytes, block)
 *   gw_aes128_encrypt(keys, block)               one block
 *   gw_aes128_cbc_encrypt(keys, iv, data, blocks)   in place
 *   gw_aes128_cbc_decrypt(keys, iv, data, blocks)   in place
 *
 * keys: 11 round keys of 16 bytes, 16-byte aligned, in the order of use. For
 * decryption those of the equivalent inverse cipher (FIPS 197, section 5.3.5):
 * the last first, InvMixColumns applied to all but the outer two.
 *
 * With AES instructions no time depends on keys or data. The other form looks
 * bytes up in tables, so on a CPU without AES instructions who can watch the
 * cache of this core may learn of keys.
 */
#ifndef GODWIT_AES_H
#define GODWIT_AES_H

#if defined(__AES__) && !defined(__OPENCL_VERSION__) && !defined(__CUDACC__)
#include "aes_ni.h"
#else
#include "aes_tables.h"
#endif

#endif
