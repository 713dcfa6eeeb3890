/* Defines the basic kernel operations for the system's C compiler (gcc or clang). Kernels are
 * written in a subset of C that also compiles for GPUs. On a CPU, a work-group consists of one
 * thread. */
#ifndef GODWIT_DIALECT_CPU_H
#define GODWIT_DIALECT_CPU_H

#include <stddef.h>
#include <stdint.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

typedef uint8_t gw_u8;
typedef uint16_t gw_u16;
typedef uint32_t gw_u32;
typedef uint64_t gw_u64;

#define GW_STATIC_ASSERT(condition, name) _Static_assert(condition, #name)
#define GW_ASSERT_OFFSET(type, field, bytes)                                                       \
    _Static_assert(offsetof(type, field) == (bytes), #type "." #field)

#define GW_GLOBAL
#define GW_LOCAL
#define GW_CONSTANT
#define GW_PRIVATE
#define GW_TABLE static const

#define GW_LANE   static inline
#define GW_GROUP  static inline
#define GW_APART  static inline
#define GW_CALLED static inline
#define GW_ALONE  static __attribute__((noinline, unused))
#define GW_RARE   static __attribute__((noinline, cold, unused))

GW_LANE gw_u32 gw_lane_id(void)
{
    return 0;
}

GW_LANE gw_u32 gw_lane_count(void)
{
    return 1;
}

/* Maximum number of threads that scan one packet together. A work-group on a CPU has only one
 * thread. */
#define GW_PACKET_LANES 1u

GW_LANE void gw_barrier(void)
{
}

#define GW_EXPENSIVE(address) ((void)(address))
#define GW_FETCH(address)     __builtin_prefetch(address)

GW_LANE gw_u32 gw_load_be16(const gw_u8 *bytes)
{
    gw_u16 value;
    __builtin_memcpy(&value, bytes, sizeof(value));
    return __builtin_bswap16(value);
}

GW_LANE gw_u32 gw_load_be32(const gw_u8 *bytes)
{
    gw_u32 value;
    __builtin_memcpy(&value, bytes, sizeof(value));
    return __builtin_bswap32(value);
}

GW_LANE gw_u64 gw_load_be64(const gw_u8 *bytes)
{
    gw_u64 value;
    __builtin_memcpy(&value, bytes, sizeof(value));
    return __builtin_bswap64(value);
}

GW_LANE gw_u32 gw_load_le32(const gw_u8 *bytes)
{
    gw_u32 value;
    __builtin_memcpy(&value, bytes, sizeof(value));
    return value;
}

GW_LANE void gw_store_le32(gw_u8 *bytes, gw_u32 value)
{
    __builtin_memcpy(bytes, &value, sizeof(value));
}

GW_LANE void gw_store_be16(gw_u8 *bytes, gw_u32 value)
{
    gw_u16 swapped = __builtin_bswap16((gw_u16)value);
    __builtin_memcpy(bytes, &swapped, sizeof(swapped));
}

GW_LANE void gw_store_be32(gw_u8 *bytes, gw_u32 value)
{
    gw_u32 swapped = __builtin_bswap32(value);
    __builtin_memcpy(bytes, &swapped, sizeof(swapped));
}

GW_LANE void gw_store_be64(gw_u8 *bytes, gw_u64 value)
{
    gw_u64 swapped = __builtin_bswap64(value);
    __builtin_memcpy(bytes, &swapped, sizeof(swapped));
}

typedef struct gw_block {
    gw_u32 word0;
    gw_u32 word1;
    gw_u32 word2;
    gw_u32 word3;
} gw_block;

GW_LANE gw_block gw_load_block(const gw_u8 *bytes)
{
    gw_block block;
    __builtin_memcpy(&block, bytes, sizeof(block));
    return block;
}

GW_LANE gw_u32 gw_rotate_left32(gw_u32 value, gw_u32 bits)
{
    return (value << (bits & 31)) | (value >> (-bits & 31));
}

GW_LANE gw_u64 gw_rotate_left64(gw_u64 value, gw_u32 bits)
{
    return (value << (bits & 63)) | (value >> (-bits & 63));
}

GW_LANE gw_u32 gw_popcount32(gw_u32 value)
{
    return (gw_u32)__builtin_popcount(value);
}

GW_LANE gw_u32 gw_popcount64(gw_u64 value)
{
    return (gw_u32)__builtin_popcountll(value);
}

#ifdef __AVX512F__
GW_LANE gw_u32 gw_rank_line(const gw_u64 *keys, gw_u32 count, gw_u64 key)
{
    const __m512i line = _mm512_load_si512(keys);
    const gw_u32 below = _mm512_cmple_epu64_mask(line, _mm512_set1_epi64((long long)key));
    return gw_popcount32(below & ((1u << count) - 1));
}
#else
GW_LANE gw_u32 gw_rank_line(const gw_u64 *keys, gw_u32 count, gw_u64 key)
{
    gw_u32 rank = 0;
    for (gw_u32 i = 0; i < count; i++) {
        rank += (gw_u32)(keys[i] <= key);
    }
    return rank;
}
#endif

/* Returns the ones' complement sum of 16-bit words (RFC 1071, section 2 (B) and (C)). It adds
 * 64-bit words with end-around carry, which gives the same sum. Only the last step depends on the
 * byte order. */
GW_LANE gw_u32 gw_ones_sum(const gw_u8 *bytes, gw_u32 length)
{
    gw_u64 sum = 0;
    gw_u32 i = 0;
    for (; i + 8 <= length; i += 8) {
        gw_u64 word;
        __builtin_memcpy(&word, bytes + i, sizeof(word));
        sum += word;
        sum += sum < word;
    }
    if (i < length) {
        gw_u32 word;
        __builtin_memcpy(&word, bytes + i, sizeof(word));
        sum += word;
        sum += sum < word;
    }
    const gw_u32 half = (gw_u32)((sum + gw_rotate_left64(sum, 32)) >> 32);
    return __builtin_bswap16((gw_u16)((half + gw_rotate_left32(half, 16)) >> 16));
}

#endif
