/*
 * GHASH (NIST SP 800-38D, section 6.4) as POLYVAL (RFC 8452, appendix A): bytes turned round, its
 * elements are polynomials whose bits lie as in a little-endian number of 128 bits, which is how
 * processors multiply. Both forms have:
 *
 *   gw_ghash_element                      16 bytes, in registers
 *   gw_ghash_zero()
 *   gw_ghash_words(a, b, c, d)            a block of four big-endian words
 *   gw_ghash_word(element, i)             big-endian word i of the block
 *   gw_ghash_key(words)                   from a table image: four words, the lowest first
 *   gw_ghash_add(x, y)
 *   gw_ghash_multiply(x, y)               as POLYVAL does, with x^-128
 *   gw_ghash_blocks(sum, keys, data, blocks)   takes whole blocks into the sum; keys: as below
 *
 * keys: H and its second, third and fourth power, of four words each, where H is GHASH's key with
 * its bytes turned round, times x. That times x makes POLYVAL's product GHASH's (RFC 8452, appendix
 * A). No time depends on keys or data, and there are no tables.
 */
#ifndef GODWIT_GHASH_H
#define GODWIT_GHASH_H

#define GW_GHASH_KEY_WORDS 4u

#if defined(__PCLMUL__) && defined(__SSE4_1__) && !defined(__OPENCL_VERSION__) &&                  \
    !defined(__CUDACC__)
#include "ghash_clmul.h"
#else
#include "ghash_words.h"
#endif

#endif
