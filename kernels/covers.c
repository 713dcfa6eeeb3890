/* Tells which kinds of processing have AVX-512 code. This function runs on every CPU, so the build
 * compiles this file without AVX-512. */
#include "dialect/dialect.h"
#include "ipsec/declared.h"
#include "ipsec/suite.h"
#include "ipsec/native/covers.h"

gw_u32 gw_native_avx512_covers(gw_u32 kernel, gw_u32 variant);

gw_u32 gw_native_avx512_covers(gw_u32 kernel, gw_u32 variant)
{
    return kernel == GW_IPSEC_NUMBER && gw_avx512_covers(variant);
}
