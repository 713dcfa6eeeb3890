/* All kernels for one level of the CPU; build.rs compiles this once per level. */
#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_cpu.h"

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
