/* Functions with markers, control flow, and variables outside the loop. */
#include "common.h"
#include <math.h>

static uint32_t find(const node *head, uint32_t key)
{
    for (const node *n = head; n != NULL; n = n->next) {
        g_expensive(n);
        if (n->key == key) {
            return n->value;
        }
    }
    return 0;
}

static uint64_t early_return(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        out[i] = find(heads[hash(in[i]) % (SLOTS / 4)], in[i]);
    }
    return digest_out();
}

static int lookup(uint32_t key, uint32_t *value)
{
    const node *n = heads[hash(key) % (SLOTS / 4)];
    while (n) {
        g_expensive(n);
        if (n->key == key) {
            *value = n->value;
            return 1;
        }
        n = n->next;
    }
    return 0;
}

static uint64_t out_parameter(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t value = 3;
        out[i] = lookup(in[i], &value) ? value : value + 1;
    }
    return digest_out();
}

static int always(uint32_t key, uint32_t *value)
{
    g_expensive(&table[key % SLOTS]);
    if (key & 1) {
        *value = 3;
        return 0;
    }
    *value = table[key % SLOTS];
    return 1;
}

static uint64_t declared_outside(void)
{
    int i, j, ok;
    uint32_t h, value, sum;
    const node *n;
    for (i = 0; i < N; i++) { /* batch */
        h = hash(in[i]) % (SLOTS / 4);
        sum = 0;
        for (j = 0; j < 3; j++) {
            g_expensive(&table[(h + (uint32_t)j) % SLOTS]);
            sum += table[(h + (uint32_t)j) % SLOTS];
        }
        for (n = heads[h]; n; n = n->next) {
            g_expensive(n);
            sum ^= n->value;
        }
        ok = always(in[i], &value);
        out[i] = sum + value + (uint32_t)ok;
    }
    j = 9;
    return mix(digest_out(), (uint64_t)j);
}

static uint64_t inside_other_loop(void)
{
    uint64_t digest = 0;
    int i, round;
    uint32_t h;
    for (round = 0; round < 3; round++) {
        for (i = 0; i < N; i++) { /* batch */
            h = (hash(in[i]) + (uint32_t)round) % SLOTS;
            g_expensive(&table[h]);
            out[i] = table[h] + h;
        }
        digest = mix(digest, digest_out());
    }
    return digest;
}

static uint64_t several_calls(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t a = in[i];
        out[i] = find(heads[a % (SLOTS / 4)], a) + find(heads[1], a) * find(heads[a & 3], 2) +
                 (find(heads[3], a) && find(heads[4], a) || find(heads[5], a)) +
                 (a & 1 ? find(heads[6], a) : a & 2 ? find(heads[7], a) : find(heads[8], a)) +
                 (a ? 1 : find(heads[9], a));
    }
    return digest_out();
}

static uint64_t in_conditions(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t a = in[i], steps = 0;
        while (find(heads[a % (SLOTS / 4)], a) & 1) {
            a = a * 5 + 1;
            if (++steps > 5) {
                break;
            }
        }
        do {
            a++;
            if (a % 3 == 0) {
                continue;
            }
            steps++;
        } while (find(heads[a % (SLOTS / 4)], a) && steps < 9);
        for (uint32_t k = find(heads[2], a) & 1; k < (find(heads[3], a) & 3) + 2; k += 1 + (find(heads[4], k) & 1)) {
            if (k == 1) {
                continue;
            }
            steps += k;
        }
        switch (find(heads[a % (SLOTS / 4)], a) % 4) {
        case 0:
            steps += 10;
            /* fall through */
        case 1:
            steps += find(heads[6], 6);
            break;
        case 2 ... 3:
            steps ^= 1;
            break;
        default:
            steps = 0;
        }
        out[i] = a + steps;
    }
    return digest_out();
}

static uint32_t tail(const node *n, uint32_t key, uint32_t depth)
{
    if (!n) {
        return depth;
    }
    g_expensive(n);
    if (n->key == key) {
        return n->value + depth;
    }
    return tail(hash(n->key) < hash(key) ? n->right : n->left, key, depth + 1);
}

static uint32_t tail_conditional(const node *n, uint32_t key)
{
    g_expensive(n);
    return n->key == key    ? n->value
           : n->next == NULL ? 7
                             : tail_conditional(n->next, key);
}

static void tail_void(const node *n, uint32_t key, uint32_t *result)
{
    if (!n) {
        return;
    }
    g_expensive(n);
    *result += n->value;
    if (n->key != key) {
        tail_void(n->next, key, result);
        return;
    }
    *result ^= 5;
}

static uint64_t tail_recursion(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t extra = 0;
        const node *head = heads[in[i] % (SLOTS / 4)];
        out[i] = tail(tree, in[i], 0);
        if (head) {
            out[i] += tail_conditional(head, in[i]);
        }
        tail_void(head, in[i], &extra);
        out[i] ^= extra;
    }
    return digest_out();
}

static unsigned depth_below(const node *n)
{
    return n ? 1 + depth_below(n->next) : 0;
}

static uint64_t plain_recursion(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + depth_below(heads[in[i] % (SLOTS / 4)]);
    }
    return digest_out();
}

static uint64_t jumps(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t h = in[i] % SLOTS, tries = 0;
    again:
        g_expensive(&table[h]);
        if (table[h] % 3 == 0 && tries++ < 4) {
            h = table[h] % SLOTS;
            goto again;
        }
        if (h & 1) {
            goto end;
        }
        out[i] = table[h];
        continue;
    end:
        out[i] = tries;
    }
    return digest_out();
}

