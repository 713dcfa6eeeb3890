/* Defines the basic kernel operations for NVRTC, the run-time compiler of CUDA C++. Kernels are
 * written in a subset of C that also compiles for CPUs. CUDA pointers are generic, so one
 * definition of an operation serves all address spaces. */
#ifndef GODWIT_DIALECT_CUDA_H
#define GODWIT_DIALECT_CUDA_H

typedef unsigned char gw_u8;
typedef unsigned short gw_u16;
typedef unsigned int gw_u32;
typedef unsigned long long gw_u64;

#define GW_STATIC_ASSERT(condition, name) static_assert(condition, #name)
/* Asserts the offset of a struct field. NVRTC 13.0 cannot evaluate offsetof at compile time, but
 * NVRTC 13.5 can. */
#if defined(__has_builtin) && __has_builtin(__builtin_offsetof)
#define GW_ASSERT_OFFSET(type, field, bytes)                                                       \
    static_assert(__builtin_offsetof(type, field) == (bytes), #type "." #field)
#else
#define GW_ASSERT_OFFSET(type, field, bytes) static_assert(true, #type "." #field)
#endif

#define GW_GLOBAL
#define GW_LOCAL
#define GW_CONSTANT
#define GW_PRIVATE
#define GW_TABLE static __constant__ const

/* Threads per CUDA block: enough for 32 packets with nine threads each, or 64 packets with three
 * threads each. */
#define GW_GROUP_LANES 288u

/* Minimum number of resident blocks per multiprocessor. With two blocks, each thread can use 112
 * registers. */
#define GW_GROUPS_MIN 2

/* Under CUDA, several threads process each packet of a function whose threads exchange words. */
#define GW_TEAM_FORM        GW_BY_GROUP
#define GW_TEAM_FORMS(list) list

#define GW_UNROLL  _Pragma("unroll")
#define GW_NO_COPY _Pragma("unroll 1")

#define GW_LANE   static __device__ inline
#define GW_CALLED static __device__ __noinline__
#define GW_GROUP  static __device__ inline
#define GW_RARE   static __device__ __noinline__
#define GW_APART  static __device__ __noinline__
#define GW_ALONE  static __device__ __noinline__

GW_LANE gw_u32 gw_lane_id(void)
{
    return threadIdx.x;
}

GW_LANE gw_u32 gw_lane_count(void)
{
    return blockDim.x;
}

#define GW_PACKET_LANES 8u

GW_LANE void gw_barrier(void)
{
    __syncthreads();
}

/* Exchanges a word with the neighbouring thread: threads 2n and 2n + 1 are neighbours. Returns the
 * neighbour's word. All threads of the warp must call this function. */
GW_LANE gw_u32 gw_pair_word(gw_u32 word)
{
    return __shfl_xor_sync(0xffffffffu, word, 1);
}

/*
 * Returns `value`, which must be the same in all threads of the warp. The shuffle tells the
 * compiler that the value is uniform. A branch on the value then keeps the warp together.
 */
GW_LANE gw_u32 gw_uniform(gw_u32 value)
{
    return __shfl_sync(0xffffffffu, value, 0);
}

GW_LANE gw_u32 gw_warp_max(gw_u32 value)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, value);
#else
    for (gw_u32 distance = warpSize / 2; distance != 0; distance /= 2) {
        const gw_u32 other = __shfl_xor_sync(0xffffffffu, value, (int)distance);
        value = other > value ? other : value;
    }
    return value;
#endif
}

/* Waits for all threads of the caller's warp and orders their memory accesses. */
GW_LANE void gw_warp_barrier(void)
{
    __syncwarp();
}

/* Atomic operations on a work-group's shared memory. gw_local_add returns the old value. */
GW_LANE gw_u32 gw_local_add(gw_u32 *word, gw_u32 value)
{
    return atomicAdd(word, value);
}

/* Adds to a word that all work-groups share. Returns the old value. */
#define gw_global_add(word, value) atomicAdd((gw_u32 *)(word), (value))

GW_LANE void gw_local_min(gw_u32 *word, gw_u32 value)
{
    atomicMin(word, value);
}

GW_LANE void gw_local_max(gw_u32 *word, gw_u32 value)
{
    atomicMax(word, value);
}

#define GW_EXPENSIVE(address) ((void)(address))
#define GW_FETCH(address)     ((void)(address))

/*
 * Loads and stores at unaligned addresses. A GPU accesses only aligned words, so these functions
 * access as few of them as possible. All of these words lie in the same packet buffer or table
 * image, because both begin and end at multiples of 64 bytes.
 */
GW_LANE gw_u32 gw_load_be16(const gw_u8 *bytes)
{
    const gw_u32 odd = (gw_u32)(gw_u64)bytes & 1u;
    if (odd) {
        return (gw_u32)bytes[0] << 8 | bytes[1];
    }
    return __byte_perm(*(const gw_u16 *)bytes, 0, 0x4401);
}

