/*
 * Runs CUDA kernels on a CPU, for tests. g++ compiles this file and then the kernels' CUDA source
 * text. Each CUDA block runs on one thread of the operating system.
 *
 * Each CUDA thread of a block is a fiber, which runs until it waits for other threads. A random
 * number selects the next fiber, so a missing barrier becomes visible. If some thread of the block,
 * or of the warp's mask, never reaches a barrier, a device would hang. The emulation then ends the
 * program with a message.
 */
#ifndef GODWIT_CUDA_EMULATION_H
#define GODWIT_CUDA_EMULATION_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <time.h>
#include <vector>

#include "sanitizer.h"

namespace emulation
{

constexpr unsigned WARP_LANES = 32;
#if defined(__SANITIZE_THREAD__)
constexpr size_t STACK_BYTES = 256 << 10;
#else
constexpr size_t STACK_BYTES = 64 << 10;
#endif

[[noreturn]] inline void fail(const char *what)
{
    fprintf(stderr, "CUDA emulation: %s\n", what);
    exit(3);
}

/* Suspended fiber. Its saved registers are at the top of its stack. */
using Context = void *;

extern "C" void emulation_switch(Context *from, Context to);

/* Switches from one fiber to another. The library function swapcontext takes two hundred times as
 * long, because it calls the operating system each time. */
#if defined(__x86_64__)
asm(".text\n"
    ".type emulation_switch, @function\n"
    "emulation_switch:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
    "    ret\n");
#else
#error "emulation.h switches fibers on x86-64 only"
#endif

/* Barrier for the threads of a warp that a mask selects. Each thread stores a value that the other
 * threads can read. */
struct Meeting {
    unsigned arrived = 0;
    unsigned generation = 0;
    unsigned operation = 0;
    uint64_t values[2][WARP_LANES] = {};
};

struct Fiber {
    Context context = nullptr;
    std::unique_ptr<char[]> stack;
    Sanitizer sanitizer;
    unsigned thread = 0;
    bool done = false;
    /* The fiber waits while *generation equals `awaited`. */
    const unsigned *generation = nullptr;
    unsigned awaited = 0;
};

struct Dim {
    unsigned x = 1, y = 1, z = 1;
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<std::map<unsigned, Meeting>> warps;
    Context scheduler = nullptr;
    Sanitizer scheduler_sanitizer;
    Fiber *current = nullptr;
    std::function<void()> kernel;
    unsigned arrived = 0;
    unsigned generation = 0;
    char barriers[2]; /* of even and odd generations, so that a late fiber does not see the next
                         barrier */
    Dim index, dimension, grid;
    uint64_t random = 1;
};

/* The CUDA block that the current OS thread runs. Each OS thread has its own block. */
inline thread_local Block block;

/* Acts as the emulated host. The emulation calls this function when a kernel reads memory that host
 * and device share. */
inline std::function<void()> host = [] {};

inline void wait(const unsigned *generation, unsigned awaited)
{
    Fiber *self = block.current;
    self->generation = generation;
    self->awaited = awaited;
    block.scheduler_sanitizer.enter();
    emulation_switch(&self->context, block.scheduler);
}

/* Waits until all threads of the block have arrived. */
inline void meet_block()
{
    const IgnoredAccesses ignored;
    const unsigned now = block.generation;
    Sanitizer::release(&block.barriers[now & 1]);
    if (++block.arrived == block.fibers.size()) {
        block.arrived = 0;
        block.generation++;
    } else {
        wait(&block.generation, now);
    }
    Sanitizer::acquire(&block.barriers[now & 1]);
}

/* Operation for meet_warp: a barrier that also orders the memory accesses of the threads. */
constexpr unsigned BARRIER = 1;

/* Waits until all threads in `mask` have arrived. Returns the values that they stored. */
inline const uint64_t *meet_warp(unsigned mask, unsigned operation, uint64_t value)
{
    const IgnoredAccesses ignored;
    const unsigned thread = block.current->thread;
    const unsigned lane = thread % WARP_LANES;
    if ((mask >> lane & 1) == 0) {
        fail("a lane is not in its own mask");
    }
    Meeting &meeting = block.warps[thread / WARP_LANES][mask];
    if (meeting.arrived != 0 && meeting.operation != operation) {
        fail("lanes of one mask execute different operations");
    }
    const unsigned now = meeting.generation;
    meeting.operation = operation;
    meeting.values[now & 1][lane] = value;
    meeting.arrived |= 1u << lane;
    if (operation == BARRIER) {
        Sanitizer::release(meeting.values[now & 1]);
    }
    if (meeting.arrived == mask) {
        meeting.arrived = 0;
        meeting.generation++;
    } else {
        wait(&meeting.generation, now);
    }
    if (operation == BARRIER) {
        Sanitizer::acquire(meeting.values[now & 1]);
    }
    return meeting.values[now & 1];
}

inline void run_fiber()
{
    block.kernel();
    {
        const IgnoredAccesses ignored;
        Sanitizer::release(block.barriers);
        block.current->done = true;
    }
    block.scheduler_sanitizer.enter();
    emulation_switch(&block.current->context, block.scheduler);
}

inline void run_block(unsigned threads)
{
    const IgnoredAccesses ignored;
    block.scheduler_sanitizer.current();
    block.warps.assign((threads + WARP_LANES - 1) / WARP_LANES, {});
    block.fibers.resize(threads);
    block.arrived = 0;
    for (unsigned thread = 0; thread < threads; thread++) {
        Fiber &fiber = block.fibers[thread];
        if (!fiber.stack) {
            fiber.stack.reset(new char[STACK_BYTES]);
        }
        fiber.sanitizer.create(thread / WARP_LANES);
        fiber.thread = thread;
        fiber.done = false;
        fiber.generation = nullptr;
        /* A new stack holds six saved registers and the return address. The x86-64 ABI requires 8
         * more bytes when a function starts. */
        void **top = (void **)(((uintptr_t)fiber.stack.get() + STACK_BYTES) & ~(uintptr_t)15);
        *--top = nullptr;
        *--top = (void *)run_fiber;
        fiber.context = top - 6;
    }
    for (unsigned left = threads; left != 0;) {
        bool progress = false;
        block.random = block.random * 6364136223846793005u + 1442695040888963407u;
        const unsigned start = block.random >> 33;
        const bool upward = block.random >> 32 & 1;
        for (unsigned i = 0; i < threads; i++) {
            Fiber &fiber = block.fibers[(start + (upward ? i : threads - 1 - i)) % threads];
            if (fiber.done || (fiber.generation && *fiber.generation == fiber.awaited)) {
                continue;
            }
            fiber.generation = nullptr;
            progress = true;
            block.current = &fiber;
            fiber.sanitizer.enter();
            emulation_switch(&block.scheduler, fiber.context);
            left -= fiber.done;
        }
        if (!progress) {
            fail("some threads wait at a barrier that the others never reach");
        }
    }
    Sanitizer::acquire(block.barriers);
    for (Fiber &fiber : block.fibers) {
        fiber.sanitizer.destroy();
    }
}

/* Runs one block of a launch. */
inline void launch_block(unsigned index, unsigned blocks, unsigned threads, uint64_t seed,
                         std::function<void()> kernel)
{
    block.kernel = std::move(kernel);
    block.random = seed;
    block.dimension.x = threads;
    block.grid.x = blocks;
    block.index.x = index;
    run_block(threads);
    /* The OS thread may outlive the objects of `block.kernel`, so drop this reference. */
    block.kernel = nullptr;
}

inline void launch(unsigned blocks, unsigned threads, uint64_t seed, std::function<void()> kernel)
{
    for (unsigned i = 0; i < blocks; i++) {
        launch_block(i, blocks, threads, seed + i, kernel);
    }
}

/* Emulated PTX instructions. compiler.cpp inserts calls to them into the kernel text. */
template <typename A, typename B> void load_acquire(A &first, B &second, const void *address)
{
    host();
    const uint64_t *words = (const uint64_t *)address;
    /* The two words may be read in any order. */
    if (block.random >> 40 & 1) {
        first = __atomic_load_n(words, __ATOMIC_ACQUIRE);
        second = __atomic_load_n(words + 1, __ATOMIC_ACQUIRE);
    } else {
        second = __atomic_load_n(words + 1, __ATOMIC_ACQUIRE);
        first = __atomic_load_n(words, __ATOMIC_ACQUIRE);
    }
}

template <typename A> void load_acquire(A &value, const A *address)
{
    host();
    value = __atomic_load_n(address, __ATOMIC_ACQUIRE);
}

template <typename A> void store_release(A *address, A value)
{
    __atomic_store_n(address, value, __ATOMIC_RELEASE);
}

} // namespace emulation

