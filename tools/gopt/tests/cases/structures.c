/* Lookups of graphs, trees and records, steps of moving places, and pointers to known arrays. */
#include "common.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#define FPP_EXPENSIVE(x) {}
#define AT(i) (hash(in[i]) % SLOTS)

static uint64_t errno_constant(void)
{
    errno = 0;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        out[i] = table[AT(i)] & 1 ? (errno = EPROTO, 7u) : 3u;
    }
    return mix(digest_out(), (uint64_t)errno);
}

static bool lookup_into(uint32_t key, uint32_t *value, int *steps)
{
    int n = 0;
    for (const node *c = heads[hash(key) % (SLOTS / 4)]; c; c = c->next, n++) {
        g_expensive(c);
        if (c->key == key) {
            if (value)
                *value = c->value;
            if (steps)
                *steps = n;
            return true;
        }
    }
    if (steps)
        *steps = -n;
    return false;
}

static uint64_t optional_results(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t value = 1;
        int steps;
        bool found = lookup_into(in[i], &value, NULL);
        out[i] = lookup_into(in[i] + 1, NULL, &steps) + value * 2 + found + (uint32_t)steps * 8;
    }
    return digest_out();
}

static uint32_t two_tables[2][SLOTS];
static uint64_t double_buffer(void)
{
    uint32_t *now = two_tables[0], *next = two_tables[1];
    memcpy(now, table, sizeof table);
    for (int round = 0; round < 3; round++) {
        for (uint32_t v = 0; v < SLOTS; v++) { /* batch */
            uint32_t h = now[v] % SLOTS;
            g_expensive(&now[h]);
            next[v] = now[h] * 3 + v;
        }
        uint32_t *swap = now;
        now = next;
        next = swap;
    }
    uint64_t digest = 0;
    for (uint32_t v = 0; v < SLOTS; v++)
        digest = mix(digest, now[v]);
    return digest;
}

struct graph {
    int n;
    const int *begin, *edge;
    const uint32_t *weight;
};
static int begins[N + 1], edges[4 * N];

static uint64_t csr_pull(void)
{
    for (int i = 0; i <= N; i++)
        begins[i] = 4 * i - (i > 3 ? i % 4 : 0);
    for (int i = 0; i < 4 * N; i++)
        edges[i] = (int)(hash((uint32_t)i) % N);
    const struct graph g = {N, begins, edges, in}, *graph = &g;
    for (int v = 0; v < graph->n; v++) {
        uint32_t sum = 0;
        for (int e = graph->begin[v]; e < graph->begin[v + 1]; e++) { /* batch */
            int to = graph->edge[e];
            g_expensive(&graph->weight[to]);
            sum += graph->weight[to];
        }
        out[v] = sum;
    }
    return digest_out();
}

static uint64_t count_triangles(void)
{
    uint64_t triangles = 0;
    csr_pull();
    for (int v = 0; v < N; v++) {
        for (int e = begins[v]; e < begins[v + 1]; e++) { /* batch */
            g_expensive(&begins[edges[e]]);
            for (int f = begins[edges[e]]; f < begins[edges[e] + 1]; f++) {
                if (edges[f] % 7 == v % 7)
                    triangles++;
            }
        }
    }
    return triangles;
}

typedef struct tree_page {
    uint16_t count;
    bool leaf;
    uint32_t keys[7];
    union {
        struct tree_page *child[8];
        uint32_t value[7];
    };
} tree_page;
static tree_page pages[SLOTS];

static uint64_t btree(void)
{
    uint32_t used = 1;
    memset(pages, 0, sizeof pages);
    pages[0].count = 7;
    for (int k = 0; k < 7; k++)
        pages[0].keys[k] = (uint32_t)(k + 1) * 200;
    for (int k = 0; k < 8; k++) {
        tree_page *p = &pages[used++];
        pages[0].child[k] = p;
        p->count = 6;
        p->leaf = true;
        for (uint32_t m = 0; m < 6; m++) {
            p->keys[m] = (uint32_t)k * 200 + m * 31;
            p->value[m] = m * 7 + (uint32_t)k;
        }
    }
    for (int i = 0; i < N; i++) { /* batch */
        const tree_page *page = pages;
        for (;;) {
            g_expensive(page, sizeof *page);
            int low = 0, high = page->count;
            while (low < high) {
                int middle = (low + high) / 2;
                if (page->keys[middle] <= in[i])
                    low = middle + 1;
                else
                    high = middle;
            }
            if (page->leaf) {
                out[i] = low ? page->value[low - 1] : UINT32_MAX;
                break;
            }
            page = page->child[low];
        }
    }
    return digest_out();
}

