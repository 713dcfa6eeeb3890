/* Kernels that use AVX2 and AES instructions. ipsec and hash process eight packets at a time. The
 * build compiles this file for several sets of CPU features. GW_NATIVE_FORM names the set. */
#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_cpu.h"
#include "ipsec/native/covers.h"
#include "ipsec/native/avx2_bin.h"
#include "hash/native/avx2.h"

#define GW_PASTE(name, form)  name##_##form
#define GW_EXPAND(name, form) GW_PASTE(name, form)
#define GW_SYMBOL(name)       GW_EXPAND(name, GW_NATIVE_FORM)

void GW_SYMBOL(gw_native)(gw_u32 kernel, const gw_bin_call *call);

/* Processes one packet batch with AVX2 code. Does nothing if the kernel or the variant has no AVX2
 * code. */
void GW_SYMBOL(gw_native)(gw_u32 kernel, const gw_bin_call *call)
{
    if (kernel == GW_IPSEC_NUMBER && gw_avx2_covers(call->variant)) {
        gw_avx2_bin(call);
    } else if (kernel == GW_HASH_NUMBER) {
        gw_hash_bin_8(call);
    }
}
