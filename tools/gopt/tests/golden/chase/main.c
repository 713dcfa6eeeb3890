#include FORM
#include "../main.h"

int main(void)
{
    static uint32_t places[PLACES], heads[QUERIES];
    uint32_t random = 1;
    for (uint32_t i = 0; i < PLACES; i++) {
        places[i] = next_random(&random) % PLACES;
    }
    for (int i = 0; i < QUERIES; i++) {
        heads[i] = next_random(&random) % PLACES;
    }
    chase(places, heads, QUERIES);
    print_digest(heads, QUERIES);
    chase(places, heads, 1);
    print_digest(heads, 1);
    return 0;
}
