#include "../look.h"

#define STATES     1024
#define BYTES_MAX  64
#define NO_PATTERN 0xffffffffu

typedef struct automaton {
    uint32_t next[STATES][256];
    uint32_t matches[STATES]; /* 0: no pattern ends here */
} automaton_t;

typedef struct payload {
    uint32_t length;
    uint8_t bytes[BYTES_MAX];
} payload_t;

typedef struct result {
    uint32_t first;
    uint32_t count;
} result_t;
