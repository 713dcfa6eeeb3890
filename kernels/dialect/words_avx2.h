/* Redefines the macros of words.h for eight packets. Each value is an AVX2 register with one 32-bit
 * word per packet. */
#ifndef GODWIT_WORDS_AVX2_H
#define GODWIT_WORDS_AVX2_H

#include <immintrin.h>

/* One 32-bit word of each of eight packets. */
typedef gw_u32 gw_words_8 __attribute__((vector_size(32)));

/* Converts a value to an AVX2 register: either a register with one word per packet, or one number
 * for all packets. */
#define GW_REGISTER(a) ((a) + (gw_words_8){0})

#undef GW_WORD
#undef GW_TEST
#undef GW_WORDWISE
#undef GW_NAME
#undef GW_SELECT
#undef GW_NOT
#undef GW_EQUAL
#undef GW_AT_LEAST
#undef GW_HAS
#undef GW_ROTATE
#undef GW_CHOOSE
#undef GW_PARITY
#undef GW_XOR_OR_NOT
#undef GW_IN_ORDER

#define GW_WORD       gw_words_8
#define GW_TEST       gw_words_8
#define GW_WORDWISE   static inline __attribute__((always_inline))
#define GW_NAME(name) name##_8
#define GW_SELECT(test, a, b)                                                                      \
    ((gw_words_8)_mm256_blendv_epi8((__m256i)GW_REGISTER(b), (__m256i)GW_REGISTER(a),              \
                                    (__m256i)(test)))
#define GW_NOT(test)           (~(test))
#define GW_EQUAL(a, b)         ((gw_words_8)(GW_REGISTER(a) == GW_REGISTER(b)))
#define GW_AT_LEAST(a, b)      ((gw_words_8)(GW_REGISTER(a) >= GW_REGISTER(b)))
#define GW_HAS(word, bits)     ((gw_words_8)((GW_REGISTER(word) & (bits)) != 0))
#define GW_ROTATE(word, bits)  ((word) << (bits) | (word) >> (32 - (bits)))
#define GW_CHOOSE(a, b, c)     ((c) ^ ((a) & ((b) ^ (c))))
#define GW_PARITY(a, b, c)     ((a) ^ (b) ^ (c))
#define GW_XOR_OR_NOT(a, b, c) ((a) ^ ((b) | ~(c)))
#define GW_IN_ORDER(word)      __asm__("" : "+x"(word))

#endif
