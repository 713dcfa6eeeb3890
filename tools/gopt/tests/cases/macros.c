/* Macros, headers and conditions of the preprocessor. */
#include "common.h"
#include "included.h"
#include <assert.h>

#define KEY (key + 1)
#define BATCH_BEGIN for (int i = 0; i < N; i++) {
#define BATCH_END }
#define READ(p) ({ g_expensive(p); *(p); })
#define LOCAL_NAMES value = table[slot] + key

static uint64_t marker_in_macro(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = hash(in[i]) % SLOTS;
        MISS(&table[h]);
        out[i] = table[h];
    }
    return digest_out();
}

static uint64_t marker_with_index(void)
{
    for_each (i, N) { /* batch */
        uint32_t h = hash(in[i]) % SLOTS;
        FETCH(table, h);
        out[i] = table[h];
    }
    return digest_out();
}

static uint64_t statement_expression(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = hash(in[i]) % SLOTS;
        out[i] = READ(&table[h]) + READ(&table[(h + 1) % SLOTS]) * 3;
    }
    return digest_out();
}

static uint64_t names_a_local(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t key = in[i];
        uint32_t slot = key % SLOTS;
        uint32_t value;
        g_expensive(&table[KEY % SLOTS]);
        LOCAL_NAMES;
        out[i] = value + KEY + table[KEY % SLOTS];
    }
    return digest_out();
}

static uint64_t in_header(void)
{
    included_total = 0;
    for (int i = 0; i < N; i++) { /* batch */
        out[i] = included_find(table, in[i]);
    }
    return mix(digest_out(), included_total);
}

static int probe(uint32_t key)
{
    g_expensive(&table[key % SLOTS]);
    return (int)(table[key % SLOTS] & 1);
}

static uint64_t likely_call(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        if (likely(probe(in[i]))) {
            out[i] = 1;
        } else if (unlikely(probe(in[i] + 1) && probe(in[i] + 2))) {
            out[i] = 2;
        }
    }
    return digest_out();
}

static uint64_t continue_in_macro(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        SKIP_IF(in[i] & 1);
        g_expensive(&table[in[i] % SLOTS]);
        SKIP_IF(table[in[i] % SLOTS] & 2);
        out[i] = table[in[i] % SLOTS];
    }
    return digest_out();
}

static uint64_t condition_inside(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = in[i] % SLOTS;
#ifdef SLOTS
        g_expensive(&table[h]);
#else
        this is no C
#endif
#if SLOTS == 1024u && \
    N > 3
        out[i] = table[h];
#endif
    }
    return digest_out();
}

static uint64_t whole_loop(void)
{
    BATCH_BEGIN /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
    BATCH_END
    return digest_out();
}

static uint64_t greater(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = max(table[in[i] % SLOTS], in[i] << 12);
    }
    return digest_out();
}

static uint64_t assertion(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        assert(table[in[i] % SLOTS] != 1 || in[i] != 2);
        out[i] = table[in[i] % SLOTS];
    }
    return digest_out();
}

#define DEFINE_FIND(name, shift)                                          \
    static uint32_t name(uint32_t key)                                    \
    {                                                                     \
        uint32_t h = hash(key) >> (shift);                                \
        g_expensive(&table[h % SLOTS]);                                   \
        return table[h % SLOTS];                                          \
    }
DEFINE_FIND(find_low, 0)
DEFINE_FIND(find_high, 5)

static uint64_t generated_functions(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        out[i] = find_low(in[i]) + find_high(in[i]);
    }
    return digest_out();
}

#define table_at(i) table_at(i, 0)
static uint32_t (table_at)(uint32_t i, int zero)
{
    return table[(i + (uint32_t)zero) % SLOTS];
}

static uint64_t painted_name(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table_at(in[i]);
    }
    return digest_out();
}

static uint64_t line_and_file(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + (uint32_t)strlen(__func__) + (uint32_t)__LINE__ * 0;
    }
    return digest_out();
}

static uint32_t named(uint32_t key)
{
    g_expensive(&table[key % SLOTS]);
    return table[key % SLOTS] + (uint32_t)sizeof __func__ + (uint32_t)__func__[1];
}

static uint64_t function_name(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        out[i] = named(in[i]);
    }
    return digest_out();
}

int main(int argc, char **argv)
{
    static const case_entry cases[] = {
        CASE(marker_in_macro), CASE(marker_with_index), CASE(statement_expression), CASE(names_a_local),
        CASE(in_header), CASE(likely_call), CASE(continue_in_macro), CASE(condition_inside), CASE(whole_loop),
        CASE(greater), CASE(assertion), CASE(generated_functions), CASE(painted_name), CASE(line_and_file),
        CASE(function_name),
    };
    return run_cases(cases, (int)(sizeof cases / sizeof *cases), argc, argv);
}
