/* What the host says of the next sixteen packets of a batch: descriptors and parameters as words of
 * registers, and the addresses of frames and SAs that follow from them. */
#ifndef GODWIT_IPSEC_WIDE_NEXT_H
#define GODWIT_IPSEC_WIDE_NEXT_H

#include "wide_plain.h"

/* Sixteen descriptors and parameters as words of registers. */
typedef struct gw_wide_called {
    __m512i buffer;
    __m512i place; /* length << 16 | head */
    __m512i room;
    __m512i parameter[2]; /* lower and upper half */
} gw_wide_called;

/* Every fourth word of four registers, from that of `first` on. */
GW_WIDE __m512i gw_wide_fourths(const __m512i rows[4], __m512i first)
{
    const __m512i low = _mm512_permutex2var_epi32(rows[0], first, rows[1]);
    const __m512i high = _mm512_permutex2var_epi32(rows[2], first, rows[3]);
    return _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
}

/* Those from `first` on, which follow each other. */
GW_WIDE gw_wide_called gw_wide_called_in_row(const gw_bin_call *call, gw_u32 first)
{
    const gw_descriptor *descriptors = call->descriptors + first;
    const gw_u64 *parameters = call->parameters + first;
    const __m512i fourth = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i low = _mm512_loadu_si512(parameters);
    const __m512i high = _mm512_loadu_si512(parameters + 8);
    __m512i rows[4];
    gw_wide_called called;
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        rows[j] = _mm512_loadu_si512(descriptors + 4 * j);
    }
    called.buffer = gw_wide_fourths(rows, fourth);
    called.place = gw_wide_fourths(rows, _mm512_add_epi32(fourth, one));
    called.room = gw_wide_fourths(rows, _mm512_add_epi32(fourth, _mm512_add_epi32(one, one)));
    called.parameter[0] = _mm512_permutex2var_epi32(low, even, high);
    called.parameter[1] = _mm512_permutex2var_epi32(low, _mm512_add_epi32(even, one), high);
    return called;
}

/* Those with these indices. */
GW_WIDE gw_wide_called gw_wide_called_at(const gw_bin_call *call, __m512i index)
{
    const int *descriptors = (const int *)(const void *)call->descriptors;
    const int *parameters = (const int *)(const void *)call->parameters;
    const __m512i word = _mm512_slli_epi32(index, 2);
    const __m512i half = _mm512_slli_epi32(index, 1);
    gw_wide_called called;
    called.buffer = _mm512_i32gather_epi32(word, descriptors, 4);
    called.place = _mm512_i32gather_epi32(word, descriptors + 1, 4);
    called.room = _mm512_i32gather_epi32(word, descriptors + 2, 4);
    called.parameter[0] = _mm512_i32gather_epi32(half, parameters, 4);
    called.parameter[1] = _mm512_i32gather_epi32(half, parameters + 1, 4);
    return called;
}

/* The number of each lane. */
GW_WIDE __m512i gw_wide_lane_numbers(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* Sixteen addresses: a base, and offsets of lanes 0 to 7 and of 8 to 15. */
GW_WIDE void gw_wide_addresses(void *to, const void *base, __m512i low, __m512i high)
{
    const __m512i all = _mm512_set1_epi64((long long)(gw_u64)base);
    _mm512_store_si512(to, _mm512_add_epi64(all, low));
    _mm512_store_si512((gw_u8 *)to + sizeof(__m512i), _mm512_add_epi64(all, high));
}

/* Words of eight lanes as numbers of 64 bits. */
GW_WIDE __m512i gw_wide_long(__m512i words, gw_u32 half)
{
    return _mm512_cvtepu32_epi64(half == 0 ? _mm512_castsi512_si256(words)
                                           : _mm512_extracti64x4_epi64(words, 1));
}

GW_STATIC_ASSERT(sizeof(gw_ipsec_sa) == (1 << 8) + (1 << 7), wide_next_sa_size);

/* Says what comes next in a batch. */
GW_WIDE void gw_wide_look(gw_wide_batch *batch)
{
    const gw_bin_call *call = batch->call;
    const gw_ipsec_image *image = (const gw_ipsec_image *)call->image;
    gw_wide_coming *coming = &batch->coming;
    const gw_u32 left = batch->count - batch->next;
    const gw_u32 count = left < GW_WIDE_LANES ? left : GW_WIDE_LANES;
    const __m512i lanes = gw_wide_lane_numbers();
    const gw_u32 first = batch->first + batch->next;
    gw_wide_called called;
    __m512i index = _mm512_add_epi32(lanes, gw_wide_set(first));
    coming->count = 0;
    coming->fetched = 0;
    if (count == 0) {
        return;
    }
    if (count == GW_WIDE_LANES && batch->in_row) {
        called = gw_wide_called_in_row(call, first);
    } else {
        const __m512i last = _mm512_min_epu32(lanes, gw_wide_set(count - 1));
        const __m256i order =
            _mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1), batch->order + batch->next);
        index = _mm512_add_epi32(_mm512_permutexvar_epi32(last, _mm512_cvtepu16_epi32(order)),
                                 gw_wide_set(batch->first));
        called = gw_wide_called_at(call, index);
    }
    const gw_u32 sequence_bits = GW_IPSEC_SEQUENCE_BITS - 32;
    const __m512i sa = _mm512_srli_epi32(called.parameter[1], sequence_bits);
    if (_mm512_cmplt_epu32_mask(sa, gw_wide_set(image->sa_count)) != 0xffff) {
        return;
    }
    const __m512i head = _mm512_and_si512(called.place, gw_wide_set(0xffff));
    __m512i frame[2];
    __m512i sa_offset[2];
    GW_WIDE_UNROLL
    for (gw_u32 half = 0; half < 2; half++) {
        const __m512i buffer = _mm512_slli_epi64(gw_wide_long(called.buffer, half), 6);
        const __m512i number = gw_wide_long(sa, half);
        frame[half] = _mm512_add_epi64(buffer, gw_wide_long(head, half));
        sa_offset[half] =
            _mm512_add_epi64(_mm512_slli_epi64(number, 8), _mm512_slli_epi64(number, 7));
    }
    gw_wide_addresses(coming->frame, call->arena, frame[0], frame[1]);
    gw_wide_addresses(coming->sas.sa, call->image + image->sa_offset, sa_offset[0], sa_offset[1]);
    _mm512_store_si512(coming->index, index);
    _mm512_store_si512(coming->place, called.place);
    _mm512_store_si512(coming->room, _mm512_and_si512(called.room, gw_wide_set(0xff)));
    _mm512_store_si512(
        coming->numbers[0],
        _mm512_and_si512(called.parameter[1], gw_wide_set((1u << sequence_bits) - 1)));
    _mm512_store_si512(coming->numbers[1], called.parameter[0]);
    coming->count = count;
}

#endif
