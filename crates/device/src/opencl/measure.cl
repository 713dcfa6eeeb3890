/* Kernels that measure a device and nothing else. */

__kernel void gw_nothing(void) {}

/* Each work-item runs_chain one chain; what it read last keeps the compiler
 * from leaving it out. */
__kernel void gw_random_reads(__global const uint *table, uint mask, uint steps,
                              __global uint *last) {
  const uint chain = (uint)get_global_id(0);
  uint place = chain * 2654435761u;
  for (uint step = 0; step < steps; step++) {
    place = table[place & mask] + step;
  }
  last[chain] = place;
}
