/* Types and declarations inside lookups. */
#include "common.h"
#include <stdbool.h>

static uint64_t local_struct(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        struct pair {
            uint32_t key, place;
        } pair = {in[i], hash(in[i]) % SLOTS};
        g_expensive(&table[pair.place]);
        out[i] = table[pair.place] ^ pair.key;
    }
    return digest_out();
}

static uint64_t anonymous_struct(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        struct {
            const node *at;
            int depth;
        } stack[40];
        int top = 0;
        uint32_t sum = 0;
        stack[top].at = heads[in[i] % (SLOTS / 4)];
        stack[top++].depth = 0;
        while (top > 0) {
            const node *n = stack[--top].at;
            int depth = stack[top].depth;
            if (!n || depth > 30) {
                continue;
            }
            g_expensive(n);
            sum += n->value * (uint32_t)(depth + 1);
            stack[top].at = n->next;
            stack[top++].depth = depth + 1;
        }
        out[i] = sum;
    }
    return digest_out();
}

static uint64_t local_enum_and_typedef(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        enum state { EMPTY, FULL = 5 };
        typedef uint32_t word;
        enum state state = in[i] & 1 ? FULL : EMPTY;
        word w = in[i] % SLOTS;
        g_expensive(&table[w]);
        out[i] = state == FULL ? (word)table[w] : 9;
    }
    return digest_out();
}

static uint64_t same_tag_twice(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = in[i] % SLOTS;
        if (h & 1) {
            struct s { uint32_t a; } s = {h};
            g_expensive(&table[s.a]);
            out[i] = table[s.a];
        } else {
            struct s { uint64_t b; uint32_t c; } s = {h, 3};
            g_expensive(&table[s.b]);
            out[i] = table[s.b] + s.c;
        }
    }
    return digest_out();
}

static uint64_t array_sizes(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t places[] = {in[i] % SLOTS, hash(in[i]) % SLOTS, (in[i] + 7) % SLOTS};
        char text[] = "abc";
        int fixed[4] = {1, [2] = 5};
        uint32_t sum = 0;
        for (unsigned k = 0; k < sizeof places / sizeof places[0]; k++) {
            g_expensive(&table[places[k]]);
            sum += table[places[k]] + (uint32_t)text[k] + (uint32_t)fixed[k];
        }
        out[i] = sum + sizeof text;
    }
    return digest_out();
}

static uint64_t typeof_and_auto(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        __typeof__(in[i]) key = in[i];
        __auto_type place = &table[key % SLOTS];
        __typeof__(*place) value;
        g_expensive(place);
        value = *place;
        __typeof__(uint32_t[3]) three = {value, key, 1};
        g_expensive(&table[three[0] % SLOTS]);
        out[i] = three[0] + three[1] + table[three[0] % SLOTS];
    }
    return digest_out();
}

static void variable_length(int length)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t seen[length];
        uint32_t h = in[i];
        for (int k = 0; k < length; k++) {
            g_expensive(&table[h % SLOTS]);
            h = table[h % SLOTS];
            seen[k] = h;
        }
        out[i] = seen[0] ^ seen[length - 1] ^ (uint32_t)sizeof seen;
    }
}

static uint64_t invariant_length(void)
{
    variable_length(5);
    return digest_out();
}

static uint64_t bounded_length(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        int length = (int)(in[i] & 7) + 1;
#pragma gopt bound 8
        uint32_t seen[length];
        uint32_t h = in[i];
        for (int k = 0; k < length; k++) {
            g_expensive(&table[h % SLOTS]);
            h = table[h % SLOTS];
            seen[k] = h;
        }
        out[i] = seen[0] ^ seen[length - 1];
    }
    return digest_out();
}

static uint64_t short_lived_length(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        int length = (int)(in[i] & 7) + 1;
        uint32_t copy[length];
        for (int k = 0; k < length; k++) {
            copy[k] = table[(in[i] + (uint32_t)k) % SLOTS];
        }
        out[i] = copy[length - 1];
    }
    return digest_out();
}

union word {
    uint32_t whole;
    uint8_t bytes[4];
    struct {
        uint16_t low, high;
    };
};

struct fields {
    unsigned a : 5, b : 11;
    signed c : 7;
    uint64_t rest : 41;
};

static uint64_t unions_and_bits(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        union word word = {in[i]};
        struct fields fields = {.a = in[i], .c = -3};
        g_expensive(&table[word.low % SLOTS]);
        fields.b = table[word.low % SLOTS];
        word.bytes[1] ^= 0x55;
        g_expensive(&table[(word.whole + fields.a) % SLOTS]);
        fields.rest += table[(word.whole + fields.a) % SLOTS] * 3ull;
        out[i] = word.whole + fields.b + (uint32_t)fields.c + (uint32_t)fields.rest;
    }
    return digest_out();
}

