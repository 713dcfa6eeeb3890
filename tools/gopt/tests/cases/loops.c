/* Forms of batch loops. */
#include "common.h"

static uint64_t index_before(void)
{
    int i;
    for (i = 0; i < N; i++) { /* batch */
        uint32_t h = hash(in[i]) % SLOTS;
        g_expensive(&table[h]);
        out[i] = table[h];
    }
    return mix(digest_out(), (uint64_t)i);
}

static int shared_index;

static uint64_t index_of_file(void)
{
    for (shared_index = 0; shared_index < N; shared_index++) { /* batch */
        uint32_t h = hash(in[shared_index]) % SLOTS;
        g_expensive(&table[h]);
        out[shared_index] = table[h];
    }
    return mix(digest_out(), (uint64_t)shared_index);
}

static uint32_t key_at_index(void)
{
    return in[shared_index] + (uint32_t)shared_index;
}

static uint64_t index_of_file_read_in_function(void)
{
    for (shared_index = 0; shared_index < N; shared_index++) { /* batch */
        uint32_t h = hash(in[shared_index]) % SLOTS;
        g_expensive(&table[h]);
        out[shared_index] = table[h] + key_at_index();
    }
    return mix(digest_out(), (uint64_t)shared_index);
}

static uint64_t while_up(void)
{
    int i = 0;
    while (i < N) { /* batch */
        uint32_t h = hash(in[i]) % SLOTS;
        g_expensive(&table[h]);
        out[i] = table[h];
        i++;
    }
    return mix(digest_out(), (uint64_t)i);
}

static uint64_t while_step_first(void)
{
    int i = -1;
    while (i < N - 1) { /* batch */
        ++i;
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
    }
    return mix(digest_out(), (uint64_t)i);
}

static uint64_t while_down(void)
{
    int left = N;
    while (left--) { /* batch */
        g_expensive(&table[in[left] % SLOTS]);
        out[left] = table[in[left] % SLOTS];
    }
    return mix(digest_out(), (uint64_t)left);
}

static uint64_t while_pointers(void)
{
    const uint32_t *from = in;
    uint32_t *to = out;
    int left = N;
    while (left-- > 0) { /* batch */
        uint32_t h = hash(*from++) % SLOTS;
        g_expensive(&table[h]);
        *to++ = table[h] ^ h;
    }
    return mix(digest_out(), (uint64_t)(to - out) + (uint64_t)(from - in));
}

static uint64_t pointer_loop(void)
{
    uint32_t *o = out;
    for (const uint32_t *p = in; p < in + N; p++) { /* batch */
        g_expensive(&table[*p % SLOTS]);
        out[p - in] = 0;
        (void)o;
        sizeof(*p);
    }
    return digest_out();
}

static uint64_t pointer_end(void)
{
    uint32_t sum = 0;
    const uint32_t *end = in + N;
    for (const uint32_t *p = in; p != end; ++p) { /* batch */
        g_expensive(&table[*p % SLOTS]);
        sum += table[*p % SLOTS];
    }
    return sum;
}

static uint64_t own_pointer(void)
{
    uint32_t *p;
    for (p = in; p < in + N; p++) { /* batch */
        uint32_t h = hash(*p) % SLOTS;
        g_expensive(&table[h]);
        *p = table[h];
    }
    uint64_t digest = 0;
    for (int i = 0; i < N; i++) {
        digest = mix(digest, in[i]);
    }
    return digest;
}

static uint64_t two_inductions(void)
{
    int i;
    const uint32_t *p;
    for (i = 0, p = in; i < N; i++, p++) { /* batch */
        g_expensive(&table[*p % SLOTS]);
        out[i] = table[*p % SLOTS];
    }
    return mix(digest_out(), (uint64_t)(p - in));
}

static uint64_t two_declared(void)
{
    for (int i = 0, k = N - 1; i < N; i++, k--) { /* batch */
        g_expensive(&table[in[k] % SLOTS]);
        out[i] = table[in[k] % SLOTS];
    }
    return digest_out();
}

static uint64_t downward(void)
{
    for (int i = N; i--;) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
    }
    return digest_out();
}

static uint64_t downward_compared(void)
{
    int i;
    for (i = N - 1; i >= 0; --i) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
    }
    return mix(digest_out(), (uint64_t)i);
}

static uint64_t strided(void)
{
    for (int i = 0; i < N - 2; i += 3) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
        out[i + 1] = out[i] + 1;
        out[i + 2] = in[i + 2];
    }
    return digest_out();
}

static uint64_t step_variable(int step)
{
    for (int i = 0; i < N; i += step) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
    }
    return digest_out();
}

static uint64_t step_of_two(void)
{
    return step_variable(2);
}

static int count_of(const uint32_t *keys)
{
    int n = 0;
    while (n < N && keys[n] != UINT32_MAX) {
        n++;
    }
    return n;
}

static uint64_t pure_bound(void)
{
    for (int i = 0; i < count_of(in); i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
    }
    return digest_out();
}

