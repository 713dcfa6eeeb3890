/* Changes of shared memory whose order does not matter (rules R2 to R4). */
#include "common.h"
#include <stdatomic.h>

#define LOOKUP(i) (hash(in[i]) % SLOTS)

static int signed_total;
static unsigned long long wide_total;
static uint32_t found_any;
extern int elsewhere;
int elsewhere;

struct statistics {
    int hits;
    unsigned misses;
    short small;
    unsigned bits : 5;
    int64_t nested[4];
};
static struct statistics statistics;

static uint64_t signed_sum(void)
{
    int sum = 0;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        sum += (int)(table[LOOKUP(i)] & 0xfffff) - 0x80000;
    }
    return (uint64_t)sum;
}

static uint64_t written_out(void)
{
    long sum = 3;
    unsigned other = 1;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        sum = sum + table[LOOKUP(i)];
        other = in[i] + other;
    }
    return mix((uint64_t)sum, other);
}

static uint64_t difference(void)
{
    long sum = 3;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        if (in[i] & 1) {
            sum -= table[LOOKUP(i)] >> 3;
        } else {
            sum = sum - 5;
        }
    }
    return (uint64_t)sum;
}

static uint64_t of_file(void)
{
    signed_total = 0;
    wide_total = 0;
    elsewhere = 0;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        if (table[LOOKUP(i)] & 4) {
            signed_total++;
            elsewhere += 2;
        }
        wide_total += table[LOOKUP(i)];
    }
    return mix(mix(wide_total, (uint64_t)signed_total), (uint64_t)elsewhere);
}

static uint64_t members(void)
{
    memset(&statistics, 0, sizeof statistics);
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        if (table[LOOKUP(i)] & 4) {
            statistics.hits++;
            statistics.bits++;
        } else {
            statistics.misses += table[LOOKUP(i)];
            statistics.small--;
        }
        statistics.nested[in[i] & 3] += i;
    }
    uint64_t digest = mix((uint64_t)statistics.hits, statistics.misses);
    digest = mix(digest, (uint64_t)statistics.small);
    digest = mix(digest, statistics.bits);
    for (int k = 0; k < 4; k++) {
        digest = mix(digest, (uint64_t)statistics.nested[k]);
    }
    return digest;
}

static void behind_pointer(struct statistics *own, int *count, int n)
{
    for (int i = 0; i < n; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        if (table[LOOKUP(i)] & 4) {
            own->hits++;
            (*count)++;
            ++*count;
            own[0].nested[1]++;
        }
    }
}

static uint64_t pointers(void)
{
    int count = 0;
    memset(&statistics, 0, sizeof statistics);
    behind_pointer(&statistics, &count, N);
    return mix(mix((uint64_t)count, (uint64_t)statistics.hits), (uint64_t)statistics.nested[1]);
}

static uint64_t histogram(void)
{
    static uint32_t counts[256];
    memset(counts, 0, sizeof counts);
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = LOOKUP(i);
        g_expensive(&table[h]);
        uint32_t bucket = table[h] >> 24;
        g_expensive(&counts[bucket]);
        counts[bucket]++;
    }
    uint64_t digest = 0;
    for (int k = 0; k < 256; k++) {
        digest = mix(digest, counts[k]);
    }
    return digest;
}

static int calls;

static uint32_t counted(uint32_t key)
{
    calls++;
    g_expensive(&table[key % SLOTS]);
    if (table[key % SLOTS] & 1) {
        calls += 3;
    }
    return table[key % SLOTS];
}

static void count_only(int amount)
{
    signed_total += amount;
}

static uint64_t in_called_functions(void)
{
    calls = 0;
    signed_total = 0;
    for (int i = 0; i < N; i++) { /* batch */
        out[i] = counted(in[i]);
        count_only((int)(in[i] & 7) - 3);
    }
    return mix(mix(digest_out(), (uint64_t)calls), (uint64_t)signed_total);
}

static uint64_t extremes(void)
{
    uint32_t most = 0, least = UINT32_MAX;
    int most_signed = INT32_MIN;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        uint32_t value = table[LOOKUP(i)];
        if (value > most) {
            most = value;
        }
        if (least > value)
            least = value;
        most_signed = (int)value > most_signed ? (int)value : most_signed;
    }
    return mix(mix(most, least), (uint64_t)most_signed);
}

static uint64_t atomics(void)
{
    static _Atomic unsigned relaxed;
    unsigned plain = 0;
    relaxed = 0;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        __atomic_fetch_add(&plain, table[LOOKUP(i)], __ATOMIC_RELAXED);
        atomic_fetch_add_explicit(&relaxed, in[i], memory_order_relaxed);
    }
    return mix(plain, relaxed);
}

static uint64_t only_atomic(void)
{
    unsigned plain = 0;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        __atomic_fetch_add(&plain, table[LOOKUP(i)], __ATOMIC_SEQ_CST);
    }
    return plain;
}

static uint64_t bits(void)
{
    uint32_t either = 0, both = UINT32_MAX, odd = 0;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        either |= table[LOOKUP(i)];
        both &= table[LOOKUP(i)] | 0xff;
        odd = odd ^ table[LOOKUP(i)];
    }
    return mix(mix(either, both), odd);
}

