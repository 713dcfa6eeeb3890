/* What the emulated driver (driver.cpp) knows: memory, streams, and what a test told it. */
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

constexpr auto PATIENCE = std::chrono::seconds(30);

[[noreturn]] inline void fail(const char *what)
{
    fprintf(stderr, "emulated driver: %s\n", what);
    abort();
}

/* Memory that copies may begin and end in. */
struct Area {
    uint64_t bytes;
    bool on_device;
    void *mapped; /* and all that is mapped for it */
    uint64_t mapped_bytes;
};

struct Broken {
    uint64_t calls_before;
    Result result;
};

/* Never destroyed: threads use it until the process ends. */
struct World {
    std::mutex mutex;
    std::map<Address, Area> areas;
    uint64_t used_bytes = 0;
    std::map<Stream *, int> streams; /* and the device of each */
    std::map<std::string, Broken> broken;
    std::map<std::string, uint64_t> calls;
    std::mt19937_64 random{4711};
    Pool pool;
    std::atomic<bool> held{false};
    std::atomic<uint64_t> launches{0}, held_from{UINT64_MAX};
    std::atomic<int> devices{1};
    /* Only their addresses matter: of each device one. */
    char contexts[32];
};

inline World &world = *new World;
/* That of the calling thread's context; -1: it has none. */
inline thread_local int device = -1;

/* What the test wants the call to say, else SUCCESS. */
inline Result wanted(const char *call)
{
    std::lock_guard guard(world.mutex);
    world.calls[call]++;
    const auto found = world.broken.find(call);
    if (found == world.broken.end()) {
        return SUCCESS;
    }
    if (found->second.calls_before > 0) {
        found->second.calls_before--;
        return SUCCESS;
    }
    return found->second.result;
}

/* The memory that holds all these bytes; 0: none does. */
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

inline void demand_area(Address address, uint64_t bytes, bool on_device, const char *what)
{
    std::lock_guard guard(world.mutex);
    const Area *area = area_of(address, bytes);
    if (bytes != 0 && (!area || area->on_device != on_device)) {
        fail(what);
    }
}

inline void demand_any_area(Address address, uint64_t bytes)
{
    std::lock_guard guard(world.mutex);
    if (bytes != 0 && !area_of(address, bytes)) {
        fail("a copy in a stream begins or ends in memory that is neither page-locked nor the "
             "device's");
    }
}

inline void add_area(Address address, Area area)
{
    std::lock_guard guard(world.mutex);
    world.areas[address] = area;
}

/* Takes what begins there out of the list. */
inline Area remove_area(Address address, const char *what)
{
    std::lock_guard guard(world.mutex);
    const auto found = world.areas.find(address);
    if (found == world.areas.end()) {
        fail(what);
    }
    const Area area = found->second;
    world.areas.erase(found);
    return area;
}

/* For the device, as a driver does before it gives anything back. */
inline void wait_for_all()
{
    const auto begun = std::chrono::steady_clock::now();
    for (;;) {
        bool idle = true;
        {
            std::lock_guard guard(world.mutex);
            for (const auto &[stream, of] : world.streams) {
                idle = idle && (of != device || stream->is_idle());
            }
        }
        if (idle) {
            return;
        }
        if (std::chrono::steady_clock::now() - begun > PATIENCE) {
            fail("memory is given back while the device has something to do that does not end");
        }
        sched_yield();
    }
}

#endif
