/*
 * Macros for code that computes with 32-bit packet words. With this header, each value is a word of
 * one packet. With words_avx512.h, the same code processes sixteen packets, and each value holds
 * one word per packet. README.md describes the macros.
 */
#ifndef GODWIT_WORDS_H
#define GODWIT_WORDS_H

#define GW_WORD                gw_u32
#define GW_TEST                gw_u32
#define GW_WORDWISE            GW_LANE
#define GW_NAME(name)          name
#define GW_SELECT(test, a, b)  ((test) ? (a) : (b))
#define GW_NOT(test)           (!(test))
#define GW_EQUAL(a, b)         ((a) == (b))
#define GW_AT_LEAST(a, b)      ((a) >= (b))
#define GW_ROTATE(word, bits)  gw_rotate_left32(word, bits)
#define GW_CHOOSE(a, b, c)     ((c) ^ ((a) & ((b) ^ (c))))
#define GW_PARITY(a, b, c)     ((a) ^ (b) ^ (c))
#define GW_XOR_OR_NOT(a, b, c) ((a) ^ ((b) | ~(c)))
#define GW_IN_ORDER(word)
#define GW_HAS(word, bits) (((word) & (bits)) != 0)

#endif
