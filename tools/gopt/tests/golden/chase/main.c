#include FORM
#include "../main.h"

int main(void)
{
    static uint32_t entries[ENTRIES], heads[QUERIES];
    uint32_t random = 1;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        entries[i] = next_random(&random) % ENTRIES;
    }
    for (int i = 0; i < QUERIES; i++) {
        heads[i] = next_random(&random) % ENTRIES;
    }
    chase(entries, heads, QUERIES);
    print_digest(heads, QUERIES);
    chase(entries, heads, 1);
    print_digest(heads, 1);
    return 0;
}
