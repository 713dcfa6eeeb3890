/* Tables and helpers of all cases. A case is a function that returns a digest of its results. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define g_expensive(...)
#define foreach(i, n) for (int i = 0; i < (n); i++)

#define SLOTS 1024u
#define N 333

typedef struct node {
    uint32_t key, value;
    struct node *next;
    struct node *left, *right;
    uint32_t hits;
    uint8_t small : 3;
} node;

static uint32_t table[SLOTS];
static node nodes[SLOTS];
static node *heads[SLOTS];
static node *tree;
static uint32_t in[N], out[N];
static unsigned group = 1;
#ifndef GOPT_GROUP
#define GOPT_GROUP group
#endif

static inline uint32_t hash(uint32_t key)
{
    key ^= key >> 15;
    key *= 0x2c1b3c6du;
    return key ^ key >> 12;
}

static inline uint64_t mix(uint64_t digest, uint64_t value)
{
    return (digest ^ value) * 0x9e3779b97f4a7c15u + (digest >> 29);
}

static uint64_t digest_out(void)
{
    uint64_t digest = 1;
    for (int i = 0; i < N; i++) {
        digest = mix(digest, out[i]);
    }
    return digest;
}

static void reset(void)
{
    uint32_t state = 7;
    memset(heads, 0, sizeof heads);
    tree = NULL;
    for (uint32_t i = 0; i < SLOTS; i++) {
        table[i] = state = state * 1664525u + 1013904223u;
        node *own = &nodes[i];
        memset(own, 0, sizeof *own);
        own->key = i;
        own->value = state >> 7;
        own->next = heads[hash(i) % (SLOTS / 4)];
        heads[hash(i) % (SLOTS / 4)] = own;
        node **place = &tree;
        while (*place) {
            place = hash((*place)->key) < hash(i) ? &(*place)->right : &(*place)->left;
        }
        *place = own;
    }
    for (int i = 0; i < N; i++) {
        in[i] = state = state * 1664525u + 1013904223u;
        in[i] %= 2 * SLOTS;
        out[i] = 0;
    }
}

typedef uint64_t case_function(void);
typedef struct {
    const char *name;
    case_function *run;
} case_entry;

static int run_cases(const case_entry *cases, int count, int argc, char **argv)
{
    group = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    for (int i = 0; i < count; i++) {
        reset();
        printf("%s %016llx\n", cases[i].name, (unsigned long long)cases[i].run());
    }
    return 0;
}

#define CASE(name) {#name, name}
