/* Control flow, reductions and extensions in less common forms. */
#include "common.h"
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

#define AT(i) (hash(in[i]) % SLOTS)
#define FOR_KEYS(key, ...) for (int at = 0; at < N; at++) { const uint32_t key = in[at]; __VA_ARGS__ }
#define WHEN(condition, ...) do { if (condition) { __VA_ARGS__ } } while (0)

static uint64_t foreach_three_deep(void)
{
    foreach (i, N) { /* batch */
        uint32_t h = in[i], sum = 0;
        foreach (k, 2) {
            foreach (m, 3) {
                h = hash(h + (uint32_t)(k * 3 + m));
                g_expensive(&table[h % SLOTS]);
                sum += table[h % SLOTS] >> m;
            }
        }
        out[i] = sum;
    }
    return digest_out();
}

static uint64_t foreach_hides_index(void)
{
    foreach (i, N) { /* batch */
        uint32_t own = in[i];
        foreach (i, 4) {
            own ^= (uint32_t)i * 7u;
        }
        g_expensive(&table[own % SLOTS]);
        out[i] = table[own % SLOTS];
    }
    return digest_out();
}

static uint64_t body_in_macro(void)
{
    FOR_KEYS(key, g_expensive(&table[key % SLOTS]); out[at] = table[key % SLOTS];) /* batch */
    return digest_out();
}

static uint64_t nested_macros(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t value = 0;
        WHEN(in[i] & 1, g_expensive(&table[AT(i)]); WHEN(table[AT(i)] & 2, value = table[AT(i)];););
        out[i] = value;
    }
    return digest_out();
}

static uint64_t break_from_switch_in_loop(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = in[i], n = 0;
        for (;;) {
            g_expensive(&table[h % SLOTS]);
            switch (table[h % SLOTS] & 7) {
            case 0:
                n += 100;
                goto done;
            case 1:
            case 2:
                h = hash(h);
                if (++n > 6)
                    goto done;
                continue;
            case 3: {
                uint32_t k = n++;
                while (k--) {
                    h ^= k;
                    if (h % 5 == 0)
                        break;
                }
                break;
            }
            default:
                n++;
                break;
            }
            if (n > 8)
                break;
            h = h * 5 + 1;
        }
    done:
        out[i] = n + h;
    }
    return digest_out();
}

static uint64_t switch_with_inner_labels(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t v = 0;
        int k = 1;
        switch (in[i] % 4) {
        case 0:
            for (k = 0; k < 2; k++) {
        case 1:
                g_expensive(&table[AT(i)]);
                v += table[AT(i)];
            }
            break;
        case 2:
            if (in[i] & 8) {
        default:
                v = 3;
            }
        }
        out[i] = v;
    }
    return digest_out();
}

static uint64_t goto_backwards_and_forwards(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = AT(i), tries = 0;
        if (in[i] % 3 == 0)
            goto second;
    first:
        g_expensive(&table[h]);
        h = table[h] % SLOTS;
        tries++;
    second:
        if (tries < (in[i] & 3))
            goto first;
        if (tries == 2)
            goto next;
        out[i] = h + tries;
        continue;
    next:
        out[i] = ~h;
    }
    return digest_out();
}

static uint64_t ternaries(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        const node *n = &nodes[AT(i)];
        g_expensive(n);
        const node *m = n->value & 1 ? n->next : n->value & 2 ? heads[3] : NULL;
        g_expensive(m);
        out[i] = m ? m->key ? m->value : 7 : n->value ?: 9;
    }
    return digest_out();
}

static uint64_t commas(void)
{
    int i, steps;
    for (i = 0, steps = 0; i < N; i++, steps += 2) { /* batch */
        uint32_t a, b;
        a = (b = in[i], b ^= 3, b % SLOTS);
        g_expensive(&table[a]);
        out[i] = (b++, table[a] + b), out[i] += (uint32_t)steps;
    }
    return mix(digest_out(), (uint64_t)steps);
}

typedef struct {
    uint32_t key;
    union {
        uint64_t whole;
        struct {
            uint32_t low, high;
        };
        uint8_t bytes[8];
    };
    unsigned flag : 1, kind : 3;
    signed delta : 6;
    bool set;
} mixed;

static mixed rows[N];