static uint64_t sentinel_bound(void)
{
    static uint32_t keys[N + 1];
    memcpy(keys, in, sizeof in);
    for (int i = 0; i < N; i++) {
        keys[i] |= 1;
    }
    for (int i = 0; keys[i]; i++) { /* batch */
        g_expensive(&table[keys[i] % SLOTS]);
        out[i] = table[keys[i] % SLOTS];
    }
    return digest_out();
}

static uint64_t bound_in_memory(void)
{
    struct {
        int count;
        const uint32_t *keys;
    } batch = {N, in};
    for (int i = 0; i < batch.count; i++) { /* batch */
        g_expensive(&table[batch.keys[i] % SLOTS]);
        out[i] = table[batch.keys[i] % SLOTS];
    }
    return digest_out();
}

static uint64_t do_while(void)
{
    int i = 0;
    do { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
    } while (++i < N);
    return mix(digest_out(), (uint64_t)i);
}

static uint64_t list_loop(void)
{
    uint32_t sum = 0, steps = 0;
    for (const node *n = heads[3]; n; n = n->next) { /* batch */
        g_expensive(&table[n->value % SLOTS]);
        sum += table[n->value % SLOTS];
        steps++;
    }
    return mix(sum, steps);
}

static uint64_t bursts(void)
{
    for (int b = 0; b + 32 <= N; b += 32) {
        for (int i = 0; i < 32; i++) { /* batch */
            g_expensive(&table[in[b + i] % SLOTS]);
            out[b + i] = table[in[b + i] % SLOTS];
        }
    }
    return digest_out();
}

static void burst(const uint32_t *keys, uint32_t *values, int n)
{
    for (int i = 0; i < n; i++) { /* batch */
        g_expensive(&table[keys[i] % SLOTS]);
        values[i] = table[keys[i] % SLOTS];
    }
}

static uint64_t burst_function(void)
{
    uint64_t digest = 0;
    for (int b = 0; b + 33 <= N; b += 33) {
        burst(in + b, out + b, 33);
        digest = mix(digest, out[b]);
    }
    return mix(digest, digest_out());
}

static uint64_t two_batches(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
    }
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = hash(out[i]) % SLOTS;
        g_expensive(&table[h]);
        if (table[h] & 1) {
            continue;
        }
        out[i] += table[h];
    }
    return digest_out();
}

static uint64_t tails(void)
{
    static const int sizes[] = {0, 1, 7, 33};
    uint64_t digest = 0;
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        burst(in, out, sizes[s]);
        digest = mix(digest, digest_out());
    }
    return digest;
}

static uint64_t nested_foreach(void)
{
    foreach (i, N) { /* batch */
        uint32_t h = in[i];
        foreach (k, 3) {
            h = hash(h) + (uint32_t)k;
        }
        g_expensive(&table[h % SLOTS]);
        out[i] = table[h % SLOTS];
    }
    return digest_out();
}

static uint64_t foreach_of_rows(void)
{
    foreach (i, N) { /* batch */
        uint32_t least = UINT32_MAX;
        foreach (k, 4) {
            uint32_t h = hash(in[i] + (uint32_t)k) % SLOTS;
            g_expensive(&table[h]);
            least = table[h] < least ? table[h] : least;
        }
        out[i] = least;
    }
    return digest_out();
}

static uint64_t unsigned_index(void)
{
    for (size_t i = 0; i != N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
    }
    return digest_out();
}

static uint64_t no_braces(void)
{
    for (int i = 0; i < N; i++) /* batch */
        if (in[i] & 1) {
            g_expensive(&table[in[i] % SLOTS]);
            out[i] = table[in[i] % SLOTS];
        } else
            out[i] = 3;
    return digest_out();
}

static uint64_t promised(void)
{
    static uint32_t unique[4 * SLOTS];
    memset(unique, 0, sizeof unique);
#pragma gopt independent
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t place = (uint32_t)i * 7 % (4 * SLOTS);
        g_expensive(&unique[place]);
        unique[place] = unique[place] * 3 + in[i];
    }
    uint64_t digest = 0;
    for (unsigned i = 0; i < 4 * SLOTS; i++) {
        digest = mix(digest, unique[i]);
    }
    return digest;
}

static uint64_t counter_in_body(void)
{
    uint32_t sequence = 5;
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t own = sequence++;
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] ^ own;
    }
    return mix(digest_out(), sequence);
}

int main(int argc, char **argv)
{
    static const case_entry cases[] = {
        CASE(index_before), CASE(index_of_file), CASE(index_of_file_read_in_function), CASE(while_up),
        CASE(while_step_first), CASE(while_down), CASE(while_pointers), CASE(pointer_loop), CASE(pointer_end),
        CASE(own_pointer), CASE(two_inductions), CASE(two_declared), CASE(downward), CASE(downward_compared),
        CASE(strided), CASE(step_of_two), CASE(pure_bound), CASE(sentinel_bound), CASE(bound_in_memory),
        CASE(do_while), CASE(list_loop), CASE(bursts), CASE(burst_function), CASE(two_batches), CASE(tails),
        CASE(nested_foreach), CASE(foreach_of_rows), CASE(unsigned_index), CASE(no_braces), CASE(promised),
        CASE(counter_in_body),
    };
    return run_cases(cases, (int)(sizeof cases / sizeof *cases), argc, argv);
}
