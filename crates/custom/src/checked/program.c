/*
 * Program of `godwit test`: runs the kernel of a function on frames from standard input. The kernel
 * is compiled twice, with AddressSanitizer and UndefinedBehaviorSanitizer. In one copy, variables
 * without a value are zero, in the other they have a pattern. This file is compiled without
 * sanitizers.
 *
 * Bytes of the buffer outside the frame, and bytes of the frame that the declaration does not name,
 * are poisoned. The table image is read-only, and ends at a page without access.
 *
 * A function with flows has the functions gw_checked_..._flows_... as well. Each copy keeps its own
 * flows, and the clock advances by the same time for each frame.
 *
 * The first problem is written to standard error, as "godwit: FRAME: LINE: SENTENCE", and ends the
 * program. FRAME counts from 0 within a batch.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct descriptor {
    uint32_t buffer;
    uint16_t head;
    uint16_t length;
    uint8_t room;
    uint8_t port;
    uint16_t order;
    uint32_t flow_hash;
} descriptor;

typedef struct outcome {
    uint8_t verdict;
    uint8_t reason;
    uint16_t port;
    uint32_t value;
} outcome;

/* Properties of the function, from its declaration. */
typedef struct properties {
    uint64_t image_bytes;
    uint32_t reads; /* 65535: all */
    uint32_t writes;
    uint32_t headroom;
    uint32_t tailroom;
    uint32_t verdicts;
    uint32_t drops;
    uint32_t ports;
    uint32_t steps; /* most branches of one packet */
    uint32_t counters;
    uint32_t flows; /* most flows; 0: the function has no flows */
    uint64_t frame_ns; /* time between two frames */
    uint8_t chooses_port[256];
} properties;

/* Result for one frame. The bytes of the new frame follow. */
typedef struct answer {
    outcome outcome;
    int32_t moved; /* bytes by which the start of the frame moved */
    uint32_t length;
    uint32_t is_new; /* whether the frame took a new path through the kernel */
    uint32_t settled; /* whether `miss` returned the outcome, and the kernel did not run */
    uint64_t parameter; /* of the kernel */
} answer;

/* The structs of tables/flows.h. */
typedef struct flows_config {
    const uint8_t *image;
    uint64_t seed;
    uint32_t capacity;
    uint32_t reserved;
} flows_config;

typedef struct flows_frame {
    const uint8_t *bytes;
    uint64_t length;
} flows_frame;

typedef struct flows_call {
    const flows_frame *frames;
    const uint64_t *times_ns;
    uint64_t now_ns;
    uint8_t *settled;
    uint64_t *parameters;
    outcome *outcomes;
    uint32_t count;
    uint32_t group;
} flows_call;

typedef void kernel(uint8_t *buffer, const uint8_t *image, uint64_t parameter, uint64_t *counters,
                    descriptor *, outcome *);
typedef uint64_t flows_open(void *memory, const flows_config *);
typedef void flows_prepare(void *memory, const flows_call *);
kernel gw_checked_zero, gw_checked_pattern;
__attribute__((weak)) flows_open gw_checked_zero_flows_open, gw_checked_pattern_flows_open;
__attribute__((weak)) flows_prepare gw_checked_zero_flows_prepare, gw_checked_pattern_flows_prepare;

/* One of the two copies of the kernel. */
typedef struct copy {
    kernel *kernel;
    flows_open *open;
    flows_prepare *prepare;
    uint64_t *counters;
    void *flows; /* null if the function has no flows */
    int fill;    /* value of bytes that nobody has written */
} copy;

void __asan_poison_memory_region(const volatile void *, size_t);
void __asan_unpoison_memory_region(const volatile void *, size_t);
void __sanitizer_set_death_callback(void (*)(void));
void __sanitizer_symbolize_pc(void *, const char *, char *, size_t);
void __sanitizer_cov_trace_pc(void);

#define ALL          0xffffu
#define DROP         255u
#define FLOOD        0xffffu
#define FRONT        128u /* poisoned bytes before the headroom */
#define BUFFER_BYTES 16320u
#define EDGES        65536u
#define COUNTERS     64u

static properties given;
static const uint8_t *image;
static const uint8_t *pages; /* memory of the image, with a page without access on both sides */
static size_t pages_bytes;
static uint8_t *buffer;
static uint8_t before[BUFFER_BYTES];
static uint8_t edges[EDGES];
static uint64_t counters[2][COUNTERS]; /* of both copies of the kernel, for one batch */
static uint32_t frame_number;
static uint64_t parameter; /* of the kernel, for the current frame */
static uint32_t steps;
static uint32_t is_new;
static uintptr_t last;
static uint64_t now_ns;
static copy zero_copy = {gw_checked_zero, gw_checked_zero_flows_open, gw_checked_zero_flows_prepare,
                         counters[0], 0, 0xa5};
