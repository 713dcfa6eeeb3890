/* Reports which bins the AVX-512 forms support. Compiled for any CPU, because any CPU calls it. */
#include "dialect/dialect.h"
#include "ipsec/suite.h"
#include "ipsec/native/covers.h"

gw_u32 gw_native_avx512_covers(gw_u32 kernel, gw_u32 variant);

gw_u32 gw_native_avx512_covers(gw_u32 kernel, gw_u32 variant)
{
    return kernel == GW_NATIVE_IPSEC && gw_avx512_covers(variant);
}