static uint64_t memory(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t *own = malloc(2 * sizeof *own);
        if (!own) {
            continue;
        }
        own[0] = in[i];
        g_expensive(&table[own[0] % SLOTS]);
        own[1] = table[own[0] % SLOTS];
        out[i] = own[0] ^ own[1];
        free(own);
    }
    return digest_out();
}

static uint64_t library(void)
{
    static const char *const words[] = {"alpha", "beta", "gamma", "delta"};
    for (int i = 0; i < N; i++) { /* batch */
        char text[16];
        g_expensive(words[in[i] & 3]);
        strcpy(text, words[in[i] & 3]);
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = (uint32_t)strlen(text) + (uint32_t)(strcmp(text, "beta") == 0) + (uint32_t)abs((int)in[i]) +
                 (uint32_t)sqrt((double)table[in[i] % SLOTS]) + (memcmp(&in[i], &table[3], 4) > 0);
    }
    return digest_out();
}

static uint32_t twice(uint32_t x)
{
    return 2 * x;
}

static uint32_t third(uint32_t x)
{
    return x / 3;
}

static uint64_t function_pointers(void)
{
    static uint32_t (*const table_of_functions[])(uint32_t) = {twice, third, hash};
    for (int i = 0; i < N; i++) { /* batch */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table_of_functions[in[i] % 3](table[in[i] % SLOTS]);
    }
    return digest_out();
}

static uint32_t walk(const node *n, int (*wanted)(const node *, uint32_t), uint32_t key)
{
    while (n && !wanted(n, key)) {
        g_expensive(n->next);
        n = n->next;
    }
    return n ? n->value : 0;
}

static int has_key(const node *n, uint32_t key)
{
    return n->key == key;
}

static uint64_t callback(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        out[i] = walk(heads[hash(in[i]) % (SLOTS / 4)], has_key, in[i]);
    }
    return digest_out();
}

static uint64_t of_file_hidden(void)
{
    uint32_t *nodes = table;
    int tree = 3;
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t heads = in[i];
        out[i] = lookup(heads, &heads) + heads + nodes[3] + (uint32_t)tree;
    }
    return digest_out();
}

static uint64_t loop_of_markers(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t places[4], sum = 0;
        for (int k = 0; k < 4; k++) {
            places[k] = hash(in[i] + (uint32_t)k) % SLOTS;
        }
        for (int k = 0; k < 4; k++) {
            g_expensive(&table[places[k]]);
        }
        for (int k = 0; k < 4; k++) {
            sum += table[places[k]];
        }
        out[i] = sum;
    }
    return digest_out();
}

static uint64_t sizes(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        const node *n = &nodes[in[i] % SLOTS];
        g_expensive(n, sizeof *n);
        g_expensive(&table[in[i] % (SLOTS - 40)], 160);
        out[i] = n->value + table[in[i] % (SLOTS - 40) + 39];
    }
    return digest_out();
}

static uint64_t marker_runs(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t a = hash(in[i]) % SLOTS;
        g_expensive(&table[a]);
        uint32_t b = hash(in[i] ^ 0x5555) % SLOTS;
        g_expensive(&table[b]);
        uint32_t c = (a + b) % SLOTS;
        c ^= 1;
        g_expensive(&table[c]);
        out[i] = table[a] + table[b] * 3 + table[c] * 5;
    }
    return digest_out();
}

static uint64_t two_keys(void)
{
    uint32_t key, other;
    for (int i = 0; i < N; i++) { /* batch */
        if (in[i] & 1) {
            key = in[i];
            other = 1;
        } else {
            key = hash(in[i]);
            other = key;
        }
        g_expensive(&table[key % SLOTS]);
        out[i] = table[key % SLOTS] ^ other;
    }
    return digest_out();
}

static uint32_t side(uint32_t x)
{
    uint32_t y = x * 3;
    return y ^ 1;
}

static uint64_t sequence_points(void)
{
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t a = in[i], b;
        b = (a++, find(heads[a % (SLOTS / 4)], a));
        a += (b = side(b), b & 1) && find(heads[3], b++);
        out[i] = a ^ b;
    }
    return digest_out();
}

static uint64_t serial_insert(void)
{
    static uint32_t slots[2 * SLOTS];
    static int order[2 * SLOTS];
    int used = 0;
    memset(slots, 0, sizeof slots);
    for (int i = 0; i < N; i++) { /* batch */
        uint32_t key = in[i] | 1;
        uint32_t h = hash(key) % (2 * SLOTS);
        g_expensive(&slots[h]);
        if (key % 7 == 0) {
            continue;
        }
#pragma gopt serial
        while (slots[h] && slots[h] != key) {
            h = (h + 1) % (2 * SLOTS);
        }
        if (!slots[h]) {
            slots[h] = key;
            order[h] = used++;
        }
        out[i] = (uint32_t)order[h];
    }
    uint64_t digest = mix(digest_out(), (uint64_t)used);
    for (unsigned k = 0; k < 2 * SLOTS; k++) {
        digest = mix(digest, slots[k]);
    }
    return digest;
}

int main(int argc, char **argv)
{
    static const case_entry cases[] = {
        CASE(early_return), CASE(out_parameter), CASE(declared_outside), CASE(inside_other_loop), CASE(several_calls),
        CASE(in_conditions), CASE(tail_recursion), CASE(plain_recursion), CASE(jumps), CASE(memory), CASE(library),
        CASE(function_pointers), CASE(callback), CASE(of_file_hidden), CASE(loop_of_markers), CASE(sizes),
        CASE(marker_runs), CASE(two_keys), CASE(sequence_points), CASE(serial_insert),
    };
    return run_cases(cases, (int)(sizeof cases / sizeof *cases), argc, argv);
}
