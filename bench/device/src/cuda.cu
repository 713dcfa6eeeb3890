/* Kernels for measurements of a device. */

extern "C" __global__ void gw_nothing()
{
}

/* Each thread follows one chain. The compiler cannot remove the reads, because the last value is
 * stored. */
extern "C" __global__ void gw_random_reads(const unsigned *table, unsigned mask, unsigned steps,
                                           unsigned *last, unsigned chains)
{
    const unsigned chain = blockIdx.x * blockDim.x + threadIdx.x;
    if (chain >= chains) {
        return;
    }
    unsigned index = chain * 2654435761u;
    for (unsigned step = 0; step < steps; step++) {
        index = table[index & mask] + step;
    }
    last[chain] = index;
}

/* Each thread replaces its header with the result of a lookup, which is a chain of `depth`
 * dependent reads. */
extern "C" __global__ void gw_lookups(const unsigned *table, unsigned mask, unsigned depth,
                                      unsigned *headers, unsigned count)
{
    const unsigned chain = blockIdx.x * blockDim.x + threadIdx.x;
    if (chain >= count) {
        return;
    }
    unsigned index = headers[chain];
    for (unsigned step = 0; step < depth; step++) {
        index = table[index & mask] + step;
    }
    headers[chain] = index;
}

/*
 * Echoes each value of the host's word until the host writes 0xffffffff. The host writes word[0].
 * The device writes word[16], which is in another cache line.
 */
extern "C" __global__ void gw_answer(unsigned *word, unsigned rounds)
{
    for (unsigned round = 1; round <= rounds; round++) {
        unsigned seen;
        do {
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
        } while (seen != round && seen != 0xffffffffu);
        if (seen == 0xffffffffu) {
            return;
        }
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word + 16), "r"(round) : "memory");
    }
}
