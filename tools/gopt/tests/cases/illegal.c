/*
 * Lookups that depend on each other, or that gopt does not transform. The test includes common.h
 * before each case. A case begins with four slashes and words of the reason. The refusal names the
 * line with the comment "refused".
 */
//// best is declared outside
void f(void)
{
    uint32_t best = 0;
    int at = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] > best) {
            best = table[in[i] % SLOTS]; /* refused */
            at = i;
        }
    }
    out[0] = best + (uint32_t)at;
}
//// sum of floating-point numbers
double f(void)
{
    double sum = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        sum += table[in[i] % SLOTS]; /* refused */
    }
    return sum;
}
//// sum of floating-point numbers
static float shared[16];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        shared[in[i] & 15] += 0.1f; /* refused */
    }
}
//// last is static
uint32_t memo(uint32_t key)
{
    static uint32_t last; /* refused */
    g_expensive(&table[key % SLOTS]);
    last = table[key % SLOTS] + last;
    return last;
}
void f(void)
{
    for (int i = 0; i < N; i++) {
        out[i] = memo(in[i]);
    }
}
//// n is declared outside
void f(int n)
{
    for (int i = 0; i < n; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] == 5) {
            n++; /* refused */
        }
        out[i] = table[in[i] % SLOTS];
    }
}
//// printf inside the lookup
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        printf("%u\n", table[in[i] % SLOTS]); /* refused */
    }
}
//// putchar_unlocked inside the lookup
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        putchar_unlocked((int)table[in[i] % SLOTS]); /* refused */
    }
}
//// lrand48 inside the lookup
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + (uint32_t)lrand48(); /* refused */
    }
}
//// rand inside the lookup
void f(void)
{
    foreach (i, N) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + (uint32_t)rand(); /* refused */
    }
}
//// gopt cannot see the function mystery
uint32_t mystery(uint32_t);
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = mystery(table[in[i] % SLOTS]); /* refused */
    }
}
//// volatile
void f(volatile uint32_t *port)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        *port = table[in[i] % SLOTS]; /* refused */
    }
}
//// volatile
static volatile int flag;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + (uint32_t)flag; /* refused */
    }
}
//// depends on the stack
#include <setjmp.h>
static jmp_buf place;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (setjmp(place)) { /* refused */
            continue;
        }
        out[i] = table[in[i] % SLOTS];
    }
}
//// alloca depends on the stack
#include <alloca.h>
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t *p = alloca(4); /* refused */
        g_expensive(&table[in[i] % SLOTS]);
        *p = table[in[i] % SLOTS];
        out[i] = *p;
    }
}
//// break ends the batch loop
int f(void)
{
    int i;
    for (i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] == 3) {
            break; /* refused */
        }
    }
    return i;
}
//// return inside the batch loop
int f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] == 3) {
            return i; /* refused */
        }
    }
    return -1;
}
//// goto out leaves the batch loop
int f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] == 3)
            goto out; /* refused */
    }
    return 0;