static uint64_t packed_rows(void)
{
    struct __attribute__((packed)) row {
        uint8_t tag;
        uint32_t value;
        uint16_t more;
    };
    static struct row rows[N];
    for (int i = 0; i < N; i++) { /* batch */
        struct row *row = rows + i;
        g_expensive(&table[AT(i)]);
        *row = (struct row){.tag = (uint8_t)in[i], .value = table[AT(i)]};
        row->more |= (uint16_t)(row->value >> 3);
        row->tag--;
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++)
        digest = mix(mix(digest, rows[i].value), rows[i].more + rows[i].tag);
    return digest;
}

static uint64_t partial_sums(void)
{
    uint64_t sums[3][2] = {{0}};
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        sums[in[i] % 3][table[AT(i)] & 1] += table[AT(i)] >> 4;
    }
    return mix(mix(sums[0][0], sums[1][1]), mix(sums[2][0], sums[2][1]));
}

static uint64_t sum_of_calls_alone(void)
{
    uint32_t hits = 0;
    int misses = 0;
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t value;
        hits += lookup_into(in[i], &value, NULL) ? value & 7 : 0;
        misses -= !lookup_into(in[i] ^ 1, NULL, NULL);
    }
    return mix((uint64_t)misses, hits);
}

static uint64_t steps_of_moving_places(void)
{
    int counts[16] = {0};
    long balances[8] = {0};
    __int128 wide = 0;
    for (int i = 0; i < N; i++) { /* batch */
        unsigned k = in[i];
        int s;
        g_expensive(&table[AT(i)]);
        counts[k++ & 15]++;
        counts[k++ & 15] -= (int)(table[AT(i)] & 7);
        balances[hash(k) & 7] += (long)table[AT(i)] - 5;
        wide += lookup_into(in[i], NULL, &s) ? (__int128)s << 66 : (__int128)1 << 70;
        wide -= (__int128)k << 65;
        out[i] = k;
    }
    uint64_t digest = mix(digest_out(), (uint64_t)(wide >> 64));
    for (int k = 0; k < 16; k++)
        digest = mix(mix(digest, (uint64_t)counts[k]), (uint64_t)balances[k / 2]);
    return digest;
}

static uint64_t short_circuit_effects(void)
{
    uint32_t calls = 0;
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t v = 0, w = 0;
        (in[i] & 1) && lookup_into(in[i], &v, NULL) && (w = v + 1);
        (in[i] & 2) || (w ^= 5, lookup_into(in[i] + 3, &v, NULL)) || (v = 9);
        if (!(v & 1) || lookup_into(v, &w, NULL))
            calls++;
        out[i] = v ^ w;
    }
    return mix(digest_out(), calls);
}

static uint64_t nested_conditionals(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t v = 2;
        int s = 0;
        out[i] = lookup_into(in[i], &v, &s)     ? lookup_into(v, &v, &s) ? v + (uint32_t)s : 5
                 : lookup_into(in[i] + 1, &v, 0) ? ({ v++; v * 3; })
                                                 : (uint32_t)s;
    }
    return digest_out();
}

static uint64_t loops_with_calls(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t k = in[i], n = 0;
        int s = 0;
        while (lookup_into(k, &k, &s) && n++ < 4)
            k %= 2 * SLOTS;
        do {
            if (s & 1)
                continue;
            n += 3;
        } while (!lookup_into(k++, NULL, &s) && n < 20 && ++n);
        for (; lookup_into(n, &k, NULL); n++)
            if (n > 30)
                break;
        out[i] = k + n;
    }
    return digest_out();
}

