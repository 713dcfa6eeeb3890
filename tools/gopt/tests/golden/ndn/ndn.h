#include "../look.h"

/* FIB of names with components of fixed size. A lookup compares the name, not only its hash. */
#define COMPONENTS_MAX 6
#define COMPONENT      4
#define ENTRIES        8192u
#define PROBES         4
#define NO_FACE        0u

typedef struct name {
    uint8_t bytes[COMPONENTS_MAX * COMPONENT];
    int components;
} name_t;

typedef struct entry {
    uint32_t tag; /* 0: the entry is free */
    uint32_t name;
} entry_t;

typedef struct fib {
    entry_t entries[ENTRIES];
    name_t names[2048];
    uint32_t faces[2048];
} fib_t;

/* Computes the hashes of all prefixes of a name, starting with one component. */
static inline void hashes(const name_t *name, uint32_t *found)
{
    uint32_t state = 2166136261u;
    for (int i = 0; i < name->components * COMPONENT; i++) {
        state = (state ^ name->bytes[i]) * 16777619u;
        if (i % COMPONENT == COMPONENT - 1) {
            found[i / COMPONENT] = hash(state) | 1;
        }
    }
}

static inline int same(const name_t *known, const name_t *name, int components)
{
    int equal = known->components == components;
    for (int i = 0; i < components * COMPONENT; i++) {
        equal &= known->bytes[i] == name->bytes[i];
    }
    return equal;
}