out:
    return 1;
}
//// others may read it
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t h = in[i] % SLOTS;
        g_expensive(&table[h]);
        uint32_t old = table[h];
        g_expensive(&nodes[old % SLOTS]);
        table[h] = old + nodes[old % SLOTS].value; /* refused */
    }
}
//// changed by lookups and read by others
static uint32_t rows[4][SLOTS];
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t least = UINT32_MAX;
        for (int k = 0; k < 4; k++) {
            g_expensive(&rows[k][hash(in[i] + k) % SLOTS]);
            if (rows[k][hash(in[i] + k) % SLOTS] < least) {
                least = rows[k][hash(in[i] + k) % SLOTS];
            }
        }
        for (int k = 0; k < 4; k++) {
            if (rows[k][hash(in[i] + k) % SLOTS] == least) {
                rows[k][hash(in[i] + k) % SLOTS]++; /* refused */
            }
        }
    }
}
//// others may read it
static uint32_t slots[SLOTS];
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t h = hash(in[i]) % SLOTS;
        g_expensive(&slots[h]);
        while (slots[h] && slots[h] != in[i]) {
            h = (h + 1) % SLOTS;
            g_expensive(&slots[h]);
        }
        slots[h] = in[i]; /* refused */
    }
}
//// not the lookup's own
static uint32_t fill[16], parts[16][N];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        uint32_t b = table[in[i] % SLOTS] & 15;
        parts[b][fill[b]++] = in[i]; /* refused */
    }
}
//// not the lookup's own
static uint32_t v[SLOTS];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        v[i % 16] = table[in[i] % SLOTS]; /* refused */
    }
}
//// written by one lookup and read by another
static uint32_t v[SLOTS];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        v[i] = table[in[i] % SLOTS] + v[i + 1]; /* refused */
    }
}
//// written by one lookup and read by another
static uint32_t v[SLOTS];
void f(void)
{
    for (int i = 1; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        v[i] = table[in[i] % SLOTS] + v[i - 1]; /* refused */
    }
}
//// same location
static uint32_t v[SLOTS];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        v[i] = 1;
        v[i + 1] = table[in[i] % SLOTS]; /* refused */
    }
}
//// written by one lookup and read by another
static uint32_t v[SLOTS];
void f(void)
{
    foreach (i, N) {
        g_expensive(&table[in[i] % SLOTS]);
        v[i + 1] = table[in[i] % SLOTS] + v[i]; /* refused */
    }
}
//// others may read it
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t h = in[i] % SLOTS;
        g_expensive(&table[h]);
        in[i] = table[h] + in[h % N]; /* refused */
    }
}
//// not the lookup's own
static uint32_t seen[SLOTS], order[N];
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t h = in[i] % SLOTS;
        g_expensive(&table[h]);
        seen[table[h] % SLOTS] = (uint32_t)i; /* refused */
    }
}
//// seen
static uint8_t seen[SLOTS];
static uint32_t count;
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t h = in[i] % SLOTS;
        g_expensive(&table[h]);
        if (!seen[table[h] % SLOTS]) {
            seen[table[h] % SLOTS] = 1; /* refused */
            count++;
        }
    }
}
//// sum is declared outside
void f(void)
{
    uint32_t sum = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        sum += table[in[i] % SLOTS]; /* refused */
        out[i] = sum;
    }
}
//// mixed is declared outside
uint32_t f(void)
{
    uint32_t mixed = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        mixed += table[in[i] % SLOTS];
        mixed ^= in[i]; /* refused */
    }
    return mixed;
}
//// digest is declared outside
uint32_t f(void)
{
    uint32_t digest = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        digest = digest * 31 + table[in[i] % SLOTS]; /* refused */
    }
    return digest;
}
//// last is declared outside
uint32_t f(void)
{
    uint32_t last = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        last = table[in[i] % SLOTS]; /* refused */
    }
    return last;
}
//// value is declared outside
void f(void)
{
    uint32_t value = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] & 1) {
            value = table[in[i] % SLOTS]; /* refused */
        }
        out[i] = value;
    }
}
//// the lookup changes i
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] & 1) {
            i++; /* refused */
        }
        out[i] = 1;
    }
}
//// k is declared outside
void f(void)
{
    int k = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] & 1) {
            out[k++] = in[i]; /* refused */
        }
    }
}
//// recursion: visit calls itself
uint32_t visit(const node *n)
{
    if (!n) {
        return 0;
    }
    g_expensive(n);
    return visit(n->left) + visit(n->right) + n->value; /* refused */
}
void f(void)
{
    for (int i = 0; i < N; i++) {
        out[i] = visit(tree);
    }
}
//// the address of a marker has a side effect
void f(void)
{
    uint32_t k = 0;
    for (int i = 0; i < N; i++) {
        uint32_t h = in[i];
        g_expensive(&table[h++ % SLOTS]); /* refused */
        out[i] = h;
    }
}
//// writes through a pointer of unknown origin
void f(uintptr_t where)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        *(uint32_t *)where = table[in[i] % SLOTS]; /* refused */
    }
}
//// same location
void f(uint32_t *result)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        *result = table[in[i] % SLOTS]; /* refused */
    }
}
//// same location
void f(void)
{
    foreach (i, N) {
        g_expensive(&table[in[i] % SLOTS]);
        out[3] = table[in[i] % SLOTS]; /* refused */
    }
}
//// not the lookup's own
void f(uint32_t **results)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        results[i][0] = table[in[i] % SLOTS]; /* refused */
    }
}
//// not the lookup's own
void f(uint8_t *bytes)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        memcpy(bytes + 2 * i, &table[in[i] % SLOTS], 4); /* refused */
    }
}
//// not the lookup's own
void f(uint32_t *flat, int width)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        for (int k = 0; k <= width; k++) {
            flat[i * width + k] = table[in[i] % SLOTS]; /* refused */
        }
    }
}
//// not the lookup's own
void f(uint32_t *v)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        v[(uint8_t)i] = table[in[i] % SLOTS]; /* refused */
    }
}
//// clock_ticks is declared outside
struct cached {
    uint32_t key, last_use;
    struct cached *next;
};
static struct cached *chains[SLOTS];
static uint32_t clock_ticks;
void f(void)
{
    for (int i = 0; i < N; i++) {
        struct cached *c = chains[in[i] % SLOTS];
        while (c && c->key != in[i]) {
            g_expensive(c);
            c = c->next;
        }
        if (c) {
            c->last_use = ++clock_ticks; /* refused */
        }
    }
}
//// hits
void f(void)
{
    for (int i = 0; i < N; i++) {
        node *n = heads[in[i] % SLOTS];
        g_expensive(n);
        if (n) {
            n->hits++; /* refused */
            out[i] = n->hits;
        }
    }
}
//// a call through a pointer
void f(uint32_t (*function)(uint32_t))
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = function(table[in[i] % SLOTS]); /* refused */
    }
}
//// inline assembly
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        __asm__ volatile("" : : : "memory"); /* refused */
        out[i] = table[in[i] % SLOTS];
    }
}
//// used before #pragma gopt serial
static uint32_t slots[SLOTS];
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t h = in[i] % SLOTS;
        g_expensive(&slots[h]);
        uint32_t old = slots[h]; /* refused */