static mixed made(uint32_t key)
{
    mixed m = {.key = key, .flag = key & 1, .kind = key & 7, .delta = -5};
    g_expensive(&table[key % SLOTS]);
    m.low = table[key % SLOTS];
    m.bytes[5] = 9;
    m.set = m.low & 4;
    return m;
}

static uint64_t struct_copies(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        mixed one = made(in[i]), two;
        two = one;
        two.kind++;
        two.delta -= 3;
        two.high ^= one.low;
        rows[i] = two;
        rows[i].key += one.key;
        out[i] = (uint32_t)(rows[i].delta + rows[i].kind * 8);
    }
    uint64_t digest = digest_out();
    for (int i = 0; i < N; i++) {
        digest = mix(mix(digest, rows[i].whole), rows[i].key + rows[i].flag + rows[i].set);
    }
    return digest;
}

static uint64_t struct_array_copy(void)
{
    struct block {
        uint32_t v[6];
    };
    static struct block blocks[N];
    for (int i = 0; i < N; i++) { /* batch */
        struct block own = {{in[i], [3] = 7}}, other;
        g_expensive(&table[own.v[0] % SLOTS]);
        own.v[5] = table[own.v[0] % SLOTS];
        memcpy(&other, &own, sizeof other);
        other.v[1] = 4;
        blocks[i] = in[i] & 1 ? own : other;
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++) {
        digest = mix(mix(digest, blocks[i].v[5]), blocks[i].v[1]);
    }
    return digest;
}

static uint64_t bit_field_sums(void)
{
    struct counts {
        unsigned small : 3, wide : 20;
        signed both : 9;
    } counts = {0};
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        counts.small++;
        counts.wide += table[AT(i)] & 0xfff;
        counts.both -= 1;
    }
    return mix(mix(counts.small, counts.wide), (uint64_t)counts.both);
}

typedef uint32_t row4[4];
typedef const struct node *const *heads_type;
typedef uint32_t (*reader)(uint32_t);

static uint64_t typedef_types(void)
{
    static row4 results[N];
    heads_type all = (heads_type)heads;
    for (int i = 0; i < N; i++) { /* batch */
        row4 own = {1, 2, 3, in[i]};
        row4 *to = &results[i];
        const struct node *n = all[in[i] % (SLOTS / 4)];
        g_expensive(n);
        own[2] = n ? n->value : 0;
        (*to)[0] = own[2];
        (*to)[3] = own[3] ^ own[0];
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++) {
        digest = mix(mix(digest, results[i][0]), results[i][3]);
    }
    return digest;
}

static uint32_t twice(uint32_t x)
{
    return x * 2;
}

static uint32_t read_table(uint32_t x)
{
    return table[x % SLOTS];
}

static uint64_t local_function_pointer(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        reader f = in[i] & 1 ? twice : read_table;
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = f(in[i]) + (*f)(3) + (in[i] & 2 ? twice : read_table)(in[i]);
    }
    return digest_out();
}

struct operations {
    reader read;
    uint32_t add;
};
static const struct operations choices[2] = {{twice, 3}, {read_table, 4}};

static uint64_t constant_operations(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        const struct operations *own = &choices[in[i] & 1];
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = own->read(table[in[i] % SLOTS]) + own->add;
    }
    return digest_out();
}

static uint32_t sum_of(int count, ...)
{
    va_list list;
    uint32_t sum = 0;
    va_start(list, count);
    while (count-- > 0) {
        sum += va_arg(list, uint32_t);
    }
    va_end(list);
    return sum;
}

static uint64_t variadic(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        char text[24];
        g_expensive(&table[AT(i)]);
        snprintf(text, sizeof text, "%u:%d", table[AT(i)], i);
        out[i] = sum_of(3, in[i], table[AT(i)], (uint32_t)text[1]);
    }
    return digest_out();
}

static unsigned ackermann(unsigned m, unsigned n)
{
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

static uint64_t recursion_without_marker(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        out[i] = ackermann(table[AT(i)] & 1, in[i] & 3);
    }
    return digest_out();
}

static long long grand_total;
static unsigned char tiny;
static short little;
static uint64_t masks[4];