static uint64_t switch_on_call(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t v = 0;
        switch (lookup_into(in[i], &v, NULL) + (int)(v & 2)) {
        case 3:
            v++;
        case 1:
            v += lookup_into(v, NULL, NULL);
            break;
        case INT_MIN ... - 1:
        default:
            v = 77;
        }
        out[i] = v;
    }
    return digest_out();
}

static struct node const *chase(struct node const *n, unsigned depth)
{
    if (!n || !depth)
        return n;
    g_expensive(n);
    return chase(n->value & 1 ? n->left : n->right ? n->right : n->next, depth - 1);
}

static uint64_t tail_call_with_pointer(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        const node *n = chase(tree, in[i] & 15);
        out[i] = n ? n->key : UINT32_MAX;
    }
    return digest_out();
}

struct holder {
    uint32_t count;
    uint32_t *totals;
    struct {
        int64_t by_kind[3];
    } deep;
};

static void into_holder(struct holder *restrict h, const uint32_t *keys, int n)
{
    for (int i = 0; i < n; i++) { /* batch */
        uint32_t place = hash(keys[i]) % SLOTS;
        g_expensive(&table[place]);
        h->count++;
        h->totals[table[place] & 7] += keys[i];
        h->deep.by_kind[place % 3] -= (int64_t)table[place];
    }
}

static uint64_t reductions_in_holder(void)
{
    uint32_t totals[8] = {0};
    struct holder h = {.totals = totals};
    into_holder(&h, in, N);
    uint64_t digest = mix(h.count, (uint64_t)h.deep.by_kind[0] ^ (uint64_t)h.deep.by_kind[2]);
    for (int k = 0; k < 8; k++)
        digest = mix(digest, totals[k]);
    return digest;
}

static uint64_t bits_of_flags(void)
{
    static uint64_t seen[SLOTS / 64];
    static bool any;
    memset(seen, 0, sizeof seen);
    any = false;
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = AT(i);
        g_expensive(&table[h]);
        seen[h / 64] |= 1ull << h % 64;
        any |= table[h] & 4;
    }
    uint64_t digest = any;
    for (unsigned k = 0; k < SLOTS / 64; k++)
        digest = mix(digest, seen[k]);
    return digest;
}

static uint64_t local_recursion_data(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        const node *stack[64];
        unsigned top = 0;
        uint32_t sum = 0, visits = 0;
        stack[top++] = tree;
        while (top && visits < 20) {
            const node *n = stack[--top];
            g_expensive(n);
            visits++;
            sum += n->key;
            if (n->left && (in[i] & 1 || n->key & 1))
                stack[top++] = n->left;
            if (n->right)
                stack[top++] = n->right;
        }
        out[i] = sum;
    }
    return digest_out();
}

static uint64_t widths(void)
{
    for (unsigned short i = 0; i < (unsigned short)N; i++) { /* batch */
        int8_t small = (int8_t)in[i];
        uint16_t half = (uint16_t)(in[i] * 7u);
        __int128 wide = (__int128)in[i] << 70;
        g_expensive(&table[half % SLOTS]);
        small += (int8_t)table[half % SLOTS];
        half ^= (uint16_t)(table[half % SLOTS] >> 5);
        wide += table[half % SLOTS];
        out[i] = (uint32_t)small + half + (uint32_t)(wide >> 69) + (uint32_t)wide;
    }
    return digest_out();
}

static uint64_t sentinel_pointers(void)
{
    static const uint32_t *places[N + 1];
    for (int i = 0; i < N; i++)
        places[i] = &table[AT(i)];
    places[N] = NULL;
    uint32_t *to = out;
    for (const uint32_t *const *p = places; *p; p++) { /* batch */
        g_expensive(*p);
        *to++ = **p;
    }
    return digest_out();
}

static uint64_t backwards_by_two(void)
{
    long i = N - 1;
    for (; i > 1; i -= 2) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
        out[i - 1] = out[i] + 1;
    }
    return mix(digest_out(), (uint64_t)i);
}