GW_LANE gw_u32 gw_load_be32(const gw_u8 *bytes)
{
    const gw_u32 from = (gw_u32)(gw_u64)bytes & 3u;
    const gw_u32 low = *(const gw_u32 *)(bytes - from);
    const gw_u32 high = *(const gw_u32 *)(bytes + (-from & 3u));
    return __byte_perm(__funnelshift_r(low, high, 8 * from), 0, 0x0123);
}

GW_LANE gw_u32 gw_load_le32(const gw_u8 *bytes)
{
    const gw_u32 from = (gw_u32)(gw_u64)bytes & 3u;
    const gw_u32 low = *(const gw_u32 *)(bytes - from);
    const gw_u32 high = *(const gw_u32 *)(bytes + (-from & 3u));
    return __funnelshift_r(low, high, 8 * from);
}

GW_LANE gw_u64 gw_load_be64(const gw_u8 *bytes)
{
    return (gw_u64)gw_load_be32(bytes) << 32 | gw_load_be32(bytes + 4);
}

GW_LANE void gw_store_be16(gw_u8 *bytes, gw_u32 value)
{
    const gw_u32 odd = (gw_u32)(gw_u64)bytes & 1u;
    if (odd) {
        bytes[0] = (gw_u8)(value >> 8);
        bytes[1] = (gw_u8)value;
    } else {
        *(gw_u16 *)bytes = (gw_u16)__byte_perm(value, 0, 0x4401);
    }
}

GW_LANE void gw_store_be32(gw_u8 *bytes, gw_u32 value)
{
    gw_store_be16(bytes, value >> 16);
    gw_store_be16(bytes + 2, value);
}

GW_LANE void gw_store_le32(gw_u8 *bytes, gw_u32 value)
{
    gw_store_be32(bytes, __byte_perm(value, 0, 0x0123));
}

GW_LANE void gw_store_be64(gw_u8 *bytes, gw_u64 value)
{
    gw_store_be32(bytes, (gw_u32)(value >> 32));
    gw_store_be32(bytes + 4, (gw_u32)value);
}

typedef struct alignas(16) gw_block {
    gw_u32 word0;
    gw_u32 word1;
    gw_u32 word2;
    gw_u32 word3;
} gw_block;

GW_LANE gw_block gw_load_block(const gw_u8 *bytes)
{
    return *(const gw_block *)bytes;
}

GW_LANE void gw_store_block(gw_u8 *bytes, gw_block block)
{
    *(gw_block *)bytes = block;
}

GW_LANE gw_u32 gw_rotate_left32(gw_u32 value, gw_u32 bits)
{
    return __funnelshift_l(value, value, bits);
}

GW_LANE gw_u64 gw_rotate_left64(gw_u64 value, gw_u32 bits)
{
    return (value << (bits & 63)) | (value >> ((64 - bits) & 63));
}

/* Returns the XOR of three words, computed with one instruction. Without the inline assembly, the
 * compiler may emit two dependent instructions. */
GW_LANE gw_u32 gw_xor3(gw_u32 a, gw_u32 b, gw_u32 c)
{
    gw_u32 sum;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}

GW_LANE gw_u32 gw_swap32(gw_u32 value)
{
    return __byte_perm(value, 0, 0x0123);
}

/* Returns 256 * b + low, where b is byte `index` of `word` and `low` is below 256. */
GW_LANE gw_u32 gw_byte_above(gw_u32 word, gw_u32 index, gw_u32 low)
{
    return __byte_perm(word, low, 0x7704u + (index << 4));
}

GW_LANE gw_u32 gw_funnel_left32(gw_u32 low, gw_u32 high, gw_u32 bits)
{
    return __funnelshift_l(low, high, bits);
}

GW_LANE gw_u32 gw_funnel_right32(gw_u32 low, gw_u32 high, gw_u32 bits)
{
    return __funnelshift_r(low, high, bits);
}

GW_LANE gw_u32 gw_popcount32(gw_u32 value)
{
    return (gw_u32)__popc(value);
}

GW_LANE gw_u32 gw_popcount64(gw_u64 value)
{
    return (gw_u32)__popcll(value);
}

GW_LANE gw_u32 gw_rank_line(const GW_GLOBAL gw_u64 *keys, gw_u32 count, gw_u64 key)
{
    gw_u32 rank = 0;
    for (gw_u32 i = 0; i < count; i++) {
        rank += (gw_u32)(keys[i] <= key);
    }
    return rank;
}

GW_LANE gw_u32 gw_ones_sum(const gw_u8 *bytes, gw_u32 length)
{
    gw_u32 sum = 0;
    for (gw_u32 i = 0; i < length; i += 4) {
        sum += gw_load_be16(bytes + i) + gw_load_be16(bytes + i + 2);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

#endif