static uint64_t sums_of_every_type(void)
{
    grand_total = 7;
    tiny = 250;
    little = SHRT_MAX - 3;
    memset(masks, 0, sizeof masks);
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = AT(i);
        g_expensive(&table[h]);
        grand_total -= (long long)table[h] * 3;
        tiny += (unsigned char)table[h];
        little -= 2;
        masks[h & 3] |= 1ull << (table[h] & 63);
        masks[3] |= 1;
    }
    return mix(mix((uint64_t)grand_total, tiny), mix((uint64_t)little, masks[1] ^ masks[2] ^ masks[3]));
}

static uint64_t signed_overflow(void)
{
    int total = INT_MAX - 1000;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        total += i & 1 ? 1000 : -1000;
    }
    return (uint64_t)total;
}

static void reduce(const uint32_t *keys, int n, struct operations *unused, uint64_t *sum, uint32_t *most, int *count)
{
    (void)unused;
    for (int i = 0; i < n; i++) { /* batch */
        const uint32_t *place = &table[hash(keys[i]) % SLOTS];
        g_expensive(place);
        *sum += *place;
        *most = *place > *most ? *place : *most;
        if (*place & 1)
            ++*count;
        else
            count[1]--;
    }
}

static uint64_t through_pointers(void)
{
    uint64_t sum = 5;
    uint32_t most = 0;
    int count[2] = {0, 0};
    reduce(in, N, NULL, &sum, &most, count);
    return mix(mix(sum, most), (uint64_t)(count[0] * 1000 + count[1]));
}

static uint64_t reduce_through_own_pointer(void)
{
    struct statistics {
        uint32_t hits, sum[4];
    } statistics = {0}, *to = &statistics;
    uint32_t *hits = &to->hits;
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        (*hits)++;
        to->sum[in[i] & 3] += table[AT(i)];
    }
    return mix(mix(statistics.hits, statistics.sum[0]), statistics.sum[3]);
}

static uint64_t pointer_and_index(void)
{
    uint32_t *to = out;
    const uint32_t *from = in, *const end = in + N;
    int i = 0;
    for (; from < end; from++, ++to, i += 3) { /* batch */
        g_expensive(&table[*from % SLOTS]);
        *to = table[*from % SLOTS] + (uint32_t)i;
    }
    return mix(digest_out(), (uint64_t)i + (uint64_t)(to - out));
}

static uint64_t pointer_downwards(void)
{
    const uint32_t *from = in + N;
    uint32_t *to = out + N;
    while (from-- != in) { /* batch */
        g_expensive(&table[*from % SLOTS]);
        *--to = table[*from % SLOTS];
    }
    return digest_out();
}

static uint64_t do_downwards(void)
{
    unsigned left = N;
    do { /* batch */
        left--;
        g_expensive(&table[in[left] % SLOTS]);
        out[left] = table[in[left] % SLOTS];
    } while (left > 0);
    return mix(digest_out(), left);
}

static uint64_t while_true_body(void)
{
    int i = 0;
    while (i != N) { /* batch */
        const int own = i++;
        g_expensive(&table[in[own] % SLOTS]);
        if (table[in[own] % SLOTS] & 1)
            continue;
        out[own] = 1 + table[in[own] % SLOTS];
    }
    return digest_out();
}

static uint64_t statement_expressions(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t v = ({
            uint32_t k = in[i] % SLOTS;
            g_expensive(&table[k]);
            uint32_t t = table[k];
            if (t & 1) {
                t = ({ g_expensive(&table[t % SLOTS]); table[t % SLOTS]; });
            }
            t;
        }) + 1;
        out[i] = v ? v : ({ out[i] = 4; 3u; });
    }
    return digest_out();
}

#define KIND(x) _Generic((x), uint32_t: 1u, int: 2u, const uint32_t *: 3u, uint32_t *: 4u, default: 5u)

static uint64_t generic_selection(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        const uint32_t *place = &table[AT(i)];
        g_expensive(place);
        out[i] = *place + KIND(i) + KIND(in[i]) * 10 + KIND(place) * 100 + KIND(2.0) * 1000;
    }
    return digest_out();
}

static uint64_t designated(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        struct {
            uint32_t a[4];
            struct {
                int x, y;
            } p[2];
            const node *n;
        } v = {.a = {[1] = in[i], [3] = 8}, .p[1].y = 4, .p[0] = {.x = i}, .n = &nodes[AT(i)]};
        g_expensive(v.n);
        uint32_t list[] = {[5] = v.n->value, [0 ... 2] = 6, v.a[1]};
        out[i] = list[5] + list[1] + list[3] + v.a[1] + (uint32_t)(v.p[1].y + v.p[0].x) + (uint32_t)sizeof list;
    }
    return digest_out();
}

