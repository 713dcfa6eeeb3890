/*
 * Shared code of the DPDK peers: the protocol of bench/src/run/peer.rs, input files, memory and
 * time.
 */
#ifndef GODWIT_PEER_H
#define GODWIT_PEER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_memory.h>

/* Packets per bulk lookup. The benchmarks look up bins of this size. */
#define BULK 256

static inline void *peer_read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(2);
    }
    *bytes = (size_t)ftell(file);
    rewind(file);
    void *data = malloc(*bytes + 1);
    if (data == NULL || fread(data, 1, *bytes, file) != *bytes) {
        perror(path);
        exit(2);
    }
    fclose(file);
    return data;
}

/* List of 32-bit keys to look up. */
struct peer_list {
    uint32_t *words; /* not const, because rte_fib takes a plain pointer; it does not write */
    size_t count;    /* a multiple of BULK */
};

#define PEER_LISTS_MAX 8
#define PEER_FORM_MAX  16

/* Reads a list from each file, truncates it to whole bulks, and returns the number of lists. */
static inline unsigned peer_read_lists(struct peer_list lists[PEER_LISTS_MAX], int files, char **paths)
{
    unsigned count = 0;
    for (; (int)count < files && count < PEER_LISTS_MAX; count++) {
        size_t bytes = 0;
        lists[count].words = peer_read_file(paths[count], &bytes);
        lists[count].count = bytes / sizeof(uint32_t) / BULK * BULK;
    }
    return count;
}

/*
 * Reads the next request from standard input: "FORM [LIST]". Sets `form` and returns the list with
 * index LIST, by default 0. Returns NULL at the end of the input.
 */
static inline const struct peer_list *peer_next_request(const struct peer_list *lists, unsigned count,
                                                        char form[PEER_FORM_MAX])
{
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned number = 0;
        if (sscanf(line, "%15s %u", form, &number) >= 1 && number < count) {
            return &lists[number];
        }
        printf("refused\n");
        fflush(stdout);
    }
    return NULL;
}

#define PEER_HUGEPAGE ((uintptr_t)2 << 20)
#define PEER_PAGE     4096

/*
 * Replaces EAL's memory with transparent hugepages, for machines without reserved hugepages. EAL
 * then maps a memory file at an address that is not aligned to 2 MiB. The function copies the pages
 * that EAL has already written.
 */
static inline int peer_advise(const struct rte_memseg_list *list, void *unused)
{
    (void)unused;
    const uintptr_t base = ((uintptr_t)list->base_va + PEER_HUGEPAGE - 1) & ~(PEER_HUGEPAGE - 1);
    const uintptr_t end = ((uintptr_t)list->base_va + list->len) & ~(PEER_HUGEPAGE - 1);
    if (list->external != 0 || end <= base) {
        return 0;
    }
    const size_t pages = (end - base) / PEER_PAGE;
    unsigned char *resident = malloc(pages);
    uint8_t *fresh = mmap(NULL, end - base + PEER_HUGEPAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (resident == NULL || fresh == MAP_FAILED || mincore((void *)base, end - base, resident) != 0) {
        return 0;
    }
    uint8_t *aligned = (uint8_t *)(((uintptr_t)fresh + PEER_HUGEPAGE - 1) & ~(PEER_HUGEPAGE - 1));
    (void)madvise(aligned, end - base, MADV_HUGEPAGE);
    for (size_t i = 0; i < pages; i++) {
        if (resident[i] & 1) {
            memcpy(aligned + i * PEER_PAGE, (uint8_t *)base + i * PEER_PAGE, PEER_PAGE);
        }
    }
    if (mremap(aligned, end - base, end - base, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)base) == MAP_FAILED) {
        perror("mremap");
        exit(2);
    }
    free(resident);
    return 0;
}

/*
 * Starts EAL with reserved hugepages if the machine has any, otherwise with transparent hugepages.
 * Godwit chooses its memory in the same way. Returns the kind of memory, which the peer prints
 * after "ready".
 */
static inline const char *peer_start_eal(char *name, char *megabytes)
{
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "r");
    unsigned pages = 0;
    if (file != NULL) {
        if (fscanf(file, "%u", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    char *simd = "--force-max-simd-bitwidth=512";
    char *huge[] = {name, "--in-memory", "--no-pci", "--no-telemetry", "-l", "0", "--log-level=1", simd, NULL};
    char *small[] = {name, "--no-huge", "--no-pci",      "--no-telemetry", "--no-shconf", "-l",
                     "0",  "-m",        megabytes,       "--log-level=1",  simd,          NULL};
    const int count = pages > 0 ? 8 : 11;
    if (rte_eal_init(count, pages > 0 ? huge : small) < 0) {
        fprintf(stderr, "%s: EAL failed to start\n", name);
        exit(2);
    }
    if (pages == 0) {
        rte_memseg_list_walk(peer_advise, NULL);
    }
    return pages > 0 ? "hugepages" : "advised pages";
}

/* Returns how many megabytes of this process are on transparent hugepages. */
static inline uint64_t peer_huge_megabytes(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[128];
    uint64_t sum = 0, kilobytes = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "AnonHugePages: %" SCNu64, &kilobytes) == 1 ||
            sscanf(line, "ShmemPmdMapped: %" SCNu64, &kilobytes) == 1) {
            sum += kilobytes;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return sum >> 10;
}

static inline uint64_t peer_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Reports that the table is complete and which memory it uses. */
static inline void peer_ready(const char *pages)
{
    printf("ready %s, %" PRIu64 " MB of it transparent hugepages\n", pages, peer_huge_megabytes());
    fflush(stdout);
}

/* Replies to a request with the nanoseconds since `started_ns` and the sum of the results. */
static inline void peer_reply(uint64_t started_ns, uint64_t sum)
{
    printf("%" PRIu64 " %" PRIu64 "\n", peer_now_ns() - started_ns, sum);
    fflush(stdout);
}

#endif
