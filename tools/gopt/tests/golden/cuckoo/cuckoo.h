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

/* Returns the index of the first (0) or second (1) bucket of a key. */
static inline uint32_t bucket_of(uint32_t key, int choice)
{
    return hash(choice == 0 ? key : key + 0x9e3779b9u) % BUCKETS;
}