static atomic_uint done;
static _Atomic uint64_t total_of_all;

static uint64_t c11_atomics(void)
{
    atomic_store(&done, 0);
    atomic_init(&total_of_all, 3);
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        atomic_fetch_add_explicit(&done, 1, memory_order_relaxed);
        atomic_fetch_xor_explicit(&total_of_all, table[AT(i)], memory_order_relaxed);
    }
    return mix(done, total_of_all);
}

static uint64_t extremes_of_members(void)
{
    struct {
        int64_t least;
        uint8_t most;
    } range = {INT64_MAX, 0};
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        const uint8_t byte = (uint8_t)table[AT(i)];
        const int64_t wide = (int64_t)table[AT(i)] - 5;
        if (wide < range.least)
            range.least = wide;
        if (range.most < byte) {
            range.most = byte;
        }
    }
    return mix((uint64_t)range.least, range.most);
}

static double weights[N], shares[N];

static uint64_t own_floats(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        double sum = 0.5;
        for (int k = 0; k < 4; k++) {
            uint32_t h = hash(in[i] + (uint32_t)k) % SLOTS;
            g_expensive(&table[h]);
            sum += table[h] / 7.0;
        }
        weights[i] = sum;
        shares[i] += weights[i] / (i + 1);
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++) {
        digest = mix(digest, (uint64_t)(weights[i] + shares[i]));
    }
    return digest;
}

static uint64_t empty_and_missing(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        ;
        if (in[i] & 1)
            ;
        else
            g_expensive(&table[AT(i)]);
        for (;;) {
            if (table[AT(i)] | 1)
                break;
        }
        {
        }
        out[i] = table[AT(i)];
    }
    return digest_out();
}

static uint64_t const_and_restrict(const uint32_t *restrict from, uint32_t *restrict to, size_t n)
{
    for (size_t i = 0; i < n; ++i) { /* batch */
        const uint32_t *const restrict place = table + from[i] % SLOTS;
        g_expensive(place);
        to[i] = *place;
    }
    return digest_out();
}

static uint64_t restricted(void)
{
    return const_and_restrict(in, out, N);
}

static uint64_t rows_of_rows(void)
{
    static uint32_t cube[N][3][5];
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        uint32_t(*own)[5] = cube[i];
        for (int a = 0; a < 3; a++) {
            for (int b = 0; b < 5; b++) {
                own[a][b] = table[AT(i)] * (uint32_t)(a + 1) + (uint32_t)b;
            }
        }
        cube[i][2][4] ^= cube[i][0][1];
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++) {
        digest = mix(mix(digest, cube[i][2][4]), cube[i][1][3]);
    }
    return digest;
}

static int compare(const void *one, const void *two)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)two;
    return (a > b) - (a < b);
}

static uint64_t own_buffer(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t some[8];
        for (unsigned k = 0; k < 8; k++) {
            some[k] = hash(in[i] + k);
        }
        g_expensive(&table[some[0] % SLOTS]);
        some[3] = table[some[0] % SLOTS];
        for (unsigned k = 1; k < 8; k++) {
            for (unsigned m = k; m > 0 && compare(&some[m - 1], &some[m]) > 0; m--) {
                uint32_t swap = some[m];
                some[m] = some[m - 1];
                some[m - 1] = swap;
            }
        }
        out[i] = some[4] - some[0];
    }
    return digest_out();
}

static uint64_t index_of_outer_block(void)
{
    int i = 5;
    uint64_t digest = 0;
    {
        int i;
        for (i = 1; i <= N - 1; i += 2) { /* batch */
            g_expensive(&table[AT(i)]);
            out[i] = table[AT(i)];
        }
        digest = (uint64_t)i;
    }
    return mix(mix(digest_out(), (uint64_t)i), digest);
}

