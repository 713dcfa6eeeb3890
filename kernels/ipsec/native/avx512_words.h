/* Headers of ESP in words of sixteen lanes. The same files in words of one lane belong to the lane
 * form and to the group form. */
#ifndef GODWIT_IPSEC_AVX512_WORDS_H
#define GODWIT_IPSEC_AVX512_WORDS_H

#include "../../dialect/words_avx512.h"
#include "../fields.h"
#include "../simple.h"

#endif
