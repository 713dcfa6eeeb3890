/* Redefines the macros of words.h for sixteen packets. Each value is an AVX-512 register with one
 * 32-bit word per packet. */
#ifndef GODWIT_WORDS_AVX512_H
#define GODWIT_WORDS_AVX512_H

#include <immintrin.h>

/* One 32-bit word of each of sixteen packets. */
typedef gw_u32 gw_words_16 __attribute__((vector_size(64)));

/* Converts a value to an AVX-512 register: either a register with one word per packet, or one
 * number for all packets. */
#define GW_REGISTER(a) ((__m512i)((a) + (gw_words_16){0}))

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

#define GW_WORD       gw_words_16
#define GW_TEST       __mmask16
#define GW_WORDWISE   static inline __attribute__((always_inline))
#define GW_NAME(name) name##_16
#define GW_SELECT(test, a, b)                                                                      \
    ((gw_words_16)_mm512_mask_mov_epi32(GW_REGISTER(b), (test), GW_REGISTER(a)))
#define GW_NOT(test)      ((__mmask16) ~(test))
#define GW_EQUAL(a, b)    _mm512_cmpeq_epu32_mask(GW_REGISTER(a), GW_REGISTER(b))
#define GW_AT_LEAST(a, b) _mm512_cmpge_epu32_mask(GW_REGISTER(a), GW_REGISTER(b))
#define GW_LOGIC(table, a, b, c)                                                                   \
    ((gw_words_16)_mm512_ternarylogic_epi32(GW_REGISTER(a), GW_REGISTER(b), GW_REGISTER(c), table))
#define GW_ROTATE(word, bits)  ((gw_words_16)_mm512_rol_epi32(GW_REGISTER(word), bits))
#define GW_CHOOSE(a, b, c)     GW_LOGIC(0xca, a, b, c)
#define GW_PARITY(a, b, c)     GW_LOGIC(0x96, a, b, c)
#define GW_XOR_OR_NOT(a, b, c) GW_LOGIC(0x2d, a, b, c)
#define GW_IN_ORDER(word)      __asm__("" : "+v"(word))
#define GW_HAS(word, bits)     _mm512_test_epi32_mask(GW_REGISTER(word), GW_REGISTER(bits))

#endif
