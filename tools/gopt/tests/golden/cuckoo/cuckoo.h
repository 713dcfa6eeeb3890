#include "../look.h"

#define SLOTS     8
#define BUCKETS   4096u
#define NOT_FOUND 0u

typedef struct entry {
    uint32_t key;
    uint32_t value;
} entry_t;

typedef struct bucket {
    entry_t entries[SLOTS];
} bucket_t;

/* The bucket that a key has as its first (0) or its second (1). */
static inline uint32_t place(uint32_t key, int way)
{
    return hash(way == 0 ? key : key + 0x9e3779b9u) % BUCKETS;
}
