/* Bins by sixteen packets at once, for CPUs with AVX-512 and wide AES; build.rs compiles this once.
 */
#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_cpu.h"
#include "ipsec/native/covers.h"
#include "ipsec/native/wide_bin.h"

void gw_native_wide(gw_u32 kernel, const gw_bin_call *call);

/* What it does not cover changes nothing. */
void gw_native_wide(gw_u32 kernel, const gw_bin_call *call)
{
    if (kernel == GW_NATIVE_IPSEC && gw_wide_covers(call->variant)) {
        gw_wide_bin(call);
    }
}
