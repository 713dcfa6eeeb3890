/*
 * Peer of the benchmark `literals`: Vectorscan or Hyperscan in block mode.
 *
 *   vectorscan PATTERNS TEXT BYTES
 *
 * PATTERNS has one pattern per line: 0 or 1 (1: ASCII letters match in both cases), a space, and
 * the bytes in hexadecimal. TEXT holds packets of BYTES bytes. Each request runs one round over all
 * packets. A round has the same sum as in bench/src/subject/literals.rs.
 */
#define _GNU_SOURCE
#include <hs.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct result {
    uint64_t sum;
    uint64_t packet;
};

static int on_match(unsigned id, unsigned long long from, unsigned long long to, unsigned flags, void *context)
{
    (void)from;
    (void)flags;
    struct result *result = context;
    result->sum += (uint64_t)(id + 1) * (to * UINT64_C(2654435761) + result->packet);
    return 0;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Converts the hexadecimal bytes of a pattern to an expression with \xNN for each byte. */
static char *expression(const char *hex)
{
    size_t bytes = strcspn(hex, "\n") / 2;
    char *text = malloc(bytes * 4 + 1);
    for (size_t i = 0; i < bytes; i++) {
        sprintf(text + 4 * i, "\\x%.2s", hex + 2 * i);
    }
    return text;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: vectorscan PATTERNS TEXT BYTES\n");
        return 2;
    }
    FILE *file = fopen(argv[1], "r");
    char *line = NULL;
    size_t room = 0;
    unsigned count = 0, limit = 1 << 20;
    char **expressions = calloc(limit, sizeof *expressions);
    unsigned *flags = calloc(limit, sizeof *flags), *ids = calloc(limit, sizeof *ids);
    while (file != NULL && count < limit && getline(&line, &room, file) > 2) {
        expressions[count] = expression(line + 2);
        flags[count] = line[0] == '1' ? HS_FLAG_CASELESS : 0;
        ids[count] = count;
        count++;
    }
    FILE *text = fopen(argv[2], "rb");
    size_t length = 0, bytes = strtoul(argv[3], NULL, 10);
    char *packets = malloc(64u << 20);
    if (file == NULL || text == NULL || (length = fread(packets, 1, 64u << 20, text)) == 0) {
        perror("vectorscan");
        return 2;
    }
    hs_database_t *database = NULL;
    hs_compile_error_t *error = NULL;
    uint64_t started = now_ns();
    if (hs_compile_multi((const char *const *)expressions, flags, ids, count, HS_MODE_BLOCK, NULL, &database, &error) !=
        HS_SUCCESS) {
        fprintf(stderr, "vectorscan: %s\n", error->message);
        return 2;
    }
    hs_scratch_t *scratch = NULL;
    size_t size = 0;
    hs_alloc_scratch(database, &scratch);
    hs_database_size(database, &size);
    printf("ready %s, %zu KiB, compiled in %" PRIu64 " ms\n", hs_version(), size >> 10, (now_ns() - started) / 1000000);
    fflush(stdout);
    while (getline(&line, &room, stdin) > 0) {
        struct result result = {0, 0};
        started = now_ns();
        for (size_t at = 0; at + bytes <= length; at += bytes) {
            hs_scan(database, packets + at, (unsigned)bytes, 0, scratch, on_match, &result);
            result.packet++;
        }
        printf("%" PRIu64 " %" PRIu64 "\n", now_ns() - started, result.sum);
        fflush(stdout);
    }
    return 0;
}