struct result {
    uint32_t value;
    bool found;
    const node *at;
};

static struct result by_value(struct result from, uint32_t key)
{
    struct result result = {0};
    for (const node *n = heads[hash(key) % (SLOTS / 4)]; n; n = n->next) {
        g_expensive(n);
        if (n->key == key) {
            result.value = n->value + from.value;
            result.found = true;
            result.at = n;
            return result;
        }
    }
    from.value++;
    return from;
}

static uint64_t structs_by_value(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        struct result begin = {(uint32_t)i, false, NULL};
        struct result result = by_value(begin, in[i]);
        struct result copy = result;
        out[i] = copy.value + copy.found + (copy.at ? copy.at->key : 0);
    }
    return digest_out();
}

static uint64_t constant_table(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        static const uint8_t shifts[4] = {1, 3, 7, 12};
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] >> shifts[in[i] & 3];
    }
    return digest_out();
}

static uint64_t aligned_array(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t lanes[16] __attribute__((aligned(64)));
        for (int k = 0; k < 16; k++) {
            lanes[k] = in[i] + (uint32_t)k;
        }
        g_expensive(&table[lanes[3] % SLOTS]);
        out[i] = table[lanes[3] % SLOTS] + (uint32_t)((uintptr_t)lanes % 64);
    }
    return digest_out();
}

static uint64_t qualified(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        const uint32_t key = in[i];
        const uint32_t *const restrict place = &table[key % SLOTS];
        register int k = 3;
        const struct result fixed = {key, true, &nodes[key % SLOTS]};
        g_expensive(place);
        uint32_t sum = *place + (uint32_t)k;
        g_expensive(fixed.at);
        out[i] = sum + fixed.at->value + fixed.value;
    }
    return digest_out();
}

static uint64_t pointers_to_locals(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t a = in[i], b = hash(in[i]);
        uint32_t *which = a & 1 ? &a : &b;
        uint32_t array[4] = {a, b, 3, 4};
        uint32_t *inside = &array[a & 3];
        g_expensive(&table[*which % SLOTS]);
        *which += table[*which % SLOTS];
        g_expensive(&table[*inside % SLOTS]);
        *inside ^= table[*inside % SLOTS];
        out[i] = a ^ b ^ array[0] ^ array[1] ^ array[2] ^ array[3];
    }
    return digest_out();
}

static uint64_t hidden_names(void)
{
    uint32_t key = 4;
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t value = in[i] + key;
        {
            uint32_t value = hash(in[i]);
            g_expensive(&table[value % SLOTS]);
            uint32_t table_ = table[value % SLOTS];
            {
                uint32_t in = table_;
                g_expensive(&table[in % SLOTS]);
                value = table[in % SLOTS];
            }
            out[i] = value;
        }
        out[i] += value;
    }
    return digest_out();
}

static uint64_t compound_literals(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        const uint32_t *two = (const uint32_t[]){in[i] % SLOTS, 7};
        uint32_t first = two[0];
        g_expensive(&table[first]);
        struct result r = (struct result){.value = table[first], .found = true};
        g_expensive(&table[r.value % SLOTS]);
        r = (struct result){table[r.value % SLOTS] + r.value, false, NULL};
        out[i] = r.value + r.found;
    }
    return digest_out();
}

static uint64_t floating(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        double x = in[i] * 0.25;
        float y = 1.5f;
        g_expensive(&table[in[i] % SLOTS]);
        x += table[in[i] % SLOTS];
        y = (float)(x / 3);
        out[i] = (uint32_t)((uint64_t)x & 0xffff) + (y > 100.0f);
    }
    return digest_out();
}

int main(int argc, char **argv)
{
    static const case_entry cases[] = {
        CASE(local_struct), CASE(anonymous_struct), CASE(local_enum_and_typedef), CASE(same_tag_twice),
        CASE(array_sizes), CASE(typeof_and_auto), CASE(invariant_length), CASE(bounded_length),
        CASE(short_lived_length), CASE(unions_and_bits), CASE(structs_by_value), CASE(constant_table),
        CASE(aligned_array), CASE(qualified), CASE(pointers_to_locals), CASE(hidden_names), CASE(compound_literals),
        CASE(floating),
    };
    return run_cases(cases, (int)(sizeof cases / sizeof *cases), argc, argv);
}
