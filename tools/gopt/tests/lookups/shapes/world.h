typedef unsigned char uint8_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef int int32_t;
void *memset(void *, int, unsigned long);
long lrand48(void);
uint32_t hidden(const void *);
struct cell {
    uint32_t key, value;
    struct cell *next;
    uint32_t count;
    uint64_t sum;
};
struct pair {
    uint32_t a, b;
};
struct stats {
    uint32_t n;
    int32_t s;
    uint64_t by[8];
};
static uint32_t table[1024], sorted[1024], keys_[256], unique[256];
static struct cell cells[256];
static uint32_t out[256], out_2[256], results_[256], wide[256][4], flat[1024], hist[64], marks[256], order[256];
static int32_t sout[256], shist[64], stotal, file_index;
static struct pair pairs[256];
static struct stats stats;
static uint64_t total, total_2, total_3, atomic;
static uint32_t most, least, flag, last;
static volatile uint32_t port;
static double ratio;
static inline int limit(int n)
{
    return n < 0 ? 0 : n;
}
