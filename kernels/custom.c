/*
 * Source text around a user's function on the CPU. At startup, Godwit compiles this text into a
 * library without libc. src/custom.rs replaces the parts between the lines `begin` and `end`.
 */
#include "dialect/dialect.h"
#include "common/frame.h"
#include "common/payload.h"
#include "common/checksum.h"
#include "tables/tables.h"

/* begin shapes */
/* end shapes */

/* begin function */
/* end function */

#include "dialect/loops_cpu.h"

#ifndef GW_CHECKED
/* The library has no libc, so it defines these functions. Compilers turn some loops and assignments
 * into calls to them. */
#define GW_HIDDEN __attribute__((visibility("hidden")))
GW_HIDDEN void *memcpy(void *to, const void *from, size_t bytes);
GW_HIDDEN void *memmove(void *to, const void *from, size_t bytes);
GW_HIDDEN void *memset(void *to, int byte, size_t bytes);
GW_HIDDEN int memcmp(const void *a, const void *b, size_t bytes);

#ifdef __x86_64__
void *memcpy(void *to, const void *from, size_t bytes)
{
    void *result = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return result;
}

void *memset(void *to, int byte, size_t bytes)
{
    void *result = to;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(byte) : "memory");
    return result;
}
#else
void *memcpy(void *to, const void *from, size_t bytes)
{
    volatile gw_u8 *target = to;
    const gw_u8 *source = from;
    for (size_t i = 0; i < bytes; i++) {
        target[i] = source[i];
    }
    return to;
}

void *memset(void *to, int byte, size_t bytes)
{
    volatile gw_u8 *target = to;
    for (size_t i = 0; i < bytes; i++) {
        target[i] = (gw_u8)byte;
    }
    return to;
}
#endif

void *memmove(void *to, const void *from, size_t bytes)
{
    volatile gw_u8 *target = to;
    const gw_u8 *source = from;
    if ((size_t)((gw_u8 *)to - source) >= bytes) {
        return memcpy(to, from, bytes);
    }
    for (size_t i = bytes; i > 0; i--) {
        target[i - 1] = source[i - 1];
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t bytes)
{
    const volatile gw_u8 *left = a;
    const gw_u8 *right = b;
    for (size_t i = 0; i < bytes; i++) {
        if (left[i] != right[i]) {
            return left[i] < right[i] ? -1 : 1;
        }
    }
    return 0;
}
#endif

#define GOPT_GROUP     group
#define GOPT_GROUP_MAX 64
/* Prefetch distance for frames, in packets. dialect/loop_gopt.c has the same value. */
#define GW_FRAMES_AHEAD 32u

/* begin loops */
/* end loops */

#ifdef GW_CHECKED
/* Runs the kernel on one packet. `godwit test` links several copies of this function. */
void GW_CHECKED(gw_u8 *buffer, const gw_u8 *image, gw_u64 parameter, gw_u64 *counters,
                gw_descriptor *descriptor, gw_outcome *outcome);
void GW_CHECKED(gw_u8 *buffer, const gw_u8 *image, gw_u64 parameter, gw_u64 *counters,
                gw_descriptor *descriptor, gw_outcome *outcome)
{
    const gw_lane lane = {
        .buffer = buffer, .image = image, .parameter = parameter, .counters = counters};
    gw_custom_packet(&lane, descriptor, outcome);
}
#else
#define GW_EXPORTED __attribute__((visibility("default")))
GW_EXPORTED void gw_custom_run_bin(gw_u32 kernel, const gw_bin_call *call);
GW_EXPORTED gw_u32 gw_custom_interleaves(void);

/* Returns whether packets can be interleaved. */
gw_u32 gw_custom_interleaves(void)
{
    return GW_CUSTOM_INTERLEAVES;
}

/* Runs the kernel over one batch. */
void gw_custom_run_bin(gw_u32 kernel, const gw_bin_call *call)
{
    (void)kernel;
    gw_custom_bin(call);
}
#endif
