/* Returns which variants the AVX-512 forms support. Every CPU calls this, so it has its own file,
 * which is compiled without AVX-512. */
#include "dialect/dialect.h"
#include "ipsec/declared.h"
#include "ipsec/suite.h"
#include "ipsec/native/covers.h"

gw_u32 gw_native_avx512_covers(gw_u32 kernel, gw_u32 variant);

gw_u32 gw_native_avx512_covers(gw_u32 kernel, gw_u32 variant)
{
    return kernel == GW_IPSEC_NUMBER && gw_avx512_covers(variant);
}
