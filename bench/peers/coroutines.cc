/*
 * Peer of the benchmarks `gopt` and `memaccess`: the same lookups as C++20 coroutines.
 *
 *   coroutines KIND BYTES DEPTH DIAL QUERIES CALL
 *
 * The program generates the table and QUERIES queries and prints "ready". Then it reads requests
 * from standard input:
 *
 *   coroutines GROUP  looks up all queries, CALL at a time, with GROUP interleaved coroutines
 *   plain GROUP       looks up all queries with the plain loop and ignores GROUP; the benchmark
 *                     compares the time with its own, to verify that the memory is equally fast
 *   dial N            sets the dial and replies "0 0"
 *
 * The reply to a lookup is "NANOSECONDS SUM". Each coroutine prefetches and switches directly to
 * the next coroutine, without a loop (symmetric transfer). After a query it takes the next one, so
 * that coroutines are created and destroyed only at the beginning and the end of a call.
 */
#include "../gopt/table.h"

#include <coroutine>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <time.h>

namespace
{

constexpr unsigned GROUP_MAX = 64;

/* Memory of the coroutine frames. They are contiguous here, unlike frames from malloc. */
alignas(64) unsigned char frames[GROUP_MAX * 512];
std::size_t frames_used;

/* Ring of the coroutines that still have queries. */
struct Ring {
    std::coroutine_handle<> handles[GROUP_MAX];
    unsigned next[GROUP_MAX];
    unsigned current;
    unsigned last; /* predecessor of current */
};
Ring ring;

struct Task {
    struct promise_type {
        static void *operator new(std::size_t bytes)
        {
            const std::size_t rounded = (bytes + 63) & ~(std::size_t)63;
            if (frames_used + rounded > sizeof frames) {
                std::abort();
            }
            frames_used += rounded;
            return frames + frames_used - rounded;
        }
        static void operator delete(void *)
        {
        }
        Task get_return_object()
        {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() noexcept
        {
            return {};
        }
        /* Removes this coroutine from the ring. Switches to the next one, or returns to the caller
         * if it was the last. */
        struct Leave {
            bool await_ready() noexcept
            {
                return false;
            }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<>) noexcept
            {
                const unsigned after = ring.next[ring.current];
                if (after == ring.current) {
                    return std::noop_coroutine();
                }
                ring.next[ring.last] = after;
                ring.current = after;
                return ring.handles[after];
            }
            void await_resume() noexcept
            {
            }
        };
        Leave final_suspend() noexcept
        {
            return {};
        }
        void return_void()
        {
        }
        void unhandled_exception()
        {
            std::abort();
        }
    };
    std::coroutine_handle<promise_type> handle;
};

/* Prefetches an address and switches to the next coroutine of the ring. */
struct Fetch {
    const void *address;
    bool await_ready() noexcept
    {
        return false;
    }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<>) noexcept
    {
        __builtin_prefetch(address);
        ring.last = ring.current;
        ring.current = ring.next[ring.current];
        return ring.handles[ring.current];
    }
    void await_resume() noexcept
    {
    }
};

/* Queries of a call, shared by its coroutines. `next` is the first query that is not taken. */
struct Call {
    const bench_table *table;
    const void *queries;
    uint32_t *answers;
    uint64_t count;
    uint64_t next;
};

Task cuckoo(Call &call)
{
    const bench_bucket *buckets = (const bench_bucket *)call.table->memory;
    const uint32_t *keys = (const uint32_t *)call.queries;
    const uint32_t shift = call.table->shift;
    while (call.next < call.count) {
        const uint64_t i = call.next++;
        const uint32_t key = keys[i];
        const bench_bucket *bucket = &buckets[bench_hash_1(key) >> shift];
        co_await Fetch{bucket};
        uint32_t answer = bench_find(bucket, key);
        if (answer == BENCH_NONE) {
            bucket = &buckets[bench_hash_2(key) >> shift];
            co_await Fetch{bucket};
            answer = bench_find(bucket, key);
        }
        call.answers[i] = answer;
    }
}

Task chase(Call &call)
{
    const uint32_t *entries = (const uint32_t *)call.table->memory;
    const uint32_t depth = call.table->depth;
    while (call.next < call.count) {
        const uint64_t i = call.next++;
        uint32_t index = ((const uint32_t *)call.queries)[i];
        for (uint32_t read = 0; read < depth; read++) {
            co_await Fetch{&entries[index]};
            index = entries[index];
        }
        call.answers[i] = index;
    }
}

Task ipv6(Call &call)
{
    const uint32_t *entries = (const uint32_t *)call.table->memory;
    while (call.next < call.count) {
        const uint64_t i = call.next++;
        const uint8_t *address = (const uint8_t *)call.queries + i * BENCH_ADDRESS;
        uint64_t index = (uint64_t)address[0] << 16 | (uint64_t)address[1] << 8 | address[2];
        uint32_t byte = 3;
        co_await Fetch{&entries[index]};
        uint32_t entry = entries[index];
        while (entry & BENCH_GROUP) {
            index = BENCH_TBL24 + (uint64_t)(entry & ~BENCH_GROUP) * 256 + address[byte];
            byte++;
            co_await Fetch{&entries[index]};
            entry = entries[index];
        }
        call.answers[i] = entry - 1;
    }
}