static copy pattern_copy = {gw_checked_pattern, gw_checked_pattern_flows_open,
                            gw_checked_pattern_flows_prepare, counters[1], 0, 0x5a};

/* Ends the program with the first problem. */
static void fail(const char *line, const char *sentence)
{
    fprintf(stderr, "godwit: %u: %s: %s\n", frame_number, line, sentence);
    fflush(stderr);
    _exit(3);
}

/* Prints the current frame and the table addresses when a sanitizer ends the program. */
static void died(void)
{
    const uintptr_t start = (uintptr_t)pages;
    fprintf(stderr, "godwit: %u: 0: sanitizer %zx %zx\n", frame_number, start, start + pages_bytes);
    fflush(stderr);
}

/* UndefinedBehaviorSanitizer ends the program by this signal. */
static void aborted(int number)
{
    (void)number;
    died();
    _exit(3);
}

/* Ends the program because the kernel takes too many steps. */
static __attribute__((noinline)) void fail_loop(void *place)
{
    char line[64] = "0";
    given.steps = 0;
    __sanitizer_symbolize_pc(place, "%l", line, sizeof(line));
    fail(line, "the packet takes too many steps: bound the loop");
}

/* Instrumented code calls this function at each branch. Even code before `main` is instrumented. */
void __sanitizer_cov_trace_pc(void)
{
    const uintptr_t here = (uintptr_t)__builtin_return_address(0);
    const uintptr_t edge = (here ^ last << 1) * 0x9e3779b97f4a7c15u >> 48;
    if (given.steps == 0) {
        return;
    }
    last = here;
    if (!edges[edge]) {
        edges[edge] = 1;
        is_new = 1;
    }
    if (++steps > given.steps) {
        fail_loop((void *)here);
    }
}

static void take(void *to, size_t bytes)
{
    uint8_t *at = to;
    while (bytes > 0) {
        const ssize_t got = read(0, at, bytes);
        if (got <= 0) {
            _exit(got < 0);
        }
        at += got;
        bytes -= (size_t)got;
    }
}

static void give(const uint8_t *from, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t given_bytes = write(1, from, bytes);
        if (given_bytes <= 0) {
            _exit(1);
        }
        from += given_bytes;
        bytes -= (size_t)given_bytes;
    }
}

