#include "../look.h"

/* Trie like that of rte_lpm6: the root covers FIRST_BITS bits, and each other level 8 bits. */
#define FIRST_BITS 12
#define GROUPS     512
#define EXTENDED   0x80000000u
#define NO_ROUTE   0u

typedef struct table {
    uint32_t first[1 << FIRST_BITS];
    uint32_t groups[GROUPS][256];
} table_t;

typedef struct address {
    uint8_t bytes[16];
} address_t;
