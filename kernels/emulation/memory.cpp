/* Memory and copies of the emulated driver (driver.cpp). */
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <vector>

#include "world.h"

namespace
{

constexpr uint64_t ALIGN_BYTES = 256;
constexpr uint64_t PAGE_BYTES = 4096;

void copy(Address to, Address from, uint64_t bytes)
{
    memcpy((void *)to, (const void *)from, bytes);
}

} // namespace

extern "C" {

Result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    std::lock_guard guard(world.mutex);
    *free_bytes = MEMORY_BYTES - world.used_bytes;
    *total_bytes = MEMORY_BYTES;
    return SUCCESS;
}

/* Allocates device memory directly before an inaccessible page. */
Result cuMemAlloc_v2(Address *address, size_t bytes)
{
    GODWIT_REQUIRE_CONTEXT();
    const uint64_t aligned_bytes = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    const uint64_t pages = (aligned_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    {
        std::lock_guard guard(world.mutex);
        if (bytes == 0 || pages > MEMORY_BYTES - world.used_bytes) {
            return bytes == 0 ? INVALID_VALUE : OUT_OF_MEMORY;
        }
        world.used_bytes += pages;
    }
    void *mapped = mmap(nullptr, pages + PAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED || mprotect((char *)mapped + pages, PAGE_BYTES, PROT_NONE) != 0) {
        fail("cannot map memory for the device");
    }
    *address = (Address)mapped + pages - aligned_bytes;
    /* Fill new memory, so that tests do not mistake uninitialised bytes for zeros. */
    memset((void *)*address, 0xcd, std::min<uint64_t>(bytes, 64 << 20));
    add_area(*address, Area{bytes, true, mapped, pages + PAGE_BYTES});
    return SUCCESS;
}

Result cuMemFree_v2(Address address)
{
    GODWIT_REQUIRE_CONTEXT();
    wait_for_all();
    const Area area = remove_area(address, "cuMemFree: no allocation starts at this address");
    munmap(area.mapped, area.mapped_bytes);
    std::lock_guard guard(world.mutex);
    world.used_bytes -= area.mapped_bytes - PAGE_BYTES;
    return SUCCESS;
}

Result cuMemHostAlloc(void **memory, size_t bytes, unsigned)
{
    GODWIT_REQUIRE_CONTEXT();
    *memory = aligned_alloc(PAGE_BYTES, (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
    memset(*memory, 0xcd, bytes);
    add_area((Address)*memory, Area{bytes, false, nullptr, 0});
    return SUCCESS;
}

Result cuMemFreeHost(void *memory)
{
    GODWIT_REQUIRE_CONTEXT();
    wait_for_all();
    remove_area((Address)memory, "cuMemFreeHost: no allocation starts at this address");
    free(memory);
    return SUCCESS;
}

Result cuMemHostRegister_v2(void *memory, size_t bytes, unsigned)
{
    GODWIT_REQUIRE_CONTEXT();
    std::lock_guard guard(world.mutex);
    const auto after = world.areas.lower_bound((Address)memory + bytes);
    if (after != world.areas.begin()) {
        const auto &[start, area] = *std::prev(after);
        if (start + area.bytes > (Address)memory) {
            return ALREADY_REGISTERED;
        }
    }
    world.areas[(Address)memory] = Area{bytes, false, nullptr, 0};
    return SUCCESS;
}

Result cuMemHostUnregister(void *memory)
{
    GODWIT_REQUIRE_CONTEXT();
    wait_for_all();
    remove_area((Address)memory,
                "cuMemHostUnregister: no registered memory starts at this address");
    return SUCCESS;
}

Result cuMemHostGetDevicePointer_v2(Address *address, void *memory, unsigned)
{
    GODWIT_REQUIRE_CONTEXT();
    std::lock_guard guard(world.mutex);
    const Area *area = area_of((Address)memory, 1);
    if (!area || area->on_device) {
        return INVALID_VALUE;
    }
    *address = (Address)memory;
    return SUCCESS;
}

Result cuMemsetD8_v2(Address address, unsigned char value, size_t bytes)
{
    GODWIT_REQUIRE_CONTEXT();
    require_area(address, bytes, true, "cuMemsetD8: the range is not in device memory");
    memset((void *)address, value, bytes);
    return SUCCESS;
}

Result cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes)
{
    GODWIT_REQUIRE_CONTEXT();
    require_area(to, bytes, true, "cuMemcpyHtoD: the destination is not in device memory");
    copy(to, (Address)from, bytes);
    return SUCCESS;
}

Result cuMemcpyDtoH_v2(void *to, Address from, size_t bytes)
{
    GODWIT_REQUIRE_CONTEXT();
    /* The source may be a module variable, which is not in the list of areas. */
    copy((Address)to, from, bytes);
    return SUCCESS;
}

Result cuMemcpyAsync(Address to, Address from, size_t bytes, Stream *stream)
{
    GODWIT_REQUIRE_CONTEXT();
    require_any_area(to, bytes);
    require_any_area(from, bytes);
    stream->push([=] { copy(to, from, bytes); });
    return SUCCESS;
}

Result cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Stream *stream)
{
    return cuMemcpyAsync(to, (Address)from, bytes, stream);
}

Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Stream *stream)
{
    return cuMemcpyAsync((Address)to, from, bytes, stream);
}

