/* Compiles the ESP header code in fields.h and simple.h for sixteen packets at once. Other kernels
 * compile the same files for one packet. */
#ifndef GODWIT_IPSEC_AVX512_WORDS_H
#define GODWIT_IPSEC_AVX512_WORDS_H

#include "../../dialect/words_avx512.h"
#include "../fields.h"
#include "../simple.h"

#endif
