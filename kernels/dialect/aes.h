/*
 * AES (FIPS 197) with keys of 128, 192 and 256 bits (10, 12 and 14 rounds). The modes are CBC and
 * CTR (NIST SP 800-38A, sections 6.2 and 6.5). The file aes_ni.h uses AES instructions, and
 * aes_tables.h uses tables. Both define:
 *
 *   gw_aes_block                                         16 bytes, in registers
 *   gw_aes_words(a, b, c, d)                             block of four big-endian words
 *   gw_aes_xor(a, b)
 *   gw_aes_word(block, i)                                big-endian word i of a block
 *   gw_aes_load(bytes), gw_aes_store(bytes, block)
 *   gw_aes_encrypt(keys, rounds, block)                  one block
 *   gw_aes_cbc_encrypt(keys, rounds, iv, data, blocks)   in place
 *   gw_aes_cbc_decrypt(keys, rounds, iv, data, blocks)   in place
 *   gw_aes_cbc_mac(keys, rounds, mac, data, bytes)       continues a CBC-MAC; pads data with zeros
 *   gw_aes_ctr(keys, rounds, nonce, counter, data, bytes)   in place; the last block may be partial
 *
 * `keys` points to rounds + 1 round keys of 16 bytes, 16-byte aligned, in the order of use. CBC
 * decryption takes the keys of the equivalent inverse cipher (FIPS 197, section 5.3.5). These are
 * in reverse order, with InvMixColumns applied to all keys except the first and the last.
 *
 * With AES instructions, the execution time is independent of keys and data. The tables are indexed
 * by secret bytes. On a CPU without AES instructions, an attacker who can observe the cache of this
 * core may learn key bits.
 */
#ifndef GODWIT_AES_H
#define GODWIT_AES_H

/* First 12 bytes of a counter block (the nonce), as big-endian words. The fourth word of the block
 * is the counter (RFC 3686, section 4; NIST SP 800-38D, section 7.1). */
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
