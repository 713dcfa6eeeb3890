/* Kernels for measurements of a device. */

__kernel void gw_nothing(void)
{
}

/* Each work-item follows one chain. The compiler cannot remove the reads, because the last value is
 * stored. */
__kernel void gw_random_reads(__global const uint *table, uint mask, uint steps,
                              __global uint *last)
{
    const uint chain = (uint)get_global_id(0);
    uint index = chain * 2654435761u;
    for (uint step = 0; step < steps; step++) {
        index = table[index & mask] + step;
    }
    last[chain] = index;
}
