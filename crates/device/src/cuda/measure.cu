/* Kernels that measure a device and nothing else. */

extern "C" __global__ void gw_nothing() {}

/* Each thread runs_chain one chain; what it read last keeps the compiler from
 * leaving it out. */
extern "C" __global__ void gw_random_reads(const unsigned *table, unsigned mask,
                                           unsigned steps, unsigned *last,
                                           unsigned chains) {
  const unsigned chain = blockIdx.x * blockDim.x + threadIdx.x;
  if (chain >= chains) {
    return;
  }
  unsigned place = chain * 2654435761u;
  for (unsigned step = 0; step < steps; step++) {
    place = table[place & mask] + step;
  }
  last[chain] = place;
}

/*
 * Answers the host's word with the same word, until it is told to end: what a
 * mailbox costs. word[0] is the host's, word[16], in a line of its own, the
 * device's.
 */
extern "C" __global__ void gw_answer(unsigned *word, unsigned rounds) {
  for (unsigned round = 1; round <= rounds; round++) {
    unsigned seen;
    do {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                   : "=r"(seen)
                   : "l"(word)
                   : "memory");
    } while (seen != round && seen != 0xffffffffu);
    if (seen == 0xffffffffu) {
      return;
    }
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word + 16),
                 "r"(round)
                 : "memory");
  }
}
