/* Trailers of simple packets. */
#ifndef GODWIT_IPSEC_AVX512_PADDING_H
#define GODWIT_IPSEC_AVX512_PADDING_H

#include "avx512.h"

/* ESP trailer of a tunnelled IPv4 packet (gw_ipsec_pad): up to 15 bytes of padding, the pad length,
 * and the next header. */
typedef struct gw_avx512_padding {
    __m256i all;
    __mmask32 mask;
    gw_u32 bytes;
} gw_avx512_padding;

GW_AVX512 gw_avx512_padding gw_avx512_padding_of(gw_u32 pad_bytes)
{
    static const gw_u8 numbers[32]
        __attribute__((aligned(32))) = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const __m256i all = _mm256_min_epu8(_mm256_set1_epi8((char)pad_bytes),
                                        _mm256_load_si256((const __m256i *)numbers));
    gw_avx512_padding padding;
    padding.all = _mm256_mask_set1_epi8(all, (__mmask32)2 << pad_bytes, GW_PROTOCOL_IPV4);
    padding.mask = ((__mmask32)4 << pad_bytes) - 1;
    padding.bytes = pad_bytes;
    return padding;
}

#endif
