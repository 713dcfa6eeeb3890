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