static uint64_t string_keys(void)
{
    static const char *const names[4] = {"zero", "one", "two", "three"};
    for (int i = 0; i < N; i++) { /* batch */
        const char *name = names[in[i] & 3];
        uint32_t h = 5381;
        for (const char *p = name; *p; p++) {
            h = h * 33 ^ (uint32_t)*p;
        }
        g_expensive(&table[h % SLOTS]);
        out[i] = table[h % SLOTS] + (uint32_t)(strcmp(name, "two") == 0 ? 1 : "abc"[in[i] % 3]);
    }
    return digest_out();
}

static uint64_t swaps_own_values(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t a = in[i], b = hash(a);
        const uint32_t *p = &a, *q = &b, *r;
        g_expensive(&table[*p % SLOTS]);
        if (table[*p % SLOTS] & 1) {
            r = p;
            p = q;
            q = r;
        }
        g_expensive(&table[*q % SLOTS]);
        out[i] = *p * 3 + *q + table[*q % SLOTS];
    }
    return digest_out();
}

static uint64_t two_level(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        for (const node *n = heads[in[i] % (SLOTS / 4)]; n; n = n->next) {
            g_expensive(n);
            for (const node *m = n; m; m = in[i] & 1 ? m->left : m->right) {
                g_expensive(m);
                if (m->key > in[i])
                    goto found;
            }
        }
        out[i] = 1;
        continue;
    found:
        out[i] = 2;
    }
    return digest_out();
}

static inline __attribute__((always_inline)) uint32_t probe_attribute(const uint32_t *restrict t, uint32_t h)
{
    g_expensive(&t[h % SLOTS]);
    return t[h % SLOTS];
}

static uint64_t attributes(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        __attribute__((unused)) uint32_t nothing = 1;
        uint32_t v __attribute__((aligned(16))) = probe_attribute(table, in[i]);
        if (__builtin_expect(v & 1, 0)) {
            v = __builtin_bswap32(v);
        }
        switch (v & 1) {
        case 0:
            v += 2;
            __attribute__((fallthrough));
        case 1:
            v += 1;
        }
        out[i] = v + (uint32_t)__builtin_popcount(v);
    }
    return digest_out();
}

static uint64_t unsigned_wrap(void)
{
    unsigned char i;
    for (i = 0; i < 200; i++) { /* batch */
        g_expensive(&table[AT(i)]);
        out[i] = table[AT(i)];
    }
    return mix(digest_out(), i);
}

static uint64_t negative_indices(void)
{
    for (int i = -N; i < 0; i++) { /* batch */
        g_expensive(&table[in[i + N] % SLOTS]);
        out[i + N] = table[in[i + N] % SLOTS];
    }
    return digest_out();
}

static uint64_t mirrored(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[N - 1 - i] = table[in[i] % SLOTS];
    }
    return digest_out();
}

static uint64_t long_literals(void)
{
    for (long i = 0L; i < (long)N; i += 1L) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = (uint32_t)(table[in[i] % SLOTS] * 0x1p-3 + 'a' + L'b' + 0b101);
    }
    return digest_out();
}

int main(int argc, char **argv)
{
    static const case_entry cases[] = {
        CASE(foreach_three_deep), CASE(foreach_hides_index), CASE(body_in_macro), CASE(nested_macros),
        CASE(break_from_switch_in_loop), CASE(switch_with_inner_labels), CASE(goto_backwards_and_forwards),
        CASE(ternaries), CASE(commas), CASE(struct_copies), CASE(struct_array_copy), CASE(bit_field_sums),
        CASE(typedef_types), CASE(local_function_pointer), CASE(constant_operations), CASE(variadic),
        CASE(recursion_without_marker), CASE(sums_of_every_type), CASE(signed_overflow), CASE(through_pointers),
        CASE(reduce_through_own_pointer), CASE(pointer_and_index), CASE(pointer_downwards), CASE(do_downwards),
        CASE(while_true_body), CASE(statement_expressions), CASE(generic_selection), CASE(designated),
        CASE(c11_atomics), CASE(extremes_of_members), CASE(own_floats), CASE(empty_and_missing), CASE(restricted),
        CASE(rows_of_rows), CASE(own_buffer), CASE(index_of_outer_block), CASE(string_keys), CASE(swaps_own_values),
        CASE(two_level), CASE(attributes), CASE(unsigned_wrap), CASE(negative_indices), CASE(mirrored),
        CASE(long_literals),
    };
    return run_cases(cases, (int)(sizeof cases / sizeof *cases), argc, argv);
}