static uint64_t columns(void)
{
    static struct {
        uint32_t key[N], value[N];
        double share[N];
    } t;
    for (int i = 0; i < N; i++) { /* batch */
        t.key[i] = in[i];
        g_expensive(&table[t.key[i] % SLOTS]);
        t.value[i] = table[t.key[i] % SLOTS];
        t.share[i] = sqrt((double)t.value[i]) + fabs(-1.0);
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++)
        digest = mix(mix(digest, t.value[i]), (uint64_t)t.share[i]);
    return digest;
}

static uint64_t two_batches_with_shared_names(void)
{
    uint32_t h;
    int i;
    for (i = 0; i < N; i++) { /* batch */
        h = AT(i);
        g_expensive(&table[h]);
        out[i] = table[h];
    }
    for (i = N; i > 0; --i) { /* batch */
        h = out[i - 1] % SLOTS;
        g_expensive(&nodes[h]);
        out[i - 1] ^= nodes[h].value;
    }
    h = 3;
    return mix(digest_out(), h);
}

static uint64_t gnu_case(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        const char kind = "abcxyz"[in[i] % 6];
        uint32_t v = AT(i);
        g_expensive(&table[v]);
        switch (kind) {
        case 'a' ... 'c':
            v = table[v];
            break;
        case 'x': ;
            uint32_t w = table[v];
            v = w * 2;
            break;
        default:
            __builtin_unreachable();
        case 'y':
        case 'z':
            v ^= 1;
        }
        out[i] = v;
    }
    return digest_out();
}

static uint64_t paper_shape(void)
{
    static struct {
        int sent, failed;
    } ports[2], *port = ports;
    int batch_index = 0;
    int c, slot;
    memset(ports, 0, sizeof ports);
#define for_each_packet(i, n) for (i = 0; i < n; i++)
    for_each_packet (batch_index, N) { /* batch */
        int found = -1, turn, first, second;
        const uint32_t *row;
        for (c = 0; c < 3; c++) {
            uint32_t key = hash(in[batch_index] + (uint32_t)c);
            for (turn = 1; turn <= 2; turn++) {
                if (turn == 1) {
                    first = (int)(key % (SLOTS / 4));
                    FPP_EXPENSIVE(&table[first * 4]);
                    row = &table[first * 4];
                } else {
                    second = (int)((uint32_t)first ^ hash(key) % 64);
                    FPP_EXPENSIVE(&table[second * 4]);
                    row = &table[second * 4];
                }
                for (slot = 0; slot < 4; slot++) {
                    if ((row[slot] & 31) == (key & 31)) {
                        found = slot;
                        break;
                    }
                }
                if (found >= 0)
                    break;
            }
            if (found > 1)
                break;
        }
        if (found == -1) {
            port[1].failed++;
        } else {
            port[0].sent += found;
            out[batch_index] = (uint32_t)found + 1;
        }
    }
    return mix(digest_out(), (uint64_t)(ports[0].sent * 1000 + ports[1].failed + batch_index));
}

static uint64_t alias_of_own_place(void)
{
    uint32_t *a = in;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        a[i] = table[in[i] % SLOTS] ^ a[i];
        out[i] = in[i];
    }
    return digest_out();
}

static uint32_t *const fixed_out = out;
static uint64_t constant_pointer_of_file(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        fixed_out[i] = table[in[i] % SLOTS];
    }
    return digest_out();
}

static uint64_t from_malloc(void)
{
    uint32_t *copy = malloc(sizeof in), *results = malloc(sizeof in);
    memcpy(copy, in, sizeof in);
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[copy[i] % SLOTS]);
        results[i] = table[copy[i] % SLOTS];
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++)
        digest = mix(digest, results[i]);
    free(copy);
    free(results);
    return digest;
}

static uint64_t chosen_target(void)
{
    static uint32_t other[N];
    uint32_t *to = in[0] & 1 ? out : other;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        to[i] = table[in[i] % SLOTS];
    }
    uint64_t digest = digest_out();
    for (int i = 0; i < N; i++)
        digest = mix(digest, other[i]);
    return digest;
}

static void fill(const uint32_t *keys, uint32_t *values, int n)
{
    for (int i = 0; i < n; i++) { /* batch */
        g_expensive(&table[keys[i] % SLOTS]);
        values[i] = table[keys[i] % SLOTS];
    }
}

