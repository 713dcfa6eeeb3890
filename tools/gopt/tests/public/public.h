/* Tables, queries and main function of the lookups of public projects. */
#ifndef PUBLIC_H
#define PUBLIC_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define g_expensive(...)
#ifndef GOPT_GROUP
#define GOPT_GROUP group
#endif

static unsigned group = 1;
static uint32_t entries = 1000, queries = 2000;
static uint32_t *keys;   /* one per query; most of them are in the table */
static uint64_t *answers; /* one per query */

static inline uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

/* Key of an entry. Keys differ. */
static inline uint32_t key_of(uint32_t entry)
{
    return entry * 0x9e3779b1u + 1u;
}

/* Returns memory filled with zeros, which the program keeps. */
static void *take(size_t bytes)
{
    static struct block {
        struct block *before;
        uint64_t align;
    } *last;
    struct block *block = calloc(1, sizeof *block + bytes);
    if (!block) {
        exit(1);
    }
    block->before = last;
    last = block;
    return block + 1;
}

/* Returns the smallest power of two that is at least n. */
static inline uint32_t power_of_two(uint32_t n)
{
    uint32_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

typedef struct {
    const char *name;
    void (*build)(void);
    uint64_t (*run)(void);
} measured;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/*
 * Arguments: group, entries, queries, repetitions. With repetitions, prints nanoseconds per query
 * of groups of 1, which run the plain loop, and of the group: the best repetition, in turns.
 */
static int run_lookups(const measured *lookups, size_t count, int argc, char **argv)
{
    group = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    entries = argc > 2 ? (uint32_t)atoi(argv[2]) : entries;
    queries = argc > 3 ? (uint32_t)atoi(argv[3]) : queries;
    const int repetitions = argc > 4 ? atoi(argv[4]) : 0;
    keys = take(queries * sizeof *keys);
    answers = take(queries * sizeof *answers);
    for (uint32_t i = 0; i < queries; i++) {
        keys[i] = key_of((uint32_t)(scramble(i) % (entries + entries / 8)));
    }
    for (size_t i = 0; i < count; i++) {
        lookups[i].build();
        memset(answers, 0, queries * sizeof *answers);
        uint64_t digest = lookups[i].run();
        for (uint32_t query = 0; query < queries; query++) {
            digest = scramble(digest ^ answers[query]);
        }
        printf("%s %016llx", lookups[i].name, (unsigned long long)digest);
        const unsigned groups[2] = {1, group};
        double best[2] = {0, 0};
        for (int repetition = 0; repetition < 2 * repetitions; repetition++) {
            const int form = repetition % 2;
            group = groups[form];
            const double start = now();
            lookups[i].run();
            const double took = (now() - start) / queries;
            best[form] = repetition < 2 || took < best[form] ? took : best[form];
        }
        if (repetitions) {
            printf(" %.1f %.1f", best[0], best[1]);
        }
        group = groups[1];
        printf("\n");
    }
    return 0;
}

#define LOOKUP(name) {#name, name##_build, name}
#define MAIN(...) \
    int main(int argc, char **argv) \
    { \
        static const measured lookups[] = {__VA_ARGS__}; \
        return run_lookups(lookups, sizeof lookups / sizeof *lookups, argc, argv); \
    }

#endif
