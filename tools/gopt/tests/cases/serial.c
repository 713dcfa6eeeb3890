/* Lookups whose last statements run in the order of the loop. */
#include "common.h"

#define LOOKUP(i) (hash(in[i]) % SLOTS)

static uint32_t order[N], filled, last;
static long balance;

/* The lookups differ in length, so they reach the pragma in another order. */
static uint32_t walk(uint32_t key)
{
    for (uint32_t step = key & 7; step > 0; step--) {
        g_expensive(&table[key % SLOTS]);
        key = key * 5 + table[key % SLOTS];
    }
    return key;
}

static uint64_t digest(void)
{
    uint64_t found = mix(filled, last) ^ (uint64_t)balance;
    for (uint32_t i = 0; i < N; i++) {
        found = mix(found, order[i]);
    }
    filled = last = 0;
    balance = 0;
    memset(order, 0, sizeof order);
    return mix(found, digest_out());
}

static uint64_t partition(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t key = walk(in[i]);
        out[i] = key;
#pragma gopt serial
        order[filled++] = key;
        last = key;
    }
    return digest();
}

static uint64_t ends_early(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t key = walk(in[i]);
        if (key % 3 == 0) {
            out[i] = 1;
            continue;
        }
        g_expensive(&table[key % SLOTS]);
        key += table[key % SLOTS];
#pragma gopt serial
        if (key % 5 == 0) {
            continue;
        }
        last = last * 31 + key;
    }
    return digest();
}

/* All lookups end before the pragma, apart from one. */
static uint64_t waits_for_one(void)
{
    for (int i = N; i-- > 0;) { /* batch */
        uint32_t key = in[i];
        for (int step = 0; i == 300 && step < 500; step++) {
            g_expensive(&table[key % SLOTS]);
            key = key * 5 + table[key % SLOTS];
        }
        if (i % 100) {
            g_expensive(&table[LOOKUP(i)]);
            out[i] = table[LOOKUP(i)];
            continue;
        }
#pragma gopt serial
        last = last * 31 + key;
    }
    return digest();
}

/* Arrays and variables with an address keep their values up to the pragma. */
static uint64_t keeps_arrays(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t parts[3] = {in[i], 0, 5}, *part = &parts[in[i] & 1];
        struct {
            uint32_t a, b;
        } pair = {walk(in[i]), 7};
        for (uint32_t k = 0; k < (in[i] & 3); k++) {
            g_expensive(&table[parts[0] % SLOTS]);
            *part = *part * 5 + table[parts[0] % SLOTS];
        }
#pragma gopt serial
        order[filled++] = parts[0] ^ parts[1] ^ pair.a + pair.b;
        if (balance > (long)(*part & 0xff)) {
            balance -= *part & 0xff;
        } else {
            balance += 1000 + parts[2];
        }
    }
    return digest();
}

/* Functions with a visible order. */
static uint64_t prints(void)
{
    int i = 0;
    srand(5);
    while (i < N) { /* batch */
        uint32_t key = walk(in[i]);
        i++;
#pragma gopt serial
        if (key % 50 == 0) {
            printf("%u\n", key);
        }
        last ^= (uint32_t)rand() & key;
    }
    return digest();
}

int main(int argc, char **argv)
{
    static const case_entry cases[] = {
        CASE(partition), CASE(ends_early), CASE(waits_for_one), CASE(keeps_arrays), CASE(prints),
    };
    return run_cases(cases, (int)(sizeof cases / sizeof *cases), argc, argv);
}