#pragma gopt serial
        slots[h] = old * 3 + 1;
    }
}
//// serial belongs into the body
void f(void)
{
    uint32_t last = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] & 1) {
#pragma gopt serial /* refused */
            last = last * 3 + in[i];
        }
    }
    out[0] = last;
}
//// jumps over #pragma gopt serial
void f(void)
{
    uint32_t last = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] & 1) {
            goto end; /* refused */
        }
#pragma gopt serial
        last = last * 3 + in[i];
    end:
        last++;
    }
    out[0] = last;
}
//// an access with a marker after #pragma gopt serial
void f(void)
{
    uint32_t last = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
#pragma gopt serial
        last = last * 3 + table[in[i] % SLOTS];
        g_expensive(&table[last % SLOTS]); /* refused */
        last += table[last % SLOTS];
    }
    out[0] = last;
}
//// serial belongs into the body
static void add(uint32_t h)
{
    g_expensive(&table[h]);
#pragma gopt serial /* refused */
    table[h] = table[h] * 3;
}
void f(void)
{
    for (int i = 0; i < N; i++) {
        add(in[i] % SLOTS);
    }
}
//// this atomic operation orders
void f(void)
{
    unsigned done = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
        __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE); /* refused */
    }
}
//// ticket is declared outside
void f(void)
{
    unsigned ticket = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = __atomic_fetch_add(&ticket, table[in[i] % SLOTS], __ATOMIC_RELAXED); /* refused */
    }
}
//// is outside any batch loop
uint32_t f(void)
{
    g_expensive(&table[3]); /* refused */
    return table[3];
}
//// must step its index
void f(int (*more)(void))
{
    int i = 0;
    while (more()) { /* refused */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
        if (out[i]) {
            i++;
        }
    }
}
//// array of variable length
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t copy[in[i] % 9 + 1]; /* refused */
        copy[0] = 1;
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + copy[0];
    }
}
//// in the head of the batch loop
static uint32_t load(uint32_t i)
{
    g_expensive(&table[i % SLOTS]);
    return table[i % SLOTS];
}
void f(void)
{
    for (uint32_t i = 0; i < load(7) % N; i++) { /* refused */
        out[i] = load(i);
    }
}
//// the lookup frees memory
void f(void)
{
    for (int i = 0; i < N; i++) {
        node *n = heads[in[i] % SLOTS];
        g_expensive(n);
        free(n); /* refused */
    }
}
//// is not declared
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + some_variable; /* refused */
    }
}
//// names that begin with gopt_
void f(void)
{
    for (int i = 0; i < N; i++) {
        int gopt_x = 1; /* refused */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + (uint32_t)gopt_x;
    }
}
//// a computed goto
void f(void)
{
    for (int i = 0; i < N; i++) {
        void *place = &&there;
        g_expensive(&table[in[i] % SLOTS]);
        goto *place; /* refused */
    there:
        out[i] = table[in[i] % SLOTS];
    }
}
//// goto inside enters the batch loop
void f(int n)
{
    if (n == 3) {
        goto inside; /* refused */
    }
    for (int i = 0; i < n; i++) {
        out[i] = 0;
    inside:
        g_expensive(&table[in[i] % SLOTS]);
        out[i] += table[in[i] % SLOTS];
    }
}
//// static
void f(void)
{
    for (int i = 0; i < N; i++) {
        static int calls; /* refused */
        calls++;
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
    }
}
//// strtok inside the lookup
void f(char **lines)
{
    for (int i = 0; i < N; i++) {
        g_expensive(lines[i]);
        out[i] = strtok(lines[i], ",") != NULL; /* refused */
    }
}
//// table[] is written, and others may read it
void f(void)
{
    uint32_t *alias = &table[0];
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        alias[i] = table[in[i] % SLOTS]; /* refused */
    }
}
//// table[] is written, and others may read it
void f(void)
{
    uint32_t *alias;
    alias = table + 5;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        alias[i] = table[in[i] % SLOTS]; /* refused */
    }
}
//// table[] is written, and others may read it
void f(int which)
{
    uint32_t *alias = which ? table : out;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        alias[i] = table[in[i] % SLOTS]; /* refused */
    }
}
//// table[] is written, and others may read it
static uint32_t *alias = table;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        alias[i] = table[in[i] % SLOTS]; /* refused */
    }
}
//// table[] is written, and others may read it
void f(void)
{
    struct {
        uint32_t *to;
        const uint32_t *from;
    } both = {table, table};
    for (int i = 0; i < N; i++) {
        g_expensive(&both.from[in[i] % SLOTS]);
        both.to[i] = both.from[in[i] % SLOTS]; /* refused */
    }
}
//// to[] is written, and others may read it
static void copy(const uint32_t *from, uint32_t *to, int n)
{
    for (int i = 0; i < n; i++) {
        g_expensive(&from[in[i] % SLOTS]);
        to[i] = from[in[i] % SLOTS]; /* refused */
    }
}
void f(void)
{
    copy(table, table, N);
}
//// table[] is written, and others may read it
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t *alias = table;
        g_expensive(&table[in[i] % SLOTS]);
        alias[i] = table[in[i] % SLOTS]; /* refused */
    }
}
//// table[] is written, and others may read it
void f(void)
{
    uint8_t *bytes = (uint8_t *)table;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        bytes[i] = (uint8_t)table[in[i] % SLOTS]; /* refused */
    }
}
//// flat[] is written at a place that is not the lookup's own
static uint32_t flat[4 * N + 4];
void f(void)
{
    for (int i = 0; i < N; i++) {
        int k;
        g_expensive(&table[in[i] % SLOTS]);
        for (k = 0; k < 4; k++) {
            flat[4 * i + k] = table[in[i] % SLOTS];
        }
        flat[4 * i + k] = 1; /* refused */
    }
}
//// every lookup writes to the same location u.word
static union {
    uint32_t word;
    uint8_t bytes[4];
} u;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        u.word += table[in[i] % SLOTS];
        u.bytes[0]++; /* refused */
    }
}
//// hist[] is written at a place that is not the lookup's own
static uint32_t hist[64];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        hist[in[i] & 63] += table[in[i] % SLOTS];
        ((uint16_t *)hist)[in[i] & 127]++; /* refused */
    }
}
//// odd is declared outside the lookup and changed by it
static _Bool odd;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        odd ^= table[in[i] % SLOTS]; /* refused */
    }
}
//// odd is declared outside the lookup and changed by it
static _Bool odd;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        odd += (int)table[in[i] % SLOTS]; /* refused */
    }
}
//// bits is declared outside the lookup and changed by it
void f(void)
{
    uint32_t bits = 1;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        bits <<= table[in[i] % SLOTS] & 1; /* refused */
    }
    out[0] = bits;
}
//// product is declared outside the lookup and changed by it
void f(void)
{
    uint32_t product = 1;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        product = product % 1000003u * (table[in[i] % SLOTS] | 1); /* refused */
    }
    out[0] = product;
}
//// least is declared outside the lookup and changed by it
void f(void)
{
    uint32_t least = 9;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] < least)
            least = table[in[i] % SLOTS];
        least++; /* refused */
    }
    out[0] = least;
}
//// best is declared outside the lookup and changed by it
void f(void)
{
    uint32_t best = 9;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] > best && (in[i] & 1))
            best = table[in[i] % SLOTS]; /* refused */
    }
    out[0] = best;
}
//// counts[] is changed by lookups and read by others
static uint8_t counts[64];
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t h = in[i] & 63;
        g_expensive(&counts[h]);
        if (counts[h] < 255)
            counts[h]++; /* refused */
    }
}
//// state is declared outside the lookup and changed by it
static int state;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] & 1)
            state = 1;
        else
            state = 2; /* refused */
    }
}
//// state is declared outside the lookup and changed by it
static int state;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        state++;
        if (table[in[i] % SLOTS] & 1)
            state = 0; /* refused */
    }
}
//// every lookup writes to the same location out[]
void f(void)
{
    uint32_t *to = out;
    for (int i = 0; i < N - 1; i++, to++) {
        g_expensive(&table[in[i] % SLOTS]);
        *to = table[in[i] % SLOTS];
        to[1] = 3; /* refused */
    }
}
//// nodes[].hits is written by one lookup and read by another
void f(void)
{
    for (int i = 1; i < N; i++) {
        node *n = &nodes[i];
        g_expensive(n);
        n->hits = n[-1].hits + n->value; /* refused */
    }
}
//// out[] is written at a place that is not the lookup's own
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i / 2] = table[in[i] % SLOTS]; /* refused */
    }
}
//// out[] is written at a place that is not the lookup's own
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i & 63] = table[in[i] % SLOTS]; /* refused */
    }
}
//// out[] is written at a place that is not the lookup's own
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i ^ 1] = table[in[i] % SLOTS]; /* refused */
        out[i] = 3;
    }
}
//// flat[] is written at a place that is not the lookup's own
static uint32_t flat[4 * N];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        for (int k = 0; k < 4; k++) {
            flat[3 * i + k] = table[in[i] % SLOTS]; /* refused */
        }
    }
}
//// out[] is written at a place that is not the lookup's own
void f(void)
{
    for (unsigned i = 0; i < 300; i++) {
        unsigned char own = i;
        g_expensive(&table[in[i] % SLOTS]);
        out[own] = table[in[i] % SLOTS]; /* refused */
    }
}
//// the member value of a record is written, and others may read it
void f(void)
{
    for (int i = 0; i < N; i++) {
        node *n = heads[in[i] % (SLOTS / 4)];
        g_expensive(n);
        if (n)
            n->value = n->value * 3 + 1; /* refused */
    }
}
//// heads[] is written, and others may read it
void f(void)
{
    for (int i = 0; i < N; i++) {
        node **at = &heads[in[i] % (SLOTS / 4)], *first = *at;
        g_expensive(first);
        if (first && first->next) {
            *at = first->next; /* refused */
        }
    }
}
//// number is static, so all lookups share it
uint32_t next_number(void)
{
    static uint32_t number = 3; /* refused */
    return number++;
}
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + next_number();
    }
}
//// last is declared outside the lookup and changed by it
static _Thread_local uint32_t last;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = last;
        last = table[in[i] % SLOTS]; /* refused */
    }
}
//// last is declared outside the lookup and changed by it
static struct pair { uint32_t a, b; } last;
void f(void)
{
    for (int i = 0; i < N; i++) {
        struct pair own = {in[i], 3};
        g_expensive(&table[in[i] % SLOTS]);
        own.b = table[in[i] % SLOTS];
        last = own; /* refused */
    }
}
//// last[] is written at a place that is not the lookup's own
static uint32_t last[4];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        memcpy(last, &table[in[i] % 1000], sizeof last); /* refused */
    }
}
//// flat[] is written at a place that is not the lookup's own
static uint32_t flat[4 * N + 8];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        flat[4 * i] = table[in[i] % SLOTS];
        memset(&flat[4 * i], 1, 5 * sizeof flat[0]); /* refused */
    }
}
//// value is declared outside the lookup and changed by it
void f(void)
{
    uint32_t value;
    value = 3;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        switch (table[in[i] % SLOTS] & 3) {
        case 0:
            value = 4; /* refused */
            break;
        case 1:
            value = 5; /* refused */
        }
        out[i] = value;
    }
}
//// value is declared outside the lookup and changed by it
void f(void)
{
    uint32_t value = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        for (uint32_t k = 0; k < (table[in[i] % SLOTS] & 3); k++) {
            value = k; /* refused */
        }
        out[i] = value;
    }
}
//// value is declared outside the lookup and changed by it
void f(void)
{
    uint32_t value = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] & 1)
            goto skip;
        value = in[i]; /* refused */
    skip:
        out[i] = value;
    }
}
//// value is declared outside the lookup and changed by it
static int maybe(uint32_t key, uint32_t *value)
{
    if (key & 1) {
        *value = key; /* refused */
        return 1;
    }
    return 0;
}
void f(void)
{
    uint32_t value = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        maybe(table[in[i] % SLOTS], &value); /* refused */
        out[i] = value;
    }
}
//// every lookup writes to the same location s.now
void f(void)
{
    struct {
        uint32_t last, now;
    } s = {0, 0};
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        s.now = table[in[i] % SLOTS]; /* refused */
        out[i] = s.now - s.last;
        s.last = s.now; /* refused */
    }
}
//// stop is declared outside the lookup and changed by it
void f(void)
{
    int stop = 0;
    for (int i = 0; i < N && !stop; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] == 4)
            stop = 1; /* refused */
        out[i] = table[in[i] % SLOTS];
    }
}
//// out[] is written by one lookup and read by another
void f(void)
{
    for (int i = 0; i == 0 || out[i - 1] != 3; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS]; /* refused */
    }
}
//// exit inside the lookup
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] == 4)
            exit(1); /* refused */
        out[i] = 1;
    }
}
//// out[] is written at a place that is not the lookup's own
void f(void)
{
    for (int i = 0; i < N; i += 1 + (int)(in[i] & 1)) { /* refused */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS]; /* refused */
    }
}
//// a pointer to i, which the head of the batch loop steps, may change it
void f(void)
{
    int i, *at = &i; /* refused */
    for (i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
        if (out[i] & 1)
            (*at)++; /* refused */
    }
}
//// the lookup changes shared, which the head of the batch loop steps
static int shared;
static void skip(void)
{
    shared++; /* refused */
}
void f(void)
{
    for (shared = 0; shared < N; shared++) {
        g_expensive(&table[in[shared] % SLOTS]);
        out[shared] = table[in[shared] % SLOTS];
        if (out[shared] & 1)
            skip(); /* refused */
    }
}
//// ticket is declared outside the lookup and changed by it
#include <stdatomic.h>
static atomic_uint ticket;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + atomic_fetch_add(&ticket, 1); /* refused */
    }
}
//// owner is declared outside the lookup and changed by it
#include <stdatomic.h>
static atomic_uint owner;
void f(void)
{
    for (int i = 0; i < N; i++) {
        unsigned none = 0;
        g_expensive(&table[in[i] % SLOTS]);
        if (atomic_compare_exchange_strong(&owner, &none, table[in[i] % SLOTS])) /* refused */
            out[i] = 1;
    }
}
//// __atomic_thread_fence orders accesses of the lookup, which would change
#include <stdatomic.h>
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
        atomic_thread_fence(memory_order_release); /* refused */
    }
}
//// last is declared outside the lookup and changed by it
static _Atomic int last;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        last = (int)table[in[i] % SLOTS]; /* refused */
    }
}
//// a call through a pointer, whose function gopt cannot see
typedef void action(uint32_t);
void f(action *then)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        then(table[in[i] % SLOTS]); /* refused */
    }
}
//// find contains a marker and is called through a pointer
static uint32_t find(uint32_t key)
{
    g_expensive(&table[key % SLOTS]);
    return table[key % SLOTS];
}
void f(void)
{
    uint32_t (*how)(uint32_t) = find; /* refused */
    for (int i = 0; i < N; i++) {
        out[i] = how(in[i]); /* refused */
    }
}
//// recursion
static uint32_t odd(const node *n);
static uint32_t even(const node *n)
{
    g_expensive(n);
    return n ? n->value + odd(n->next) : 0; /* refused */
}
static uint32_t odd(const node *n)
{
    return n ? n->value * 2 + even(n->next) : 1; /* refused */
}
void f(void)
{
    for (int i = 0; i < N; i++) {
        out[i] = even(heads[in[i] % (SLOTS / 4)]);
    }
}
//// the order of accesses to device.port, which is volatile, would change
static struct {
    volatile uint32_t port;
} device;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        device.port = table[in[i] % SLOTS]; /* refused */
    }
}
//// the order of accesses to v, which is volatile, would change
void f(void)
{
    for (int i = 0; i < N; i++) {
        volatile uint32_t v = in[i]; /* refused */
        g_expensive(&table[v % SLOTS]);
        out[i] = table[v % SLOTS];
    }
}
//// most is declared outside the lookup and changed by it
void f(void)
{
    double most = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] / 3.0 > most)
            most = table[in[i] % SLOTS] / 3.0; /* refused */
    }
    out[0] = (uint32_t)most;
}
//// sum is declared outside the lookup and changed by it
void f(void)
{
    uint32_t sum = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        sum += table[in[i] % SLOTS] * 0.5; /* refused */
    }
    out[0] = sum;
}
//// last is declared outside the lookup and changed by it
static uint32_t last;
void f(void)
{
    foreach (i, N) {
        foreach (k, 3) {
            g_expensive(&table[(in[i] + (uint32_t)k) % SLOTS]);
            last = table[(in[i] + (uint32_t)k) % SLOTS]; /* refused */
        }
    }
}
//// sum is declared outside the lookup, changed by it and read by others
void f(void)
{
    uint32_t sum = 0;
    foreach (i, N) {
        g_expensive(&table[in[i] % SLOTS]);
        sum += table[in[i] % SLOTS]; /* refused */
        out[i] = sum;
    }
}
//// fprintf inside the lookup
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        fprintf(stderr, "%u", table[in[i] % SLOTS]); /* refused */
    }
}
//// gopt cannot see the function realloc
static uint32_t *grown;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        grown = realloc(grown, table[in[i] % SLOTS] % 9 + 1); /* refused */
    }
}
//// gopt cannot see the function qsort
static int by(const void *a, const void *b)
{
    return (*(const uint32_t *)a > *(const uint32_t *)b) - (*(const uint32_t *)a < *(const uint32_t *)b);
}
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
        qsort(out, N, sizeof out[0], by); /* refused */
    }
}
//// errno is written at a place that is not the lookup's own
#include <errno.h>
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        errno = table[in[i] % SLOTS] & 1 ? EINVAL : ERANGE; /* refused */
    }
}
//// list is declared outside the lookup and changed by it
#include <stdarg.h>
void f(int n, ...)
{
    va_list list;
    va_start(list, n);
    for (int i = 0; i < n; i++) {
        uint32_t key = va_arg(list, uint32_t); /* refused */
        g_expensive(&table[key % SLOTS]);
        out[i] = table[key % SLOTS];
    }
    va_end(list);
}
//// kept is declared outside the lookup and changed by it
static const uint32_t *kept;
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t own = in[i];
        g_expensive(&table[own % SLOTS]);
        own += table[own % SLOTS];
        kept = &own; /* refused */
        out[i] = *kept;
    }
}
//// the address of a marker has a side effect
static int calls;
static const uint32_t *place(uint32_t key)
{
    calls++; /* refused */
    return &table[key % SLOTS];
}
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(place(in[i])); /* refused */
        out[i] = table[in[i] % SLOTS];
    }
}
//// an array of arrays of variable length
void f(int width, int height)
{
    for (int i = 0; i < N; i++) {
        uint32_t grid[height][width]; /* refused */
        grid[1][2] = in[i];
        g_expensive(&table[grid[1][2] % SLOTS]);
        out[i] = table[grid[1][2] % SLOTS] + grid[1][2];
    }
}
//// every lookup writes to the same location bits.a
static struct {
    unsigned a : 3, b : 5;
} bits;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        bits.a = table[in[i] % SLOTS] & 7; /* refused */
    }
}
//// shared.a is written by one lookup and read by another
static union {
    uint32_t a;
    uint32_t b;
} shared;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        shared.a += table[in[i] % SLOTS]; /* refused */
        out[i] = shared.b; /* refused */
    }
}
//// tail is declared outside the lookup and changed by it
static uint32_t queue[4 * N], head, tail;
void f(void)
{
    for (; head < tail; head++) {
        uint32_t v = queue[head];
        g_expensive(&nodes[v % SLOTS]);
        if (nodes[v % SLOTS].hits == 0)
            queue[tail++] = nodes[v % SLOTS].value; /* refused */
    }
}
//// rates[] is written, and others may read it
static double rates[64];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        rates[in[i] & 63] *= 1.0 + table[in[i] % SLOTS]; /* refused */
    }
}
//// sum is declared outside the lookup, changed by it and read by others
void f(void)
{
    uint32_t sum = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (sum < 1000)
            sum += table[in[i] % SLOTS]; /* refused */
    }
    out[0] = sum;
}
//// sum is declared outside the lookup, changed by it and read by others
void f(void)
{
    uint32_t sum = 0;
    for (int i = 0; i < N && sum < 100000; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        sum += table[in[i] % SLOTS]; /* refused */
    }
    out[0] = sum;
}
//// n is declared outside the lookup and changed by it
void f(void)
{
    uint32_t n = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] & 1 ? ++n : 0; /* refused */
    }
}
//// b is declared outside the lookup and changed by it
void f(void)
{
    uint32_t a = 0, b = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        a += b += table[in[i] % SLOTS]; /* refused */
    }
    out[0] = a + b;
}
//// to is declared outside the lookup and changed by it
void f(void)
{
    uint32_t *to = out;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] & 1)
            *to++ = in[i]; /* refused */
    }
}
//// first is declared outside the lookup and changed by it
static node *first;
void f(void)
{
    for (int i = 0; i < N; i++) {
        node *n = &nodes[in[i] % SLOTS];
        g_expensive(n);
        n->next = first; /* refused */
        first = n; /* refused */
    }
}
//// level[] is written, and others may read it
static int level[SLOTS];
void f(void)
{
    for (int v = 0; v < N; v++) {
        g_expensive(&level[in[v] % SLOTS]);
        if (level[in[v] % SLOTS] < 0)
            level[in[v] % SLOTS] = level[v] + 1; /* refused */
    }
}
//// parent[] is written, and others may read it
static int parent[SLOTS];
void f(void)
{
    for (int i = 0; i < N; i++) {
        int v = (int)(in[i] % SLOTS);
        while (parent[v] != v) {
            g_expensive(&parent[v]);
            parent[v] = parent[parent[v]]; /* refused */
            v = parent[v];
        }
        out[i] = (uint32_t)v;
    }
}
//// buckets[].tokens is changed by lookups and read by others
static struct {
    uint32_t tokens;
} buckets[SLOTS];
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t h = in[i] % SLOTS;
        g_expensive(&buckets[h]);
        out[i] = buckets[h].tokens > 3;
        if (out[i])
            buckets[h].tokens -= 3; /* refused */
    }
}
//// the member hits of a record is written at a place that is not the lookup's own
void f(void)
{
    for (int i = 0; i < N; i++) {
        node *n = heads[in[i] % (SLOTS / 4)];
        g_expensive(n);
        if (n)
            n->hits = (uint32_t)i; /* refused */
    }
}
//// the member next of a record is written, and others may read it
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t h = in[i] % (SLOTS / 4);
        node *before = NULL, *n = heads[h];
        while (n && n->key != in[i]) {
            g_expensive(n);
            before = n;
            n = n->next;
        }
        if (n && before) {
            before->next = n->next; /* refused */
            n->next = heads[h]; /* refused */
            heads[h] = n; /* refused */
        }
    }
}
//// cache[] is written, and others may read it
static uint32_t cache[SLOTS];
static uint32_t cached(uint32_t h)
{
    g_expensive(&cache[h]);
    if (!cache[h])
        cache[h] = hash(h) | 1; /* refused */
    return cache[h];
}
void f(void)
{
    for (int i = 0; i < N; i++)
        out[i] = cached(in[i] % SLOTS);
}
//// text[] is written at a place that is not the lookup's own
static char text[64];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        strcpy(text, table[in[i] % SLOTS] & 1 ? "odd" : "even"); /* refused */
    }
}
//// text[] is written at a place that is not the lookup's own
static char text[64];
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        snprintf(text, sizeof text, "%u", table[in[i] % SLOTS]); /* refused */
    }
}
//// nrand48 inside the lookup
void f(void)
{
    unsigned short state[3] = {1, 2, 3};
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + (uint32_t)nrand48(state); /* refused */
    }
}
//// rand_r inside the lookup
void f(void)
{
    unsigned seed = 1;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + (uint32_t)rand_r(&seed); /* refused */
    }
}
//// state is declared outside the lookup and changed by it
static uint32_t state;
static uint32_t next(void)
{
    state = state * 1664525u + 1013904223u; /* refused */
    return state;
}
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + next();
    }
}
//// last[] is written at a place that is not the lookup's own
void f(void)
{
    uint32_t last[4] = {0};
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        last[in[i] & 3] = table[in[i] % SLOTS]; /* refused */
        out[i] = last[0];
    }
}
//// part[] is written at a place that is not the lookup's own
void f(void)
{
    uint32_t part[4] = {0};
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < (int)(in[i] & 3); k++) {
            part[k] = in[i] + (uint32_t)k; /* refused */
        }
        g_expensive(&table[part[0] % SLOTS]);
        out[i] = table[part[0] % SLOTS] + part[2];
    }
}
//// nodes[].value is written by one lookup and read by another
void f(void)
{
    for (int i = 0; i + 1 < N; i++) {
        node *n = &nodes[i] + 1;
        g_expensive(&nodes[i]);
        n->value = nodes[i].value + 1; /* refused */
    }
}
//// out[] is written at a place that is not the lookup's own
void f(void)
{
    for (int i = 0, k = N - 1; i < N; i++, k--) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS];
        out[k] ^= 1; /* refused */
    }
}
//// goto again leaves the batch loop, but later lookups may already have begun
void f(void)
{
    int i = 0;
again:
    for (; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] == 77) {
            in[i] = 3;
            goto again; /* refused */
        }
        out[i] = 1;
    }
}
//// return inside the batch loop, but later lookups may already have begun
#define CHECK(x) do { if (!(x)) return; } while (0)
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        CHECK(table[in[i] % SLOTS] != 7); /* refused */
        out[i] = 1;
    }
}
//// break ends the batch loop, but later lookups may already have begun
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        switch (table[in[i] % SLOTS] & 3) {
        case 0:
            break;
        case 1:
            out[i] = 3;
        }
        if (out[i])
            break; /* refused */
    }
}
//// a computed goto inside the lookup
void f(void)
{
    static const void *const targets[] = {&&even, &&odd};
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        goto *targets[table[in[i] % SLOTS] & 1]; /* refused */
    even:
        out[i] = 2;
        continue;
    odd:
        out[i] = 1;
    }
}
//// own has a cleanup function, which would run too early
static void release(uint32_t *p)
{
    out[0] += *p;
}
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t own __attribute__((cleanup(release))) = in[i]; /* refused */
        g_expensive(&table[own % SLOTS]);
        out[i] = table[own % SLOTS];
    }
}
//// a function inside a function
void f(void)
{
    uint32_t last = 0;
    for (int i = 0; i < N; i++) {
        uint32_t seen(uint32_t x) { uint32_t old = last; last = x; return old; } /* refused */
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = seen(table[in[i] % SLOTS]); /* refused */
    }
}
//// gopt cannot see the function pthread_mutex_lock
#include <pthread.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t total;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        pthread_mutex_lock(&lock); /* refused */
        total = total * 3 + table[in[i] % SLOTS]; /* refused */
        pthread_mutex_unlock(&lock); /* refused */
    }
}
//// last is declared outside the lookup and changed by it
#define P _Pragma("gopt independent")
void f(void)
{
    uint32_t last = 0;
    P
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = last;
        last = table[in[i] % SLOTS]; /* refused */
    }
}
//// table[] is changed by lookups and read by others
void f(void)
{
    for (int i = 0; i < N; i++) {
        uint32_t *place = &table[in[i] % SLOTS];
        g_expensive(place);
        *place ^= *place << 1; /* refused */
    }
}
//// text[] is written, and others may read it
void f(char *text)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        text[strlen(text)] = (char)table[in[i] % SLOTS]; /* refused */
    }
}
//// last is declared outside the lookup and changed by it
#define PUT(x, v) _Generic((x), uint32_t: (void)((x) = (v)), default: (void)0)
static uint32_t last;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        PUT(last, table[in[i] % SLOTS]); /* refused */
    }
}
//// last is declared outside the lookup and changed by it
static uint32_t last;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = ({ uint32_t old = last; last = table[in[i] % SLOTS]; old; }); /* refused */
    }
}
//// k is declared outside the lookup and changed by it
void f(int n)
{
    uint32_t k = 0;
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        out[i] = table[in[i] % SLOTS] + (uint32_t)sizeof(k++) + k++ * (in[i] & 1 ? k++ : 1); /* refused */
    }
    out[0] = (uint32_t)n;
}
//// u.word
static union {
    uint32_t word;
    uint8_t bytes[4];
} u;
void f(void)
{
    for (int i = 0; i < N; i++) {
        g_expensive(&table[in[i] % SLOTS]);
        if (table[in[i] % SLOTS] & 1) {
            u.word = 1; /* refused */
        } else {
            u.bytes[1] = 1; /* refused */
        }
    }
}