static uint64_t flags(void)
{
    static uint8_t seen[SLOTS];
    int any = 0;
    found_any = 0;
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        seen[table[LOOKUP(i)] % SLOTS] = 1;
        if (table[LOOKUP(i)] == 77) {
            any = 1;
            found_any = 1u;
        }
    }
    uint64_t digest = mix((uint64_t)any, found_any);
    for (unsigned k = 0; k < SLOTS; k++) {
        digest = mix(digest, seen[k]);
    }
    return digest;
}

static uint64_t node_counts(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        node *n = heads[hash(in[i]) % (SLOTS / 4)];
        while (n) {
            g_expensive(n);
            if (n->key == in[i]) {
                n->hits++;
                n->small++;
                break;
            }
            n = n->next;
        }
        out[i] = n ? n->value : 0;
    }
    uint64_t digest = digest_out();
    for (unsigned k = 0; k < SLOTS; k++) {
        digest = mix(mix(digest, nodes[k].hits), nodes[k].small);
    }
    return digest;
}

static uint64_t switched_sum(void)
{
    int total = 0;
    for (int i = 0; i < N; i++) { /* batch */
        total += (int)counted(in[i]) / 1024;
    }
    return (uint64_t)total;
}

typedef struct {
    uint32_t value[3];
    struct {
        uint16_t low, high;
    } parts;
    uint32_t *where;
} record;

static uint64_t own_records(void)
{
    static record records[N];
    for (int i = 0; i < N; i++) { /* batch */
        record *own = &records[i];
        g_expensive(&table[LOOKUP(i)]);
        for (int k = 0; k < 3; k++) {
            records[i].value[k] = table[LOOKUP(i)] >> k;
        }
        own->parts.low = (uint16_t)own->value[2];
        own->parts.high = (uint16_t)(own->parts.low + 1);
        own->where = &table[LOOKUP(i)];
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++) {
        digest = mix(mix(digest, records[i].value[1]), records[i].parts.high);
        digest = mix(digest, (uint64_t)(records[i].where - table));
    }
    return digest;
}

static uint64_t own_rows(void)
{
    static uint32_t rows[N][4];
    static uint32_t flat[N * 4];
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        for (int k = 0; k < 4; k++) {
            rows[i][k] = table[LOOKUP(i)] + (uint32_t)k;
            flat[i * 4 + k] = rows[i][k] ^ 5;
        }
        flat[4 * i] += 1;
    }
    uint64_t digest = 0;
    for (int i = 0; i < 4 * N; i++) {
        digest = mix(mix(digest, flat[i]), rows[i / 4][i % 4]);
    }
    return digest;
}

static void rows_of_width(uint32_t *flat, int width)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[LOOKUP(i)]);
        for (int k = 0; k < width; k++) {
            flat[i * width + k] = table[LOOKUP(i)] + (uint32_t)k;
        }
    }
}

static uint64_t symbolic_rows(void)
{
    static uint32_t flat[N * 5];
    rows_of_width(flat, 5);
    uint64_t digest = 0;
    for (int i = 0; i < 5 * N; i++) {
        digest = mix(digest, flat[i]);
    }
    return digest;
}

static uint64_t copies(void)
{
    static record records[N];
    static char bytes[N * 8];
    for (int i = 0; i < N; i++) { /* batch */
        record own = {{1, 2, in[i]}, {3, 4}, NULL};
        uint64_t wide = in[i];
        g_expensive(&table[LOOKUP(i)]);
        own.value[0] = table[LOOKUP(i)];
        memcpy(&records[i], &own, sizeof records[i]);
        memcpy(bytes + i * 8, &wide, 8);
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++) {
        digest = mix(mix(digest, records[i].value[0]), (uint64_t)(unsigned char)bytes[i * 8]);
    }
    return digest;
}

static uint64_t in_place(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t *own = in + i;
        g_expensive(&table[*own % SLOTS]);
        *own = table[*own % SLOTS] + *own;
        in[i] ^= 3;
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++) {
        digest = mix(digest, in[i]);
    }
    return digest;
}

static uint64_t other_field(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = LOOKUP(i);
        g_expensive(&nodes[h]);
        nodes[i].hits = nodes[h].value;
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++) {
        digest = mix(digest, nodes[i].hits);
    }
    return digest;
}

int main(int argc, char **argv)
{
    static const case_entry cases[] = {
        CASE(signed_sum), CASE(written_out), CASE(difference), CASE(of_file), CASE(members), CASE(pointers),
        CASE(histogram), CASE(in_called_functions), CASE(extremes), CASE(atomics), CASE(only_atomic), CASE(bits),
        CASE(flags), CASE(node_counts), CASE(switched_sum), CASE(own_records), CASE(own_rows), CASE(symbolic_rows),
        CASE(copies), CASE(in_place), CASE(other_field),
    };
    return run_cases(cases, (int)(sizeof cases / sizeof *cases), argc, argv);
}
