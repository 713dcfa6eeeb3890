/*
 * Vocabulary for code that computes with the 32-bit words of one lane (packet). Code that uses
 * these names also compiles for words of sixteen lanes (words_avx512.h). README.md describes the
 * names.
 */
#ifndef GODWIT_WORDS_H
#define GODWIT_WORDS_H

#define GW_WORD               gw_u32
#define GW_TEST               gw_u32
#define GW_WORDWISE           GW_LANE
#define GW_NAME(name)         name
#define GW_SELECT(test, a, b) ((test) ? (a) : (b))
#define GW_NOT(test)          (!(test))
#define GW_EQUAL(a, b)        ((a) == (b))
#define GW_AT_LEAST(a, b)     ((a) >= (b))
#define GW_HAS(word, bits)    (((word) & (bits)) != 0)

#endif
