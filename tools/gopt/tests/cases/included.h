/* Lookups in a header, as in a library of inline functions. */
#ifndef INCLUDED_H
#define INCLUDED_H

#define MISS(address) g_expensive(address)
#define FETCH(array, index) do { uint32_t place_ = (index); g_expensive(&(array)[place_]); } while (0)
#define for_each(i, n) for (int i = 0; i < (n); i++)
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define SKIP_IF(x) if (x) continue
#define max(a, b) ({ __typeof__(a) a_ = (a); __typeof__(b) b_ = (b); a_ > b_ ? a_ : b_; })

static unsigned included_total;
static inline uint32_t included_find(const uint32_t *slots, uint32_t key)
{
    MISS(&slots[key % SLOTS]);
    included_total += 2;
    return slots[key % SLOTS];
}
#endif
