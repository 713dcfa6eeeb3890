#include FORM
#include "../main.h"

static void random_name(name_t *name, uint32_t *random)
{
    memset(name, 0, sizeof(*name));
    name->components = 1 + (int)(next_random(random) % COMPONENTS_MAX);
    for (int i = 0; i < name->components * COMPONENT; i++) {
        name->bytes[i] = (uint8_t)(next_random(random) >> 9 & (i % COMPONENT == 0 ? 3 : 0));
    }
}

int main(void)
{
    static fib_t fib;
    static name_t names[QUERIES];
    static uint32_t faces[QUERIES];
    uint32_t random = 1, collisions;
    for (uint32_t i = 0; i < 2048; i++) {
        uint32_t tags[COMPONENTS_MAX];
        random_name(&fib.names[i], &random);
        hashes(&fib.names[i], tags);
        fib.faces[i] = i + 1;
        const uint32_t tag = tags[fib.names[i].components - 1];
        for (uint32_t step = 0; step < PROBES; step++) {
            entry_t *entry = &fib.entries[(tag + step) % ENTRIES];
            if (entry->tag == 0) {
                /* Every tenth entry has the hash of another name. A lookup must not accept it. */
                *entry = (entry_t){tag, i % 10 == 0 ? i / 2 : i};
                break;
            }
        }
    }
    for (int i = 0; i < QUERIES; i++) {
        random_name(&names[i], &random);
    }
    forward(&fib, names, faces, &collisions, QUERIES);
    print_digest(faces, QUERIES);
    print_digest(&collisions, 1);
    return 0;
}
