#include "../look.h"

/* Names are components of a fixed size here; a key is verified, never only its hash. */
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
    uint32_t tag; /* 0: free */
    uint32_t name;
} entry_t;

typedef struct fib {
    entry_t entries[ENTRIES];
    name_t names[2048];
    uint32_t faces[2048];
} fib_t;

/* The hashes of a name's prefixes, from one component on. */
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