/* Reads the table image into separate pages. */
static void take_image(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = (given.image_bytes + page - 1) / page * page;
    uint8_t *all = mmap(0, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *start = all + page + (bytes - given.image_bytes);
    if (all == MAP_FAILED || (bytes > 0 && mprotect(all + page, bytes, PROT_READ | PROT_WRITE))) {
        fail("0", "there is no memory for the tables");
    }
    take(start, given.image_bytes);
    if (bytes > 0) {
        mprotect(all + page, bytes, PROT_READ);
        __asan_poison_memory_region(all + page, bytes - given.image_bytes);
    }
    image = start;
    pages = all;
    pages_bytes = bytes + 2 * page;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Creates the flows of one copy. */
static void open_flows(copy *copy)
{
    const flows_config config = {image, 0x9e3779b97f4a7c15u, given.flows, 0};
    if (given.flows == 0) {
        return;
    }
    const uint64_t bytes = copy->open(0, &config);
    if (posix_memalign(&copy->flows, 64, bytes)) {
        fail("0", "there is no memory for the flows");
    }
    memset(copy->flows, 0, bytes);
    copy->open(copy->flows, &config);
}

/* Runs one copy of the kernel. Returns its outcome, its parameter and the new descriptor. */
static outcome run(const copy *copy, const uint8_t *frame, uint32_t length, descriptor *d,
                   answer *work)
{
    const int fill = copy->fill;
    uint8_t settled = 0;
    const uint32_t head = FRONT + (given.headroom + 7) / 8 * 8;
    const uint32_t start = head - given.headroom;
    uint32_t known = given.reads > given.writes ? given.reads : given.writes;
    uint32_t end;
    outcome result;
    known = known == ALL ? length : least(known, length);
    end = head + known + (known == length ? given.tailroom : 0);
    *d = (descriptor){.head = (uint16_t)head, .length = (uint16_t)length, .room = 255, .port = 0};
    memset(&result, fill, sizeof(result));
    memset(buffer, fill, head + length + given.tailroom + 64);
    memcpy(buffer + head, frame, length);
    memcpy(before, buffer, head + length + given.tailroom + 64);
    __asan_poison_memory_region(buffer, start);
    __asan_poison_memory_region(buffer + end, BUFFER_BYTES - end);
    steps = 0;
    last = 0;
    work->parameter = parameter;
    if (copy->flows) {
        const flows_frame flow = {buffer + head, length};
        const flows_call call = {&flow, &now_ns, 0, &settled, &work->parameter, &result, 1, 1};
        copy->prepare(copy->flows, &call);
    }
    work->settled = settled;
    if (!settled) {
        copy->kernel(buffer, image, work->parameter, copy->counters, d, &result);
    }
    __asan_unpoison_memory_region(buffer, BUFFER_BYTES);
    return result;
}

/* Checks the outcome of a packet. */
static void check_outcome(const outcome *result)
{
    if (result->verdict == DROP) {
        if (result->reason >= given.drops) {
            fail("0", "the number of the drop reason is not declared: use the generated names");
        }
        return;
    }
    if (result->verdict >= given.verdicts) {
        fail("0", "the number of the verdict is not declared: use the generated names");
    }
    if (given.chooses_port[result->verdict] && result->port >= given.ports &&
        result->port != FLOOD) {
        fail("0", "the verdict names a port that does not exist: check the port");
    }
}

/* Checks what the kernel did to the frame. */
static void check_frame(const descriptor *d, uint32_t length)
{
    const uint32_t head = FRONT + (given.headroom + 7) / 8 * 8;
    const uint32_t fixed = given.writes == ALL ? length : least(given.writes, length);
    if (given.writes != ALL && (d->head != head || d->length != length)) {
        fail("0", "the frame was moved, which needs writes = \"all\"");
    }
    if (d->head + given.headroom < head || d->head + d->length > head + length + given.tailroom) {
        fail("0", "the frame leaves its room: declare `headroom` or `tailroom`");
    }
    if (memcmp(buffer + head + fixed, before + head + fixed, length - fixed) != 0) {
        fail("0", "the kernel writes more bytes of the frame than `writes` declares");
    }
}

/* Runs one frame. Writes the answer to `out`, and returns its size in bytes. */
static size_t answer_frame(const uint8_t *frame, uint32_t length, uint8_t *out)
{
    static uint8_t first[BUFFER_BYTES];
    answer reply = {0};
    answer second = {0};
    descriptor d, other;
    is_new = 0;
    now_ns += given.frame_ns;
    const outcome zero = run(&zero_copy, frame, length, &d, &reply);
    reply.is_new = is_new;
    if (zero.verdict == 0xa5 && zero.reason == 0xa5 && zero.port == 0xa5a5) {
        fail("0", reply.settled ? "`miss` returns no row and no outcome: "
                                  "call gw_verdict or gw_drop before it returns 0"
                                : "the kernel returns without an outcome: "
                                  "call gw_verdict or gw_drop on every path");
    }
    check_outcome(&zero);
    check_frame(&d, length);
    memcpy(first, buffer + d.head, d.length);
    const outcome pattern = run(&pattern_copy, frame, length, &other, &second);
    if (memcmp(&zero, &pattern, sizeof(zero)) != 0 || reply.settled != second.settled ||
        reply.parameter != second.parameter || d.head != other.head ||
        d.length != other.length || memcmp(counters[0], counters[1], sizeof(counters[0])) != 0 ||
        (zero.verdict != DROP && memcmp(first, buffer + d.head, d.length) != 0)) {
        fail("0", "the result depends on a variable or on bytes without a value: initialise them");
    }
    reply.outcome = zero;
    reply.moved = (int32_t)d.head - (int32_t)(FRONT + (given.headroom + 7) / 8 * 8);
    reply.length = d.length;
    memcpy(out, &reply, sizeof(reply));
    memcpy(out + sizeof(reply), first, d.length);
    return sizeof(reply) + d.length;
}

int main(void)
{
    __sanitizer_set_death_callback(died);
    signal(SIGABRT, aborted);
    take(&given, sizeof(given));
    take_image();
    if (posix_memalign((void **)&buffer, 64, BUFFER_BYTES)) {
        return 1;
    }
    open_flows(&zero_copy);
    open_flows(&pattern_copy);
    for (;;) {
        uint32_t sizes[2]; /* frames of the batch, and bytes of all frames with their lengths */
        take(sizes, sizeof(sizes));
        uint8_t *frames = malloc(sizes[1] + 1u);
        const size_t added = sizeof(answer) + given.tailroom + given.headroom;
        uint8_t *out = malloc(sizes[0] * added + sizes[1] + sizeof(counters[0]));
        size_t at = 0, filled = 0;
        if (!frames || !out) {
            return 1;
        }
        take(frames, sizes[1]);
        memset(counters, 0, sizeof(counters));
        for (frame_number = 0; frame_number < sizes[0]; frame_number++) {
            uint32_t length;
            memcpy(&length, frames + at, sizeof(length));
            memcpy(&parameter, frames + at + sizeof(length), sizeof(parameter));
            at += sizeof(length) + sizeof(parameter);
            filled += answer_frame(frames + at, length, out + filled);
            at += length;
        }
        memcpy(out + filled, counters[0], given.counters * sizeof(uint64_t));
        filled += given.counters * sizeof(uint64_t);
        const uint64_t bytes = filled;
        give((const uint8_t *)&bytes, sizeof(bytes));
        give(out, filled);
        free(frames);
        free(out);
    }
}
