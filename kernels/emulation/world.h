/* State of the emulated CUDA driver (driver.cpp): memory, streams, and failures that tests
 * request. */
#ifndef GODWIT_EMULATED_WORLD_H
#define GODWIT_EMULATED_WORLD_H

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <sched.h>
#include <string>

#include "streams.h"

enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_FAILED = 719,
    ALREADY_REGISTERED = 712,
};

using Address = uint64_t;

/* Memory of a device. */
constexpr uint64_t MEMORY_BYTES = 4ull << 30;
constexpr auto TIMEOUT = std::chrono::seconds(30);

[[noreturn]] inline void fail(const char *what)
{
    fprintf(stderr, "emulated driver: %s\n", what);
    abort();
}

/* An allocated range of memory, which may be the source or the destination of a copy. */
struct Area {
    uint64_t bytes;
    bool on_device;
    void *mapped; /* start of the whole mapping */
    uint64_t mapped_bytes;
};

struct Failure {
    uint64_t calls_before;
    Result result;
};

/* Driver state of the whole process. It is never destroyed, because other threads use it until the
 * process ends. */
struct World {
    std::mutex mutex;
    std::map<Address, Area> areas;
    uint64_t used_bytes = 0;
    std::map<Stream *, int> streams; /* with the device of each stream */
    std::map<std::string, Failure> failures;
    std::map<std::string, uint64_t> calls;
    std::mt19937_64 random{4711};
    Pool pool;
    std::atomic<bool> held{false};
    std::atomic<uint64_t> launches{0}, held_from{UINT64_MAX};
    std::atomic<int> devices{1};
    /* One context per device. Only the addresses are used. */
    char contexts[32];
};

inline World &world = *new World;
/* Device whose context is current in this thread, or -1 without a context. */
inline thread_local int device = -1;

/* Counts a call to the driver function `call`. Returns the error that the test has injected for
 * this call, or SUCCESS. */
inline Result injected_result(const char *call)
{
    std::lock_guard guard(world.mutex);
    world.calls[call]++;
    const auto entry = world.failures.find(call);
    if (entry == world.failures.end()) {
        return SUCCESS;
    }
    if (entry->second.calls_before > 0) {
        entry->second.calls_before--;
        return SUCCESS;
    }
    return entry->second.result;
}

/* Makes the calling function fail if the thread has no context, or if the test has injected an
 * error. Driver functions that need a context begin with this macro. */
#define GODWIT_REQUIRE_CONTEXT()                                                                   \
    do {                                                                                           \
        if (device < 0) {                                                                          \
            return INVALID_CONTEXT;                                                                \
        }                                                                                          \
        if (const Result result = injected_result(__func__)) {                                     \
            return result;                                                                         \
        }                                                                                          \
    } while (0)

/* Returns the area that contains all these bytes, or null. */
inline const Area *area_of(Address address, uint64_t bytes)
{
    auto after = world.areas.upper_bound(address);
    if (after == world.areas.begin()) {
        return nullptr;
    }
    const auto &[start, area] = *--after;
    return address - start <= area.bytes && bytes <= area.bytes - (address - start) ? &area
                                                                                    : nullptr;
}

inline void require_area(Address address, uint64_t bytes, bool on_device, const char *what)
{
    std::lock_guard guard(world.mutex);
    const Area *area = area_of(address, bytes);
    if (bytes != 0 && (!area || area->on_device != on_device)) {
        fail(what);
    }
}

inline void require_any_area(Address address, uint64_t bytes)
{
    std::lock_guard guard(world.mutex);
    if (bytes != 0 && !area_of(address, bytes)) {
        fail("an asynchronous copy uses memory that is neither page-locked nor device memory");
    }
}

inline void add_area(Address address, Area area)
{
    std::lock_guard guard(world.mutex);
    world.areas[address] = area;
}

/* Removes the area that begins at `address` and returns it. */
inline Area remove_area(Address address, const char *what)
{
    std::lock_guard guard(world.mutex);
    const auto entry = world.areas.find(address);
    if (entry == world.areas.end()) {
        fail(what);
    }
    const Area area = entry->second;
    world.areas.erase(entry);
    return area;
}

/* Waits until the current device is idle. A real driver also does so before it frees memory. */
inline void wait_for_all()
{
    const auto start_time = std::chrono::steady_clock::now();
    for (;;) {
        bool idle = true;
        {
            std::lock_guard guard(world.mutex);
            for (const auto &[stream, owner] : world.streams) {
                idle = idle && (owner != device || stream->is_idle());
            }
        }
        if (idle) {
            return;
        }
        if (std::chrono::steady_clock::now() - start_time > TIMEOUT) {
            fail("memory is freed while the device is busy with work that does not end");
        }
        sched_yield();
    }
}

#endif