Task dial(Call &call)
{
    const uint32_t *entries = (const uint32_t *)call.table->memory;
    const uint32_t depth = call.table->depth, rounds = call.table->dial, mask = call.table->mask;
    while (call.next < call.count) {
        const uint64_t i = call.next++;
        uint32_t value = ((const uint32_t *)call.queries)[i];
        for (uint32_t read = 0; read < depth; read++) {
            const uint32_t index = value & mask;
            co_await Fetch{&entries[index]};
            value = bench_work(value ^ entries[index], rounds);
        }
        call.answers[i] = value;
    }
}

using Lookup = Task (*)(Call &);
constexpr Lookup lookups[] = {cuckoo, chase, ipv6, dial};

void run(Call call, unsigned group)
{
    frames_used = 0;
    for (unsigned i = 0; i < group; i++) {
        ring.handles[i] = lookups[call.table->kind](call).handle;
        ring.next[i] = i + 1 < group ? i + 1 : 0;
    }
    ring.current = 0;
    ring.last = group - 1;
    ring.handles[0].resume();
    for (unsigned i = 0; i < group; i++) {
        ring.handles[i].destroy();
    }
}

uint64_t now_ns()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Returns zeroed memory, on reserved hugepages if available, else on transparent hugepages. */
uint8_t *memory(uint64_t bytes)
{
    constexpr uintptr_t HUGEPAGE = (uintptr_t)2 << 20;
    const uint64_t rounded = (bytes + HUGEPAGE - 1) & ~(HUGEPAGE - 1);
    void *reserved = mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
    if (reserved != MAP_FAILED) {
        return (uint8_t *)reserved;
    }
    void *mapped = mmap(nullptr, rounded + HUGEPAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    uint8_t *aligned = (uint8_t *)(((uintptr_t)mapped + HUGEPAGE - 1) & ~(HUGEPAGE - 1));
    (void)madvise(aligned, rounded, MADV_HUGEPAGE);
    return aligned;
}

} // namespace

extern "C" {
void cuckoo_lookup(const bench_table *, const void *, uint32_t *, uint64_t);
void chase_lookup(const bench_table *, const void *, uint32_t *, uint64_t);
void ipv6_lookup(const bench_table *, const void *, uint32_t *, uint64_t);
void dial_lookup(const bench_table *, const void *, uint32_t *, uint64_t);
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: coroutines KIND BYTES DEPTH DIAL QUERIES CALL\n");
        return 2;
    }
    const uint64_t count = strtoull(argv[5], nullptr, 10), call = strtoull(argv[6], nullptr, 10);
    bench_table table = {};
    table.kind = (uint32_t)atoi(argv[1]);
    table.bytes = strtoull(argv[2], nullptr, 10);
    table.depth = (uint32_t)atoi(argv[3]);
    table.dial = (uint32_t)atoi(argv[4]);
    if (table.kind > BENCH_DIAL || count == 0 || call == 0) {
        return 2;
    }
    table.memory = memory(table.bytes);
    bench_fill(&table);
    const uint64_t query_bytes = bench_query_bytes(table.kind);
    uint8_t *queries = memory(count * query_bytes);
    uint32_t *answers = (uint32_t *)memory(count * sizeof(uint32_t));
    bench_make_queries(&table, 0, queries, count);
    void (*const plain[])(const bench_table *, const void *, uint32_t *, uint64_t) = {cuckoo_lookup, chase_lookup,
                                                                                     ipv6_lookup, dial_lookup};
    printf("ready\n");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) != nullptr) {
        char form[32];
        unsigned group = 0;
        if (sscanf(line, "%31s %u", form, &group) != 2) {
            return 2;
        }
        if (strcmp(form, "dial") == 0) {
            table.dial = group;
            printf("0 0\n");
            fflush(stdout);
            continue;
        }
        const bool coroutines = strcmp(form, "coroutines") == 0;
        if (coroutines && (group == 0 || group > GROUP_MAX)) {
            return 2;
        }
        memset(answers, 0, count * sizeof(uint32_t));
        const uint64_t started_ns = now_ns();
        for (uint64_t first = 0; first < count; first += call) {
            const uint64_t size = count - first < call ? count - first : call;
            if (coroutines) {
                run(Call{&table, queries + first * query_bytes, answers + first, size, 0}, group);
            } else {
                plain[table.kind](&table, queries + first * query_bytes, answers + first, size);
            }
        }
        const uint64_t elapsed_ns = now_ns() - started_ns;
        printf("%llu %llu\n", (unsigned long long)elapsed_ns, (unsigned long long)bench_sum(answers, count));
        fflush(stdout);
    }
    return 0;
}
