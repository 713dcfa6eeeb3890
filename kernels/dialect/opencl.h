/*
 * Defines the basic kernel operations for OpenCL C 1.2 and later. Kernels are written in a subset
 * of C that also compiles for CPUs. Not all versions of OpenCL C have generic pointers, so each
 * operation on bytes is overloaded for each address space. Overloading is a clang attribute, and
 * every known OpenCL compiler is based on clang.
 */
#ifndef GODWIT_DIALECT_OPENCL_H
#define GODWIT_DIALECT_OPENCL_H

/* OpenCL C reserves the name `kernel`, but the struct gw_bin has a field with this name. */
#define kernel kernel_

typedef uchar gw_u8;
typedef ushort gw_u16;
typedef uint gw_u32;
typedef ulong gw_u64;

#define GW_STATIC_ASSERT(condition, name) typedef char gw_assert_##name[(condition) ? 1 : -1]
#define GW_ASSERT_OFFSET(type, field, bytes)                                                       \
    GW_STATIC_ASSERT(__builtin_offsetof(type, field) == (bytes), type##_##field)

#define GW_GLOBAL   __global
#define GW_LOCAL    __local
#define GW_CONSTANT __constant
#define GW_PRIVATE  __private
#define GW_TABLE    __constant

/* Large functions are not inlined, because the compiler of PoCL 3 crashes if all kernels are
 * inlined into one function. */
#define GW_LANE  static inline
#define GW_GROUP static inline
#define GW_RARE  static __attribute__((noinline))
#define GW_APART static __attribute__((noinline))
#define GW_ALONE static __attribute__((noinline))
/* Marks functions that are not inlined. The inliner of LLVM 15 (PoCL 3.1) aborts if a function
 * becomes too large. */
#define GW_CALLED static __attribute__((noinline))

GW_LANE gw_u32 gw_lane_id(void)
{
    return (gw_u32)get_local_id(0);
}

/* Returns `value`, which must be the same in all threads of a warp. */
GW_LANE gw_u32 gw_uniform(gw_u32 value)
{
    return value;
}

GW_LANE gw_u32 gw_lane_count(void)
{
    return (gw_u32)get_local_size(0);
}

/* Maximum number of threads that scan one packet together. The host sets it for devices that run
 * the threads of a work-group in parallel. */
#ifndef GW_PACKET_LANES
#define GW_PACKET_LANES 1u
#endif

#define gw_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

/* OpenCL C 1.2 cannot exchange words between threads, so functions that need this exchange use one
 * thread per packet. The usual OpenCL device is a CPU, which runs the threads one after another.
 * Barriers are expensive there. */
#define GW_TEAM_FORM GW_BY_LANE
#define GW_TEAM_FORMS(list)

/* Atomic operations on a work-group's local memory. gw_local_add returns the old value. */
#define gw_local_add(word, value) atomic_add((volatile __local gw_u32 *)(word), (value))
#define gw_local_min(word, value) ((void)atomic_min((volatile __local gw_u32 *)(word), (value)))
#define gw_local_max(word, value) ((void)atomic_max((volatile __local gw_u32 *)(word), (value)))

/* Adds to a word that all work-groups share. Returns the old value. */
#define gw_global_add(word, value) atomic_add((word), (value))

#define GW_EXPENSIVE(address) ((void)(address))
#define GW_FETCH(address)     ((void)(address))

#define GW_OVERLOAD __attribute__((overloadable)) GW_LANE

#define GW_LOADS(space)                                                                            \
    GW_OVERLOAD gw_u32 gw_load_be16(const space gw_u8 *bytes)                                      \
    {                                                                                              \
        return (gw_u32)bytes[0] << 8 | bytes[1];                                                   \
    }                                                                                              \
    GW_OVERLOAD gw_u32 gw_load_be32(const space gw_u8 *bytes)                                      \
    {                                                                                              \
        return gw_load_be16(bytes) << 16 | gw_load_be16(bytes + 2);                                \
    }                                                                                              \
    GW_OVERLOAD gw_u64 gw_load_be64(const space gw_u8 *bytes)                                      \
    {                                                                                              \
        return (gw_u64)gw_load_be32(bytes) << 32 | gw_load_be32(bytes + 4);                        \
    }

#define GW_STORES(space)                                                                           \
    GW_OVERLOAD void gw_store_be16(space gw_u8 *bytes, gw_u32 value)                               \
    {                                                                                              \
        bytes[0] = (gw_u8)(value >> 8);                                                            \
        bytes[1] = (gw_u8)value;                                                                   \
    }                                                                                              \
    GW_OVERLOAD void gw_store_be32(space gw_u8 *bytes, gw_u32 value)                               \
    {                                                                                              \
        gw_store_be16(bytes, value >> 16);                                                         \
        gw_store_be16(bytes + 2, value);                                                           \
    }                                                                                              \
    GW_OVERLOAD void gw_store_be64(space gw_u8 *bytes, gw_u64 value)                               \
    {                                                                                              \
        gw_store_be32(bytes, (gw_u32)(value >> 32));                                               \
        gw_store_be32(bytes + 4, (gw_u32)value);                                                   \
    }

#define GW_LITTLE_LOADS(space)                                                                     \
    GW_OVERLOAD gw_u32 gw_load_le32(const space gw_u8 *bytes)                                      \
    {                                                                                              \
        return (gw_u32)bytes[0] | (gw_u32)bytes[1] << 8 | (gw_u32)bytes[2] << 16 |                 \
               (gw_u32)bytes[3] << 24;                                                             \
    }

#define GW_LITTLE_STORES(space)                                                                    \
    GW_OVERLOAD void gw_store_le32(space gw_u8 *bytes, gw_u32 value)                               \
    {                                                                                              \
        bytes[0] = (gw_u8)value;                                                                   \
        bytes[1] = (gw_u8)(value >> 8);                                                            \
        bytes[2] = (gw_u8)(value >> 16);                                                           \
        bytes[3] = (gw_u8)(value >> 24);                                                           \
    }

GW_LOADS(__global)
GW_LOADS(__local)
GW_LOADS(__constant)
GW_LOADS(__private)
GW_STORES(__global)
GW_STORES(__local)
GW_STORES(__private)
GW_LITTLE_LOADS(__global)
GW_LITTLE_LOADS(__local)
GW_LITTLE_LOADS(__private)
GW_LITTLE_STORES(__global)
GW_LITTLE_STORES(__local)
GW_LITTLE_STORES(__private)

typedef struct gw_block {
    gw_u32 word0;
    gw_u32 word1;
    gw_u32 word2;
    gw_u32 word3;
} gw_block;

GW_LANE gw_block gw_load_block(const __global gw_u8 *bytes)
{
    const uint4 words = *(const __global uint4 *)bytes;
    gw_block block;
    block.word0 = words.x;
    block.word1 = words.y;
    block.word2 = words.z;
    block.word3 = words.w;
    return block;
}

GW_LANE gw_u32 gw_rotate_left32(gw_u32 value, gw_u32 bits)
{
    return rotate(value, bits);
}

GW_LANE gw_u64 gw_rotate_left64(gw_u64 value, gw_u32 bits)
{
    return rotate(value, (gw_u64)bits);
}

GW_LANE gw_u32 gw_popcount32(gw_u32 value)
{
    return popcount(value);
}

GW_LANE gw_u32 gw_popcount64(gw_u64 value)
{
    return (gw_u32)popcount(value);
}

GW_LANE gw_u32 gw_rank_line(const GW_GLOBAL gw_u64 *keys, gw_u32 count, gw_u64 key)
{
    gw_u32 rank = 0;
    for (gw_u32 i = 0; i < count; i++) {
        rank += (gw_u32)(keys[i] <= key);
    }
    return rank;
}

GW_LANE gw_u32 gw_ones_sum(const __global gw_u8 *bytes, gw_u32 length)
{
    gw_u32 sum = 0;
    for (gw_u32 i = 0; i < length; i += 4) {
        sum += gw_load_be16(bytes + i) + gw_load_be16(bytes + i + 2);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

#endif
