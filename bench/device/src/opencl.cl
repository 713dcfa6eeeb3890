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

/* Each work-item replaces its header with the result of a lookup, which is a chain of `depth`
 * dependent reads. */
__kernel void gw_lookups(__global const uint *table, uint mask, uint depth, __global uint *headers)
{
    const uint chain = (uint)get_global_id(0);
    uint index = headers[chain];
    for (uint step = 0; step < depth; step++) {
        index = table[index & mask] + step;
    }
    headers[chain] = index;
}
