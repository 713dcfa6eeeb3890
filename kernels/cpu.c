/* All kernels, compiled for one x86-64 level. The build compiles this file once for each level. */
#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_cpu.h"
#include "ipv4/bulk.h"
#include "ipv6/bulk.h"
#include "l2/bulk.h"

#define GW_PASTE(name, level)  name##_##level
#define GW_EXPAND(name, level) GW_PASTE(name, level)
#define GW_SYMBOL(name)        GW_EXPAND(name, GW_LEVEL)

#include "dialect/loop_gopt.c"

void GW_SYMBOL(gw_run_bin)(gw_u32 kernel, const gw_bin_call *call);

/* Processes one packet batch with a kernel. Does nothing if the kernel number is unknown. */
void GW_SYMBOL(gw_run_bin)(gw_u32 kernel, const gw_bin_call *call)
{
    gw_run(kernel, call);
}

void GW_SYMBOL(gw_ipv4_bulk)(const gw_u8 *image, gw_u32 variant, const gw_u32 *addresses,
                             gw_u32 *next_hops, gw_u64 count, gw_u64 ahead);

void GW_SYMBOL(gw_ipv4_bulk)(const gw_u8 *image, gw_u32 variant, const gw_u32 *addresses,
                             gw_u32 *next_hops, gw_u64 count, gw_u64 ahead)
{
    gw_ipv4_bulk(image, variant, addresses, next_hops, count, ahead);
}

void GW_SYMBOL(gw_ipv6_bulk)(const gw_u8 *image, gw_u32 variant, const gw_u8 *addresses,
                             gw_u32 *next_hops, gw_u64 count);

void GW_SYMBOL(gw_ipv6_bulk)(const gw_u8 *image, gw_u32 variant, const gw_u8 *addresses,
                             gw_u32 *next_hops, gw_u64 count)
{
    gw_ipv6_bulk(image, variant, addresses, next_hops, count);
}

gw_u64 GW_SYMBOL(gw_probe)(const gw_u8 *image, gw_u64 lines, gw_u64 seed, gw_u32 rounds,
                           gw_u32 group);

/* Measures a table's memory latency with rounds * GW_PROBE_READS random cache line reads. If
 * `group` is 0, each read waits for the previous one. Otherwise, `group` independent lookups are
 * interleaved. */
gw_u64 GW_SYMBOL(gw_probe)(const gw_u8 *image, gw_u64 lines, gw_u64 seed, gw_u32 rounds,
                           gw_u32 group)
{
    if (group == 0) {
        return gw_probe_chain(image, lines, seed, rounds * GW_PROBE_READS);
    }
    return gw_probe_table(image, lines, seed, rounds, group);
}

void GW_SYMBOL(gw_l2_bulk)(const gw_u8 *image, const gw_u64 *keys, gw_u32 *ports, gw_u64 count);

void GW_SYMBOL(gw_l2_bulk)(const gw_u8 *image, const gw_u64 *keys, gw_u32 *ports, gw_u64 count)
{
    gw_l2_bulk(image, keys, ports, count);
}