/* Performs the copies of a batch in random order. */
Result cuMemcpyBatchAsync_v2(Address *to, Address *from, size_t *bytes, size_t count, void *,
                             size_t *, size_t, Stream *stream)
{
    GODWIT_REQUIRE_CONTEXT();
    struct Copy {
        Address to, from;
        size_t bytes;
    };
    std::vector<Copy> copies;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == 0) {
            return INVALID_VALUE;
        }
        require_any_area(to[i], bytes[i]);
        require_any_area(from[i], bytes[i]);
        copies.push_back(Copy{to[i], from[i], bytes[i]});
    }
    {
        std::lock_guard guard(world.mutex);
        std::shuffle(copies.begin(), copies.end(), world.random);
    }
    stream->push([=] {
        for (const Copy &part : copies) {
            copy(part.to, part.from, part.bytes);
        }
    });
    return SUCCESS;
}

struct Memcpy2D {
    size_t from_x, from_y;
    unsigned from_type;
    const void *from_host;
    Address from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    unsigned to_type;
    void *to_host;
    Address to_device;
    void *to_array;
    size_t to_pitch, row_bytes, rows;
};

Result cuMemcpy2DAsync_v2(const Memcpy2D *copied, Stream *stream)
{
    GODWIT_REQUIRE_CONTEXT();
    constexpr unsigned HOST = 1;
    const Memcpy2D all = *copied;
    if (all.from_x || all.from_y || all.to_x || all.to_y || all.row_bytes > all.from_pitch ||
        all.row_bytes > all.to_pitch) {
        return INVALID_VALUE;
    }
    const Address from = all.from_type == HOST ? (Address)all.from_host : all.from_device;
    const Address to = all.to_type == HOST ? (Address)all.to_host : all.to_device;
    if (all.rows != 0 && all.row_bytes != 0) {
        require_area(from, (all.rows - 1) * all.from_pitch + all.row_bytes, all.from_type != HOST,
                     "cuMemcpy2DAsync: the source is not in memory of its type");
        require_area(to, (all.rows - 1) * all.to_pitch + all.row_bytes, all.to_type != HOST,
                     "cuMemcpy2DAsync: the destination is not in memory of its type");
    }
    stream->push([=] {
        for (size_t row = 0; row < all.rows; row++) {
            copy(to + row * all.to_pitch, from + row * all.from_pitch, all.row_bytes);
        }
    });
    return SUCCESS;
}
}
