/* Loads the next sixteen packets of a batch: their descriptors and parameters, and the addresses of
 * their frames and SAs. */
#ifndef GODWIT_IPSEC_AVX512_NEXT_H
#define GODWIT_IPSEC_AVX512_NEXT_H

#include "avx512_simple.h"

/* Descriptors and parameters of sixteen packets. Each register holds one word of each packet. */
typedef struct gw_avx512_inputs {
    __m512i buffer;
    __m512i head_length; /* length << 16 | head */
    __m512i room;
    __m512i parameter[2]; /* lower and upper half */
} gw_avx512_inputs;

/* Extracts one word of each of sixteen packet descriptors from four registers. */
GW_AVX512 __m512i gw_avx512_every_fourth(const __m512i rows[4], __m512i first)
{
    const __m512i low = _mm512_permutex2var_epi32(rows[0], first, rows[1]);
    const __m512i high = _mm512_permutex2var_epi32(rows[2], first, rows[3]);
    return _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
}

/* Loads the descriptors and parameters of sixteen consecutive packets, from packet `first` on. */
GW_AVX512 gw_avx512_inputs gw_avx512_inputs_consecutive(const gw_bin_call *call, gw_u32 first)
{
    const gw_descriptor *descriptors = call->descriptors + first;
    const gw_u64 *parameters = call->parameters + first;
    const __m512i fourth = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i same_length =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i low = _mm512_loadu_si512(parameters);
    const __m512i high = _mm512_loadu_si512(parameters + 8);
    __m512i rows[4];
    gw_avx512_inputs inputs;
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        rows[j] = _mm512_loadu_si512(descriptors + 4 * j);
    }
    inputs.buffer = gw_avx512_every_fourth(rows, fourth);
    inputs.head_length = gw_avx512_every_fourth(rows, _mm512_add_epi32(fourth, one));
    inputs.room =
        gw_avx512_every_fourth(rows, _mm512_add_epi32(fourth, _mm512_add_epi32(one, one)));
    inputs.parameter[0] = _mm512_permutex2var_epi32(low, same_length, high);
    inputs.parameter[1] = _mm512_permutex2var_epi32(low, _mm512_add_epi32(same_length, one), high);
    return inputs;
}

/* Loads the descriptors and parameters of the sixteen packets with the given indices. */
GW_AVX512 gw_avx512_inputs gw_avx512_inputs_gather(const gw_bin_call *call, __m512i index)
{
    const int *descriptors = (const int *)(const void *)call->descriptors;
    const int *parameters = (const int *)(const void *)call->parameters;
    const __m512i word = _mm512_slli_epi32(index, 2);
    const __m512i half = _mm512_slli_epi32(index, 1);
    gw_avx512_inputs inputs;
    inputs.buffer = _mm512_i32gather_epi32(word, descriptors, 4);
    inputs.head_length = _mm512_i32gather_epi32(word, descriptors + 1, 4);
    inputs.room = _mm512_i32gather_epi32(word, descriptors + 2, 4);
    inputs.parameter[0] = _mm512_i32gather_epi32(half, parameters, 4);
    inputs.parameter[1] = _mm512_i32gather_epi32(half, parameters + 1, 4);
    return inputs;
}

GW_AVX512 __m512i gw_avx512_lane_indices(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* Stores sixteen addresses, each of which is `base` plus an offset. `low` holds the first eight
 * offsets, and `high` the last eight. */
GW_AVX512 void gw_avx512_addresses(void *to, const void *base, __m512i low, __m512i high)
{
    const __m512i all = _mm512_set1_epi64((long long)(gw_u64)base);
    _mm512_store_si512(to, _mm512_add_epi64(all, low));
    _mm512_store_si512((gw_u8 *)to + sizeof(__m512i), _mm512_add_epi64(all, high));
}

/* Extends eight of sixteen 32-bit words to 64 bits: the first eight (half 0) or the last eight
 * (half 1). */
GW_AVX512 __m512i gw_avx512_to_u64(__m512i words, gw_u32 half)
{
    return _mm512_cvtepu32_epi64(half == 0 ? _mm512_castsi512_si256(words)
                                           : _mm512_extracti64x4_epi64(words, 1));
}

GW_STATIC_ASSERT(sizeof(gw_ipsec_sa) == (1 << 9) + (1 << 6), avx512_sa_size);

/* Loads the next packets of a batch, at most sixteen. Sets upcoming.count to 0 at the end of the
 * batch, or if a packet has an invalid SA index. */
GW_AVX512 void gw_avx512_load_upcoming(gw_avx512_batch *batch)
{
    const gw_bin_call *call = batch->call;
    const gw_ipsec_image *image = (const gw_ipsec_image *)call->image;
    gw_avx512_upcoming *upcoming = &batch->upcoming;
    const gw_u32 left = batch->count - batch->next;
    const gw_u32 count = left < GW_AVX512_LANES ? left : GW_AVX512_LANES;
    const __m512i lanes = gw_avx512_lane_indices();
    const gw_u32 first = batch->first + batch->next;
    gw_avx512_inputs inputs;
    __m512i index = _mm512_add_epi32(lanes, gw_avx512_set(first));
    upcoming->count = 0;
    upcoming->fetched = 0;
    if (count == 0) {
        return;
    }
    if (count == GW_AVX512_LANES && batch->consecutive) {
        inputs = gw_avx512_inputs_consecutive(call, first);
    } else {
        const __m512i last = _mm512_min_epu32(lanes, gw_avx512_set(count - 1));
        const __m256i order =
            _mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1), batch->order + batch->next);
        index = _mm512_add_epi32(_mm512_permutexvar_epi32(last, _mm512_cvtepu16_epi32(order)),
                                 gw_avx512_set(batch->first));
        inputs = gw_avx512_inputs_gather(call, index);
    }
    const gw_u32 sequence_bits = GW_IPSEC_SEQUENCE_BITS - 32;
    const __m512i sa = _mm512_srli_epi32(inputs.parameter[1], sequence_bits);
    if (_mm512_cmplt_epu32_mask(sa, gw_avx512_set(image->sa_count)) != 0xffff) {
        return;
    }
    const __m512i head = _mm512_and_si512(inputs.head_length, gw_avx512_set(0xffff));
    __m512i frame[2];
    __m512i sa_offset[2];
    GW_AVX512_UNROLL
    for (gw_u32 half = 0; half < 2; half++) {
        const __m512i buffer = _mm512_slli_epi64(gw_avx512_to_u64(inputs.buffer, half), 6);
        const __m512i number = gw_avx512_to_u64(sa, half);
        frame[half] = _mm512_add_epi64(buffer, gw_avx512_to_u64(head, half));
        sa_offset[half] =
            _mm512_add_epi64(_mm512_slli_epi64(number, 9), _mm512_slli_epi64(number, 6));
    }
    gw_avx512_addresses(upcoming->frame, call->arena, frame[0], frame[1]);
    gw_avx512_addresses(upcoming->sas.sa, call->image + image->sa_offset, sa_offset[0],
                        sa_offset[1]);
    _mm512_store_si512(upcoming->index, index);
    _mm512_store_si512(upcoming->head_length, inputs.head_length);
    _mm512_store_si512(upcoming->room, _mm512_and_si512(inputs.room, gw_avx512_set(0xff)));
    _mm512_store_si512(
        upcoming->sequence[0],
        _mm512_and_si512(inputs.parameter[1], gw_avx512_set((1u << sequence_bits) - 1)));
    _mm512_store_si512(upcoming->sequence[1], inputs.parameter[0]);
    upcoming->count = count;
}

#endif