static uint64_t called_in_place(void)
{
    fill(in, out, N);
    fill(out, out, N);
    fill(in + 3, out + 3, N - 3);
    return digest_out();
}

static uint64_t context_pointer(void)
{
    struct context {
        const uint32_t *keys;
        uint32_t *values, total;
        const node *const *heads;
    } context = {in, out, 0, (const node *const *)heads}, *c = &context;
    for (int i = 0; i < N; i++) { /* batch */
        const node *n = c->heads[hash(c->keys[i]) % (SLOTS / 4)];
        for (; n && n->key != c->keys[i]; n = n->next)
            g_expensive(n->next);
        c->values[i] = n ? n->value : 0;
        c->total += c->values[i];
    }
    return mix(digest_out(), context.total);
}

static uint64_t counters_used_after(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        int k;
        uint32_t h = in[i];
        for (k = 0; k < 5; k++) {
            g_expensive(&table[h % SLOTS]);
            if (table[h % SLOTS] & 3)
                break;
            h = hash(h);
        }
        out[i] = h + (uint32_t)k;
    }
    return digest_out();
}

static uint64_t rows_with_outer_counter(void)
{
    static uint32_t flat[5 * N];
    int k;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        for (k = 0; k < 4; k++)
            flat[5 * i + k] = table[AT(i)] + (uint32_t)k;
        flat[5 * i + 4] = 9;
    }
    uint64_t digest = 0;
    for (int i = 0; i < 5 * N; i++)
        digest = mix(digest, flat[i]);
    return digest;
}

static uint64_t address_of_index_passed(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t key;
        memcpy(&key, &i, sizeof key);
        g_expensive(&table[hash(key) % SLOTS]);
        out[i] = table[hash(key) % SLOTS];
    }
    return digest_out();
}

static bool stop_at(uint32_t key)
{
    return key == UINT32_MAX;
}

static uint64_t pure_condition(void)
{
    uint32_t last;
    for (int i = 0; i < N && !stop_at(in[i]); i++) { /* batch */
        last = in[i];
        g_expensive(&table[last % SLOTS]);
        out[i] = table[last % SLOTS];
    }
    return digest_out();
}

static uint64_t min_max_pairs(void)
{
    struct {
        uint32_t low, high;
    } bounds[4] = {{UINT32_MAX, 0}, {UINT32_MAX, 0}, {UINT32_MAX, 0}, {UINT32_MAX, 0}};
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        uint32_t v = table[AT(i)], k = in[i] & 3;
        if (v < bounds[k].low)
            bounds[k].low = v;
        if (v > bounds[k].high)
            bounds[k].high = v;
    }
    uint64_t digest = 0;
    for (int k = 0; k < 4; k++)
        digest = mix(mix(digest, bounds[k].low), bounds[k].high);
    return digest;
}

int main(int argc, char **argv)
{
    static const case_entry cases[] = {
        CASE(errno_constant), CASE(optional_results), CASE(double_buffer), CASE(csr_pull), CASE(count_triangles),
        CASE(btree), CASE(packed_rows), CASE(partial_sums), CASE(sum_of_calls_alone), CASE(steps_of_moving_places),
        CASE(short_circuit_effects), CASE(nested_conditionals), CASE(loops_with_calls), CASE(switch_on_call),
        CASE(tail_call_with_pointer), CASE(reductions_in_holder), CASE(bits_of_flags), CASE(local_recursion_data),
        CASE(widths), CASE(sentinel_pointers), CASE(backwards_by_two), CASE(columns),
        CASE(two_batches_with_shared_names), CASE(gnu_case), CASE(paper_shape), CASE(alias_of_own_place),
        CASE(constant_pointer_of_file), CASE(from_malloc), CASE(chosen_target), CASE(called_in_place),
        CASE(context_pointer), CASE(counters_used_after), CASE(rows_with_outer_counter),
        CASE(address_of_index_passed), CASE(pure_condition), CASE(min_max_pairs),
    };
    return run_cases(cases, (int)(sizeof cases / sizeof *cases), argc, argv);
}