#define __CUDACC__ 1
#define __device__
#define __global__
#define __constant__
#define __shared__              static thread_local
#define GW_SHARED_SCRATCH(name) static thread_local uint4 name[(sizeof(gw_scratch) + 15) / 16]
#define __noinline__            __attribute__((noinline))
#define __forceinline__         inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

#define threadIdx (emulation::Dim{emulation::block.current->thread, 0, 0})
#define blockIdx  (emulation::block.index)
#define blockDim  (emulation::block.dimension)
#define gridDim   (emulation::block.grid)

constexpr int warpSize = emulation::WARP_LANES;

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

inline void __builtin_assume(bool)
{
}

inline bool __isShared(const void *)
{
    return true;
}

inline void __syncthreads()
{
    emulation::meet_block();
}

inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulation::meet_warp(mask, emulation::BARRIER, 0);
}

inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const uint64_t *values = emulation::meet_warp(mask, 2, predicate != 0);
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < emulation::WARP_LANES; lane++) {
        if (mask >> lane & values[lane] & 1) {
            ballot |= 1u << lane;
        }
    }
    return ballot;
}

inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}

namespace emulation
{

/* Returns the value of another thread of the warp. `from` maps the calling thread's number to the
 * other thread's number. */
template <typename T>
T shuffle(unsigned mask, unsigned operation, T value, const std::function<unsigned(unsigned)> &from)
{
    static_assert(sizeof(T) <= 8, "shuffles move 32 or 64 bits");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    const uint64_t *values = meet_warp(mask, operation, bits);
    const unsigned source = from(block.current->thread % WARP_LANES);
    if ((mask >> source & 1) == 0) {
        fail("a shuffle reads from a lane that is not in its mask");
    }
    memcpy(&value, &values[source], sizeof(T));
    return value;
}

} // namespace emulation

