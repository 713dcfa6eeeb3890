/*
 * GHASH (NIST SP 800-38D, section 6.4), computed as POLYVAL (RFC 8452, appendix A). Elements have
 * reversed bytes. Their coefficients are then ordered as in a little-endian 128-bit number, which
 * suits the multipliers of processors. The file ghash_clmul.h uses carry-less multiplication, and
 * ghash_words.h uses 32-bit multiplication. Both define:
 *
 *   gw_ghash_element                      16 bytes, in registers
 *   gw_ghash_zero()
 *   gw_ghash_words(a, b, c, d)            a block of four big-endian words
 *   gw_ghash_word(element, i)             big-endian word i of the block
 *   gw_ghash_key(words)                   from four words of a table image, the lowest first
 *   gw_ghash_add(x, y)
 *   gw_ghash_multiply(x, y)               POLYVAL's product x * y * x^-128
 *   gw_ghash_blocks(sum, keys, data, blocks)   adds whole blocks to the sum
 *
 * `keys` points to H, H^2, H^3 and H^4, four words each. H is the GHASH key with its bytes
 * reversed, multiplied by x. This factor turns the product of POLYVAL into the product of GHASH
 * (RFC 8452, appendix A). The execution time is independent of keys and data, because there are no
 * tables.
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
