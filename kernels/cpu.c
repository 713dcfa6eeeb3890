/* All kernels for one level of the CPU; build.rs compiles this once per level. */
#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_cpu.h"
#include "ipv4/bulk.h"

#define GW_PASTE(name, level)  name##_##level
#define GW_EXPAND(name, level) GW_PASTE(name, level)
#define GW_SYMBOL(name)        GW_EXPAND(name, GW_LEVEL)

GW_FUNCTIONS(GW_BIN_LOOP)

void GW_SYMBOL(gw_run_bin)(gw_u32 kernel, const gw_bin_call *call);

/* Runs one bin; a kernel number that functions.h does not have changes nothing. */
void GW_SYMBOL(gw_run_bin)(gw_u32 kernel, const gw_bin_call *call)
{
    switch (kernel) {
        GW_FUNCTIONS(GW_BIN_CASE)
    default:
        break;
    }
}

void GW_SYMBOL(gw_ipv4_bulk)(const gw_u8 *image, gw_u32 variant, const gw_u32 *addresses,
                             gw_u32 *next_hops, gw_u64 count);

void GW_SYMBOL(gw_ipv4_bulk)(const gw_u8 *image, gw_u32 variant, const gw_u32 *addresses,
                             gw_u32 *next_hops, gw_u64 count)
{
    gw_ipv4_bulk(image, variant, addresses, next_hops, count);
}