template <typename T> T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    return emulation::shuffle(mask, 3, value, [=](unsigned lane) -> unsigned {
        return (lane & ~(width - 1u)) | (source & (width - 1u));
    });
}

template <typename T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    return emulation::shuffle(mask, 4, value, [=](unsigned lane) -> unsigned {
        return (lane & (width - 1u)) < delta ? lane : lane - delta;
    });
}

template <typename T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    return emulation::shuffle(mask, 5, value, [=](unsigned lane) -> unsigned {
        return (lane & (width - 1u)) + delta >= unsigned(width) ? lane : lane + delta;
    });
}

template <typename T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    return emulation::shuffle(mask, 6, value, [=](unsigned lane) -> unsigned {
        return (lane & ~(width - 1u)) | ((lane ^ unsigned(bits)) & (width - 1u));
    });
}

template <typename T, typename U> T atomicAdd(T *address, U value)
{
    return __atomic_fetch_add(address, T(value), __ATOMIC_RELAXED);
}

inline unsigned atomicInc(unsigned *address, unsigned limit)
{
    unsigned old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(address, &old, old >= limit ? 0 : old + 1, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

template <typename T, typename U> T atomicOr(T *address, U value)
{
    return __atomic_fetch_or(address, T(value), __ATOMIC_RELAXED);
}

template <typename T, typename U> T atomicMin(T *address, U value)
{
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (T(value) < old && !__atomic_compare_exchange_n(address, &old, T(value), false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

template <typename T, typename U> T atomicMax(T *address, U value)
{
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (old < T(value) && !__atomic_compare_exchange_n(address, &old, T(value), false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned bits)
{
    return unsigned(((uint64_t(high) << 32 | low) << (bits & 31)) >> 32);
}

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits)
{
    return unsigned((uint64_t(high) << 32 | low) >> (bits & 31));
}

inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t bytes = uint64_t(y) << 32 | x;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned pick = selector >> 4 * i & 15;
        unsigned byte = bytes >> 8 * (pick & 7) & 0xff;
        if (pick & 8) {
            byte = byte & 0x80 ? 0xff : 0;
        }
        result |= byte << 8 * i;
    }
    return result;
}

inline int __popc(unsigned value)
{
    return __builtin_popcount(value);
}

inline int __popcll(unsigned long long value)
{
    return __builtin_popcountll(value);
}

inline int __clz(int value)
{
    return value == 0 ? 32 : __builtin_clz(unsigned(value));
}

inline int __ffs(int value)
{
    return __builtin_ffs(value);
}

template <typename T> T __ldg(const T *address)
{
    return *address;
}

template <typename T> T min(T a, T b)
{
    return b < a ? b : a;
}

template <typename T> T max(T a, T b)
{
    return a < b ? b : a;
}

inline long long clock64()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

inline void __nanosleep(unsigned)
{
}

inline void __threadfence()
{
    __asm__ volatile("mfence" ::: "memory");
}

inline void __threadfence_system()
{
    __asm__ volatile("mfence" ::: "memory");
}

inline void __threadfence_block()
{
    __asm__ volatile("mfence" ::: "memory");
}

#endif
